"""Makes smollm2.json: what other programs make of the real SmolLM2-135M-Instruct.Q4_1.gguf.

Usage: make_smollm2.py FILE.gguf. Needs: pip install torch transformers accelerate gguf tokenizers regex jinja2
(made with 2.15, 5.24, 0.19, 0.23).

Token ids come from the few lines of BPE below, written from the description of GPT-2's
tokenizer, and are compared with those of transformers' reading of the file. Logits come from
transformers with the weights dequantised to f32.
"""

import json
import pathlib
import sys

import gguf
import jinja2
import regex
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = pathlib.Path(__file__).parent
WORDS = regex.compile(
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "", " ", "hello", "Hello world!", "  leading and trailing  ", "a\nb\n\n\nc\t\td",
    "def f(x):\n    return x ** 2  # squared\n", "don't we'll I'd they're it's",
    "1234567890 3.14 1,000", "naïve café Größe", "日本語のテキスト", "🦀 crab 👩‍💻", "x" * 40,
    "<|im_end|>", "a<|im_start|>b", "\r\nwindows\r\n", "﷽ ½ ² Ⅷ ٣", "tab\there", "\u00a0nbsp",
    "if (a<b && c>=d) { printf(\"%d\\n\", e); }", "    " * 5 + "deep",
]
CONVERSATIONS = [
    [("user", "Write a function that adds two numbers.")],
    [("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello!"), ("user", "2+2?")],
]


def byte_characters():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in printable]
    table = {byte: chr(byte) for byte in printable}
    table.update({byte: chr(256 + number) for number, byte in enumerate(rest)})
    return table


class Bpe:
    def __init__(self, tokens, merges):
        self.ids = {token: number for number, token in enumerate(tokens)}
        self.ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self.characters = byte_characters()

    def encode(self, text):
        # Single digits first, then GPT-2's words within what lies between.
        ids = []
        for part in regex.split(r"(\p{N})", text):
            for word in WORDS.findall(part):
                ids += self.word(word)
        return ids

    def word(self, word):
        parts = [self.characters[byte] for byte in word.encode()]
        parts = [part for part in parts if part in self.ids]
        while len(parts) > 1:
            pairs = list(zip(parts, parts[1:]))
            best = min(pairs, key=lambda pair: self.ranks.get(pair, 1 << 30))
            if best not in self.ranks:
                break
            at = 0
            while at < len(parts) - 1:
                if (parts[at], parts[at + 1]) == best:
                    parts[at : at + 2] = ["".join(best)]
                at += 1
        return [self.ids[part] for part in parts]


def main():
    path = pathlib.Path(sys.argv[1])
    reader = gguf.GGUFReader(path)
    field = lambda name: reader.fields[name].contents()
    tokens = field("tokenizer.ggml.tokens")
    bpe = Bpe(tokens, field("tokenizer.ggml.merges"))
    theirs = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    texts = []
    for text in TEXTS:
        ids = bpe.encode(text)
        other = theirs.encode(text, add_special_tokens=False)
        if ids != other and "<|" not in text:
            print("differs from transformers:", repr(text), ids, other)
        texts.append({"text": text, "ids": ids})

    template = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(
        field("tokenizer.chat_template")
    )
    special = regex.compile("(" + "|".join(map(regex.escape, tokens[:17])) + ")")
    conversations = []
    for conversation in CONVERSATIONS:
        messages = [{"role": role, "content": content} for role, content in conversation]
        rendered = template.render(messages=messages, add_generation_prompt=True)
        ids = []
        for part in special.split(rendered):
            ids += [tokens.index(part)] if special.fullmatch(part) else bpe.encode(part)
        conversations.append({"messages": messages, "ids": ids})

    model = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    ids = conversations[0]["ids"]
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    rows = []
    for position in [*range(0, len(ids) - 1, 5), len(ids) - 1]:
        values, places = logits[position].topk(5)
        rows.append({"position": position, "ids": places.tolist(), "logits": values.tolist()})
    golden = {"texts": texts, "conversations": conversations, "logits": rows}
    (HERE / "smollm2.json").write_text(json.dumps(golden, indent=1) + "\n")


if __name__ == "__main__":
    main()
