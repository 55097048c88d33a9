"""Text from models and for models."""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Block", "clip", "fenced_blocks"]

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_FENCE = re.compile(r" {0,3}(`{3,})([^`\n]*)\n?\Z")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of Markdown."""

    language: str
    """The first word after the fence, in lower case; empty when there is none."""
    info: str
    """What follows it on that line."""
    body: str
    """The lines inside, each with its line end."""
    closed: bool
    """False when the text ends before the block does, as in a reply that was cut off."""


def fenced_blocks(text: str) -> list[Block]:
    """The fenced blocks of a text, in order. A longer fence may hold shorter ones."""
    blocks: list[Block] = []
    width, language, info, body = 0, "", "", list[str]()
    for line in _LINE.findall(text):
        fence = _FENCE.match(line)
        if not width:
            if fence:
                width = len(fence[1])
                words = fence[2].split(maxsplit=1)
                language = words[0].lower() if words else ""
                info = words[1].strip() if len(words) > 1 else ""
                body = []
        elif fence and len(fence[1]) >= width and not fence[2].strip():
            blocks.append(Block(language, info, "".join(body), True))
            width = 0
        else:
            body.append(line)
    if width:
        blocks.append(Block(language, info, "".join(body), False))
    return blocks


def clip(text: str, limit: int) -> str:
    """Cuts a text to about `limit` characters: head and tail stay, and a line between them says
    how much was left out."""
    if len(text) <= limit:
        return text
    head = limit // 2
    tail = len(text) - (limit - head)
    return f"{text[:head]}\n[... {tail - head} characters left out ...]\n{text[tail:]}"
