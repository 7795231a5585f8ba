#!/usr/bin/env bash
# Everything that needs a GPU: the tests labelled gpu, `vitrine doctor gpu`, `vitrine bench ops --device gpu`. Builds
# here with the CUDA toolkit (for this machine's architecture), or takes an unpacked bundle (scripts/bundle.sh). A
# table of results comes last; logs are kept in LOG-FOLDER. Fails when a test does.
#   scripts/gpu_test.sh [--bundle FOLDER] [--build FOLDER] [--logs LOG-FOLDER] [--no-bench] [--sanitize SHARDS]
# --sanitize runs the tests of operations again under compute-sanitizer's memcheck and racecheck, so many processes at once.
set -uo pipefail
bundle='' build=build-gpu logs=gpu_test_logs bench=1 shards=0
while [ $# -gt 0 ]; do
  case $1 in
    --bundle) bundle=$(realpath "$2"); shift 2 ;;
    --build) build=$2; shift 2 ;;
    --logs) logs=$2; shift 2 ;;
    --no-bench) bench=; shift ;;
    --sanitize) shards=$2; shift 2 ;;
    *) sed -n '2,6s/^# //p' "$0" >&2; exit 2 ;;
  esac
done
mkdir -p "$logs"
logs=$(realpath "$logs")

if [ -n "$bundle" ]; then
  vitrine=$bundle/bin/vitrine
  mapfile -t tests < <(find "$bundle/tests" -type f -perm -u+x | sort)
else
  cd "$(dirname "$0")/.."
  scripts/build.sh "$build" -DVITRINE_TESTS=ON -DVITRINE_CUDA=ON || exit 1
  vitrine=$build/bin/vitrine
  mapfile -t tests < <(ctest --test-dir "$build" -N -L '^gpu$' | sed -n "s|^ *Test *#[0-9]*: |$build/bin/|p")
fi
[ ${#tests[@]} -gt 0 ] || { echo "error: no tests labelled gpu" >&2; exit 1; }
export VITRINE_BIN=${VITRINE_BIN:-$vitrine} OMP_WAIT_POLICY=passive

# Counts of GoogleTest's own last lines; a crash shows as a failure.
rows=() failures=0
for test in "${tests[@]}"; do
  name=$(basename "$test") log=$logs/$(basename "$test").log
  timeout "${VITRINE_TEST_TIMEOUT:-600}" "$test" --gtest_brief=1 >"$log" 2>&1
  code=$?
  count() { sed -n "s/^\[ *$1 *\] \([0-9]*\) tests*.*/\1/p" "$log" | tail -1; }
  passed=$(count PASSED) skipped=$(count SKIPPED) failed=$(count FAILED)
  [ $code -ne 0 ] && [ -z "$failed" ] && failed="exit $code"
  [ $code -eq 0 ] || { failures=$((failures + 1)); grep -E '^\[  FAILED  \]|Failure|error' "$log" | head -20; tail -5 "$log"; }
  rows+=("$(printf '%-28s %8s %8s %8s' "$name" "${passed:-0}" "${failed:-0}" "${skipped:-0}")")
done

extra() {  # name, command...
  local name=$1
  shift
  "$@" >"$logs/$name.log" 2>&1
  local code=$?
  cat "$logs/$name.log"
  [ $code -eq 0 ] || { failures=$((failures + 1)); rows+=("$(printf '%-28s %8s %8s %8s' "$name" 0 "exit $code" 0)"); }
}
extra doctor "$vitrine" doctor gpu
[ -z "$bench" ] || extra bench "$vitrine" bench ops --device gpu

# Whether all errors of a log are races within cuDNN's and cuBLASLt's kernels; says how many.
others_alone() {
  local races
  races=$(grep -cE 'Error: Race reported between [A-Za-z]+ access at (cudnn|nvjet|cublas)' "$1")
  [ "$races" -eq "$(grep -c 'Error: ' "$1")" ] && [ "$races" -gt 0 ] || return 1
  echo "$(basename "$1" .log): $races races within cuDNN's and cuBLASLt's kernels, none in others"
}

# A test's program itself: the sanitizer does not follow a bundle's wrapper.
sanitize() {  # tool, test
  local tool=$1 name shard code bad=0 program=$2 pids=()
  name=$(basename "$2")
  [ -z "$bundle" ] || program=$bundle/lib/bin/$name
  for shard in $(seq 0 $((shards - 1))); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$shard timeout "${VITRINE_TEST_TIMEOUT:-600}" \
      compute-sanitizer --tool "$tool" --error-exitcode 9 --print-limit 10000 "$program" --gtest_brief=1 >"$logs/$name.$tool.$shard.log" 2>&1 &
    pids+=($!)
  done
  for shard in "${!pids[@]}"; do
    wait "${pids[$shard]}"
    code=$?
    if [ $code -eq 9 ] && others_alone "$logs/$name.$tool.$shard.log"; then code=0; fi
    [ $code -eq 0 ] || { bad=$((bad + 1)); echo "$name, $tool, shard $shard: exit $code"; tail -6 "$logs/$name.$tool.$shard.log"; }
  done
  [ $bad -eq 0 ] || failures=$((failures + 1))
  rows+=("$(printf '%-28s %8s %8s %8s' "$name $tool" $((shards - bad)) $bad 0)")
}
if [ "$shards" -gt 0 ]; then
  command -v compute-sanitizer >/dev/null || { echo "error: compute-sanitizer is not on the PATH; it is part of the CUDA toolkit" >&2; exit 1; }
  [ -z "$bundle" ] || export LD_LIBRARY_PATH="$bundle/lib:${CUDA_HOME:-/usr/local/cuda}/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
  for tool in memcheck racecheck; do
    for test in "${tests[@]}"; do
      case $(basename "$test") in ops_gpu_* | optim_gpu_*) sanitize $tool "$test" ;; esac
    done
  done
fi

printf '\n%-28s %8s %8s %8s\n' test passed failed skipped
printf '%s\n' "${rows[@]}"
exit $((failures > 0))
