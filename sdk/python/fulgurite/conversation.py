"""Conversations with the model, and replies that are being written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

from wit_world.imports import llm as _llm
from wit_world.imports import poll as _poll

from .messages import Content, Text, Thinking, ToolDefinition, to_messages
from .model import Reply, ReplyOptions, call_model, to_config, to_options, to_reply

__all__ = ["Conversation", "Pending", "wait_any"]


class Conversation:
    """A line of turns that share a token history. The host keeps the history: only what is new
    is sent."""

    __slots__ = ("_inner",)

    def __init__(self, inner: _llm.Conversation) -> None:
        self._inner = inner

    @classmethod
    def open(
        cls,
        model_role: str = "policy",
        *,
        system: str | None = None,
        tools: Sequence[ToolDefinition] = (),
        agent: str = "",
        parent: Conversation | None = None,
    ) -> Conversation:
        """Opens a conversation with the model in a role. `agent` names the (sub-)agent that
        speaks and `parent` the conversation that this one is started from, for the trace."""
        parent_id = None if parent is None else parent.id
        config = to_config(model_role, system, tools, agent, parent_id)
        return cls(call_model(_llm.Conversation.open, config))

    @property
    def id(self) -> int:
        """Unique within the episode."""
        return self._inner.id()

    def send(self, content: Content, **options: Unpack[ReplyOptions]) -> Reply:
        """Sends what is new and waits for the reply."""
        asked = to_options(**options)
        return to_reply(call_model(self._inner.send, to_messages(content), asked))

    def start(
        self, content: Content, *, stream: bool = False, **options: Unpack[ReplyOptions]
    ) -> Pending:
        """Sends what is new without waiting, so that several conversations proceed at once."""
        asked = to_options(stream=stream, **options)
        return Pending(call_model(self._inner.start, to_messages(content), asked))

    def branch(self, at: int) -> Conversation:
        """A new conversation that shares the history up to and including a turn."""
        return Conversation(call_model(self._inner.branch, at))

    def restart(self, content: Content, reason: str) -> None:
        """Replaces the history after the system message, for compaction. The reason goes to the
        trace."""
        call_model(self._inner.restart, to_messages(content), reason)


class Pending:
    """A reply that is being written."""

    __slots__ = ("_inner",)

    def __init__(self, inner: _llm.PendingReply) -> None:
        self._inner = inner

    def next_chunk(self) -> Text | Thinking | None:
        """Waits for the next piece; none when the reply is complete. Pieces are provisional: only
        `finish` is recorded."""
        match call_model(self._inner.next_chunk):
            case _llm.Chunk_Text(text):
                return Text(text)
            case _llm.Chunk_Thinking(text):
                return Thinking(text)
            case None:
                return None

    @property
    def is_ready(self) -> bool:
        """Whether `next_chunk` or `finish` would answer at once."""
        with self._inner.subscribe() as pollable:
            return pollable.ready()

    def finish(self) -> Reply:
        """Waits until the reply is complete and recorded."""
        return to_reply(call_model(self._inner.finish))

    def cancel(self) -> None:
        """Gives the reply up."""
        self._inner.cancel()


def wait_any(replies: Sequence[Pending]) -> list[int]:
    """Waits until at least one reply has news; answers the indices of those that do."""
    if not replies:
        return []
    pollables = [reply._inner.subscribe() for reply in replies]
    try:
        return list(_poll.poll(pollables))
    finally:
        for pollable in pollables:
            pollable.__exit__(None, None, None)
