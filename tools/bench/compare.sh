#!/usr/bin/env bash
# Our figures beside those of torch and transformers on this GPU: see tools/bench/compare.py, which gets all arguments.
#
#   SLUICE_PYTHON=...   Python with torch and transformers (.venv/bin/python, else python3)
#   SLUICE_BENCH=...    the program measured (build/bin/sluice-bench)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
python=${SLUICE_PYTHON:-$here/../../.venv/bin/python}
if [ ! -x "$python" ] && [ -z "${SLUICE_PYTHON:-}" ]; then python=python3; fi
exec "$python" "$here/compare.py" "$@"
