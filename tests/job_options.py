"""The command line of a job that takes seconds."""

from __future__ import annotations

from pathlib import Path


def options_for(folder: Path, name: str, encoder: Path, **more: str) -> list[str]:
    """Of a run on `folder/corpus.jsonl`; `train__max_steps="5"` is `--train.max_steps 5`, and wins."""
    options = {
        "--name": name,
        # A storage of its own, so that no stage is shared with other runs.
        "--storage": str(folder / name),
        "--encoder.model": str(encoder),
        "--encoder.max_length": "16",
        "--corpus.source": str(folder / "corpus.jsonl"),
        "--corpus.lanes": "16",
        "--corpus.valid_fraction": "0.2",
        "--train.batch_size": "16",
        "--train.max_steps": "120",
        "--train.learning_rate": "0.001",
        "--train.similarity": "cosine",
        "--train.temperature": "0.05",
        "--train.chunk_tokens": "512",
        "--validate.every": "30",
        "--train.checkpoint_every": "30",
        "--loop.initialization": "none",
        "--loop.max_iterations": "1",
    } | {f"--{setting.replace('__', '.')}": value for setting, value in more.items()}
    return [part for option in options.items() for part in option]
