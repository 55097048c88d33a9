"""Writes tasks.jsonl and validation.jsonl: every program of three steps, a fifth of them held out.

A task shows the agent a file `spec` with three words; which letters they stand for it must find out.
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
words = list(OPERATORS)
tasks, validation = [], []
for numbers in itertools.product(range(len(words)), repeat=3):
    # Whatever two words are given, one of five third ones is held out: each word stays known in
    # each place.
    first, second, third = numbers
    chosen = validation if (first + 2 * second + 3 * third) % 5 == 0 else tasks
    chosen.append(task([words[number] for number in numbers], generator))
for name, chosen in [("tasks.jsonl", tasks), ("validation.jsonl", validation)]:
    with open(name, "w", encoding="utf-8") as file:
        for one in chosen:
            file.write(json.dumps(one) + "\n")
