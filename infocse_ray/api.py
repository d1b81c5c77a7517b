"""What a notebook calls: adapt an encoder to documents, look at what came of it.

All of it is imported from `infocse_ray` itself, which loads torch and Ray with the first name that needs them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infocse_ray.corpus.in_memory import corpus_of
from infocse_ray.encoder.model import SentenceEncoder, load_encoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop import infocse
from infocse_ray.loop import plusplus as few_shot
from infocse_ray.loop.scored import evaluate_encoders
from infocse_ray.runtime.cluster import connect
from infocse_ray.runtime.libraries import quiet_libraries
from infocse_ray.settings import Corpus, Encoder, Settings
from infocse_ray.settings.commands import Evaluate
from infocse_ray.storage.folder import Storage
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.run import sweep as run_sweep

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


@dataclasses.dataclass(frozen=True)
class RunResult:
    """What a run made."""

    folder: Storage
    """<storage>/<name>."""
    metrics: dict[str, Any]
    """The content of `metrics.json`: every iteration's scores, counts and seconds, the settings, versions."""

    @property
    def model_path(self) -> str:
        """The adapted encoder: a folder for SentenceTransformer(...), or a URI."""
        return (self.folder / "model").uri

    @property
    def verdict(self) -> str:
        """WIN, LEVEL, LOSS or START RETURNED, against the whitened start; on the test, where there is one."""
        return self.metrics["verdict"]["label"]

    @property
    def summary(self) -> str:
        """The verdict in a line, with scores, their difference and its 95 % interval."""
        return self.metrics["verdict"]["line"]

    def sentence_transformer(self) -> SentenceTransformer:
        """The adapted encoder in sentence-transformers.

        Raises:
            ImportError: it isn't installed.
        """
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise ImportError("sentence_transformer() needs it: pip install sentence-transformers") from error
        return SentenceTransformer(str(resolve_encoder(self.model_path, "model_path")))

    def encoder(self) -> SentenceEncoder:
        """The adapted encoder as a torch module, in fp32 on the CPU."""
        length = self.metrics["settings"]["encoder"]["max_length"]
        shape = Encoder(model=self.model_path, max_length=length)
        return load_encoder(resolve_encoder(self.model_path, "model_path"), shape, cosine=False)


@dataclasses.dataclass(frozen=True)
class Scores:
    """What an encoder scored."""

    metrics: dict[str, float]
    """recall@5, recall@10, recall@20 and mrr with `_low` and `_high`, their 95 % interval; queries; candidates."""
    ranks: str
    """The folder with every question's rank: a path, or a URI."""


@dataclasses.dataclass(frozen=True)
class SweepResult:
    """What a sweep found."""

    folder: str
    """<storage>/<name>, with sweep.md, sweep.json, the plot and best.yaml."""
    failed: int
    """Trials without a result; their reasons are in sweep.md."""


def adapt(
    encoder: str,
    documents: object,
    name: str,
    *,
    storage: str = "runs",
    seed: int = 42,
    minutes: float | None = None,
    **sections: Mapping[str, Any],
) -> RunResult:
    """Adapt a sentence encoder to documents, without labels; what is in `storage` already is found again.

    Args:
        encoder: a folder, a URI or a hub name.
        documents: a list of texts or of lists of sentences, a list of dicts, a pandas or pyarrow table, a
            datasets.Dataset, a Ray Dataset, or paths.
        name: of the run; its result is in `<storage>/<name>`.
        storage: a folder or URI that every node reaches.
        seed: everything random follows from it.
        minutes: about how long it may take; None: as long as `train.max_steps` and the like say.
        sections: settings by section, as `train={"max_steps": 200}, corpus={"text": "body"}`; `infocse pretrain
            --help all` lists them.

    Raises:
        ValueError: a setting doesn't fit, or the documents can't be read; nothing was trained.
        infocse_ray.errors: what else can go wrong.
    """
    given = {key: dict(section) for key, section in sections.items()}
    corpus = given.pop("corpus", {})
    if "source" in corpus:
        raise ValueError("corpus.source: the documents are given; leave it out")
    settings = Settings.model_validate(
        {
            "name": name,
            "storage": storage,
            "seed": seed,
            "minutes": minutes,
            "corpus": {"source": "documents", **corpus},  # until they are written; mistakes are said before that
            "encoder": {"model": encoder, **given.pop("encoder", {})},
            **given,
        }
    )
    read = _corpus(documents, storage, corpus)
    return pretrain(settings.model_copy(update={"corpus": read}))


def pretrain(settings: Settings) -> RunResult:
    """InfoCSE (Alg. 1): what `infocse pretrain` does. Returns what was made; raises what `adapt` does."""
    _prepare_process()
    return _result(settings, infocse.pretrain(settings))


def finetune(settings: Settings) -> RunResult:
    """Fine-tuning on documents and their counterparts (section 3.3): what `infocse finetune` does."""
    _prepare_process()
    return _result(settings, few_shot.finetune(settings))


def plusplus(settings: Settings) -> RunResult:
    """InfoCSE++ (section 3.3): what `infocse plusplus` does."""
    _prepare_process()
    return _result(settings, few_shot.plusplus(settings))


def sweep(config: Sweep) -> SweepResult:
    """Settings tried side by side with Ray Tune: what `infocse sweep` does."""
    _prepare_process()
    failed = run_sweep(config)
    return SweepResult((Storage.open(config.storage) / config.name).uri, failed)


def evaluate(
    model: str,
    documents: object,
    *,
    storage: str = "runs",
    corpus: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Scores:
    """Score an encoder: every document must find its counterparts among all, or a sentence taken out of it.

    Args:
        model: a folder, a URI or a hub name.
        documents: as for `adapt`.
        storage: a folder or URI that every node reaches.
        corpus: settings of the corpus, as `{"text": "body", "counterpart": "headline"}`.
        settings: others of `infocse evaluate --help all`, as `split="test"`.

    Raises:
        ValueError: a setting doesn't fit, or there is nothing to ask.
    """
    _prepare_process()
    given = {"model": model, "storage": storage, "corpus": _corpus(documents, storage, corpus or {}), **settings}
    scored = evaluate_encoders(Evaluate.model_validate(given))[0]
    return Scores(scored.metrics, (scored.stage.folder / "ranks").uri)


def _result(settings: Settings, metrics: dict[str, Any]) -> RunResult:
    return RunResult(Storage.open(settings.storage) / settings.name, metrics)


def _prepare_process() -> None:
    """What a command sets up around its work, where there is no command."""
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # Ray's tasks are the parallelism
    quiet_libraries()


def _corpus(documents: object, storage: str, settings: Mapping[str, Any]) -> Corpus:
    """The documents as files that a run reads; a Ray Dataset's own tasks write them."""
    if type(documents).__module__.startswith("ray.data"):
        connect()
    return corpus_of(documents, Storage.for_runs(storage), settings)
