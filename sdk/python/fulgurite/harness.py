"""For harnesses: agent programs that talk to a model and act in a workspace.

    from fulgurite.harness import Conversation, Episode, NoConfig, Outcome, harness, submitted

    @harness(name="parrot", version="0.1.0")
    def run(episode: Episode[NoConfig]) -> Outcome:
        conversation = Conversation.open()
        return submitted(conversation.send(episode.task.input).text)

Calls to the model raise `ModelError`. A harness that runs out of budget usually does better by
returning `gave_up` with what it has (`ModelError.is_final`) than by failing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.agent import (
    Capability,
    Description,
    Failure,
    Outcome,
    Prompt,
    Status,
    Task,
)
from wit_world.imports import budget as _budget
from wit_world.imports import exec as _exec
from wit_world.imports import llm as _llm
from wit_world.imports import poll as _poll
from wit_world.imports import trace as _trace
from wit_world.imports.budget import Remaining
from wit_world.imports.llm import LlmError, ModelInfo, TokenReply

from .commands import Captured, CommandError, ExecError, Output, Stop, stdout, to_request, transcript
from .configuration import NoConfig, WrongValue, parse, schema_of
from .export import PluginError, explain, flush
from .messages import (
    BudgetKind,
    Content,
    FinishReason,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolCallPart,
    ToolDefinition,
    ToolResult,
    ToolResultPart,
    Usage,
    answer,
    arguments,
    assistant,
    fail,
    plain_text,
    to_messages,
    tool,
    tool_calls,
    user,
)
from .text import Block, clip, fenced_blocks

__all__ = [
    "Agent",
    "Block",
    "BudgetKind",
    "Capability",
    "Captured",
    "CommandError",
    "Content",
    "Conversation",
    "Description",
    "Episode",
    "ExecError",
    "FinishReason",
    "LlmError",
    "Message",
    "ModelError",
    "ModelInfo",
    "NoConfig",
    "Outcome",
    "Output",
    "Part",
    "Pending",
    "PluginError",
    "Remaining",
    "Reply",
    "Role",
    "Status",
    "Stop",
    "Task",
    "Text",
    "Thinking",
    "TokenReply",
    "ToolCall",
    "ToolCallPart",
    "ToolDefinition",
    "ToolResult",
    "ToolResultPart",
    "Usage",
    "WrongValue",
    "answer",
    "arguments",
    "assistant",
    "budget_left",
    "chat",
    "clip",
    "event",
    "execute",
    "fail",
    "fenced_blocks",
    "gave_up",
    "generate",
    "harness",
    "metric",
    "model_info",
    "plain_text",
    "programs",
    "stdout",
    "submitted",
    "tool",
    "tool_calls",
    "transcript",
    "user",
    "wait_any",
]

C = TypeVar("C")
R = TypeVar("R")


class ModelError(Exception):
    """A call to the model failed."""

    def __init__(self, error: LlmError) -> None:
        super().__init__(_words(error))
        self.error = error

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


def _model(call: Callable[..., R], *given: Any) -> R:
    try:
        return call(*given)
    except Err as error:
        raise ModelError(error.value) from None


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


def _reply(reply: _llm.Reply) -> Reply:
    return Reply(reply.message, reply.finish, reply.usage, reply.turn, reply.metadata)


def _options(
    max_tokens: int | None, temperature: float | None, stop: Sequence[str], stream: bool = False
) -> _llm.Options:
    metadata = [("stream", "true")] if stream else []
    return _llm.Options(max_tokens, temperature, list(stop), metadata)


def _conversation_config(
    model_role: str,
    system: str | None,
    tools: Sequence[ToolDefinition],
    agent: str,
    parent: Conversation | None,
) -> _llm.ConversationConfig:
    parent_id = None if parent is None else parent.id
    return _llm.ConversationConfig(model_role, agent, system, list(tools), parent_id, [])


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
        config = _conversation_config(model_role, system, tools, agent, parent)
        return cls(_model(_llm.Conversation.open, config))

    @property
    def id(self) -> int:
        """Unique within the episode."""
        return self._inner.id()

    def send(
        self,
        content: Content,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
    ) -> Reply:
        """Sends what is new and waits for the reply."""
        options = _options(max_tokens, temperature, stop)
        return _reply(_model(self._inner.send, to_messages(content), options))

    def start(
        self,
        content: Content,
        *,
        max_tokens: int | None = None,
        temperature: float | None = None,
        stop: Sequence[str] = (),
        stream: bool = False,
    ) -> Pending:
        """Sends what is new without waiting, so that several conversations proceed at once."""
        options = _options(max_tokens, temperature, stop, stream)
        return Pending(_model(self._inner.start, to_messages(content), options))

    def branch(self, at: int) -> Conversation:
        """A new conversation that shares the history up to and including a turn."""
        return Conversation(_model(self._inner.branch, at))

    def restart(self, content: Content, reason: str) -> None:
        """Replaces the history after the system message, for compaction. The reason goes to the
        trace."""
        _model(self._inner.restart, to_messages(content), reason)


class Pending:
    """A reply that is being written."""

    __slots__ = ("_inner",)

    def __init__(self, inner: _llm.PendingReply) -> None:
        self._inner = inner

    def next_chunk(self) -> Text | Thinking | None:
        """Waits for the next piece; none when the reply is complete. Pieces are provisional: only
        `finish` is recorded."""
        match _model(self._inner.next_chunk):
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
        return _reply(_model(self._inner.finish))

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


def chat(
    messages: Content,
    *,
    model_role: str = "policy",
    system: str | None = None,
    tools: Sequence[ToolDefinition] = (),
    agent: str = "",
    max_tokens: int | None = None,
    temperature: float | None = None,
    stop: Sequence[str] = (),
) -> Reply:
    """One stateless call, for ported code that keeps its own history. The host recognises a
    history it has seen and continues it."""
    config = _conversation_config(model_role, system, tools, agent, None)
    options = _options(max_tokens, temperature, stop)
    return _reply(_model(_llm.chat, config, to_messages(messages), options))


def model_info(model_role: str = "policy") -> ModelInfo:
    """What the policy behind a model role can do."""
    return _model(_llm.info, model_role)


def generate(
    prompt: Sequence[int],
    *,
    model_role: str = "policy",
    max_tokens: int | None = None,
    temperature: float | None = None,
    stop: Sequence[str] = (),
) -> TokenReply:
    """Continues raw token ids, where `model_info().token_level` says that this works."""
    options = _options(max_tokens, temperature, stop)
    return _model(_llm.generate, model_role, list(prompt), options)


def execute(
    command: str | Sequence[str],
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    timeout_ms: int | None = None,
    output_bytes: int | None = None,
) -> Output:
    """Runs a shell line, or a program with its arguments, in the workspace. A command that fails
    is an output with its status."""
    request = to_request(command, cwd, env, stdin, timeout_ms, output_bytes)
    try:
        return _exec.run(request)
    except Err as error:
        raise CommandError(error.value) from None


def programs() -> list[str]:
    """Names of the programs and commands that exist, sorted."""
    return _exec.programs()


def event(name: str, **fields: object) -> None:
    """Records in the trace that something happened."""
    _trace.event(name, [(field, str(value)) for field, value in fields.items()])


def metric(name: str, value: float) -> None:
    """Records a number in the trace. It never is a score."""
    _trace.metric(name, value)


def budget_left() -> Remaining:
    """What is left of the episode's limits; none means unlimited."""
    return _budget.left()


def submitted(answer: str, **notes: object) -> Outcome:
    """The agent holds the task to be done."""
    return Outcome(Status.SUBMITTED, answer, [(name, str(value)) for name, value in notes.items()])


def gave_up(answer: str = "", **notes: object) -> Outcome:
    """The agent stopped without holding the task to be done; the answer is what it has."""
    return Outcome(Status.GAVE_UP, answer, [(name, str(value)) for name, value in notes.items()])


@dataclass(frozen=True, slots=True)
class Episode(Generic[C]):
    """What a harness gets to work on."""

    task: Task
    """The task, without anything that only graders see."""
    config: C
    """The configuration."""
    prompts: Mapping[str, str]
    """The prompts that the harness named, as the run tuned them."""


@dataclass(frozen=True, slots=True)
class _Registered:
    run: Callable[[Episode[Any]], Outcome]
    config: type[Any]
    prompts: Mapping[str, str]
    description: Description


_registered: _Registered | None = None


def harness(
    *,
    name: str,
    version: str,
    config: type[C] = NoConfig,  # type: ignore[assignment]
    prompts: Mapping[str, str] | None = None,
    model_roles: Sequence[str] = ("policy",),
    tools: Iterable[ToolDefinition] = (),
    wants: Sequence[Capability] = (Capability.LLM,),
) -> Callable[[Callable[[Episode[C]], Outcome]], Callable[[Episode[C]], Outcome]]:
    """Makes a function the harness of this component. Once a plugin.

    `config` is a dataclass: its JSON Schema is part of the description, and what does not fit
    fails the episode with a message that names the setting. `prompts` are texts that may be tuned
    from outside; read them from `Episode.prompts`.
    """
    texts = dict(prompts or {})
    description = Description(
        name=name,
        version=version,
        config_schema=json.dumps(schema_of(config, texts)),
        prompts=[Prompt(prompt, text) for prompt, text in texts.items()],
        model_roles=list(model_roles),
        tools=list(tools),
        wants=list(wants),
    )

    def register(run: Callable[[Episode[C]], Outcome]) -> Callable[[Episode[C]], Outcome]:
        global _registered
        if _registered is not None:
            raise TypeError("a component has one harness; this is the second @harness")
        _registered = _Registered(run, config, texts, description)
        return run

    return register


def _the_harness() -> _Registered:
    if _registered is None:
        raise TypeError("no function is marked with @harness(...)")
    return _registered


class Agent(exports.Agent):
    """What the component exports. `fulgurite build` names it to componentize-py."""

    def describe(self) -> Description:
        """The description, made when the component was built."""
        return _the_harness().description

    def run(self, task: Task, config: str) -> Outcome:
        """One episode."""
        registered = _the_harness()
        try:
            settings, prompts = parse(registered.config, config, registered.prompts)
            return registered.run(Episode(task, settings, prompts))
        except MemoryError:
            # Ends the instance, so that the episode fails as out of memory and not as an error.
            raise
        except Exception as error:
            message = explain(error, ModelError, CommandError, WrongValue)
            raise Err(Failure(message, [])) from None
        finally:
            flush()
