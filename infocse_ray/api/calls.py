"""The calls of the Python API: what commands do, with documents that Python has.

Everything here is imported from `infocse_ray` itself, which loads torch and Ray with the first name that needs them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from infocse_ray.api.arguments import configured, of_documents, section_of, with_corpus_apart
from infocse_ray.api.results import RunResult, Scores, SuiteScores, SweepResult
from infocse_ray.embedding.embed import embed_corpus
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.loop import infocse
from infocse_ray.loop import plusplus as few_shot
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.loop.scored import evaluate_encoders
from infocse_ray.page.end import end_with_pages
from infocse_ray.page.write import end_with_page
from infocse_ray.runtime.failures import told_plainly
from infocse_ray.runtime.libraries import quiet_libraries
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings
from infocse_ray.settings.configurations import as_settings
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.settings.nested import merged
from infocse_ray.settings.unread import Unread, by_finetune, by_plusplus, by_pretrain, given_for_nothing, names_given
from infocse_ray.settings.validated import validated
from infocse_ray.storage.folder import Storage
from infocse_ray.suites.judge import judge
from infocse_ray.tuning.config import Sweep
from infocse_ray.tuning.run import sweep as run_sweep


@told_plainly()
def adapt(
    encoder: str | os.PathLike[str],
    /,  # its name is that of a section, too
    documents: object,
    name: str,
    *,
    storage: str | os.PathLike[str] = "runs",
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
        {key: section if "." in key else section_of(key, section) for key, section in sections.items()}, Settings
    )
    if config is not None:
        given = merged(configured(config), given)
    corpus = given.pop("corpus", {})
    if "source" in corpus:
        raise ValueError("corpus.source: the documents are given; leave it out")
    shape = given.pop("encoder", {})
    if "model" in shape:
        raise ValueError("encoder.model: the encoder is given; leave it out")
    settings = validated(
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
    return pretrain(of_documents(settings, documents, corpus))


@told_plainly()
def pretrain(settings: Settings) -> RunResult:
    """Train without labels by InfoCSE (Alg. 1), as `infocse pretrain` does; raises what `adapt` does."""
    _prepare_process(settings, Settings)
    _say_unread(settings, "infocse pretrain", by_pretrain(settings))
    metrics = infocse.pretrain(settings)
    return _result(settings, metrics, end_with_pages(settings))


@told_plainly()
def finetune(settings: Settings) -> RunResult:
    """Fine-tune on documents and their counterparts (section 3.3), as `infocse finetune` does."""
    _prepare_process(settings, Settings)
    _say_unread(settings, "infocse finetune", by_finetune(settings))
    metrics = few_shot.finetune(settings)
    return _result(settings, metrics, end_with_page(settings.storage, settings.name))


@told_plainly()
def plusplus(settings: Settings) -> RunResult:
    """InfoCSE++ (section 3.3): train without labels and fine-tune in turn, as `infocse plusplus` does."""
    _prepare_process(settings, Settings)
    _say_unread(settings, "infocse plusplus", by_plusplus(settings))
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
    model: str | os.PathLike[str],
    documents: object,
    *,
    compare: str | os.PathLike[str] | None = None,
    storage: str | os.PathLike[str] = "runs",
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
    if settings.get("suite"):
        raise ValueError("suite: has questions of its own, and no documents; call evaluate_suites(model, suite, ...)")
    others, shaped = with_corpus_apart(settings, corpus)
    given = {"model": model, "compare": compare, "storage": storage, **others}
    given |= {"corpus": {"source": "documents", **shaped}}
    checked = validated(Evaluate, given)  # before the documents are written, as what follows
    for setting, encoder in (("model", checked.model), ("compare", checked.compare)):
        if encoder is not None:
            resolve_encoder(encoder, setting)
    (scored, *_), comparison = evaluate_encoders(of_documents(checked, documents, shaped))
    return Scores(scored.metrics, (scored.stage.folder / "ranks").uri, comparison)


@told_plainly()
def embed(
    model: str | os.PathLike[str],
    documents: object,
    *,
    output: str | os.PathLike[str],
    storage: str | os.PathLike[str] = "runs",
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
        settings: other settings of `infocse embed --help all`, such as `sentences=True`, or `reuse="monday"`, an
            output of documents that have become more since, of which only the new ones are embedded then.

    Returns:
        Where they are, for `Index`.

    Raises:
        ValueError: a setting doesn't fit, or `output` has other vectors.
    """
    _prepare_process()
    others, shaped = with_corpus_apart(settings, corpus)
    given = {"model": model, "output": output, "storage": storage, **others}
    checked = validated(Embed, {**given, "corpus": {"source": "documents", **shaped}})
    resolve_encoder(checked.model, "model")  # before the documents are written
    return embed_corpus(of_documents(checked, documents, shaped)).uri


@told_plainly()
def evaluate_suites(
    model: str | os.PathLike[str],
    suite: str | list[str],
    *,
    compare: str | os.PathLike[str] | None = None,
    suite_path: str | os.PathLike[str] | list[str | os.PathLike[str]] | None = None,
    tasks: str | list[str] | None = None,
    storage: str | os.PathLike[str] = "runs",
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
    done = judge(validated(Evaluate, given))
    return SuiteScores([row.content() for row in done.rows], "\n".join(done.lines), done.folder.uri)


def _result(settings: Settings, metrics: dict[str, Any], report: str | None) -> RunResult:
    folder = Storage.open(settings.storage) / settings.name
    written = read_manifest(folder).get("files", {})  # earlier versions named none
    named = {name.removeprefix("model/"): of for name, of in written.items() if name.startswith("model/")}
    files = {name: of for name, of in named.items() if not name.endswith(".md")}  # people write into a card
    return RunResult(folder, metrics, report, files)


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


def _say_unread(settings: Settings, command: str, unread: Unread) -> None:
    for line in given_for_nothing(settings, set(names_given(settings)), command, unread):
        say(f"warning: {line}")
