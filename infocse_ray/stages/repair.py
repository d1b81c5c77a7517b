"""Repair: what turns out damaged when a later stage reads it is made again, in the same process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from infocse_ray.errors import DamagedFile
from infocse_ray.runtime.failures import caused_by
from infocse_ray.runtime.progress import say
from infocse_ray.stages.stage import look_again

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_ATTEMPTS = 4
"""A storage that damages more than that is the matter, not a file."""


def repairing(work: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Call `work` again where it failed on damage: it finds its finished stages, and makes again what isn't whole.

    Raises:
        DamagedFile: with the line that names the file, after a few times.
    """

    @functools.wraps(work)
    def whole(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return work(*arguments, **named)
            except Exception as error:
                if (damage := caused_by(error, DamagedFile)) is None:
                    raise
                if attempt == _ATTEMPTS:
                    raise damage from error
                say("a damaged file was found; it is made again from what is intact")
                look_again()
        raise AssertionError("unreachable")

    return whole
