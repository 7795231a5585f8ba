#!/usr/bin/env bash
# Sets up, builds, and trains the tiny video world model with ZeRO-2 on two ranks for about a minute.
# Options go to `vitrine demo`, e.g. scripts/demo.sh --seconds 30
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
scripts/build.sh build -DVITRINE_TESTS=OFF -- vitrine
exec build/bin/vitrine demo "$@"
