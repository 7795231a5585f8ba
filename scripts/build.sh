#!/usr/bin/env bash
# Configures and builds; a second call builds only what has changed.
# VITRINE_CUDA_ARCHITECTURES in the environment ("80;90a;100") names the GPUs to build for; otherwise those of this
# machine, or 90a where it has none, since each costs minutes.
#   scripts/build.sh FOLDER [cmake options...] [-- targets...]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift
options=() targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
[ "${1:-}" = -- ] && { shift; targets=("$@"); }
here=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | tr -d . | sed 's/^90$/90a/' | sort -u | paste -sd ';' || true)
options+=("-DVITRINE_CUDA_ARCHITECTURES=${VITRINE_CUDA_ARCHITECTURES:-${here:-90a}}")
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" >"$folder.configure.log" 2>&1 ||
  { cat "$folder.configure.log" >&2; exit 1; }
rm -f "$folder.configure.log"
ninja -C "$folder" --quiet "${targets[@]}"
