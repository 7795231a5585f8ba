#!/usr/bin/env bash
# Installs what building and testing need from Debian's packages; does nothing when all is there.
#   scripts/setup.sh [--tests]
set -euo pipefail
packages=(g++ cmake ninja-build ccache pkg-config git
  nlohmann-json3-dev libcli11-dev libdnnl-dev libgloo-dev libssl-dev zlib1g-dev libsqlite3-dev libisal-dev
  libavformat-dev libavcodec-dev libavutil-dev libswscale-dev libpng-dev libgif-dev
  libcpp-httplib-dev)
if [ "${1:-}" = --tests ]; then
  packages+=(libgtest-dev python3 iproute2 clang clang-format clang-tidy libclang-rt-dev)
  # For the report's page; Node.js may have come from elsewhere than Debian.
  command -v chromium >/dev/null || packages+=(chromium)
  command -v node >/dev/null || packages+=(nodejs)
  command -v npm >/dev/null || packages+=(npm)
fi
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q '^install ok installed$' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "error: these packages are missing and only root can install them: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
"${as_root[@]}" apt-get update -q
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
