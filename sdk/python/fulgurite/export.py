"""What both kinds of plugins do at the border to the host."""

from __future__ import annotations

import sys
import traceback

__all__ = ["PluginError", "explain", "flush"]


class PluginError(Exception):
    """Raise it to fail with this message and nothing else. Every other exception fails too, with
    its traceback."""


def explain(error: Exception, *quiet: type[Exception]) -> str:
    """The message of a failure: the error alone where it says all, else the whole traceback."""
    if isinstance(error, (PluginError, *quiet)):
        return str(error)
    return "".join(traceback.format_exception(error, limit=-10, chain=False)).strip()


def flush() -> None:
    """Hands over what was printed: an instance ends without the interpreter's own clean-up."""
    sys.stdout.flush()
    sys.stderr.flush()
