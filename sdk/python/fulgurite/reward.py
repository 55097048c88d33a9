"""For rewards: scorers of finished episodes.

    from fulgurite.reward import Episode, NoConfig, Score, reward

    @reward(name="same", version="0.1.0")
    def score(episode: Episode, config: NoConfig) -> Score:
        right = episode.ending().answer.strip() == episode.grading()["answer"]
        return Score(float(right))

A reward runs after the episode, in a store of its own, over records that the host keeps. An
exception is an alarm for the owner of the run; for bad work answer a low score.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from wit_world import exports
from wit_world.exports.scorer import Component, Description, Failure, Scores, TurnValue
from wit_world.imports.episode import (
    Change,
    Change_Added as Added,
    Change_Modified as Modified,
    Change_Removed as Removed,
    EntryKind,
    Status,
)

from .commands import (
    Captured,
    CommandError,
    CommandOptions,
    ExecError,
    Output,
    Stop,
    stdout,
    transcript,
)
from .configuration import NoConfig, WrongValue, parse, schema_of
from .export import PluginError, Registered, answered
from .grading import Base, GraderError, Sandbox, SandboxError, run_connected
from .messages import (
    FinishReason,
    Message,
    Part,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolCallPart,
    ToolResult,
    ToolResultPart,
    Usage,
    plain_text,
    tool_calls,
)
from .recorded import ChangeEntry, Ending, Episode, FileError, GradedTask, ReadError, Turn
from .text import Block, clip, fenced_blocks

__all__ = [
    "Added",
    "Base",
    "Block",
    "Captured",
    "Change",
    "ChangeEntry",
    "CommandError",
    "CommandOptions",
    "Description",
    "Ending",
    "EntryKind",
    "Episode",
    "ExecError",
    "FileError",
    "FinishReason",
    "GradedTask",
    "GraderError",
    "Message",
    "Modified",
    "NoConfig",
    "Output",
    "Part",
    "PluginError",
    "ReadError",
    "Removed",
    "Role",
    "Sandbox",
    "SandboxError",
    "Score",
    "Scorer",
    "Status",
    "Stop",
    "Text",
    "Thinking",
    "ToolCall",
    "ToolCallPart",
    "ToolResult",
    "ToolResultPart",
    "Turn",
    "Usage",
    "WrongValue",
    "clip",
    "fenced_blocks",
    "plain_text",
    "reward",
    "run_connected",
    "stdout",
    "tool_calls",
    "transcript",
]

C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Score:
    """What an episode is worth."""

    total: float
    """Finite."""
    components: Mapping[str, float] = field(default_factory=dict)
    """Named parts, for people and metrics."""
    turns: Mapping[int, float] = field(default_factory=dict)
    """Values of single turns, where the reward gives them."""
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Reward:
    score: Callable[[Episode, Any], Score]
    config: type[Any]
    description: Description


_registered = Registered[_Reward]("reward")


def reward(
    *,
    name: str,
    version: str,
    config: type[C] = NoConfig,  # type: ignore[assignment]
) -> Callable[[Callable[[Episode, C], Score]], Callable[[Episode, C], Score]]:
    """Makes a function the reward of this component. Once a plugin.

    `config` is a dataclass: its JSON Schema is part of the description, and what does not fit is
    a failure of the reward.
    """
    description = Description(name, version, json.dumps(schema_of(config)))

    def register(score: Callable[[Episode, C], Score]) -> Callable[[Episode, C], Score]:
        _registered.put(_Reward(score, config, description))
        return score

    return register


class Scorer(exports.Scorer):
    """What the component exports. `fulgurite build` names it to componentize-py."""

    def describe(self) -> Description:
        """The description, made when the component was built."""
        return _registered.get().description

    def score(self, config: str) -> Scores:
        """Scores the episode behind the import."""
        registered = _registered.get()

        def work() -> Scores:
            settings, _ = parse(registered.config, config, {})
            score = registered.score(Episode(), settings)
            return Scores(
                total=float(score.total),
                components=[Component(part, float(v)) for part, v in score.components.items()],
                turns=[TurnValue(turn, float(v)) for turn, v in score.turns.items()],
                notes=list(score.notes.items()),
            )

        return answered(work, Failure, CommandError, FileError, SandboxError, WrongValue)
