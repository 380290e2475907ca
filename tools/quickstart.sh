#!/usr/bin/env bash
# From a fresh machine to a fine-tuned model: sets up, builds, gets a small real model, trains it and shows the result.
# Arguments are given to the job as overrides, for example: tools/quickstart.sh optim.lr=1e-4
set -euo pipefail
cd "$(dirname "$0")/.."
job=configs/sft_smollm2_quickstart.yaml
question="A baker makes 24 rolls and sells them in bags of 4. How many bags can she fill?"

tools/setup.sh
tools/build.sh release sluice sluice-controller sluice-worker sluice-engine
tools/fetch_model.sh smollm2-135m-instruct

echo
echo "== plan"
build/bin/sluice plan "$job" "$@"
echo
echo "== run"
build/bin/sluice run "$job" trainer.resume_mode=auto "$@"
echo
echo "== before: models/smollm2-135m-instruct"
build/bin/sluice generate models/smollm2-135m-instruct --prompt "$question" --max-new-tokens 120
echo
echo "== after: runs/quickstart/huggingface"
build/bin/sluice generate runs/quickstart/huggingface --prompt "$question" --max-new-tokens 120
