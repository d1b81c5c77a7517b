"""The curves of a training, out of TensorBoard's event files.

An event file is a row of records, each a length (uint64), a checksum of it (4 bytes), so many bytes and their checksum
(4 bytes): https://www.tensorflow.org/tutorials/load_data/tfrecord. A record is a protocol buffer; of its fields those
are named here that the files of `tracking/tensorboard.py` have. (tensorboardX, which writes them, loads torch.)
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Collection
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message, message_factory

from infocse_ray.storage.folder import Storage
from infocse_ray.tracking.event_files import early_suffix, suffixes

Curve = list[tuple[int, float]]
"""Steps, ascending, with values."""

_FIELDS: dict[str, list[tuple[str, int, str]]] = {
    "Value": [("tag", 1, "STRING"), ("simple_value", 2, "FLOAT")],
    "Summary": [("value", 1, "Value")],
    "SessionLog": [("status", 1, "INT32")],
    "Event": [("step", 2, "INT64"), ("summary", 5, "Summary"), ("session_log", 7, "SessionLog")],
}
_REPEATED = ("Summary", "value")
_START = 1
"""Status of the session log that says: forget the steps from here on."""


def read_curves(
    run: Storage, training: str, stage: tuple[str, str] | None = None, without: Collection[str] = ()
) -> dict[str, Curve]:
    """What TensorBoard shows of a training, by tag, such as `train/loss`; nothing where there are no files.

    A file says at the end of its name which stage's it is: trainings of one name, with other settings, have several.

    Args:
        run: its folder.
        training: such as `iteration_1`.
        stage: the stage's folder, relative to the storage, and its fingerprint; None: that isn't known, of what an
            earlier version began.
        without: folders of stages that are left out.
    """
    folder, points = run / "events" / training, {}
    left_out = tuple(map(early_suffix, without))
    its = None if stage is None else suffixes(*stage)
    for name in sorted(folder.files()):
        if not name.endswith(left_out) if its is None else name.endswith(its):
            _add(points, (folder / name).read_bytes())
    return {tag: sorted(values.items()) for tag, values in points.items()}


def _add(points: dict[str, dict[int, float]], content: bytes) -> None:
    """Add a file's points; what a training wrote last may be cut off."""
    event_of = _event()
    while len(content) >= 12:
        (size,) = struct.unpack("<Q", content[:8])
        data, content = content[12 : 12 + size], content[16 + size :]
        try:
            event = event_of.FromString(data)
        except message.DecodeError:
            return
        if event.session_log.status == _START:
            for values in points.values():
                for step in [step for step in values if step >= event.step]:
                    del values[step]
        for one in event.summary.value:
            points.setdefault(one.tag, {})[event.step] = one.simple_value


@functools.cache
def _event() -> Any:
    """The class of events, from the fields above."""
    types = []
    for name, fields in _FIELDS.items():
        made = []
        for field, number, kind in fields:
            label = "LABEL_REPEATED" if (name, field) == _REPEATED else "LABEL_OPTIONAL"
            of = (
                {"type": "TYPE_MESSAGE", "typeName": f".events.{kind}"} if kind in _FIELDS else {"type": f"TYPE_{kind}"}
            )
            made.append({"name": field, "number": number, "label": label, **of})
        types.append({"name": name, "field": made})
    content = {"name": "events.proto", "package": "events", "syntax": "proto3", "messageType": types}
    pool = descriptor_pool.DescriptorPool()
    pool.Add(json_format.ParseDict(content, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("events.Event"))
