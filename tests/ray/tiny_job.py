"""Settings of a job that takes seconds, whose training ends by tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infocse_ray.settings import Settings


def settings_for(folder: Path, model: Path, name: str, /, **sections: Any) -> Settings:
    """Of the corpus `folder/corpus.jsonl`; sections are added to what is there."""
    content: dict[str, Any] = {
        "name": name,
        "storage": str(folder / "runs"),
        "corpus": {"source": str(folder / "corpus.jsonl"), "lanes": 4, "valid_fraction": 0.2, "test_fraction": 0.2},
        "encoder": {"model": str(model), "max_length": 16, "precision": "fp32"},
        "train": {"batch_size": 16, "max_tokens": 1500, "learning_rate": 1e-3, "similarity": "cosine"},
        "validate": {"every_tokens": 700},
    }
    for section, values in sections.items():
        content[section] = content.get(section, {}) | values
    return Settings.model_validate(content)
