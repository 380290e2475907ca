#!/usr/bin/env bash
# Builds everything with a CMake preset: tools/build.sh [release|debug|asan|tsan]. Binaries are in build/bin for `release`.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=${1:-release}
cmake --preset "$preset" >/dev/null
cmake --build --preset "$preset" --parallel "$(nproc)"
