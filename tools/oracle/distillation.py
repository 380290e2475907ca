"""Golden values for kernels/distillation, in double precision with PyTorch's autograd.

    python tools/oracle/distillation.py tests/golden/distillation/heads.json

Written from the formulas in docs/algorithms.md, whole rows of probabilities and no derivative by hand: student and
teacher logits from their states and heads, the divergence from the two softmaxes, the gradient from autograd. Inputs
have four decimals and are read into singles on both sides. Development only; needs numpy and torch.
"""
import json
import sys

import numpy as np
import torch

torch.set_default_dtype(torch.float64)
TOKENS, HIDDEN, TEACHER_HIDDEN, VOCABULARY = 9, 7, 10, 23
SCORED = [0, 1, 3, 4, 7, 8]


def single(tensor):
    return torch.tensor(np.float32(np.round(tensor.numpy(), 4)).astype(np.float64))


def divergence(kind, top_k, student, teacher):
    """Of one position, from log-probabilities."""
    p, q = teacher.exp(), student.exp()
    if top_k:
        listed = torch.topk(p, top_k).indices
        others = torch.ones(len(p), dtype=torch.bool)
        others[listed] = False
        p = torch.cat([p[listed], p[others].sum().reshape(1)])
        q = torch.cat([q[listed], q[others].sum().reshape(1)])
    return (p * (p.log() - q.log())).sum() if kind == "forward_kl" else (q * (q.log() - p.log())).sum()


def main(path):
    generator = torch.Generator().manual_seed(11)

    def draw(*shape, scale=1.0):
        return single(torch.randn(*shape, generator=generator) * scale)

    hidden, weight = draw(TOKENS, HIDDEN), draw(VOCABULARY, HIDDEN, scale=0.5)
    teacher_hidden, teacher_weight = draw(TOKENS, TEACHER_HIDDEN), draw(VOCABULARY, TEACHER_HIDDEN, scale=0.5)
    labels = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    cases = []
    for kind in ("forward_kl", "reverse_kl"):
        for top_k in (0, 1, 5):
            for temperature, d_divergence, d_nll in ((1.0, 0.25, 0.0), (2.0, 0.5, 0.125), (0.5, 0.0, 1.0)):
                h, w = hidden.clone().requires_grad_(), weight.clone().requires_grad_()
                teacher = torch.log_softmax(teacher_hidden @ teacher_weight.T / temperature, -1)
                logits = h @ w.T
                values, log_probs = [], []
                for t in SCORED:
                    student = torch.log_softmax(logits[t] / temperature, -1)
                    values.append(temperature**2 * divergence(kind, top_k, student, teacher[t]))
                    log_probs.append(torch.log_softmax(logits[t], -1)[labels[t]])
                objective = d_divergence * sum(values) - d_nll * sum(log_probs)
                objective.backward()
                cases.append({
                    "divergence": kind, "top_k": top_k, "temperature": temperature, "d_divergence": d_divergence,
                    "d_nll": d_nll, "value": [round(v.item(), 9) for v in values],
                    "log_prob": [round(v.item(), 9) for v in log_probs],
                    "dhidden": [round(v, 9) for v in h.grad[SCORED].flatten().tolist()],
                    "dweight": [round(v, 9) for v in w.grad.flatten().tolist()]})
    rows = lambda tensor: [round(v, 4) for v in tensor.flatten().tolist()]
    with open(path, "w") as file:
        json.dump({"tokens": TOKENS, "hidden_size": HIDDEN, "teacher_hidden_size": TEACHER_HIDDEN,
                   "vocab_size": VOCABULARY, "scored": SCORED, "labels": labels.tolist(), "hidden": rows(hidden),
                   "weight": rows(weight), "teacher_hidden": rows(teacher_hidden),
                   "teacher_weight": rows(teacher_weight), "cases": cases}, file, separators=(",", ":"))
        file.write("\n")


main(sys.argv[1])
