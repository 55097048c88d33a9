"""Writes tasks.jsonl and validation.jsonl: every program of two steps, a fifth of them held out.

A task shows the agent a file `spec` with two words; which letters they stand for it must find out.
"""

import itertools
import json
import random

OPERATORS = {
    "inc": ("+", lambda x: x + 1),
    "neg": ("-", lambda x: -x),
    "dbl": ("*", lambda x: x * 2),
    "sqr": ("^", lambda x: x * x),
    "hlf": ("/", lambda x: x // 2),
}


def task(words, generator):
    numbers = [generator.randint(2, 40), -generator.randint(2, 40), generator.randint(41, 99)]
    values = []
    for number in numbers:
        row = []
        for word in words:
            number = OPERATORS[word][1](number)
            row.append(number)
        values.append(row)
    spec = " ".join(words)
    program = "".join(OPERATORS[word][0] for word in words)
    return {
        "id": "-".join(words),
        "input": "go",
        "workspace": {"files": {"spec": spec + "\n"}},
        "grading": {"spec": spec, "numbers": numbers, "values": values},
        "references": {"apprentice": ["r", "w" + program]},
    }


generator = random.Random(1)
pairs = list(itertools.product(OPERATORS, repeat=2))
# One pair of every first and every second word is held out, so that each word stays known.
shift = 2
words = list(OPERATORS)
held_out = {(word, words[(index + shift) % len(words)]) for index, word in enumerate(words)}
for name, chosen in [
    ("tasks.jsonl", [pair for pair in pairs if pair not in held_out]),
    ("validation.jsonl", sorted(held_out)),
]:
    with open(name, "w", encoding="utf-8") as file:
        for pair in chosen:
            file.write(json.dumps(task(pair, generator)) + "\n")
