"""The annotate stage without Ray: its passes in this process, on a small store, by as many actors as a test wants."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.annotate import documents, stage
from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.engine import TORCH, Engine
from infocse_ray.annotate.pipeline import Pipeline, Work
from infocse_ray.annotate.share import Share
from infocse_ray.corpus.store import TokenStore, documents_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision, embed
from infocse_ray.runtime.cluster import Placement
from infocse_ray.settings import Annotate
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet
from tests.unit.stores import Written, write_store

SPLITS = ["train", "test"]


def small_store(folder: Path, shift: int = 0, count: int = 40, by_key: bool = False) -> TokenStore:
    """Random documents in 6 shards; `shift` writes the same ones in other tokens, and every other sentence longer."""
    draw = random.Random(1)
    written = [
        Written(
            f"d{i}",
            [
                [(draw.randrange(60) + shift) % 60 + 5 for _ in range(draw.randint(1, 8))] + [50] * (shift * (j % 2))
                for j in range(draw.randint(2, 9))
            ],
            split=draw.choice(["train", "train", "valid", "test"]),
        )
        for i in range(count)
    ]
    return write_store(Storage.open(str(folder)), written, 6, by_key=by_key)


def encoder_in(folder: Path) -> EncoderFolder:
    """The encoder in a local folder, as stages take it."""
    return EncoderFolder(Storage.open(str(folder)), "x", 16)


class Crash(Exception):
    """What ends a process at a point that a test chooses."""


class Passes:
    """Runs `annotate` with its Ray replaced by plain calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, encoder: EncoderFolder) -> None:
        self.encoder, self.actors = encoder, 1
        self.groups_at_once = 1
        """That an actor has in its pipeline."""
        self.tokens: list[float | None] = []
        """That each pass was said to embed; None: whatever it embeds is for actors."""
        self.works: list[str] = []
        """The passes done so far, by name."""
        self.crash_before = ""
        monkeypatch.setattr(stage, "in_actors", self._in_actors)
        monkeypatch.setattr(stage, "in_one_task", lambda work, *arguments: work(*arguments))
        monkeypatch.setattr(stage, "quiet_data", lambda: None)
        # As few together as can be, so that there are groups to deal.
        monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 1)

    def _begin(self, work: Any) -> None:
        if (name := type(work).__name__) == self.crash_before:
            raise Crash
        self.works.append(name)

    def _in_actors(
        self,
        groups: list[list[int]],
        encoder: EncoderFolder,
        precision: Precision,
        where: Placement,
        work: Work,
        title: str = "annotating",
        engine: Engine = TORCH,
        tokens: float | None = None,
    ) -> Iterator[dict[str, Any]]:
        self._begin(work)
        self.tokens.append(tokens)
        pool = [
            Pipeline(
                lambda: Annotator(encoder, precision, torch.device("cpu"), engine), pickle.loads(pickle.dumps(work))
            )
            for _ in range(where.workers)
        ]
        order = list(enumerate(groups))
        with ThreadPoolExecutor(self.groups_at_once) as calls:
            for counts in calls.map(
                lambda dealt: pool[dealt[0] % where.workers](dealt[1]), order[::-1] if where.workers > 1 else order
            ):
                yield from json.loads(json.dumps(counts))

    def annotate(
        self,
        store: TokenStore,
        folder: Path,
        settings: Annotate,
        workers: int = 1,
        encoder_store: TokenStore | None = None,
        seed: int = 7,
        engine: Engine = TORCH,
        share: Share | None = None,
    ) -> dict[str, Any]:
        """The summary of the stage, whose pieces are in `folder`."""
        return stage.annotate(
            Stage("annotate", "f", Storage.open(str(folder))),
            store,
            SPLITS,
            self.encoder,
            settings,
            seed,
            "fp32",
            Placement(workers, False, 1),
            "annotating",
            encoder_store,
            engine,
            share,
        )


def pieces(folder: Path) -> dict[str, bytes]:
    """Every file of a stage."""
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def document_vectors(store: TokenStore, encoder: EncoderFolder) -> list[tuple[int, np.ndarray]]:
    """Key and float32 [sentences, d] of each document of SPLITS, embedded alone, in the order of the store."""
    loaded = encoder.load()
    found = []
    for shard in range(store.shards):
        for table in store.read(shard, SPLITS):
            here = documents_of(table)
            for i, key in enumerate(here.keys.tolist()):
                rows = np.arange(here.offsets[i], here.offsets[i + 1])
                found.append((key, embed(loaded, here.sentences.take(rows)).vectors.numpy()))
    return found


def written_clusters(store: TokenStore, folder: Path) -> dict[int, list[int]]:
    """The clusters of each document in a stage's folder, by key; row groups and rows are checked to be the store's."""
    found: dict[int, list[int]] = {}
    for shard in range(store.shards):
        with open_parquet(Storage.open(str(folder)) / f"shard-{shard:06d}.parquet") as file:
            assert file.schema_arrow.names == ["key", "cluster"], "no tokens"
            tables = [file.read_row_group(i) for i in range(file.num_row_groups)]
        for table, own in zip(tables, store.read(shard, SPLITS), strict=True):
            rows = dict(zip(table["key"].to_pylist(), table["cluster"].to_pylist(), strict=True))
            sizes = dict(zip(own["key"].to_pylist(), map(len, own["sentences"].to_pylist()), strict=True))
            assert {key: len(clusters) for key, clusters in rows.items()} == sizes
            found |= rows
    return found


def numbered(labels: list[int]) -> list[int]:
    """Labels by order of first appearance."""
    ids: dict[int, int] = {}
    return [ids.setdefault(label, len(ids)) for label in labels]
