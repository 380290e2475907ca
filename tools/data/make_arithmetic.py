"""Makes the prompts of configs/data/arithmetic: sums for a small model to learn from its reward.

    python3 tools/data/make_arithmetic.py [folder]           (default: configs/data/arithmetic)
    python3 tools/data/make_arithmetic.py --check [folder]   (exit code 1 where the files are not what it would write)

Writes train.jsonl and test.jsonl with rows {"data_source", "prompt", "reward_model", "extra_info"}. Two numbers are added or
subtracted, or two digits multiplied; results are not negative. The seed is fixed and only the standard library is used, so
the files are the same bytes on every machine. No sum of the test set is in the training set.
"""
import random

import generated_rows

SEED = 20260714
TRAIN_ROWS, TEST_ROWS = 800, 100
WORDINGS = ["What is {sum}? Answer with the number only.", "Compute {sum}. Reply with just the result.",
            "{sum} = ? Give only the number."]


def add(rng):
    a, b = rng.randint(1, 49), rng.randint(1, 49)
    return f"{a} + {b}", a + b


def subtract(rng):
    a, b = sorted((rng.randint(1, 60), rng.randint(1, 60)), reverse=True)
    return f"{a} - {b}", a - b


def multiply(rng):
    a, b = rng.randint(2, 9), rng.randint(2, 9)
    return f"{a} * {b}", a * b


# Of ten rows five are sums, four differences and one a product, of which there are only 64.
KINDS = [("add", add), ("subtract", subtract), ("add", add), ("subtract", subtract), ("add", add),
         ("multiply", multiply), ("add", add), ("subtract", subtract), ("add", add), ("subtract", subtract)]


def rows():
    rng = random.Random(SEED)
    sums = {}  # the text of each, to its kind and result
    while len(sums) < TRAIN_ROWS + TEST_ROWS:
        name, make = KINDS[len(sums) % len(KINDS)]
        wanted, result = make(rng)
        if name == "multiply" and sum("*" in other for other in sums) == 64:
            name, (wanted, result) = "add", add(rng)
        sums.setdefault(wanted, (name, result))
    order = list(sums)
    rng.shuffle(order)
    for index, wanted in enumerate(order):
        name, result = sums[wanted]
        yield {"data_source": "arithmetic", "prompt": [{"role": "user", "content": rng.choice(WORDINGS).format(sum=wanted)}],
               "ability": "math", "reward_model": {"style": "rule", "ground_truth": str(result)},
               "extra_info": {"split": "train" if index < TRAIN_ROWS else "test", "index": index, "kind": name}}


if __name__ == "__main__":
    generated_rows.main("tools/data/make_arithmetic.py", rows(), TRAIN_ROWS, "configs/data/arithmetic")
