#!/usr/bin/env bash
# A model trained for two steps and exported loads in transformers and gives the same logits, loss and gradients as our engine.
#
#   export_parity.sh BIN_FOLDER MODEL_DUMP
#
# Exit code 77 (skipped) where the small model or the oracle libraries are not there: tools/test.sh brings both.
set -euo pipefail
model=models/smollm2-135m-instruct
if [ ! -f "$model/config.json" ] || ! .venv/bin/python -c 'import transformers' 2>/dev/null; then
  echo "skipped: needs tools/fetch_model.sh smollm2-135m-instruct and tools/setup.sh --dev"
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$1/sluice" run configs/sft_smollm2_quickstart.yaml engine.device=cpu trainer.default_local_dir="$folder/run" \
  trainer.total_training_steps=2 optim.lr_warmup_steps=1 data.train_batch_size=2 data.val_files='[]' \
  checkpoint.export_dtype=fp32 trainer.resume_mode=disable
.venv/bin/python tools/oracle/compare_model.py --model "$folder/run/huggingface" --dump "$2" | grep -v '^grad\.'
answer=$("$1/sluice" generate "$model" -p 'What is the capital of France?' --device cpu --max-new-tokens 20)
if [ "$answer" != 'The capital of France is Paris.' ]; then
  echo "the small model answers: $answer"
  exit 1
fi
