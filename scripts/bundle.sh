#!/usr/bin/env bash
# Packs a build so that it runs on a bare machine with the CUDA libraries: bin/ (wrappers that find lib/), lib/ (every
# shared object beyond glibc, libstdc++ and CUDA's own), and with --tests the tests labelled gpu in tests/.
#   scripts/bundle.sh [--tests] BUILD-FOLDER OUT.tar.xz
set -euo pipefail
cd "$(dirname "$0")/.."
tests=
[ "${1:-}" = --tests ] && { tests=1; shift; }
[ $# -eq 2 ] || { sed -n '2,4s/^# //p' "$0" >&2; exit 2; }
build=$1 out=$(realpath -m "$2")
limit_mib=64
[ -x "$build/bin/vitrine" ] || { echo "error: $build/bin/vitrine is not there; scripts/build.sh $build" >&2; exit 1; }
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
root=$stage/vitrine
mkdir -p "$root/bin" "$root/lib/bin"

# A program goes to lib/bin; what stands for it sets the library path, for the programs it starts too.
add_program() {  # program, folder of its wrapper
  strip -o "$root/lib/bin/$(basename "$1")" "$1"
  cat >"$root/$2/$(basename "$1")" <<'WRAPPER'
#!/bin/sh
here=$(cd "$(dirname "$(readlink -f "$0")")/.." && pwd)
cuda=${CUDA_HOME:-/usr/local/cuda}
export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$here/lib:$cuda/lib64"
export VITRINE_BIN="${VITRINE_BIN:-$here/bin/vitrine}"
exec "$here/lib/bin/$(basename "$0")" "$@"
WRAPPER
  chmod +x "$root/$2/$(basename "$1")"
}

programs=("$build/bin/vitrine")
add_program "$build/bin/vitrine" bin
if [ -n "$tests" ]; then
  mkdir -p "$root/tests"
  mapfile -t names < <(ctest --test-dir "$build" -N -L '^gpu$' | sed -n 's/^ *Test *#[0-9]*: //p')
  [ ${#names[@]} -gt 0 ] || { echo "error: $build has no tests labelled gpu" >&2; exit 1; }
  for name in "${names[@]}"; do
    [ -x "$build/bin/$name" ] || { echo "error: $build/bin/$name is not built; scripts/build.sh $build" >&2; exit 1; }
    programs+=("$build/bin/$name")
    add_program "$build/bin/$name" tests
  done
fi

system='^(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s))\.so'
cuda='^lib(cuda|cudart|cublas|cublasLt|cudnn[a-z_]*|nccl|cupti|cufile|nvrtc[a-z-]*|nvJitLink|nvidia-[a-z]*)\.so'
# Large encoders, renderers and tables that FFmpeg is linked with and this program never calls: empty stand-ins under their
# names keep the bundle small, and end the program with a message should one be called after all.
unused='^lib(codec2|x265|rsvg-2|SvtAv1Enc|rav1e|openmpt|xvidcore|zvbi|chromaprint|bluray|rabbitmq|icudata)\.so'

missing=$(ldd "${programs[@]}" | awk '/not found/ {print $1}' | grep -Ev "$cuda" | sort -u || true)
[ -z "$missing" ] || { echo "error: not found: $missing" >&2; exit 1; }
declare -A path_of=() done_with=()
while read -r name path; do path_of[$name]=$path; done < <(
  ldd "${programs[@]}" | awk '$2 == "=>" && $3 ~ /^\// {print $1, $3}' | sort -u)
queue=("${programs[@]}") stand_ins=()
while [ ${#queue[@]} -gt 0 ]; do
  needed=$(objdump -p "${queue[@]}" | awk '$1 == "NEEDED" {print $2}' | sort -u)
  queue=()
  for name in $needed; do
    [ -z "${done_with[$name]:-}" ] || continue
    done_with[$name]=1
    if [[ $name =~ $system || $name =~ $cuda ]]; then continue; fi
    if [[ $name =~ $unused ]]; then stand_ins+=("$name"); continue; fi
    strip --strip-unneeded -o "$root/lib/$name" "${path_of[$name]}"
    queue+=("${path_of[$name]}")
  done
done
nm -D --undefined-only "$root"/lib/*.so* "${programs[@]}" | sed -n 's/^ *[UwWvV] \([^@]*\).*/\1/p' | sort -u >"$stage/wanted"
for name in "${stand_ins[@]}"; do
  {
    echo '#include <stdio.h>'
    echo '#include <stdlib.h>'
    echo "static void absent(void) { fputs(\"$name is not part of this bundle\\n\", stderr); abort(); }"
    nm -D --defined-only "${path_of[$name]}" | awk '{sub(/@.*/, "", $3); print $3, $2}' | sort -u | join "$stage/wanted" - |
      awk '!seen[$1]++ {print $2 ~ /[TtWi]/ ? "void " $1 "(void) { absent(); }" : "char " $1 "[4096];"}'
  } >"$stage/stand_in.c"
  ${CC:-gcc} -w -fno-builtin -shared -fPIC -Wl,-soname,"$name" -o "$root/lib/$name" "$stage/stand_in.c"
done

cp scripts/gpu_test.sh "$root/"
mkdir -p "$(dirname "$out")"
# Tests hold the same GPU code as the program: a dictionary larger than one of them.
compress=(xz -T0 -3)
[ -z "$tests" ] || compress=(xz --lzma2=preset=1,dict=128MiB)
tar -C "$stage" --owner=0 --group=0 --sort=name -cf - vitrine | "${compress[@]}" >"$out"
bytes=$(stat -c %s "$out")
echo "$out: $((bytes / 1024 / 1024)) MiB, ${#programs[@]} programs, $(find "$root/lib" -maxdepth 1 -name '*.so*' | wc -l) libraries"
[ "$bytes" -le $((limit_mib * 1024 * 1024)) ] || { echo "error: more than $limit_mib MiB" >&2; exit 1; }
