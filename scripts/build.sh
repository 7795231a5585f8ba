#!/usr/bin/env bash
# Configures and builds; a second call builds only what has changed.
# VITRINE_CUDA_ARCHITECTURES in the environment ("90a", "80;90a") names the GPUs to build for.
#   scripts/build.sh FOLDER [cmake options...] [-- targets...]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
shift
options=() targets=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do options+=("$1"); shift; done
[ "${1:-}" = -- ] && { shift; targets=("$@"); }
[ -z "${VITRINE_CUDA_ARCHITECTURES:-}" ] || options+=("-DVITRINE_CUDA_ARCHITECTURES=$VITRINE_CUDA_ARCHITECTURES")
cmake -S . -B "$folder" -G Ninja -DCMAKE_BUILD_TYPE=Release "${options[@]}" >"$folder.configure.log" 2>&1 ||
  { cat "$folder.configure.log" >&2; exit 1; }
rm -f "$folder.configure.log"
ninja -C "$folder" --quiet "${targets[@]}"
