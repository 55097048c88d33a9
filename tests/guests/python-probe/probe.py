"""A harness in Python that does what its configuration says, good or bad."""

import os
import random
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

from fulgurite.harness import (
    Capability,
    Conversation,
    Episode,
    Outcome,
    budget_left,
    event,
    execute,
    harness,
    metric,
    model_info,
    stdout,
    submitted,
    wait_any,
)


@dataclass(frozen=True)
class Config:
    do: str = "turn"


def turn(episode: Episode[Config]) -> str:
    return Conversation.open(agent="probe").send(episode.task.input).text


def parallel(episode: Episode[Config]) -> str:
    parent = Conversation.open()
    pending = [
        Conversation.open(agent=name, parent=parent).start(episode.task.input)
        for name in ("left", "right")
    ]
    texts: list[str] = []
    while pending:
        for index in sorted(wait_any(pending), reverse=True):
            texts.append(pending.pop(index).finish().text)
    return " ".join(texts)


def capabilities(episode: Episode[Config]) -> str:
    event("seen", what="all")
    metric("depth", 1.5)
    with open("/workspace/made.txt", "w", encoding="utf-8") as file:
        file.write("by python\n")
    read = stdout(execute("cat made.txt"))
    turns = budget_left().turns
    return f"{read.strip()} {turns} {model_info().native_tools}"


def failing(episode: Episode[Config]) -> str:
    raise ValueError("the \x1b[31mprobe failed on purpose")


def loop(episode: Episode[Config]) -> str:
    while True:
        pass


def memory(episode: Episode[Config]) -> str:
    held: list[bytearray] = []
    while True:
        held.append(bytearray(b"x") * (1 << 20))


def recursion(episode: Episode[Config]) -> str:
    def deeper(depth: int) -> int:
        return deeper(depth + 1) + 1

    return str(deeper(0))


def native_recursion(episode: Episode[Config]) -> str:
    """Through a function of C, which takes the stack of the instance."""

    def deeper(value: object) -> int:
        return len(sorted([value], key=deeper))

    return str(deeper(1))


def network(episode: Episode[Config]) -> str:
    socket.create_connection(("example.com", 80))
    return "connected"


def escape(episode: Episode[Config]) -> str:
    found: list[str] = []
    for path in ("/etc/passwd", "../../etc/passwd", "/proc/self/environ", "/0/probe.py"):
        try:
            with open(path, encoding="utf-8") as file:
                found.append(file.read())
        except OSError:
            pass
    return repr((found, dict(os.environ), sys.argv))


def chance(episode: Episode[Config]) -> str:
    return f"{random.random()} {time.monotonic()} {time.time()} {os.urandom(4).hex()}"


def printing(episode: Episode[Config]) -> str:
    print("said on the way out")
    print("to standard error", file=sys.stderr)
    return ""


DEEDS: dict[str, Callable[[Episode[Config]], str]] = {
    deed.__name__: deed
    for deed in (
        turn,
        parallel,
        capabilities,
        failing,
        loop,
        memory,
        recursion,
        native_recursion,
        network,
        escape,
        chance,
        printing,
    )
}


@harness(
    name="python-probe",
    version="0.1.0",
    config=Config,
    wants=[Capability.LLM, Capability.EXEC, Capability.WORKSPACE],
)
def run(episode: Episode[Config]) -> Outcome:
    return submitted(DEEDS[episode.config.do](episode))
