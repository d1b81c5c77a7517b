"""What suites do in Ray's actors and tasks, done in this process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.suites import beir, judged


def without_actors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on; the titles of what actors would have been started for."""
    titles: list[str] = []

    def in_process(
        groups: list[list[int]], encoder: Any, precision: Any, placement: Any, work: Any, title: str
    ) -> Iterator[dict[str, Any]]:
        titles.append(title)
        annotator = Annotator(encoder, precision, torch.device("cpu"))
        for group in groups:
            yield from work(annotator, group)

    monkeypatch.setattr(judged, "in_actors", in_process)
    monkeypatch.setattr(beir, "in_one_task", lambda work, *arguments: work(*arguments))
    return titles
