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
