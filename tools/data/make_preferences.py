"""Makes the pairs of configs/data/preferences: short answers that are better than rambling ones.

    python3 tools/data/make_preferences.py [folder]           (default: configs/data/preferences)
    python3 tools/data/make_preferences.py --check [folder]   (exit code 1 where the files are not what it would write)

Writes train.jsonl and test.jsonl with rows {"prompt", "chosen", "rejected"}, each a list of messages. The prompt asks for a
sum; the chosen answer states the result in a sentence, the rejected one hesitates or chatters, and is wrong in a third of the
rows. The seed is fixed and only the standard library is used, so the files are the same bytes on every machine. No sum of the
test set is in the training set.
"""
import random

import generated_rows

SEED = 20260811
TRAIN_ROWS, TEST_ROWS = 600, 100
QUESTIONS = ["What is {a} + {b}?", "Add {a} and {b}.", "How much is {a} plus {b}?", "I have {a} and get {b} more. What do I have?"]
CHOSEN = ["The answer is {n}.", "It is {n}.", "{a} + {b} = {n}."]
REJECTED = ["Hmm, let me think about that. It could be {n}, but I am not sure at all.",
            "What a wonderful question! Numbers are so interesting. Anyway, I would guess {n} or so.",
            "As an assistant I cannot be certain, but many people would probably say {n}. Please check it yourself.",
            "Maybe {n}? Sums like {a} and {b} are hard, and there is a lot to say about them."]


def rows():
    rng = random.Random(SEED)
    sums = [(a, b) for a in range(1, 60) for b in range(1, 60)]
    for a, b in rng.sample(sums, TRAIN_ROWS + TEST_ROWS):
        wrong = a + b + rng.choice([-10, -2, -1, 1, 2, 10])
        said = wrong if rng.random() < 1 / 3 else a + b
        turn = lambda role, text: [{"role": role, "content": text}]
        yield {"prompt": turn("user", rng.choice(QUESTIONS).format(a=a, b=b)),
               "chosen": turn("assistant", rng.choice(CHOSEN).format(a=a, b=b, n=a + b)),
               "rejected": turn("assistant", rng.choice(REJECTED).format(a=a, b=b, n=said))}


if __name__ == "__main__":
    generated_rows.main("tools/data/make_preferences.py", rows(), TRAIN_ROWS, "configs/data/preferences")
