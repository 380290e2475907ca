#!/usr/bin/env bash
# Sets up, builds and runs all tests. The last lines are ctest's summary. Arguments are given to ctest (for example -R tokenizer).
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh --dev
tools/fetch_model.sh smollm2-135m-instruct
tools/build.sh release
exec ctest --preset release --parallel 2 "$@"
