"""What both kinds of plugins do at the border to the host."""

from __future__ import annotations

# Nothing can be imported once an episode runs, since the library's files are not there. These
# modules CPython itself would import late: for encodings, dates and tracebacks.
import _strptime  # noqa: F401  # pyright: ignore[reportUnusedImport]
import encodings.ascii  # noqa: F401
import encodings.cp1252  # noqa: F401
import encodings.idna  # noqa: F401
import encodings.latin_1  # noqa: F401
import encodings.utf_8_sig  # noqa: F401
import encodings.utf_16  # noqa: F401
import encodings.utf_32  # noqa: F401
import linecache  # noqa: F401
import sys
import tokenize  # noqa: F401
import traceback
import unicodedata  # noqa: F401
from collections.abc import Callable
from typing import Generic, TypeVar

from componentize_py_types import Err

__all__ = ["PluginError", "Registered", "answered"]

R = TypeVar("R")
T = TypeVar("T")


class PluginError(Exception):
    """Raise it to fail with this message and nothing else. Every other exception fails too, with
    its traceback."""


class Registered(Generic[T]):
    """Where a component's plugin is kept, of which there is one."""

    def __init__(self, decorator: str) -> None:
        self._decorator = decorator
        self._plugin: T | None = None

    def put(self, plugin: T) -> None:
        """Keeps it."""
        kind = self._decorator
        if self._plugin is not None:
            raise TypeError(f"a component has one {kind}; this is the second @{kind}")
        self._plugin = plugin

    def get(self) -> T:
        """The plugin."""
        if self._plugin is None:
            raise TypeError(f"no function is marked with @{self._decorator}(...)")
        return self._plugin


def answered(work: Callable[[], R], failure: Callable[[str], object], *quiet: type[Exception]) -> R:
    """What the plugin's work gives. An exception becomes the failure that the contract has for
    it; those of the `quiet` classes say all there is, others come with their traceback."""
    try:
        return work()
    except MemoryError:
        # Ends the instance, so that running out of memory is told from an error of the plugin.
        raise
    except Exception as error:
        raise Err(failure(_explain(error, *quiet))) from None
    finally:
        # An instance ends without the interpreter's own clean-up.
        sys.stdout.flush()
        sys.stderr.flush()


def _explain(error: Exception, *quiet: type[Exception]) -> str:
    """The message of a failure: the error alone where it says all, else the whole traceback."""
    if isinstance(error, (PluginError, *quiet)):
        return str(error)
    return "".join(traceback.format_exception(error, limit=-10, chain=False)).strip()
