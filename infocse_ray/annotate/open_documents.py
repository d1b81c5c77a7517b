"""How many documents of a lane training has open: no fewer must be annotated."""

POOL = 256
"""At least."""
DRAWS_IN_POOL = 4
"""Of each example that a batch takes of the lane, at least."""
AHEAD = 4
"""One document in so many is open beyond these, so that they enter by the dozen."""


def most_open(examples: int) -> int:
    """Documents of a lane that are open at most where a batch takes so many examples of it."""
    size = max(POOL, DRAWS_IN_POOL * examples)
    return size + size // AHEAD
