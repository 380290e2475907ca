"""Goldens of the answer rules, by Python's `re` from the rules as they are published.

    python3 tools/oracle/reward_rules.py tests/golden/reward

gsm8k: verl's rule for openai/gsm8k (Cobbe et al. 2021). math_dapo: the Minerva answer (Lewkowycz et al. 2022, appendix
D.1, listing 1) as DAPO uses it (Yu et al. 2025). Writes gsm8k.json and math_dapo.json: hand-made cases, then texts put
together at random from the pieces that the rules look at.
"""
import json
import os
import random
import re
import sys

SEED = 20260711


def gsm8k(text, method):
    tail = text[-300:]
    if method == "strict":
        found = re.findall(r"#### (\-?[0-9\.\,]+)", tail)
        return found[-1].replace(",", "").replace("$", "") if found else None
    found = re.findall(r"(\-?[0-9\.\,]+)", tail)
    useful = [number for number in found if number not in ("", ".")]
    return useful[-1] if useful else (found[0] if found else None)


SUBSTITUTIONS = [("an ", ""), ("a ", ""), (".$", "$"), ("\\$", ""), (r"\ ", ""), (" ", ""), ("mbox", "text"), (",\\text{and}", ","),
                 ("\\text{and}", ","), ("\\text{m}", "\\text{}")]
REMOVED = ["square", "ways", "integers", "dollars", "mph", "inches", "hours", "km", "units", "\\ldots", "sue", "points", "feet",
           "minutes", "digits", "cents", "degrees", "cm", "gm", "pounds", "meters", "meals", "edges", "students", "childrentickets",
           "multiples", "\\text{s}", "\\text{.}", "\\text{\ns}", "\\text{}^2", "\\text{}^3", "\\text{\n}", "\\text{}", r"\mathrm{th}",
           r"^\circ", r"^{\circ}", r"\;", r",\!", "{,}", '"', "\\dots"]


def minerva(answer):
    answer = answer.split("=")[-1]
    for before, after in SUBSTITUTIONS:
        answer = answer.replace(before, after)
    for expression in REMOVED:
        answer = answer.replace(expression, "")
    answer = re.sub(r"(.*?)(\$)(.*?)(\$)(.*)", "\\3", answer)
    answer = re.sub(r"(\\text\{)(.*?)(\})", "\\2", answer)
    answer = re.sub(r"(\\textbf\{)(.*?)(\})", "\\2", answer)
    answer = re.sub(r"(\\overline\{)(.*?)(\})", "\\2", answer)
    answer = re.sub(r"(\\boxed\{)(.*)(\})", "\\2", answer)
    answer = re.sub(r"(frac)([^{])(.)", "frac{\\2}{\\3}", answer)
    answer = re.sub(r"(sqrt)([^{])", "sqrt{\\2}", answer)
    answer = answer.replace("$", "")
    if answer.replace(",", "").isdigit():
        answer = answer.replace(",", "")
    return answer.strip()


def dapo_answer(text):
    found = re.findall(r"(?i)Answer\s*:\s*([^\n]+)", text[-300:])
    return found[-1] if found else "[INVALID]"


def texts(rng, pieces, count, longest):
    return ["".join(rng.choice(pieces) for _ in range(rng.randint(0, longest))) for _ in range(count)]


def main():
    folder = sys.argv[1]
    rng = random.Random(SEED)
    hand = ["", "18", "#### 18", "#### 1,234", "#### -5 and #### 7", "##### 3", "#### $18", "####18", "#### .", "...", "5-3", "-", "a #### 3.50.",
            "The answer is 18.", "#### 1 " + "x" * 300, "é" * 299 + "7", "7" + "é" * 300, "#### 12" + "ü" * 293, "#### 12" + "ü" * 294]
    pieces = ["#### ", "#", " ", "-", "1", "23", ".", ",", "$", "x", "\n", "é", "####"]
    rows = [{"text": text, "strict": gsm8k(text, "strict"), "flexible": gsm8k(text, "flexible")}
            for text in hand + texts(rng, pieces, 300, 12)]
    write(folder, "gsm8k.json", rows)

    hand = ["", "Answer: 5", "answer : $\\frac12$", "ANSWER:\n\n 7\nmore", "Answer: 1\nAnswer: x = 2", "Answer: Answer: 3", "no", "Answer:",
            "Answer: \\boxed{12{,}345}", "Answer: 1,234 dollars", "Answer: 3 \\text{ cm}", "Answer: an \\sqrt3", "Answer: $x$ or $y$",
            "Answer: \\text{A} and \\overline{BC}", "Answer: 9" + " " * 300]
    pieces = ["Answer", ":", "answer: ", " ", "\n", "=", "$", "\\boxed{", "}", "{", "\\text{", "frac", "sqrt", "12", ",", "3", "a ", "km", "^\\circ"]
    rows = [{"text": text, "answer": dapo_answer(text), "normalized": minerva(dapo_answer(text))}
            for text in hand + texts(rng, pieces, 500, 14)]
    pieces = ["=", "$", "\\boxed{", "}", "{", "\\text{", "\\textbf{", "\\overline{", "\\frac", "\\sqrt", "1", "2,", "x", " ", "an ", "square", "mbox", "{,}"]
    rows += [{"text": "Answer: z" + text, "answer": "z" + text, "normalized": minerva("z" + text)} for text in texts(rng, pieces, 500, 9)]
    write(folder, "math_dapo.json", rows)


def write(folder, name, rows):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


if __name__ == "__main__":
    main()
