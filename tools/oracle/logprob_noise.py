#!/usr/bin/env python3
"""How far two ways to compute a sampled token's log-probability in bf16 are apart, with transformers alone.

    tools/oracle/logprob_noise.py --model models/smollm2-135m-instruct --prompts configs/data/arithmetic/train.jsonl

Samples answers in fp32 at temperature 1 and scores them three times: in fp32, in bf16 with one forward over all tokens, and in bf16
token by token with a cache. Prints one JSON line of mean distances.
"""

import argparse
import json

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer


def whole(model, tokens, prompt):
    logits = model(tokens[None]).logits[0, prompt - 1 : -1].float()
    return logits.log_softmax(-1).gather(1, tokens[prompt:, None]).squeeze(1)


def token_by_token(model, tokens, prompt):
    step = model(tokens[None, :prompt], use_cache=True)
    scores = []
    for token in tokens[prompt:]:
        scores.append(step.logits[0, -1].float().log_softmax(-1)[token])
        step = model(token[None, None], past_key_values=step.past_key_values, use_cache=True)
    return torch.stack(scores)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompts", required=True)
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=24)
    args = parser.parse_args()
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    exact = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32).eval()
    rounded = AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.bfloat16).eval()
    from_exact, from_whole, probabilities = [], [], []
    with open(args.prompts, encoding="utf-8") as lines:
        rows = [json.loads(line) for line, _ in zip(lines, range(args.rows))]
    for row in rows:
        text = tokenizer.apply_chat_template(row["prompt"], tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, return_tensors="pt").input_ids
        answers = exact.generate(
            ids, do_sample=True, temperature=1.0, top_k=0, top_p=1.0, max_new_tokens=args.tokens, num_return_sequences=args.answers
        )
        for answer in answers:
            reference, once, cached = (
                score(model, answer, ids.shape[1]) for score, model in ((whole, exact), (whole, rounded), (token_by_token, rounded))
            )
            from_exact += (once - reference).abs().tolist()
            from_whole += (cached - once).abs().tolist()
            probabilities += (cached.exp() - once.exp()).abs().tolist()
    mean = lambda values: round(sum(values) / len(values), 5)
    print(json.dumps({"tokens": len(from_whole), "bf16_from_fp32": mean(from_exact), "bf16_two_ways": mean(from_whole),
                      "bf16_two_ways_probability": mean(probabilities)}))  # fmt: skip


if __name__ == "__main__":
    main()
