"""Makes the folder tokenizers (three small ones, in the forms in which Qwen, Llama 3 and SmolLM2
come) and tokenizers.json: what the library `tokenizers` makes of texts and conversations.

Usage: make_tokenizers.py [FOLDER OUTPUT]. Needs: pip install transformers tokenizers jinja2 (made
with 5.24, 0.23, 3.1.6). With arguments it makes no tokenizers, but takes the subfolders of FOLDER;
the test `real_tokenizers_give_the_ids_of_the_reference` compares those.

The vocabularies are learnt from the few sentences below.
"""

import json
import pathlib
import sys

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

import make_chat

HERE = pathlib.Path(__file__).parent
LEARN = """The quick brown fox jumps over the lazy dog, and then it doesn't stop. They're all here.
def add(first, second):\n    return first + second\n\n\nfor number in range(10):\n    print(number)
{"type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}}
user\nassistant\nsystem\n2024-07-26 12:00. Größe, naïve café; 日本語のテキスト. e\u0301
I think that this is what the tool said.\n\nOK!\n    deep    deeper        deepest\n""" * 3
TEXTS = [
    "", " ", "hello", "Hello world!", "  leading and trailing  ", "a\nb\n\n\nc\t\td",
    "def f(x):\n    return x ** 2  # squared\n", "don't we'll I'd they're it's DON'T",
    "1234567890 3.14 1,000", "naïve café Größe e\u0301 \u1e9b\u0323", "日本語のテキスト", "🦀 crab 👩‍💻", "x" * 40,
    "\r\nwindows\r\n", "﷽ ½ ² Ⅷ ٣", "tab\there", "\u00a0nbsp", "done.\n\nnext", "wonderful then",
    "if (a<b && c>=d) { printf(\"%d\\n\", e); }", "    " * 5 + "deep", "\u0000\u0007", "한국어 ﬁ",
]
WORDS = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def by_pattern(digits):
    split = {"type": "Split", "pattern": {"Regex": WORDS % digits}, "behavior": "Isolated",
             "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, BYTES]}


DIGITS = {"type": "Digits", "individual_digits": True}
FORMS = {
    "qwen": {
        "cut": by_pattern(""), "normalizer": {"type": "NFC"},
        "hidden": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "spoken": ["<tool_call>", "</tool_call>", "<think>", "</think>"],
        "config": {"bos_token": None, "eos_token": "<|im_end|>"},
    },
    "llama": {
        "cut": by_pattern("{1,3}"), "whole": "\u0120wonderful",
        "hidden": ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>",
                   "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"],
        "config": {"bos_token": {"content": "<|begin_of_text|>"},
                   "eos_token": {"content": "<|eot_id|>"},
                   "chat_template": [{"name": "tool_use", "template": "{{ tools }}"},
                                     {"name": "default", "template": "{{ bos_token }}"}]},
    },
    "smollm": {
        "cut": {"type": "Sequence", "pretokenizers": [DIGITS, BYTES | {"use_regex": True}]},
        "first": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        "config": {"bos_token": "<|im_start|>", "eos_token": "<|im_end|>",
                   "chat_template": "{{ messages[0].content }}"},
    },
}


def make(name, form):
    cut = {"version": "1.0", "added_tokens": [], "normalizer": form.get("normalizer"),
           "pre_tokenizer": form["cut"], "model": {"type": "BPE", "vocab": {}, "merges": []}}
    learner = tokenizers.Tokenizer.from_str(json.dumps(cut))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    learner.train_from_iterator([LEARN], trainers.BpeTrainer(
        vocab_size=480, initial_alphabet=alphabet, show_progress=False))
    learnt = json.loads(learner.to_str())["model"]
    first = form.get("first", [])
    tokens = first + sorted(learnt["vocab"], key=learnt["vocab"].get)
    tokens += [form["whole"]] if "whole" in form else []
    vocabulary = {token: number for number, token in enumerate(tokens)}
    merges = [list(merge) for merge in learnt["merges"]]
    # Llama's files are of the older form.
    merges = [" ".join(merge) for merge in merges] if "whole" in form else merges
    added = [(token, vocabulary[token], True) for token in first]
    listed = [(token, True) for token in form.get("hidden", [])]
    listed += [(token, False) for token in form.get("spoken", [])]
    added += [(token, len(tokens) + number, special) for number, (token, special) in enumerate(listed)]
    added = [{"id": id, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": special} for token, id, special in added]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
             "ignore_merges": "whole" in form, "vocab": vocabulary, "merges": merges}
    file = cut | {"added_tokens": added, "decoder": BYTES, "model": model}
    folder = HERE / "tokenizers" / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(file, ensure_ascii=False) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(form["config"]) + "\n")


def golden(folder, templates):
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    config = json.loads((folder / "tokenizer_config.json").read_text())
    tokens = {}
    for name in ["bos_token", "eos_token"]:
        token = config.get(name)
        tokens[name] = token["content"] if isinstance(token, dict) else token or ""
    conversations = []
    for template in templates:
        text = (HERE / "chat" / template).read_text()
        for name in ["system", "turns", "unicode", "empty", "call", "thinking"]:
            tools = "tools" in text and name == "call"
            rendered = make_chat.render(text, name, tools, None, tokens)
            if "text" in rendered:
                conversations.append({"template": template, "conversation": name, "tools": tools,
                                      "ids": encode(rendered["text"])})
    texts = [{"text": text, "ids": encode(text)} for text in TEXTS]
    for text in texts:
        decoded = tokenizer.decode(text["ids"])
        if decoded != text["text"]:
            text["decoded"] = decoded
    return {"folder": folder.name, "texts": texts, "conversations": conversations}


def main():
    if len(sys.argv) > 1:
        folder, output = map(pathlib.Path, sys.argv[1:3])
    else:
        folder, output = HERE / "tokenizers", HERE / "tokenizers.json"
        for name, form in FORMS.items():
            make(name, form)
    goldens = []
    for path in sorted(folder.iterdir()):
        if (path / "tokenizer.json").exists():
            kind = path.name.split("-")[0]
            templates = {"qwen": ["qwen3.jinja"], "llama": ["headers.jinja"],
                         "smollm": ["smollm2.jinja"]}[kind]
            goldens.append(golden(path, templates))
    output.write_text(json.dumps(goldens, ensure_ascii=False, separators=(",", ":")) + "\n")


main()
