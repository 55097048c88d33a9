"""For rewards: scorers of finished episodes.

    from fulgurite.reward import Episode, NoConfig, Score, reward

    @reward(name="same", version="0.1.0")
    def score(episode: Episode, config: NoConfig) -> Score:
        right = episode.ending().answer.strip() == episode.grading()["answer"]
        return Score(float(right))

A reward runs after the episode, in a store of its own, over records that the host keeps. An
exception is an alarm for the owner of the run; for bad work answer a low score.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.scorer import Component, Description, Failure, Scores, TurnValue
from wit_world.imports import episode as _episode
from wit_world.imports import grader as _grader
from wit_world.imports.episode import (
    Change,
    Change_Added as Added,
    Change_Modified as Modified,
    Change_Removed as Removed,
    ChangeEntry,
    EntryKind,
    EpisodeEnding as Ending,
    GradedTask,
    ReadError,
    Status,
    Turn,
)
from wit_world.imports.grader import Base, GraderError

from .commands import Captured, CommandError, ExecError, Output, Stop, stdout, to_request, transcript
from .configuration import NoConfig, WrongValue, parse, schema_of
from .export import PluginError, explain, flush
from .messages import (
    FinishReason,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolCallPart,
    ToolResult,
    ToolResultPart,
    Usage,
    plain_text,
    tool_calls,
)
from .text import Block, clip, fenced_blocks

__all__ = [
    "Added",
    "Base",
    "Block",
    "Captured",
    "Change",
    "ChangeEntry",
    "CommandError",
    "Description",
    "Ending",
    "EntryKind",
    "Episode",
    "ExecError",
    "FileError",
    "FinishReason",
    "GradedTask",
    "GraderError",
    "Message",
    "Modified",
    "NoConfig",
    "Output",
    "Part",
    "PluginError",
    "ReadError",
    "Removed",
    "Role",
    "Sandbox",
    "SandboxError",
    "Score",
    "Scorer",
    "Status",
    "Stop",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolCallPart",
    "ToolResult",
    "ToolResultPart",
    "Turn",
    "Usage",
    "WrongValue",
    "clip",
    "fenced_blocks",
    "plain_text",
    "reward",
    "run_connected",
    "stdout",
    "tool_calls",
    "transcript",
]

C = TypeVar("C")
T = TypeVar("T")

_PAGE = 64
"""Turns or changes that one call to the host asks for."""
_CHUNK = 256 * 1024
"""Bytes of a file that one call to the host asks for."""


class FileError(Exception):
    """A file of the sealed workspace cannot be read."""

    def __init__(self, path: str, error: ReadError) -> None:
        super().__init__(f"{path} of the workspace: {error.name.lower().replace('_', ' ')}")
        self.error = error


class SandboxError(Exception):
    """A grading sandbox refused."""

    def __init__(self, error: GraderError) -> None:
        super().__init__(_words(error))
        self.error = error


def _words(error: GraderError) -> str:
    match error:
        case _grader.GraderError_BadPath():
            return "a path is not relative, leaves the sandbox or passes through a link"
        case _grader.GraderError_Quota():
            return "the grading sandbox is full"
        case _grader.GraderError_NotFound():
            return "a file of the grading sandbox is missing"
        case _grader.GraderError_Other((code, text)):
            return f"grading sandbox, error {code}: {text}"


def _pages(page: Callable[[int, int], list[T]]) -> Iterator[T]:
    """Reads a paged list to its end. A page may be shorter than asked for; an empty one ends."""
    start = 0
    while items := page(start, _PAGE):
        yield from items
        start += len(items)


class Episode:
    """The episode to score: a window on records that the host keeps."""

    __slots__ = ()

    def task(self) -> GradedTask:
        """The task, hidden part included."""
        return _episode.task()

    def grading(self) -> Any:
        """The hidden grading data, as JSON reads."""
        return json.loads(_episode.task().grading)

    def ending(self) -> Ending:
        """How the episode ended."""
        return _episode.ending()

    def turn_count(self) -> int:
        """How many turns there are."""
        return _episode.turn_count()

    def turns(self) -> Iterator[Turn]:
        """The turns, in order, read page by page."""
        return _pages(_episode.turns)

    def changes(self) -> Iterator[ChangeEntry]:
        """Changes of the sealed workspace, sorted by path, read page by page."""
        return _pages(_episode.changes)

    def read_file(self, path: str, limit: int) -> bytes:
        """A file of the sealed workspace, whole. No link is followed."""
        contents = bytearray()
        while True:
            try:
                chunk = _episode.read_file(path, len(contents), _CHUNK)
            except Err as error:
                raise FileError(path, error.value) from None
            if not chunk:
                return bytes(contents)
            contents += chunk
            if len(contents) > limit:
                raise FileError(path, ReadError.TOO_LARGE)


class Sandbox:
    """A fresh tree to grade in. Programs in it reach nothing but the tree and their streams."""

    __slots__ = ("_inner",)

    def __init__(self, base: Base) -> None:
        """Makes one: empty, the task's workspace as it was, or as the episode left it."""
        self._inner = _sandbox(_grader.Sandbox.open, base)

    def put_file(self, path: str, contents: bytes) -> None:
        """Lays down a file. Whatever the episode left at the path is removed first; no link is
        followed, neither at the path nor on the way to it."""
        _sandbox(self._inner.put_file, path, contents)

    def read_file(self, path: str, limit: int) -> bytes:
        """Reads a file of at most `limit` bytes."""
        return _sandbox(self._inner.read_file, path, limit)

    def remove(self, path: str) -> None:
        """Removes a file or folder."""
        _sandbox(self._inner.remove, path)

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        timeout_ms: int | None = None,
        output_bytes: int | None = None,
    ) -> Output:
        """Runs a shell line, or a program with its arguments. One that fails is an output."""
        request = to_request(command, cwd, env, stdin, timeout_ms, output_bytes)
        try:
            return self._inner.run(request)
        except Err as error:
            raise CommandError(error.value) from None


def _sandbox(call: Callable[..., T], *given: Any) -> T:
    try:
        return call(*given)
    except Err as error:
        raise SandboxError(error.value) from None


def run_connected(
    left: tuple[Sandbox, str | Sequence[str]], right: tuple[Sandbox, str | Sequence[str]]
) -> tuple[Output, Output]:
    """Runs two commands at once, each in its own sandbox, each reading what the other writes.
    Only bytes cross, which is how to test code that must not reach its test."""
    try:
        return _grader.run_connected(
            left[0]._inner, to_request(left[1]), right[0]._inner, to_request(right[1])
        )
    except Err as error:
        raise CommandError(error.value) from None


@dataclass(frozen=True, slots=True)
class Score:
    """What an episode is worth."""

    total: float
    """Finite."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Named parts, for people and metrics."""
    turns: Mapping[int, float] = field(default_factory=dict)
    """Values of single turns, where the reward gives them."""
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Registered:
    score: Callable[[Episode, Any], Score]
    config: type[Any]
    description: Description


_registered: _Registered | None = None


def reward(
    *,
    name: str,
    version: str,
    config: type[C] = NoConfig,  # type: ignore[assignment]
) -> Callable[[Callable[[Episode, C], Score]], Callable[[Episode, C], Score]]:
    """Makes a function the reward of this component. Once a plugin.

    `config` is a dataclass: its JSON Schema is part of the description, and what does not fit is
    a failure of the reward.
    """
    description = Description(name, version, json.dumps(schema_of(config)))

    def register(score: Callable[[Episode, C], Score]) -> Callable[[Episode, C], Score]:
        global _registered
        if _registered is not None:
            raise TypeError("a component has one reward; this is the second @reward")
        _registered = _Registered(score, config, description)
        return score

    return register


def _the_reward() -> _Registered:
    if _registered is None:
        raise TypeError("no function is marked with @reward(...)")
    return _registered


class Scorer(exports.Scorer):
    """What the component exports. `fulgurite build` names it to componentize-py."""

    def describe(self) -> Description:
        """The description, made when the component was built."""
        return _the_reward().description

    def score(self, config: str) -> Scores:
        """Scores the episode behind the import."""
        registered = _the_reward()
        try:
            settings, _ = parse(registered.config, config, {})
            score = registered.score(Episode(), settings)
            return Scores(
                total=float(score.total),
                components=[Component(part, float(v)) for part, v in score.components.items()],
                turns=[TurnValue(turn, float(v)) for turn, v in score.turns.items()],
                notes=list(score.notes.items()),
            )
        except MemoryError:
            # Ends the instance, so that the failure is told from an error of the reward.
            raise
        except Exception as error:
            message = explain(error, CommandError, FileError, SandboxError, WrongValue)
            raise Err(Failure(message)) from None
        finally:
            flush()
