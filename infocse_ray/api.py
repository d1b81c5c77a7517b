"""The Python API: adapt an encoder to documents, and look at the result.

Everything here is imported from `infocse_ray` itself, which loads torch and Ray with the first name that needs them.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from infocse_ray.corpus.in_memory import corpus_of
from infocse_ray.embedding.embed import embed_corpus
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop import infocse
from infocse_ray.loop import plusplus as few_shot
from infocse_ray.loop.scored import evaluate_encoders
from infocse_ray.loop.shown_in_notebook import result_table
from infocse_ray.page.end import end_with_pages
from infocse_ray.page.write import end_with_page
from infocse_ray.runtime.cluster import connect, quiet_data
from infocse_ray.runtime.failures import told_plainly
from infocse_ray.runtime.libraries import quiet_libraries
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Encoder, Settings
from infocse_ray.settings.configurations import as_settings, read_config
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.settings.explain import explain
from infocse_ray.settings.nested import merged, nested
from infocse_ray.settings.unread import BY_FINETUNE, BY_PRETRAIN, given_for_nothing, names_given
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted
from infocse_ray.suites.judge import judge
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.run import sweep as run_sweep

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


Checked = TypeVar("Checked", bound=BaseModel)
_OfCorpus = TypeVar("_OfCorpus", Settings, Evaluate, Embed)


class _WithoutCredentials:
    """Shown with its fields, but for the credentials that URIs in them may have."""

    def __repr__(self) -> str:
        shown = (field.name for field in dataclasses.fields(self) if field.repr)  # pyright: ignore
        fields = ((name, getattr(self, name)) for name in shown)
        return redacted(f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})")


@dataclasses.dataclass(frozen=True)
class RunResult:
    """The result of a run; a notebook shows it as a table."""

    folder: Storage
    """<storage>/<name>."""
    metrics: dict[str, Any]
    """The content of `metrics.json`: every iteration's scores, counts and seconds, the settings, versions."""
    report: str | None = None
    """The report page, `report.html`: a path, or a URI; None where it couldn't be written."""

    @property
    def model_path(self) -> str:
        """The adapted encoder: a folder for SentenceTransformer(...), or a URI."""
        return (self.folder / "model").uri

    @property
    def verdict(self) -> str:
        """WIN, LEVEL, LOSS or START RETURNED, against the whitened start; on the test documents if there are any."""
        return self.metrics["verdict"]["label"]

    @property
    def summary(self) -> str:
        """The verdict in a line, with scores, their difference and its 95 % interval."""
        return self.metrics["verdict"]["line"]

    def __repr__(self) -> str:
        return redacted(f"RunResult({self.model_path!r}, {self.summary!r})")

    def _repr_html_(self) -> str:
        return result_table(self.metrics, self.model_path)

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


@dataclasses.dataclass(frozen=True, repr=False)
class Scores(_WithoutCredentials):
    """The scores of an encoder."""

    metrics: dict[str, float]
    """recall@5, recall@10, recall@20 and mrr with `_low` and `_high`, their 95 % interval; queries; candidates."""
    ranks: str
    """The folder with every question's rank: a path, or a URI."""
    comparison: dict[str, Any] | None = dataclasses.field(default=None, repr=False)
    """Of two encoders, the content of `comparison.json`: scores of both, and the verdict as `metrics.json` of a run has
    it; else None."""

    @property
    def verdict(self) -> str | None:
        """WIN, LEVEL or LOSS, against the encoder that it was compared with; None without one."""
        return None if self.comparison is None else self.comparison["verdict"]["label"]

    @property
    def summary(self) -> str | None:
        """The verdict in a line, with the difference and its 95 % interval."""
        return None if self.comparison is None else self.comparison["verdict"]["line"]


@dataclasses.dataclass(frozen=True, repr=False)
class SuiteScores(_WithoutCredentials):
    """What encoders scored on suites."""

    rows: list[dict[str, Any]]
    """`suite`, `dataset`, `read_as`, `measure`, `after`, `before` and `difference` (each `value`, `low` and `high`, or
    None), `questions`, `main`: whether the data set is judged by this measure."""
    table: str
    """The tables as Markdown."""
    folder: str
    """The folder with suites.json, which also says where the scores of single questions are, and suites.md."""


@dataclasses.dataclass(frozen=True, repr=False)
class SweepResult(_WithoutCredentials):
    """The result of a sweep."""

    folder: str
    """<storage>/<name>, with sweep.md, sweep.json, the plot and best.yaml."""
    failed: int
    """Trials without a result; their reasons are in sweep.md."""


@told_plainly()
def adapt(
    encoder: str,
    /,  # its name is that of a section, too
    documents: object,
    name: str,
    *,
    storage: str = "runs",
    seed: int = 42,
    minutes: float | None = None,
    recipe: Literal["auto"] | None = None,
    config: str | os.PathLike[str] | None = None,
    **sections: Mapping[str, Any],
) -> RunResult:
    """Adapt a sentence encoder to documents, without labels; stages that `storage` already has are reused.

    Args:
        encoder: a folder, a URI or a hub name; given by its place, as `encoder=` is the section of its settings.
        documents: a list of texts or of lists of sentences, a list of dicts, a pandas or pyarrow table, a
            datasets.Dataset, a Ray Dataset, or paths.
        name: of the run; its result is in `<storage>/<name>`.
        storage: a folder or URI that every node reaches.
        seed: everything random follows from it.
        minutes: about how long it may take; `train.max_steps` and the other limits end it sooner. None: they alone do.
        recipe: "auto" lets short trainings choose how it is trained; None: as `config` and `sections` say.
        config: a configuration that is shipped, such as "paper-plus" for a language model, or a YAML file of sections;
            None: the defaults, which are "adapt".
        sections: settings by section, such as `train={"max_steps": 200}, encoder={"whiten": "off"}`, which win over
            those of `config`; `infocse pretrain --help all` lists them.

    Raises:
        ValueError: a setting doesn't fit, or the documents can't be read; nothing was trained.
        infocse_ray.errors: other failures, such as a full disk.
    """
    given = as_settings(
        {key: section if "." in key else _section(key, section) for key, section in sections.items()}, Settings
    )
    if config is not None:
        given = merged(_configured(config), given)
    corpus = given.pop("corpus", {})
    if "source" in corpus:
        raise ValueError("corpus.source: the documents are given; leave it out")
    shape = given.pop("encoder", {})
    if "model" in shape:
        raise ValueError("encoder.model: the encoder is given; leave it out")
    settings = _validated(
        Settings,
        {
            "name": name,
            "storage": storage,
            "seed": seed,
            "minutes": minutes,
            "recipe": recipe,
            "corpus": {"source": "documents", **corpus},  # until they are written; mistakes are said before that
            "encoder": {"model": encoder, **shape},
            **given,
        },
    )
    resolve_encoder(settings.encoder.model)  # before the documents are written
    return pretrain(_of_documents(settings, documents, corpus))


def _configured(config: str | os.PathLike[str]) -> dict[str, Any]:
    """The sections of a configuration.

    Raises:
        ValueError: it is none, or says what is an argument of `adapt`.
    """
    if not isinstance(config, str | os.PathLike):
        raise ValueError(f"config: is a {type(config).__qualname__}; give a name, such as 'paper-plus', or a file")
    given = read_config(os.fspath(config), Settings, "config")
    if arguments := [name for name in ("name", "storage", "seed", "minutes", "recipe") if name in given]:
        raise ValueError(f"config = {os.fspath(config)!r}: has {', '.join(arguments)}; give that to adapt itself")
    return given


@told_plainly()
def pretrain(settings: Settings) -> RunResult:
    """Train without labels by InfoCSE (Alg. 1), as `infocse pretrain` does; raises what `adapt` does."""
    _prepare_process(settings, Settings)
    _say_unread(settings, "infocse pretrain", BY_PRETRAIN)
    metrics = infocse.pretrain(settings)
    return _result(settings, metrics, end_with_pages(settings))


@told_plainly()
def finetune(settings: Settings) -> RunResult:
    """Fine-tune on documents and their counterparts (section 3.3), as `infocse finetune` does."""
    _prepare_process(settings, Settings)
    _say_unread(settings, "infocse finetune", BY_FINETUNE)
    metrics = few_shot.finetune(settings)
    return _result(settings, metrics, end_with_page(settings.storage, settings.name))


@told_plainly()
def plusplus(settings: Settings) -> RunResult:
    """InfoCSE++ (section 3.3): train without labels and fine-tune in turn, as `infocse plusplus` does."""
    _prepare_process(settings, Settings)
    metrics = few_shot.plusplus(settings)
    return _result(settings, metrics, end_with_pages(settings))


@told_plainly()
def sweep(config: Sweep) -> SweepResult:
    """Try settings side by side with Ray Tune, as `infocse sweep` does."""
    _prepare_process(config, Sweep)
    failed = run_sweep(config)
    return SweepResult((Storage.open(config.storage) / config.name).uri, failed)


@told_plainly()
def evaluate(
    model: str,
    documents: object,
    *,
    compare: str | None = None,
    storage: str = "runs",
    corpus: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Scores:
    """Score an encoder: every document must find its counterpart, or else a sentence taken out of it.

    A counterpart is a text that belongs to the document, such as its headline; candidates are those of all documents.

    Args:
        model: a folder, a URI or a hub name.
        documents: as for `adapt`.
        compare: another encoder that it is held against.
        storage: a folder or URI that every node reaches.
        corpus: settings of the corpus, such as `{"text": "body", "counterpart": "headline"}`.
        settings: other settings of `infocse evaluate --help all`, such as `split="test"`.

    Raises:
        ValueError: a setting doesn't fit, or no document has anything to find.
    """
    _prepare_process()
    others, shaped = _apart(settings, corpus)
    given = {"model": model, "compare": compare, "storage": storage, **others}
    given |= {"corpus": {"source": "documents", **shaped}}
    checked = _validated(Evaluate, given)  # before the documents are written, as what follows
    for setting, encoder in (("model", checked.model), ("compare", checked.compare)):
        if encoder is not None:
            resolve_encoder(encoder, setting)
    (scored, *_), comparison = evaluate_encoders(_of_documents(checked, documents, shaped))
    return Scores(scored.metrics, (scored.stage.folder / "ranks").uri, comparison)


@told_plainly()
def embed(
    model: str,
    documents: object,
    *,
    output: str,
    storage: str = "runs",
    corpus: Mapping[str, Any] | None = None,
    **settings: Any,
) -> str:
    """Write the vectors of documents, as `infocse embed` does.

    Args:
        model: a folder, a URI or a hub name.
        documents: as for `adapt`.
        output: folder or URI that the vectors go to; the same call goes on there.
        storage: a folder or URI that every node reaches, for the tokenised documents.
        corpus: settings of the corpus, such as `{"text": "body", "counterpart": "headline"}`.
        settings: other settings of `infocse embed --help all`, such as `sentences=True` or `precision="fp16"`.

    Returns:
        Where they are, for `Index`.

    Raises:
        ValueError: a setting doesn't fit, or `output` has other vectors.
    """
    _prepare_process()
    others, shaped = _apart(settings, corpus)
    given = {"model": model, "output": output, "storage": storage, **others}
    checked = _validated(Embed, {**given, "corpus": {"source": "documents", **shaped}})
    resolve_encoder(checked.model, "model")  # before the documents are written
    return embed_corpus(_of_documents(checked, documents, shaped)).uri


@told_plainly()
def evaluate_suites(
    model: str,
    suite: str | list[str],
    *,
    compare: str | None = None,
    suite_path: str | os.PathLike[str] | list[str | os.PathLike[str]] | None = None,
    tasks: str | list[str] | None = None,
    storage: str = "runs",
    **settings: Any,
) -> SuiteScores:
    """Judge an encoder on what isn't its own corpus, as `infocse evaluate --suite` does.

    Args:
        model: a folder, a URI or a hub name; the encoder after.
        suite: sts, beir or mteb, or several.
        compare: another encoder, the one before.
        suite_path: files of sentence pairs (sts) and folders in BEIR's layout (beir).
        tasks: names of mteb's.
        storage: a folder or URI that every node reaches.
        settings: other settings of `infocse evaluate --help all`, such as `qrels="dev"`.

    Raises:
        ValueError: a setting doesn't fit, or a file, a package or a task's data is missing; nothing was computed.
    """
    _prepare_process()
    given = {"model": model, "suite": suite, "compare": compare, "storage": storage, **settings}
    given |= {name: value for name, value in (("suite_path", suite_path), ("tasks", tasks)) if value is not None}
    done = judge(_validated(Evaluate, given))
    return SuiteScores([row.content() for row in done.rows], "\n".join(done.lines), done.folder.uri)


def _result(settings: Settings, metrics: dict[str, Any], report: str | None) -> RunResult:
    return RunResult(Storage.open(settings.storage) / settings.name, metrics, report)


def _validated(model: type[Checked], values: Mapping[str, Any]) -> Checked:
    """The settings, or what is wrong with them in one line.

    Raises:
        ValueError: they don't fit.
    """
    try:
        return model.model_validate(_paths_as_text(values))
    except ValidationError as error:
        raise ValueError(explain(error, model)) from None


def _paths_as_text(value: Any) -> Any:
    """Settings with a str for every `Path`."""
    if isinstance(value, Mapping):
        return {name: _paths_as_text(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_paths_as_text(one) for one in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _apart(settings: Mapping[str, Any], corpus: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings, which may have dotted names (`corpus.text`), and apart from them those of the corpus."""
    given = nested({"corpus": _section("corpus", corpus or {}), **settings})
    return given, given.pop("corpus")


def _section(name: str, given: object) -> Mapping[str, Any]:
    """Settings given as a section.

    Raises:
        ValueError: it is none.
    """
    if isinstance(given, Mapping):
        return given
    sections = {section: fields for section, field in Settings.model_fields.items() if (fields := _fields_of(field))}
    its = [section for section, fields in sections.items() if name in fields]
    if name not in sections and not its:
        raise ValueError(f"{name} = {given!r}: no such setting; sections of settings are {', '.join(sections)}")
    example = f"{its[0]}={{{name!r}: {given!r}}}" if its else f"{name}={{...}}"
    raise ValueError(f"{name} = {given!r}: settings come in sections, each a dict: {example}")


def _fields_of(field: FieldInfo) -> Mapping[str, FieldInfo]:
    """The settings in a section; none of what is no section."""
    section = field.annotation
    return section.model_fields if isinstance(section, type) and issubclass(section, BaseModel) else {}


def _prepare_process(given: object = None, kind: type[BaseModel] | None = None) -> None:
    """Set up the process as a command would, for settings that are of this kind.

    Raises:
        ValueError: they are of another.
    """
    if kind is not None and not isinstance(given, kind):
        name = kind.__name__
        how = f"{name}.model_validate(...)" if isinstance(given, Mapping) else f"infocse_ray.{name}(...)"
        raise ValueError(f"{'config' if kind is Sweep else 'settings'}: is a {type(given).__qualname__}; give {how}")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # Ray's tasks are the parallelism
    quiet_libraries()


def _say_unread(settings: Settings, command: str, unread: Mapping[str, str]) -> None:
    for line in given_for_nothing(settings, set(names_given(settings)), command, unread):
        say(f"warning: {line}")


def _of_documents(settings: _OfCorpus, documents: object, corpus: Mapping[str, Any]) -> _OfCorpus:
    """Settings whose corpus is these documents, as files that a run reads; a Ray Dataset's own tasks write them."""
    if type(documents).__module__.startswith("ray.data"):
        connect()
        quiet_data()
    source = corpus_of(documents, Storage.for_runs(settings.storage), corpus, type(settings.corpus)).source
    return settings.model_copy(update={"corpus": settings.corpus.model_copy(update={"source": source})})
