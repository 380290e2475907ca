#!/usr/bin/env bash
# Builds with a CMake preset: tools/build.sh [release|debug|asan|tsan] [TARGET...]. Without targets: everything, tests too. The
# programs of `release` are in build/bin.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
shift $(($# > 0 ? 1 : 0))
cmake --preset "$preset" >/dev/null
if [ $# -gt 0 ]; then
  exec cmake --build --preset "$preset" --parallel "$(nproc)" --target "$@"
fi
exec cmake --build --preset "$preset" --parallel "$(nproc)"
