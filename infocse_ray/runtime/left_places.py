"""Places that a training leaves behind where Ray Train's own processes died.

Ray Train frees its workers' places, or, should its controller die, a process beside it does. Where a node's memory
runs out Ray may end that one, too: then nobody is in the places and nobody frees them, and the next waits for ever.
"""

from __future__ import annotations

import time

import ray
from ray.util.placement_group import PlacementGroup, placement_group_table, remove_placement_group

from infocse_ray.runtime.placement import Placement

_LOOK_SECONDS = 1.0
_WAIT_SECONDS = 30.0
"""For workers that end because their controller did."""


class LeftPlaces:
    """Those that come after this was made."""

    def __init__(self) -> None:
        self._before = set(placement_group_table())

    def free(self, where: Placement) -> int:
        """Free those that are as a training's and that nobody is in.

        Args:
            where: of the training's workers.

        Returns:
            How many were freed.
        """
        freed, empty, ends = 0, set(), time.monotonic() + _WAIT_SECONDS
        while (left := self._like(where)) and time.monotonic() < ends:
            before, empty = empty, {name for name in left if _is_empty(name)}
            for name in before & empty:  # in two looks: what a training just got it fills at once
                remove_placement_group(PlacementGroup(ray.PlacementGroupID(bytes.fromhex(name))))
                empty.discard(name)
                freed += 1
            time.sleep(_LOOK_SECONDS)
        return freed

    def _like(self, where: Placement) -> list[str]:
        return [
            name
            for name, group in placement_group_table().items()
            if name not in self._before
            and group["state"] == "CREATED"
            and all(bundle == where.bundle for bundle in group["bundles"].values())
        ]


def _is_empty(name: str) -> bool:
    """Whether no task and no actor is in a group: each takes a thousandth of a place."""
    place = f"bundle_group_{name}"
    return ray.available_resources().get(place, 0.0) == ray.cluster_resources().get(place, -1.0)
