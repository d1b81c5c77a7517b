"""Going on after damage: what was found damaged while a later stage read it is made again, in the same process."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from infocse_ray.checksums import Damaged
from infocse_ray.progress import say
from infocse_ray.stage import look_again

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

_ATTEMPTS = 4
"""A storage that damages more than that is the matter, not a file."""

_IN_A_TRACEBACK = re.compile(r"Damaged: (.+ is damaged .+)")


def repairing(work: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Call `work` again where it failed on damage: it finds its finished stages, and makes again what isn't whole.

    Raises:
        Damaged: with the line that names the file, after a few times.
    """

    @functools.wraps(work)
    def whole(*arguments: Parameters.args, **named: Parameters.kwargs) -> Result:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return work(*arguments, **named)
            except Exception as error:
                if (line := damage_in(error)) is None:
                    raise
                if attempt == _ATTEMPTS:
                    raise Damaged(line) from error
                say("a damaged file was found; what is whole is kept, and this goes on from there")
                look_again()
        raise AssertionError("unreachable")

    return whole


def damage_in(error: BaseException) -> str | None:
    """The line of the `Damaged` that is behind an error, raised here or in a worker; None if none is."""
    texts: list[str] = []
    for one in _behind(error, set()):
        if type(one) is Damaged:
            return str(one)
        texts.append(str(one))
    found = _IN_A_TRACEBACK.search("\n".join(texts))
    return found[1].strip() if found else None


def _behind(error: object, seen: set[int]) -> Iterator[BaseException]:
    """An error, and what its workers and causes raised."""
    if not isinstance(error, BaseException) or id(error) in seen:
        return
    seen.add(id(error))
    yield error
    failures = getattr(error, "worker_failures", {})
    for cause in (error.__cause__, getattr(error, "cause", None), *failures.values()):
        yield from _behind(cause, seen)
