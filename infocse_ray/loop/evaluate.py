"""Score encoders on splits of a corpus: a stage for each thing asked, one group of workers for all that are missing."""

from __future__ import annotations

import contextlib
import itertools
import operator
import time
from typing import Any, NamedTuple

import pyarrow as pa
import torch

from infocse_ray.corpus.store import TokenStore
from infocse_ray.distributed.collectives import rank, workers
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision, for_inference
from infocse_ray.retrieval.held_out import HeldOut
from infocse_ray.retrieval.questions import TOP_KEYS
from infocse_ray.retrieval.scores import Scores
from infocse_ray.retrieval.validation import On, Questions, questions_for, score_under
from infocse_ray.runtime.cluster import Placement, assigned_cores, worker_device
from infocse_ray.runtime.progress import Board, waits_kept
from infocse_ray.settings import Reading, fingerprint
from infocse_ray.stages.lease import Lease
from infocse_ray.stages.stage import Stage, find_stage, making, reopen, run_stage
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import write_parquet
from infocse_ray.train.trainer import run_one_worker, run_workers

_FORMAT = 2
"""Counted up when the same inputs begin to give another result; 1 had no intervals."""


class Asked(NamedTuple):
    """An encoder, and what it is asked."""

    encoder: EncoderFolder
    split: str
    """Whose documents ask: train, valid or test."""
    on: On
    """What a document must find."""
    max_documents: int | None = None
    """About how many of them ask, as in `questions_for`; None: all."""
    max_candidates: int | None = None
    """About how many counterparts are ranked, likewise."""
    reading: Reading = "sentences"
    """How documents become vectors, where they must find counterparts; it says nothing of other questions."""

    @property
    def questions(self) -> tuple[Any, ...]:
        """The questions, whichever encoder answers them."""
        # Stages from before there were these keep their names.
        bound = () if self.max_candidates is None else (self.max_candidates,)
        read = () if self.reading == "sentences" or self.on != "counterpart" else (self.reading,)
        return self.split, self.on, self.max_documents, *bound, *read


def scores_of(run: Storage) -> Storage:
    """Where the evaluations of a run go, by its folder."""
    return run / "scores"


class _Evaluation(NamedTuple):
    store: TokenStore
    precision: Precision
    seed: int
    todo: list[tuple[Asked, Storage]]
    board: Any


def evaluate(
    root: Storage,
    folder: Storage,
    store: TokenStore,
    asked: list[Asked],
    precision: Precision,
    placement: Placement,
    seed: int,
    whose: str | None = None,
) -> list[Stage]:
    """Score encoders: starting workers takes longer than most questions, so ask all that there is to ask at once.

    Args:
        root: the storage that runs share.
        folder: where this run's evaluations go.
        store: the corpus, tokenised with the encoders' tokenizer.
        asked: which encoder is asked what; the same may be there twice.
        precision: of embedding.
        placement: of the workers.
        seed: of the draw of sentences, where `on` is `sentence`; otherwise it changes nothing.
        whose: documents ask, for the progress bar; None: those of the splits.

    Returns:
        A finished stage for each of `asked`: its summary has the `metrics`, its `ranks/` a Parquet file a worker
        with a row for each question: `doc_id`, `key` (`Questions.question_keys`), `rank`, and the keys of the
        candidates found first, second and third: `top_key`, `second_key`, `third_key`, 0 where there is none.
    """
    places: list[tuple[Asked, Storage, str]] = []
    for one in asked:
        identity = _identity(store, one, precision, seed)
        places.append((one, folder / identity, identity))
    with contextlib.ExitStack() as held:
        leases: dict[str, Lease] = {}
        # In an order of their own: two drivers that wait for each other's would wait for ever.
        for _, place, identity in sorted(places, key=lambda one: one[2]):
            if identity not in leases and find_stage(root, place, identity) is None:
                lease = held.enter_context(making(root, place, "evaluate", identity))
                if lease is not None:
                    leases[identity] = lease
        missing = {i: (one, reopen(root, p, "evaluate", i)) for one, p, i in places if i in leases}
        for _, place in missing.values():
            (place / "ranks").delete()  # another number of workers would leave some of another's parts
        todo = list(missing.values())

        def scored(stage: Stage) -> dict[str, Any]:
            """The first stage that is made makes all: the start of the workers counts as its own."""
            starting = 0.0
            if todo:
                title = f"evaluating on {whose or ' and '.join(dict.fromkeys(one.split for one, _ in todo))}"
                with waits_kept() as waits, Board(title, unit="scores", total=len(todo)) as board:
                    _in_workers(_Evaluation(store, precision, seed, todo, board.handle), placement, folder, title)
                starting = sum(waits)
                todo.clear()
            content = read_checked(stage.folder / "metrics.json")
            return content | {"seconds": round(content["seconds"] + starting, 2)}

        return [
            run_stage(
                root,
                missing[identity][1] if identity in missing else place,
                "evaluate",
                identity,
                scored,
                lease=leases.get(identity),
            )
            for _, place, identity in places
        ]


def known_scores(
    root: Storage, folder: Storage, store: TokenStore, asked: Asked, precision: Precision, seed: int
) -> dict[str, Any] | None:
    """The metrics that `evaluate` has found already, with the same arguments; None if it has not."""
    identity = _identity(store, asked, precision, seed)
    stage = find_stage(root, folder / identity, identity)
    return None if stage is None else (stage.summary or {})["metrics"]


def _identity(store: TokenStore, asked: Asked, precision: Precision, seed: int) -> str:
    drawn = seed if asked.on == "sentence" else None
    parts = store.fingerprint, asked.encoder.fingerprint, asked.questions, precision, drawn
    return fingerprint("evaluate", _FORMAT, *parts)


def _in_workers(evaluation: _Evaluation, placement: Placement, folder: Storage, title: str) -> None:
    if placement.workers == 1:
        run_one_worker(_evaluate_worker, evaluation, placement, folder, title)
        return
    name = f"workers-{fingerprint([place.name for _, place in evaluation.todo])}"
    run_workers(_evaluate_worker, evaluation, placement, folder, name, max_failures=1, title=title)
    (folder / name).delete()  # a finished Ray Train run of this name would not run again


def _evaluate_worker(evaluation: _Evaluation) -> None:
    """Encoders that differ in nothing but their whitening embed once what they are asked alike."""
    torch.set_num_threads(assigned_cores())
    device = worker_device()
    if rank() == 0:
        evaluation.board.begin.remote()
    begun, done = time.monotonic(), 0
    named = [(repr(one.questions), one.encoder.before_whitening(), one, place) for one, place in evaluation.todo]
    by_questions, by_encoder = operator.itemgetter(0), operator.itemgetter(1)
    for _, same_questions in itertools.groupby(sorted(named, key=operator.itemgetter(0, 1)), key=by_questions):
        asked = list(same_questions)
        one = asked[0][2]
        drawn = {"device": device, "seed": evaluation.seed, "max_candidates": one.max_candidates}
        questions = questions_for(evaluation.store, one.split, one.on, one.max_documents, **drawn, reading=one.reading)
        for _, same_encoder in itertools.groupby(asked, key=by_encoder):
            folders, places = zip(*((one.encoder, place) for *_, one, place in same_encoder), strict=True)
            plain = for_inference(folders[0].without_whitening().load(), evaluation.precision, device)
            maps = [None if (one := folder.whitening()) is None else one.to(device) for folder in folders]
            scores = score_under(plain, maps, questions, top=len(TOP_KEYS))
            seconds = round((time.monotonic() - begun) / len(folders), 2)
            for place, one in zip(places, scores, strict=True):
                _write(place, questions, one, seconds)
                done += 1
                if rank() == 0:
                    evaluation.board.set.remote(done, "")
            begun = time.monotonic()


def _write(place: Storage, questions: Questions | HeldOut, scores: Scores, seconds: float) -> None:
    """This worker's ranks, and of worker 0 everybody's metrics."""
    table = pa.table(
        {
            "doc_id": pa.array(questions.doc_ids, pa.string()),
            "key": questions.question_keys,
            "rank": scores.ranks,
            **dict(zip(TOP_KEYS, scores.top_keys.T, strict=True)),
        }
    )
    write_parquet(place / "ranks" / f"part-{rank():05d}.parquet", table, [len(table)])
    if rank() == 0:
        for name in (place / "ranks").files():  # of a group of more workers, that lost one
            if name >= f"part-{workers():05d}":
                (place / "ranks" / name).delete()
        (place / "metrics.json").write_json(checked({"metrics": scores.metrics, "seconds": seconds}))
