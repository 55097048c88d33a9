"""Writes tasks.jsonl and validation.jsonl: wishes that one line of shell fulfils.

The held-out tasks say the same kinds of things about files, folders, words and numbers that no
training task knows.
"""

import json
import random

WORDS = "amber birch cedar delta ember fable grove heron ivory juniper kayak lemon maple".split()
TRAINING = {
    "files": "notes.txt report.txt data.csv config.json main.py app.log users.csv index.html "
    "test.py error.log todo.md setup.cfg".split(),
    "folders": "src docs backup images old build".split(),
    "endings": "txt csv py log md json".split(),
    "words": WORDS[:9],
    "numbers": [2, 3, 4, 6, 8, 9],
}
HELD_OUT = {
    "files": "readme.md events.log prices.csv server.py names.txt style.css orders.json "
    "draft.txt".split(),
    "folders": "archive assets lib tmp".split(),
    "endings": "html css yaml".split(),
    "words": WORDS[9:],
    "numbers": [5, 7],
}

# Phrases of a wish, and lines that fulfil it: the first is the reference.
KINDS = {
    "show": (["Show {file}.", "Print the contents of {file}."], ["cat {file}"]),
    "first": (
        ["Show the first {n} lines of {file}.", "Print the top {n} lines of {file}."],
        ["head -n {n} {file}"],
    ),
    "last": (
        ["Show the last {n} lines of {file}.", "Print the bottom {n} lines of {file}."],
        ["tail -n {n} {file}"],
    ),
    "lines": (
        ["Count the lines of {file}.", "How many lines does {file} have?"],
        ["wc -l {file}", "wc -l < {file}"],
    ),
    "words": (
        ["Count the words of {file}.", "How many words does {file} have?"],
        ["wc -w {file}", "wc -w < {file}"],
    ),
    "search": (
        ["Show the lines of {file} that contain {word}.", "Find {word} in {file}."],
        ["grep {word} {file}", "grep -n {word} {file}"],
    ),
    "sort": (
        ["Show the lines of {file} in alphabetical order.", "Sort the lines of {file}."],
        ["sort {file}"],
    ),
    "copy": (
        ["Copy {file} to {other}.", "Make a copy of {file} called {other}."],
        ["cp {file} {other}"],
    ),
    "move": (["Rename {file} to {other}.", "Change the name {file} to {other}."], ["mv {file} {other}"]),
    "into": (["Move {file} into {folder}.", "Put {file} into {folder}."], ["mv {file} {folder}"]),
    "delete": (["Delete {file}.", "Remove the file {file}."], ["rm {file}"]),
    "folder": (
        ["Make a folder called {new}.", "Create the directory {new}."],
        ["mkdir {new}"],
    ),
    "empty": (["Create an empty file called {other}.", "Make the empty file {other}."], ["touch {other}"]),
    "ending": (
        ["List the files that end in .{ending}.", "Show the names of all .{ending} files."],
        ["ls *.{ending}", "find . -name '*.{ending}'"],
    ),
    "write": (
        ["Write {word} into {other}.", "Make a file {other} that says {word}."],
        ["echo {word} > {other}"],
    ),
}


def task(kind, phrase, names, generator):
    file, second, other = generator.sample(names["files"], 3)
    folder, new = generator.sample(names["folders"], 2)
    word = generator.choice(names["words"])
    ending = generator.choice(names["endings"])
    values = dict(
        file=file, other=other, folder=folder, new=new, word=word, ending=ending,
        n=generator.choice(names["numbers"]),
    )  # fmt: skip
    # What is asked about differs from everything else in the workspace.
    lines = [" ".join(generator.sample(WORDS, generator.randint(2, 4))) for _ in range(12)]
    lines[generator.randrange(12)] += " " + word
    files = {
        file: "\n".join(lines) + "\n",
        second: "\n".join(generator.sample(WORDS, 5)) + "\n",
        f"one.{ending}": "one\n",
        f"two.{ending}": "two\n",
        f"{folder}/three.txt": "three\n",
    }
    wish = phrase.format(**values)
    answers = [line.format(**values) for line in KINDS[kind][1]]
    return wish, {
        "input": wish,
        "workspace": {"files": files},
        "grading": {"lines": answers},
        "references": {"terminal": answers[:1]},
    }


def tasks(names, per_phrase, generator):
    """As many tasks of each phrase, no wish twice, the kinds one after the other."""
    seen, chosen = set(), []
    for round in range(per_phrase):
        for kind, (phrases, _) in KINDS.items():
            for number, phrase in enumerate(phrases):
                wish, body = task(kind, phrase, names, generator)
                if wish not in seen:
                    seen.add(wish)
                    chosen.append({"id": f"{kind}-{number}-{round}", **body})
    return chosen


generator = random.Random(1)
for name, chosen in [
    ("tasks.jsonl", tasks(TRAINING, 12, generator)),
    ("validation.jsonl", tasks(HELD_OUT, 3, generator)),
]:
    with open(name, "w", encoding="utf-8") as out:
        for one in chosen:
            out.write(json.dumps(one) + "\n")
