"""Sandboxes to grade in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, Unpack

from wit_world.imports import grader as _grader
from wit_world.imports.grader import Base, GraderError

from .commands import CommandOptions, Output, call_command, to_request
from .host import HostError, call_host

__all__ = ["Base", "GraderError", "Sandbox", "SandboxError", "run_connected"]

T = TypeVar("T")


class SandboxError(HostError):
    """A grading sandbox refused."""

    error: GraderError

    def __init__(self, error: GraderError) -> None:
        super().__init__(error, _words(error))


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


def _call(call: Callable[..., T], *given: Any) -> T:
    return call_host(SandboxError, call, *given)


class Sandbox:
    """A fresh tree to grade in. Programs in it reach nothing but the tree and their streams."""

    __slots__ = ("_inner",)

    def __init__(self, base: Base) -> None:
        """Makes one: empty, the task's workspace as it was, or as the episode left it."""
        self._inner = _call(_grader.Sandbox.open, base)

    def put_file(self, path: str, contents: bytes) -> None:
        """Lays down a file. Whatever the episode left at the path is removed first; no link is
        followed, neither at the path nor on the way to it."""
        _call(self._inner.put_file, path, contents)

    def read_file(self, path: str, limit: int) -> bytes:
        """Reads a file of at most `limit` bytes."""
        return _call(self._inner.read_file, path, limit)

    def remove(self, path: str) -> None:
        """Removes a file or folder."""
        _call(self._inner.remove, path)

    def run(self, command: str | Sequence[str], **options: Unpack[CommandOptions]) -> Output:
        """Runs a shell line, or a program with its arguments. One that fails is an output."""
        return call_command(self._inner.run, to_request(command, **options))


def run_connected(
    left: tuple[Sandbox, str | Sequence[str]], right: tuple[Sandbox, str | Sequence[str]]
) -> tuple[Output, Output]:
    """Runs two commands at once, each in its own sandbox, each reading what the other writes.
    Only bytes cross, which is how to test code that must not reach its test."""
    (here, one), (there, other) = left, right
    return call_command(
        _grader.run_connected, here._inner, to_request(one), there._inner, to_request(other)
    )
