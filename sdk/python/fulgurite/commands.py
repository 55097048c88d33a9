"""Commands in a workspace or in a grading sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict, TypeVar

from wit_world.imports import commands as _commands
from wit_world.imports.commands import Captured, ExecError, Output, Stop

from .host import HostError, call_host
from .text import clip

__all__ = [
    "Captured",
    "CommandError",
    "CommandOptions",
    "ExecError",
    "Output",
    "Stop",
    "stdout",
    "transcript",
]

R = TypeVar("R")

_STOPS = {Stop.TIMEOUT: "it took too long", Stop.MEMORY: "out of memory", Stop.TRAP: "it crashed"}


class CommandError(HostError):
    """A command could not be run at all. One that fails is an `Output` with its status."""

    error: ExecError

    def __init__(self, error: ExecError) -> None:
        super().__init__(error, _words(error))

    @property
    def is_final(self) -> bool:
        """Whether every later command will fail the same way."""
        return not isinstance(self.error, _commands.ExecError_Invalid | _commands.ExecError_Other)


def _words(error: ExecError) -> str:
    match error:
        case _commands.ExecError_Invalid(text):
            return f"the command is wrong: {text}"
        case _commands.ExecError_Budget(kind):
            return f"the budget is used up: {kind.name.lower()}"
        case _commands.ExecError_Cancelled():
            return "the episode is being cancelled"
        case _commands.ExecError_Denied():
            return "commands are not granted"
        case _commands.ExecError_Unavailable():
            return "commands cannot be run here"
        case _commands.ExecError_Other((code, text)):
            return f"error {code}: {text}"


class CommandOptions(TypedDict, total=False):
    """What may be said of how a command is run."""

    cwd: str | None
    """Folder, relative to the workspace."""
    env: Mapping[str, str] | None
    """Environment variables."""
    stdin: bytes
    """What it reads."""
    timeout_ms: int | None
    """Milliseconds until it is stopped."""
    output_bytes: int | None
    """Kept bytes of each output stream."""


def call_command(call: Callable[..., R], *given: Any) -> R:
    """A call of the host whose errors are `CommandError`s."""
    return call_host(CommandError, call, *given)


def to_request(
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_ms: int | None = None,
    output_bytes: int | None = None,
) -> _commands.Request:
    """A request as the contract has it: a shell line, or a program with its arguments."""
    return _commands.Request(
        command=_commands.Command_Line(command)
        if isinstance(command, str)
        else _commands.Command_Argv(list(command)),
        cwd=cwd,
        env=list((env or {}).items()),
        stdin=stdin,
        timeout_ms=timeout_ms,
        output_bytes=output_bytes,
        metadata=[],
    )


def stdout(output: Output) -> str:
    """Standard output as text; bytes that are not UTF-8 are replaced."""
    return output.stdout.bytes.decode(errors="replace")


def transcript(output: Output, limit: int = 10_000) -> str:
    """Both streams and the status, cut to about `limit` characters: what a model is told."""
    streams = (stdout(output), output.stderr.bytes.decode(errors="replace"))
    lines = [clip("\n".join(text.removesuffix("\n") for text in streams if text), limit)]
    if output.stopped is not None:
        lines.append(f"[stopped: {_STOPS[output.stopped]}]")
    elif output.status != 0:
        lines.append(f"[exit status {output.status}]")
    return "\n".join(line for line in lines if line) or "[no output]"
