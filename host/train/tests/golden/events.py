"""Writes events.hex: an event file as TensorBoard 2.21 itself writes it, after reading it back.

Run with TensorBoard: python events.py > events.hex
"""

import os
import sys
import tempfile

from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

moment = 1796051820.5


def scalars(**tags):
    values = [Summary.Value(tag=tag.replace("__", "/"), simple_value=value) for tag, value in tags.items()]
    return Summary(value=values)


events = [
    Event(wall_time=moment, file_version="brain.Event:2"),
    Event(wall_time=moment, step=0, summary=scalars(reward__train=0.25, loss=-1.5)),
    Event(wall_time=moment, step=300, summary=scalars(reward__train=0.75)),
]
path = os.path.join(tempfile.mkdtemp(), "events.out.tfevents.0")
with open(path, "wb") as file:
    writer = RecordWriter(file)
    for event in events:
        writer.write(event.SerializeToString())
assert len(list(EventFileLoader(path).Load())) == 3
print(open(path, "rb").read().hex())
