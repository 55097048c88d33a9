"""What models and harnesses tell each other: the contract's own types, and functions on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from wit_world.imports.types import (
    BudgetKind,
    FinishReason,
    Message,
    Part,
    Part_Text as Text,
    Part_Thinking as Thinking,
    Part_ToolCall as ToolCallPart,
    Part_ToolResult as ToolResultPart,
    Role,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)

from .configuration import WrongValue, from_json, schema_of

__all__ = [
    "BudgetKind",
    "Content",
    "FinishReason",
    "Message",
    "Part",
    "Role",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolCallPart",
    "ToolDefinition",
    "ToolResult",
    "ToolResultPart",
    "Usage",
    "answer",
    "arguments",
    "assistant",
    "fail",
    "plain_text",
    "tool",
    "tool_calls",
    "user",
]

T = TypeVar("T")

Content: TypeAlias = str | Message | ToolResult | Sequence[Message | ToolResult]
"""What can be sent to a model: a text (said by the user), messages, or results of tool calls."""


def user(text: str) -> Message:
    """What a user says."""
    return Message(Role.USER, [Text(text)], [])


def assistant(text: str) -> Message:
    """What a model said; for histories that a harness writes itself."""
    return Message(Role.ASSISTANT, [Text(text)], [])


def plain_text(message: Message) -> str:
    """The text parts in one string; reasoning, calls and results are left out."""
    return "".join(part.value for part in message.parts if isinstance(part, Text))


def tool_calls(message: Message) -> list[ToolCall]:
    """The tool calls, in order, malformed ones included. Answer each of them."""
    return [part.value for part in message.parts if isinstance(part, ToolCallPart)]


def tool(name: str, description: str, arguments: type) -> ToolDefinition:
    """A tool whose arguments are a dataclass."""
    return ToolDefinition(name, description, json.dumps(schema_of(arguments)))


def arguments(call: ToolCall, type_: type[T]) -> T:
    """The arguments of a call. A `WrongValue` has a text fit for the model: `fail` with it."""
    if call.problem is not None:
        raise WrongValue(f"the call is malformed: {call.problem}")
    try:
        value = json.loads(call.arguments)
    except ValueError as problem:
        raise WrongValue(f"the arguments are not JSON: {problem}") from None
    return from_json(type_, value, call.name)


def answer(call: ToolCall, content: str) -> ToolResult:
    """The result of a call that worked."""
    return ToolResult(call.id, content, False)


def fail(call: ToolCall, content: str) -> ToolResult:
    """The result of a call that failed."""
    return ToolResult(call.id, content, True)


def to_messages(content: Content) -> list[Message]:
    """The messages that a content stands for; each result is one of its own."""
    if isinstance(content, str):
        return [user(content)]
    if isinstance(content, Message):
        return [content]
    if isinstance(content, ToolResult):
        return [Message(Role.TOOL, [ToolResultPart(content)], [])]
    return [message for item in content for message in to_messages(item)]
