"""The finished episode that a reward scores: a window on records that the host keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from wit_world.imports import episode as _episode
from wit_world.imports.episode import (
    ChangeEntry,
    EpisodeEnding as Ending,
    GradedTask,
    ReadError,
    Turn,
)

from .host import HostError, call_host

__all__ = ["ChangeEntry", "Ending", "Episode", "FileError", "GradedTask", "ReadError", "Turn"]

T = TypeVar("T")

_PAGE = 64
"""Turns or changes that one call to the host asks for."""
_CHUNK = 256 * 1024
"""Bytes of a file that one call to the host asks for."""


class FileError(HostError):
    """A file of the sealed workspace cannot be read."""

    error: ReadError

    def __init__(self, path: str, error: ReadError) -> None:
        why = error.name.lower().replace("_", " ")
        super().__init__(error, f"{path} of the workspace: {why}")


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

        def failure(error: ReadError) -> FileError:
            return FileError(path, error)

        contents = bytearray()
        while chunk := call_host(failure, _episode.read_file, path, len(contents), _CHUNK):
            contents += chunk
            if len(contents) > limit:
                raise failure(ReadError.TOO_LARGE)
        return bytes(contents)
