"""Score encoders on a split of a corpus: one stage an encoder, one group of workers for all that are missing."""

from __future__ import annotations

import contextlib
import time
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from infocse_ray.checksums import checked, read_checked
from infocse_ray.cluster import Placement, assigned_cores, worker_device
from infocse_ray.collective import rank, workers
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision, for_inference
from infocse_ray.lease import Lease
from infocse_ray.progress import Board
from infocse_ray.retrieval.validation import On, questions_for, score
from infocse_ray.settings import fingerprint
from infocse_ray.stage import Stage, find_stage, making, reopen, run_stage
from infocse_ray.storage import Storage
from infocse_ray.train.trainer import run_workers


class _Evaluation(NamedTuple):
    store: TokenStore
    split: str
    on: On
    precision: Precision
    todo: list[tuple[EncoderFolder, Storage]]
    board: Any


def evaluate(
    root: Storage,
    folder: Storage,
    store: TokenStore,
    encoders: list[EncoderFolder],
    split: str,
    on: On,
    precision: Precision,
    placement: Placement,
) -> list[Stage]:
    """Score every encoder on the documents of `split`.

    Args:
        root: the storage that runs share.
        folder: where this run's evaluations go.
        store: the corpus, tokenised with the encoders' tokenizer.
        encoders: what to score.
        split: train, valid or test.
        on: what a document must find.
        precision: of embedding.
        placement: of the workers.

    Returns:
        A finished stage for each encoder: its summary has the `metrics`, its `ranks/` a Parquet file a worker
        with a row for each question: `doc_id`, `key` (of the true counterpart), `rank` and `top_key`, the key of the
        counterpart found first.
    """
    places: list[tuple[EncoderFolder, Storage, str]] = []
    for encoder in encoders:
        identity = fingerprint("evaluate", store.fingerprint, encoder.fingerprint, split, on, precision)
        places.append((encoder, folder / identity, identity))
    with contextlib.ExitStack() as held:
        leases: dict[str, Lease] = {}
        # In an order of their own: two drivers that wait for each other's would wait for ever.
        for _, place, identity in sorted(places, key=lambda one: one[2]):
            if identity not in leases and find_stage(root, place, identity) is None:
                lease = held.enter_context(making(root, place, "evaluate", identity))
                if lease is not None:
                    leases[identity] = lease
        missing = {i: (e, reopen(root, p, "evaluate", i)) for e, p, i in places if i in leases}
        for _, place in missing.values():
            (place / "ranks").delete()  # another number of workers would leave some of another's parts
        todo = list(missing.values())
        if todo:
            title = f"evaluating on {split}"
            with Board(title, unit="encoders", total=len(todo)) as board:
                argument = _Evaluation(store, split, on, precision, todo, board.handle)
                name = f"workers-{fingerprint([place.name for _, place in todo])}"
                run_workers(_evaluate_worker, argument, placement, folder, name, max_failures=1, title=title)
                (folder / name).delete()  # a finished Ray Train run of this name would not run again
        return [
            run_stage(
                root,
                missing[identity][1] if identity in missing else place,
                "evaluate",
                identity,
                lambda stage: read_checked(stage.folder / "metrics.json"),
                lease=leases.get(identity),
            )
            for _, place, identity in places
        ]


def _evaluate_worker(evaluation: _Evaluation) -> None:
    torch.set_num_threads(assigned_cores())
    device = worker_device()
    questions = questions_for(evaluation.store, evaluation.split, evaluation.on, device=device)
    for number, (encoder, place) in enumerate(evaluation.todo):
        begun = time.monotonic()
        scores = score(for_inference(encoder.load(), evaluation.precision, device), questions)
        table = pa.table(
            {
                "doc_id": pa.array(questions.doc_ids, pa.string()),
                "key": questions.true_keys,
                "rank": scores.ranks,
                "top_key": scores.top_keys,
            }
        )
        (place / "ranks" / f"part-{rank():05d}.parquet").write_parquet(table, [len(table)])
        if rank() == 0:
            for name in (place / "ranks").files():  # of a group of more workers, that lost one
                if name >= f"part-{workers():05d}":
                    (place / "ranks" / name).delete()
            seconds = round(time.monotonic() - begun, 2)
            (place / "metrics.json").write_json(checked({"metrics": scores.metrics, "seconds": seconds}))
            evaluation.board.set.remote(number + 1, "")


def ranks_of(stage: Stage) -> dict[tuple[str, int], tuple[int, int]]:
    """Every question's rank and the key found first, by the document's id and the true counterpart's key."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for name in (stage.folder / "ranks").files():
        with (stage.folder / "ranks" / name).parquet() as file:
            rows = file.read().to_pydict()
        questions = zip(rows["doc_id"], rows["key"], strict=True)
        found |= dict(zip(questions, zip(rows["rank"], rows["top_key"], strict=True), strict=True))
    return found
