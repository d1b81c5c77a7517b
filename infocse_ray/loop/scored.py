"""Encoders scored on a corpus, one alone or two side by side: the work of `infocse evaluate`."""

from __future__ import annotations

from typing import NamedTuple

import torch

from infocse_ray.corpus.prepare import prepare, show_rejected
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import for_inference
from infocse_ray.encoder.model import SentenceEncoder, load_encoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop.evaluate import Asked, evaluate
from infocse_ray.retrieval.examples import Texts, examples
from infocse_ray.retrieval.questions import compare
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.sts import StsPairs, read_sts, sts_spearman
from infocse_ray.retrieval.validation import On
from infocse_ray.retrieval.verdict import versus
from infocse_ray.runtime.cluster import Placement, connect, placement
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Encoder, Train, fingerprint
from infocse_ray.settings.commands import Evaluate
from infocse_ray.stages.repair import repairing
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted


class Scored(NamedTuple):
    """An encoder and what it scored."""

    name: str
    stage: Stage
    store: TokenStore
    tokenizer: str
    spearman: float | None

    @property
    def metrics(self) -> dict[str, float]:
        """Of all questions, with what sentence pairs say, if they were asked."""
        metrics: dict[str, float] = (self.stage.summary or {})["metrics"]
        return metrics if self.spearman is None else metrics | {"sts_spearman": self.spearman}


@repairing
def evaluate_encoders(settings: Evaluate) -> list[Scored]:
    """Score and report; what `model` scored and, where there is one, `compare`."""
    corpus = settings.corpus
    if settings.split == "all":
        corpus = corpus.model_copy(update={"split": None, "valid_fraction": 0.0, "test_fraction": 0.0})
    source = find_source(corpus)
    if settings.split == "all":
        source.columns.pop("split", None)
    pairs = None if settings.sts is None else read_sts(settings.sts, "sts")
    encoders = {"model": _load(settings, "model", settings.model)}
    if settings.compare is not None:
        encoders["compare"] = _load(settings, "compare", settings.compare)
    root = Storage.for_runs(settings.storage)
    connect()
    where = placement(Train(num_workers=settings.num_workers, use_gpu=settings.use_gpu))
    stores: dict[str, TokenStore] = {}
    for encoder in encoders.values():
        if (tokenizer := encoder.corpus_tokenizer()) not in stores:
            stores[tokenizer] = prepare(root, corpus, source, tokenizer)
    store = next(iter(stores.values()))
    on = _asked(settings, store)
    say(f"{sum(store.summary['documents'][s] for s in SPLITS):,} documents; {show_rejected(store)}")
    scored = _score(settings, root, encoders, stores, on, where, pairs)
    _show_scores(settings, scored, on)
    if settings.compare is not None:
        _compare(settings, scored, on)
    for one in scored:
        say(f"figures: {one.stage.folder / 'metrics.json'}; every question's rank: {one.stage.folder / 'ranks'}")
    return scored


def _load(settings: Evaluate, setting: str, model: str) -> SentenceEncoder:
    shape = Encoder(
        model=model,
        pooling=settings.pooling,
        max_length=settings.max_length,
        document_prompt=settings.document_prompt,
        query_prompt=settings.query_prompt,
    )
    cosine = settings.similarity == "cosine"
    return load_encoder(resolve_encoder(model, setting), shape, cosine=cosine, setting=setting)


def _asked(settings: Evaluate, store: TokenStore) -> On:
    """What documents must find.

    Raises:
        ValueError: there is nothing to ask.
    """
    labelled, there = (store.summary[name][settings.place] for name in ("labelled", "documents"))
    if settings.on == "counterpart" and not labelled:
        raise ValueError(
            f"on = counterpart: no document of split {settings.split} has a counterpart; name the column with "
            "corpus.counterpart"
        )
    if there < 2:
        raise ValueError(f"split = {settings.split}: it has {there} documents; name another")
    return settings.on if settings.on != "auto" else "counterpart" if labelled else "sentence"


def _score(
    settings: Evaluate,
    root: Storage,
    encoders: dict[str, SentenceEncoder],
    stores: dict[str, TokenStore],
    on: On,
    where: Placement,
    pairs: StsPairs | None,
) -> list[Scored]:
    """Ask every encoder, those of one tokenizer together."""
    whose = "all documents" if settings.split == "all" else settings.split
    scored: dict[str, Scored] = {}
    for tokenizer, store in stores.items():
        of_it = {name: e for name, e in encoders.items() if e.corpus_tokenizer() == tokenizer}
        asked = [Asked(_save(root, encoder, settings.max_length), settings.place, on) for encoder in of_it.values()]
        stages = evaluate(root, root / "evaluations", store, asked, settings.precision, where, settings.seed, whose)
        for (name, encoder), stage in zip(of_it.items(), stages, strict=True):
            spearman = None if pairs is None else _spearman(settings, encoder, pairs)
            scored[name] = Scored(redacted(getattr(settings, name)), stage, store, tokenizer, spearman)
    return [scored[name] for name in encoders]


def _save(root: Storage, encoder: SentenceEncoder, max_length: int) -> EncoderFolder:
    name = encoder.fingerprint()
    saved = run_stage(
        root,
        root / "encoders" / name,
        "encoder",
        fingerprint("encoder", name),
        lambda stage: {"max_length": EncoderFolder.save(encoder, stage.folder / "model").max_length},
    )
    return EncoderFolder(saved.folder / "model", name, max_length)


def _spearman(settings: Evaluate, encoder: SentenceEncoder, pairs: StsPairs) -> float:
    device = torch.device("cuda" if torch.cuda.is_available() and settings.use_gpu is not False else "cpu")
    return sts_spearman(for_inference(encoder, settings.precision, device), pairs)


def _show_scores(settings: Evaluate, scored: list[Scored], on: On) -> None:
    """A table with a row for each encoder."""
    ours = scored[0]
    columns = {"recall@5": "R@5", "recall@10": "R@10", "recall@20": "R@20", "mrr": "MRR"}
    spearman = ours.spearman is not None
    questions, candidates = (int(ours.metrics[name]) for name in ("queries", "candidates"))
    whose = "all documents" if settings.split == "all" else f"split {settings.split}"
    say(f"\n{questions:,} questions of {whose} ({on}) among {candidates:,} candidates, with 95 % intervals:\n")
    head = ["encoder", *columns.values(), *(["Spearman"] if spearman else [])]
    say(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for one in scored:
        cells = [one.name, *(shown(one.metrics, name) for name in columns)]
        say(f"| {' | '.join(cells + ([f'{one.spearman:.4f}'] if spearman else []))} |")
    say("")


def _compare(settings: Evaluate, scored: list[Scored], on: On) -> None:
    """A line that says which of two encoders is better, and examples."""
    ours, theirs = scored
    shared = ours.store.fingerprint == theirs.store.fingerprint
    lead = compare(ours.stage.folder, theirs.stage.folder, settings.metric, common=not shared)
    say(f"{versus(lead, settings.metric, ours.name, theirs.name)}")
    texts, other = (Texts(one.store, one.tokenizer, settings.place, on) for one in (theirs, ours))
    differing = examples(theirs.stage.folder, ours.stage.folder, texts, None if shared else other)
    if differing:
        say("\nWhere they differ most, for example:")
    for example in differing:
        say("\n" + "\n".join(f"  {line}" for line in example.lines((theirs.name, ours.name))))
    say("")
