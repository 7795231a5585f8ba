#!/usr/bin/env bash
# Bundles the report's page from web/ to web/dist, which is committed: a build of Vitrine needs no node.
#   scripts/build_page.sh          # npm ci, bundle
#   scripts/build_page.sh --check  # and fail when web/dist is not what the bundle gives
set -euo pipefail
cd "$(dirname "$0")/../web"
out=dist
if [ "${1:-}" = --check ]; then
  out=$(mktemp -d)
  trap 'rm -rf "$out"' EXIT
fi
command -v npm >/dev/null || { echo "error: npm is missing: scripts/setup.sh --tests installs it" >&2; exit 1; }
npm ci --silent --no-audit --no-fund
node_modules/.bin/tsc -p jsconfig.json
# The page keeps the licence of what is bundled.
licence="/*! uPlot: $(tr '\n' ' ' <node_modules/uplot/LICENSE) */"
node_modules/.bin/esbuild report.js --bundle --format=iife --target=es2021 --minify-whitespace --charset=utf8 \
  --log-level=warning "--banner:js=$licence" --outfile="$out/report.js"
if grep -qi '</script' "$out/report.js"; then echo "error: the bundle holds </script" >&2; exit 1; fi
if [ "$out" != dist ]; then
  diff -rq dist "$out" || { echo "error: web/dist is not what web/ gives: run scripts/build_page.sh and commit it" >&2; exit 1; }
  echo "web/dist: as built from web/"
fi
