"""Places that a training leaves behind where Ray Train's own processes died.

Ray Train frees its workers' places, or, should its controller die, a process beside it does. Where a node's memory
runs out Ray may end that one, too: then nobody is in the places and nobody frees them, and the next waits for ever.
"""

from __future__ import annotations

import time

import ray
from ray.util.placement_group import PlacementGroup, remove_placement_group

_LOOK_SECONDS = 1.0
_WAIT_SECONDS = 5.0
"""Until Ray knows of all that died."""


def free_left_places() -> int:
    """Free the places that an actor of this job asked for which is dead; in a few seconds.

    Returns:
        How many were freed.
    """
    freed: set[str] = set()
    ends = time.monotonic() + _WAIT_SECONDS
    while True:
        for name in _left() - freed:
            remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))
            freed.add(name)
        if time.monotonic() >= ends:
            return len(freed)
        time.sleep(_LOOK_SECONDS)


def _left() -> set[str]:
    # Ray's public tables don't say who asked for a group, and whether it lives. Another Ray may keep it elsewhere.
    try:
        from ray._private.state import state
        from ray.core.generated.gcs_pb2 import PlacementGroupTableData  # pyright: ignore[reportAttributeAccessIssue]

        table = state._connect_and_get_accessor().get_placement_group_table()
    except (ImportError, AttributeError):
        return set()
    groups = [PlacementGroupTableData.FromString(raw) for raw in table]
    job, nobody = ray.get_runtime_context().get_job_id(), ray.ActorID.nil().binary()
    return {
        group.placement_group_id.hex()
        for group in groups
        if group.creator_actor_dead
        and group.creator_actor_id not in (b"", nobody)  # of the driver's own Ray says so, too
        and group.creator_job_id.hex() == job
        and not group.is_detached
        and group.state != PlacementGroupTableData.REMOVED
    }
