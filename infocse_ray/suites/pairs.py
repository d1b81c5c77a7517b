"""The suite `sts`: files of scored sentence pairs; Spearman's rank correlation with intervals over pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.retrieval.correlation import Estimate, spearman_difference, spearman_estimate
from infocse_ray.retrieval.sts import StsPairs, sts_cosines
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from infocse_ray.suites.judged import Judged
from infocse_ray.suites.rows import Row

_FORMAT = 1


class _Pairs:
    """Writes the cosines of all pairs."""

    def __init__(self, pairs: StsPairs, folder: Storage) -> None:
        self.pairs, self.folder = pairs, folder

    def __call__(self, annotator: Annotator, shards: list[int]) -> list[dict[str, Any]]:
        cosines = sts_cosines(annotator.encoder, self.pairs)
        table = pa.table({"cosine": cosines, "score": self.pairs.scores})
        write_parquet(self.folder / "pairs.parquet", table, [len(table)])
        return [{"pairs": len(table)}]


def judge_pairs(judged: Judged, name: str, pairs: StsPairs) -> tuple[Row, dict[str, str]]:
    """Compare every encoder's cosines with the scores.

    Args:
        judged: the encoders.
        name: of the data set.
        pairs: what the file has.

    Returns:
        The row, and where the cosines of single pairs are, by encoder.
    """
    stages = {whose: _judged(judged, name, encoder, pairs) for whose, encoder in judged.encoders.items()}
    files = {whose: str(stage.folder / "pairs.parquet") for whose, stage in stages.items()}
    of = {whose: _estimate(stage) for whose, stage in stages.items()}
    row = Row("sts", name, "sentences", "Spearman", of["model"], questions=len(pairs.scores))
    if "compare" not in of:
        return row, files
    cosines = {whose: _cosines(stage) for whose, stage in stages.items()}
    difference = spearman_difference(cosines["model"], cosines["compare"], pairs.scores)
    return row._replace(before=of["compare"], difference=difference), files


def _judged(judged: Judged, name: str, encoder: EncoderFolder, pairs: StsPairs) -> Stage:
    def work(stage: Stage) -> dict[str, Any]:
        judged.in_actors(encoder, 1, _Pairs(pairs, stage.folder), f"judging {name}", "pairs", len(pairs.scores))
        return {"spearman": spearman_estimate(_cosines(stage), pairs.scores)._asdict()}

    identity = fingerprint("sts suite", _FORMAT, pairs.fingerprint, encoder.fingerprint, judged.settings.precision)
    return judged.stage("sts", identity, work)


def _estimate(stage: Stage) -> Estimate:
    return Estimate(**(stage.summary or {})["spearman"])


def _cosines(stage: Stage) -> np.ndarray:
    with open_parquet(stage.folder / "pairs.parquet") as file:
        return file.read()["cosine"].to_numpy()
