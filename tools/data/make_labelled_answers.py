"""Makes the single answers of configs/data/labelled_answers: short ones that are wanted and rambling ones that are not.

    python3 tools/data/make_labelled_answers.py [folder]           (default: configs/data/labelled_answers)
    python3 tools/data/make_labelled_answers.py --check [folder]   (exit code 1 where the files are not what it would write)

Writes train.jsonl and test.jsonl with rows {"prompt", "completion", "label"}: of each pair that make_preferences.py makes, one answer,
the chosen one, with label true, in every second row, else the rejected one, with label false. The seed is fixed and only the standard
library is used, so the files are the same bytes on every machine.
"""
import generated_rows
import make_preferences


def rows():
    for i, pair in enumerate(make_preferences.rows()):
        wanted = i % 2 == 0
        yield {"prompt": pair["prompt"], "completion": pair["chosen" if wanted else "rejected"], "label": wanted}


if __name__ == "__main__":
    generated_rows.main("tools/data/make_labelled_answers.py", rows(), make_preferences.TRAIN_ROWS, "configs/data/labelled_answers")
