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
from typing import Any, Generic, TypeVar, Unpack

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
from wit_world.imports import trace as _trace
from wit_world.imports.budget import Remaining

from .commands import (
    Captured,
    CommandError,
    CommandOptions,
    ExecError,
    Output,
    Stop,
    call_command,
    stdout,
    to_request,
    transcript,
)
from .configuration import NoConfig, WrongValue, parse, schema_of
from .conversation import Conversation, Pending, wait_any
from .export import PluginError, Registered, answered
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
    tool,
    tool_calls,
    user,
)
from .model import (
    LlmError,
    ModelError,
    ModelInfo,
    Reply,
    ReplyOptions,
    TokenReply,
    chat,
    generate,
    model_info,
)
from .text import Block, clip, fenced_blocks

__all__ = [
    "Agent",
    "Block",
    "BudgetKind",
    "Capability",
    "Captured",
    "CommandError",
    "CommandOptions",
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
    "ReplyOptions",
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


def execute(command: str | Sequence[str], **options: Unpack[CommandOptions]) -> Output:
    """Runs a shell line, or a program with its arguments, in the workspace. A command that fails
    is an output with its status."""
    return call_command(_exec.run, to_request(command, **options))


def programs() -> list[str]:
    """Names of the programs and commands that exist, sorted."""
    return _exec.programs()


def _pairs(values: Mapping[str, object]) -> list[tuple[str, str]]:
    return [(name, str(value)) for name, value in values.items()]


def event(name: str, **fields: object) -> None:
    """Records in the trace that something happened."""
    _trace.event(name, _pairs(fields))


def metric(name: str, value: float) -> None:
    """Records a number in the trace. It never is a score."""
    _trace.metric(name, value)


def budget_left() -> Remaining:
    """What is left of the episode's limits; none means unlimited."""
    return _budget.left()


def submitted(answer: str, **notes: object) -> Outcome:
    """The agent holds the task to be done."""
    return Outcome(Status.SUBMITTED, answer, _pairs(notes))


def gave_up(answer: str = "", **notes: object) -> Outcome:
    """The agent stopped without holding the task to be done; the answer is what it has."""
    return Outcome(Status.GAVE_UP, answer, _pairs(notes))


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
class _Harness:
    run: Callable[[Episode[Any]], Outcome]
    config: type[Any]
    prompts: Mapping[str, str]
    description: Description


_registered = Registered[_Harness]("harness")


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
        _registered.put(_Harness(run, config, texts, description))
        return run

    return register


class Agent(exports.Agent):
    """What the component exports. `fulgurite build` names it to componentize-py."""

    def describe(self) -> Description:
        """The description, made when the component was built."""
        return _registered.get().description

    def run(self, task: Task, config: str) -> Outcome:
        """One episode."""
        registered = _registered.get()

        def work() -> Outcome:
            settings, prompts = parse(registered.config, config, registered.prompts)
            return registered.run(Episode(task, settings, prompts))

        def failure(message: str) -> Failure:
            return Failure(message, [])

        return answered(work, failure, ModelError, CommandError, WrongValue)
