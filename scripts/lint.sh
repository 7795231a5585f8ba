#!/bin/sh
# Checks formatting of every tracked C++ file, and with --tidy BASE runs clang-tidy on what changed since BASE.
#   scripts/lint.sh                 # clang-format only
#   scripts/lint.sh --tidy main     # and clang-tidy on .cpp files that differ from main (. = every one)
#   BUILD=build-debug scripts/lint.sh --tidy HEAD~1
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
base=
case "${1:-}" in
  '') ;;
  --tidy) base=${2:?"--tidy takes a git revision, or . for every file"} ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac

git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -r clang-format --dry-run -Werror
echo "clang-format: clean"
[ -n "$base" ] || exit 0

# clang-tidy reads how files are compiled from the build folder.
cmake -S . -B "$build" -G Ninja -DCMAKE_EXPORT_COMPILE_COMMANDS=ON >/dev/null
if [ "$base" = . ]; then
  files=$(git ls-files 'src/*.cpp' 'tests/*.cpp')
else
  files=$(git diff --name-only --diff-filter=d "$base" -- 'src/*.cpp' 'tests/*.cpp')
fi
[ -n "$files" ] || { echo "clang-tidy: nothing changed since $base"; exit 0; }
# GCC's own flags are unknown to clang: warnings about them are no finding.
echo "$files" | xargs -P "$(nproc)" -n 1 clang-tidy -p "$build" --quiet \
  --extra-arg=-Wno-unknown-warning-option --extra-arg=-Wno-ignored-optimization-argument
echo "clang-tidy: clean"
