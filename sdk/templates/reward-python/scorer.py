"""{{name}}: a reward.

Grading data of a task: `{"answer": "..."}`. Design it so that no cheap answer scores well, and
let `fulgurite reward check` try some.
"""

from dataclasses import dataclass
from typing import Annotated

from fulgurite.reward import Episode, Score, reward


@dataclass(frozen=True)
class Config:
    turn_cost: Annotated[
        float,
        "What each turn after the first costs. An episode passes at 1, so any cost makes passing",
        "a matter of the first turn.",
    ] = 0.0


@reward(name="{{name}}", version="0.1.0", config=Config)
def score(episode: Episode, config: Config) -> Score:
    right = episode.ending().answer.strip() == episode.grading()["answer"]
    if not right:
        return Score(0.0, components={"right": 0.0})
    turns = max(episode.turn_count() - 1, 0)
    # A right answer stays worth more than a wrong one, however long it took.
    return Score(max(1.0 - config.turn_cost * turns, 0.5), components={"right": 1.0})
