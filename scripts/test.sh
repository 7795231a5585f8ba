#!/usr/bin/env bash
# Sets up, builds and runs the fast tests. Options go to ctest; --slow takes the long ones too.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh --tests
scripts/build.sh build-test -DVITRINE_TESTS=ON
select=(-LE slow)
if [ "${1:-}" = --slow ]; then select=(); shift; fi
exec ctest --test-dir build-test --output-on-failure "${select[@]}" "$@"
