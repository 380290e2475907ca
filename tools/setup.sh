#!/usr/bin/env bash
# Installs what the build needs: system packages with apt (Debian 12, Ubuntu 24.04) and a project-local Python environment in .venv
# that brings LibTorch, Arrow and nvcc as wheels. Safe to run again: what is there already is left alone.
#
#   tools/setup.sh          what building and running need
#   tools/setup.sh --dev    and the libraries that tests compare with
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(
  g++ cmake ninja-build ccache mold pkg-config python3 python3-venv git ca-certificates
  libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libabsl-dev
  libspdlog-dev prometheus-cpp-dev libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
  libsqlite3-dev libpcre2-dev libutf8proc-dev zlib1g-dev
  libgtest-dev libgmock-dev libbenchmark-dev
)
missing=()
for package in "${packages[@]}"; do
  if [ "$(dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | cut -c1-2)" != ii ]; then
    missing+=("$package")
  fi
done
if [ ${#missing[@]} -gt 0 ]; then
  as_root=()
  if [ "$(id -u)" != 0 ]; then as_root=(sudo); fi
  echo "setup: installing ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ ! -x .venv/bin/python ]; then
  python3 -m venv .venv
fi

# A requirements file is installed again only when it changed since it was last installed here.
install() {
  local file=$1
  shift
  local stamp
  stamp=.venv/$(basename "$file").installed
  if ! cmp -s "$file" "$stamp"; then
    echo "setup: installing $file"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@" -r "$file"
    cp "$file" "$stamp"
  fi
}
install tools/python/requirements.txt
install tools/python/requirements-headers.txt --no-deps
if [ "${1:-}" = --dev ]; then
  install tools/python/requirements-dev.txt
fi
echo "setup: done"
