#!/usr/bin/env bash
# Kernels under other vendors' names: compiled for AMD where hipcc is installed (Debian's package hipcc), and checked
# for MUSA against a stub of its names (any C++ compiler, launches taken out). Fails when code uses a CUDA name that src/gpu/vendor does not
# rename. Nothing is run: there is no such hardware behind this.
#   scripts/check_vendors.sh [hip|musa]...
set -uo pipefail
cd "$(dirname "$0")/.."
vendors=("$@")
[ $# -eq 0 ] && vendors=(hip musa)
scratch=$(mktemp -d)
log=$scratch/log
trap 'rm -rf "$scratch"' EXIT

# Libraries of one vendor (products of matrices, attention, collectives) and machine code stay behind their own
# interfaces; what uses them is not compiled here, and is named.
own='attention_mma\.cuh|copy_async\.cuh|cub/|cublas|cudnn|nccl|cufile|cupti|cuda_fp8|gpu/fp8\.cuh|__nv_fp8|asm volatile|asm\(|wgmma|cuda_bf16|nvrtc'
files=() apart=()
while read -r file; do
  if grep -Eiq "$own" "$file"; then apart+=("$file"); else files+=("$file"); fi
done < <(grep -lE '"(gpu/(runtime|vendor)\.h|[a-z_/]+\.cuh)"' $(git ls-files 'src/gpu/*.c*' 'src/ops/gpu/*.c*' 'src/optim/gpu/*.c*') |
  grep -E '\.(cu|cpp)$')

failed=0
compile() {  # vendor, file, command...
  local vendor=$1 file=$2
  shift 2
  if "$@" "$file" >"$log" 2>&1; then return; fi
  failed=$((failed + 1))
  echo "FAILED for $vendor: ${file#"$scratch"/}" >&2
  grep -E 'error|fatal' "$log" | head -10 >&2
}

for vendor in "${vendors[@]}"; do
  case $vendor in
    hip)
      command -v hipcc >/dev/null || { echo "hip: skipped, hipcc is not installed (apt-get install hipcc)"; continue; }
      for file in "${files[@]}"; do
        case $file in
          *.cu) compile hip "$file" hipcc -x hip -std=c++20 -O1 -Isrc -DVITRINE_GPU_HIP --offload-arch=gfx90a -w -c -o /dev/null ;;
          *) compile hip "$file" "${CXX:-g++}" -x c++ -std=c++20 -fsyntax-only -w -Isrc -DVITRINE_GPU_HIP -D__HIP_PLATFORM_AMD__ ;;
        esac
      done ;;
    musa)
      # Plain C++ once `<<<...>>>` is gone; lines keep their numbers.
      while read -r file; do
        mkdir -p "$scratch/$(dirname "$file")"
        perl -0pe 's/<<<(.*?)>>>/"\n" x ($1 =~ tr{\n}{})/ges' "$file" >"$scratch/$file"
      done < <(git ls-files 'src/gpu/*.cu*' 'src/ops/gpu/*.cu*' 'src/optim/gpu/*.cu*' "${files[@]}")
      for file in "${files[@]}"; do
        compile musa "$scratch/$file" "${CXX:-g++}" -x c++ -fsyntax-only -w -std=c++20 -DVITRINE_GPU_MUSA \
          -I"$scratch/src" -Isrc -Itests/gpu/musa_stub
      done ;;
    *) echo "error: unknown vendor '$vendor' (hip, musa)" >&2; exit 2 ;;
  esac
  echo "$vendor: ${#files[@]} files checked"
done
[ ${#apart[@]} -eq 0 ] || printf 'apart, of one vendor: %s\n' "${apart[@]}"
[ $failed -eq 0 ] || { echo "error: $failed files do not compile for another vendor: add the missing names to src/gpu/vendor/{hip,musa}.h" >&2; exit 1; }
