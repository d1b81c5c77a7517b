"""What trainings of the tiny encoder read."""

from pathlib import Path

import pytest

from infocse_ray.sampling.shards import Shards
from tests.unit.trainees import annotated


@pytest.fixture(scope="session")
def annotations(tiny_encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Shards:
    """Annotated documents, which nobody changes."""
    return annotated(tmp_path_factory.mktemp("annotations"), tiny_encoder)
