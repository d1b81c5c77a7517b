"""Settings of `infocse evaluate`: what is scored, and what it is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.settings.corpus import Corpus
from infocse_ray.settings.section import (
    DEFAULT_READING,
    READING,
    Metric,
    OnGpu,
    PoolingName,
    Reading,
    Section,
    Workers,
    each_once,
)

Suite = Literal["sts", "beir", "mteb"]

_OF_SUITES = ("suite_path", "qrels", "tasks")
_OF_CORPUS = ("split", "on", "reading", "seed", "sts", "metric")
_SHARED = "language"
"""The setting of the corpus that suites go by, too."""


class CorpusOrSuite(Corpus):
    """corpus: where the documents are and how a row becomes a document; with `suite` only corpus.language counts."""

    source: str | list[str] = Field(
        default=[], description=f"{Corpus.model_fields['source'].description} Required unless `suite` is given."
    )

    @field_validator("source")
    @classmethod
    def _some_source(cls, value: str | list[str]) -> str | list[str]:
        return value if value == [] else Corpus._some_source(value)


class Evaluate(Section):
    """Score an encoder."""

    model: str = Field(description="Encoder to score: a folder, a URI or a hub name.")
    compare: str | None = Field(
        default=None,
        description="Another encoder to compare it with. With `suite` it is the one before, and `model` the one after.",
    )
    suite: list[Suite] = Field(
        default=[],
        description="Judge the encoder on what is not its own corpus (a,b for several). `sts`: files of scored "
        "sentence pairs. `beir`: folders in BEIR's layout, beside BM25. `mteb`: tasks of the package mteb. Default: "
        "the corpus.",
    )
    suite_path: list[str] = Field(
        default=[],
        description="Files of `sts` and folders of `beir` (a,b for several), local or URIs. A folder has corpus.jsonl, "
        "queries.jsonl and qrels/, or folders that have them.",
    )
    qrels: str = Field(
        default="test", min_length=1, description="Which questions of `beir` are asked: those of qrels/<this>.tsv."
    )
    tasks: list[str] = Field(
        default=[], description="Names of the tasks of `mteb` (a,b for several), such as STSBenchmark,NFCorpus."
    )
    metric: Metric | None = Field(
        default=None,
        description="Metric by which two encoders are compared. Default: validate.metric of the run that made `model`, "
        "else of that which made `compare`, else mrr.",
    )
    split: Literal["all", "train", "valid", "test"] = Field(
        default="all",
        description="Split whose documents are the questions. The candidates are always the counterparts (the "
        "texts that belong to documents, such as headlines) of all splits.",
    )
    on: Literal["auto", "counterpart", "sentence", "halves", "readings"] = Field(
        default="auto",
        description="What each document must find, as validate.on of `infocse pretrain`. `auto`: its counterpart "
        "(corpus.counterpart) if there are any, else a sentence that was taken out of it.",
    )
    reading: Reading = Field(
        default=DEFAULT_READING,
        description=f"{READING} Where documents must find counterparts; without labels the mean of sentences asks.",
    )
    seed: int = Field(
        default=42, ge=0, lt=2**31, description="Seed for drawing the sentences that documents must find."
    )
    sts: str | None = Field(
        default=None,
        description="File of scored sentence pairs that measures general ability beside the corpus, as validate.sts of "
        "`infocse pretrain`. Without a corpus, and for several files: suite and suite_path.",
    )
    pooling: PoolingName = Field(default="auto", description="Same as encoder.pooling of `infocse pretrain`.")
    max_length: int = Field(default=32, ge=4, description="Same as encoder.max_length of `infocse pretrain`.")
    document_prompt: str | None = Field(
        default=None, description="Same as encoder.document_prompt of `infocse pretrain`."
    )
    query_prompt: str | None = Field(default=None, description="Same as encoder.query_prompt of `infocse pretrain`.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="auto", description="Same as encoder.precision of `infocse pretrain`."
    )
    similarity: Literal["dot", "cosine"] = Field(
        default="cosine",
        description="`cosine` normalises vectors even if the encoder's folder doesn't say so; `dot` leaves them as "
        "they are.",
    )
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    num_workers: Workers = Field(
        default="auto", description="Number of workers. `auto`: one per GPU, or one if there are only CPUs."
    )
    use_gpu: OnGpu = Field(default="auto", description="`auto`: use GPUs if the cluster has any.")
    corpus: CorpusOrSuite = Field(default_factory=CorpusOrSuite)

    @property
    def place(self) -> str:
        """Whose documents ask, as the corpus is prepared: asking of all is asking of one split that all are in."""
        return "train" if self.split == "all" else self.split

    @field_validator("suite", "suite_path", "tasks", mode="before")
    @classmethod
    def _several(cls, value: object) -> object:
        return each_once(value)

    @model_validator(mode="after")
    def _corpus_or_suites(self) -> Evaluate:
        if not self.suite:
            if given := _changed(self, _OF_SUITES):
                raise ValueError(f"{given[0]}: is for suites; add suite = sts, beir or mteb, or leave it out")
            if not self.corpus.source:
                raise ValueError("corpus.source is required, or in its place suite (sts, beir, mteb)")
            return self
        if self.corpus.source:
            raise ValueError(
                f"corpus.source with suite = {','.join(self.suite)}: the questions come from the one or the other; "
                "leave one out"
            )
        others = _changed(self, _OF_CORPUS)
        others += [
            f"corpus.{name}" for name in _changed(self.corpus, type(self.corpus).model_fields) if name != _SHARED
        ]
        if others:
            instead = "name the file in suite_path" if others[0] == "sts" else "leave it out"
            raise ValueError(f"{others[0]}: is for a corpus, not for suite = {','.join(self.suite)}; {instead}")
        if "mteb" in self.suite and not self.tasks:
            raise ValueError("suite = mteb: name its tasks with tasks, such as STSBenchmark,NFCorpus")
        if self.tasks and "mteb" not in self.suite:
            raise ValueError("tasks: is for suite = mteb; add that to suite, or leave tasks out")
        local = [suite for suite in self.suite if suite != "mteb"]
        if local and not self.suite_path:
            raise ValueError(f"suite = {','.join(local)}: name its files (sts) or folders (beir) with suite_path")
        if self.suite_path and not local:
            raise ValueError("suite_path: is for suite = sts or beir; add one of them to suite, or leave it out")
        if _changed(self, ("qrels",)) and "beir" not in self.suite:
            raise ValueError("qrels: is for suite = beir; add that to suite, or leave it out")
        return self


def _changed(section: Section, names: Iterable[str]) -> list[str]:
    """Which of these settings have another value than their default; a printed configuration names all."""
    fields = type(section).model_fields
    return [name for name in names if getattr(section, name) != fields[name].get_default(call_default_factory=True)]
