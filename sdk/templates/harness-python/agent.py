"""{{name}}: an agent that works with the shell.

The model writes shell lines as fenced blocks; each is run in the task's workspace. A reply
without a block is the answer.
"""

from dataclasses import dataclass
from typing import Annotated

from fulgurite.harness import (
    Capability,
    Conversation,
    Episode,
    Outcome,
    execute,
    fenced_blocks,
    gave_up,
    harness,
    submitted,
    transcript,
)

SYSTEM = """You work in a folder through its shell. To run a line, write
```bash
ls
```
and wait for the result. When you know the answer, write it and nothing else."""


@dataclass(frozen=True)
class Config:
    max_turns: Annotated[int, "Replies before it gives up."] = 10


@harness(
    name="{{name}}",
    version="0.1.0",
    config=Config,
    prompts={"system": SYSTEM},
    wants=[Capability.LLM, Capability.EXEC, Capability.WORKSPACE],
)
def run(episode: Episode[Config]) -> Outcome:
    conversation = Conversation.open(system=episode.prompts["system"])
    reply = conversation.send(episode.task.input)
    for _ in range(1, episode.config.max_turns):
        blocks = fenced_blocks(reply.text)
        if not blocks:
            return submitted(reply.text.strip())
        results = [transcript(execute(block.body), 4_000) for block in blocks]
        reply = conversation.send("\n".join(results))
    return gave_up(reply.text)
