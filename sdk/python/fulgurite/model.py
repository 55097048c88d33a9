"""Calls to the model that stand alone, and what all calls to it have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, TypeVar, Unpack

from wit_world.imports import llm as _llm
from wit_world.imports.llm import LlmError, ModelInfo, TokenReply

from .host import HostError, call_host
from .messages import (
    Content,
    FinishReason,
    Message,
    ToolCall,
    ToolDefinition,
    Usage,
    plain_text,
    to_messages,
    tool_calls,
)

__all__ = [
    "LlmError",
    "ModelError",
    "ModelInfo",
    "Reply",
    "ReplyOptions",
    "TokenReply",
    "chat",
    "generate",
    "model_info",
]

R = TypeVar("R")


class ModelError(HostError):
    """A call to the model failed."""

    error: LlmError

    def __init__(self, error: LlmError) -> None:
        super().__init__(error, _words(error))

    @property
    def is_final(self) -> bool:
        """Whether every later call of the episode will fail the same way: a budget is used up,
        or the episode is being cancelled."""
        return isinstance(self.error, _llm.LlmError_Budget | _llm.LlmError_Cancelled)


def _words(error: LlmError) -> str:
    match error:
        case _llm.LlmError_RateLimited():
            return "the model is overloaded"
        case _llm.LlmError_ContextLength():
            return "history and reply do not fit the model"
        case _llm.LlmError_Budget(kind):
            return f"the budget is used up: {kind.name.lower()}"
        case _llm.LlmError_Cancelled():
            return "the episode is being cancelled"
        case _llm.LlmError_Invalid(text):
            return f"the request is wrong: {text}"
        case _llm.LlmError_Unsupported(text):
            return f"the policy cannot do this: {text}"
        case _llm.LlmError_Busy():
            return "a reply of this conversation is still pending"
        case _llm.LlmError_Unavailable():
            return "the model cannot be reached"
        case _llm.LlmError_Timeout():
            return "the model took too long"
        case _llm.LlmError_Other((code, text)):
            return f"error {code}: {text}"


def call_model(call: Callable[..., R], *given: Any) -> R:
    """A call of the host whose errors are `ModelError`s."""
    return call_host(ModelError, call, *given)


class ReplyOptions(TypedDict, total=False):
    """What may be said of a reply; where nothing is said, the run's settings count."""

    max_tokens: int | None
    """Tokens at most."""
    temperature: float | None
    """Sampling temperature."""
    stop: Sequence[str]
    """Texts that end the reply."""


def to_options(
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
    stop: Sequence[str] = (),
    stream: bool = False,
) -> _llm.Options:
    """Options as the contract has them."""
    metadata = [("stream", "true")] if stream else []
    return _llm.Options(max_tokens, temperature, list(stop), metadata)


def to_config(
    model_role: str,
    system: str | None,
    tools: Sequence[ToolDefinition],
    agent: str,
    parent: int | None = None,
) -> _llm.ConversationConfig:
    """What a conversation is opened with, as the contract has it."""
    return _llm.ConversationConfig(model_role, agent, system, list(tools), parent, [])


@dataclass(frozen=True, slots=True)
class Reply:
    """What the model answered."""

    message: Message
    finish: FinishReason
    usage: Usage
    turn: int
    """The turn's number within the episode, for `Conversation.branch`."""
    metadata: list[tuple[str, str]]

    @property
    def text(self) -> str:
        """The reply's text, without reasoning and calls."""
        return plain_text(self.message)

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, in order, malformed ones included. Answer each of them."""
        return tool_calls(self.message)

    @property
    def is_cut_off(self) -> bool:
        """Whether the reply ended because a limit was reached."""
        return self.finish is FinishReason.LENGTH


def to_reply(reply: _llm.Reply) -> Reply:
    """The contract's reply as plugins see it."""
    return Reply(reply.message, reply.finish, reply.usage, reply.turn, reply.metadata)


def chat(
    messages: Content,
    *,
    model_role: str = "policy",
    system: str | None = None,
    tools: Sequence[ToolDefinition] = (),
    agent: str = "",
    **options: Unpack[ReplyOptions],
) -> Reply:
    """One stateless call, for ported code that keeps its own history. The host recognises a
    history it has seen and continues it."""
    config = to_config(model_role, system, tools, agent)
    return to_reply(call_model(_llm.chat, config, to_messages(messages), to_options(**options)))


def model_info(model_role: str = "policy") -> ModelInfo:
    """What the policy behind a model role can do."""
    return call_model(_llm.info, model_role)


def generate(
    prompt: Sequence[int], *, model_role: str = "policy", **options: Unpack[ReplyOptions]
) -> TokenReply:
    """Continues raw token ids, where `model_info().token_level` says that this works."""
    return call_model(_llm.generate, model_role, list(prompt), to_options(**options))
