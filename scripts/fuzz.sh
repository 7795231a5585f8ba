#!/usr/bin/env bash
# Fuzzes the readers of foreign files under address and undefined-behaviour sanitizers; fails on any finding.
#   scripts/fuzz.sh [SECONDS for each, default 30]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-30}
build=${BUILD:-build-fuzz}
cmake -S . -B "$build" -G Ninja -DVITRINE_FUZZ=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
ninja -C "$build" kineto_fuzz pickle_fuzz nsys_fuzz
corpus=$(mktemp -d)
trap 'rm -rf "$corpus"' EXIT
python3 tests/fuzz/make_seeds.py "$corpus"
fuzz() {
  local kind=$1 size=$2 log=$corpus/$1.log
  if ! "$build/bin/${kind}_fuzz" -max_total_time="$seconds" -max_len="$size" -timeout=20 -rss_limit_mb=2048 \
    "-artifact_prefix=$build/" "$corpus/$kind" >"$log" 2>&1; then
    tail -40 "$log" >&2
    echo "error: ${kind}_fuzz has a finding; its input lies in $build/" >&2
    return 1
  fi
  echo "${kind}_fuzz: clean, $(grep -o 'Done.*' "$log")"
}
# Two at once: the machine that this is for has two cores.
fuzz kineto 8192 & first=$!
fuzz pickle 4096 & second=$!
failed=0
wait "$first" || failed=1
wait "$second" || failed=1
fuzz nsys 32768 || failed=1
exit "$failed"
