"""Calls of the host, and the exceptions that its errors become."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from componentize_py_types import Err

__all__ = ["HostError", "call_host"]

R = TypeVar("R")


class HostError(Exception):
    """The host refused a call. The classes that say which kind of call narrow `error`."""

    error: Any
    """What the host said, as the contract has it."""

    def __init__(self, error: Any, words: str) -> None:
        super().__init__(words)
        self.error = error


def call_host(failure: Callable[[Any], HostError], call: Callable[..., R], *given: Any) -> R:
    """Calls the host; the error that it answers is raised as what `failure` makes of it."""
    try:
        return call(*given)
    except Err as error:
        raise failure(error.value) from None
