"""What names a run and its stages: their inputs and the settings that can change a result, nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from infocse_ray.annotate.share import Share
from infocse_ray.encoder.embed import Precision
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.method import Method
from infocse_ray.methods.recipes import RECIPES
from infocse_ray.methods.registry import METHODS
from infocse_ray.retrieval.refit import WhiteningPlan
from infocse_ray.retrieval.validation import On
from infocse_ray.settings import EngineName, Settings, fingerprint
from infocse_ray.settings.encoder import OF_CLUSTERING
from infocse_ray.settings.section import FEW_SHOT, HOW_NOT_WHAT
from infocse_ray.train.schedule import Budget

_OF_METHOD = {"method", "distillation", "temperature", "max_steps", "max_tokens"}
"""Training settings that a train stage's method and budget stand for."""

_FORMATS = {"annotate": 3, "examples": 2, "train": 6}
"""Counted up when the code of a stage begins to give another result for the same settings."""

_LABELS_FORMAT = 1
"""As these, of the draw of labels, which runs without labels don't have."""

_GRAPH_FORMAT = 2
"""As these, of a backbone converted for annotating."""

_WHITENING_FORMAT = 1
"""As these, of the start's whitening, which not every run has."""


def run_identity(
    settings: Settings,
    source: str,
    encoder: str,
    tokenizer: Sequence[str],
    first_encoder: str | None = None,
    sts: str | None = None,
    methods: Sequence[tuple[Any, ...]] = (),
) -> str:
    """Of a whole run; what the paths in its settings lead to is told by fingerprints.

    Args:
        settings: of the run.
        source: the corpus.
        encoder: what it starts from.
        tokenizer: names of what the corpus is tokenised with.
        first_encoder: what annotates first, if not that.
        sts: the pairs that show general ability.
        methods: identities of what initialises the encoder and what trains it.
    """
    content = settings.model_dump(mode="json", exclude={"name", "storage", "explorer", "tracking", *FEW_SHOT})
    del (
        content["corpus"]["source"],
        content["corpus"]["labels"],
        content["corpus"]["encoding"],
        content["validate"]["sts"],
    )
    for name in ("model", "document_prompt", "query_prompt"):  # the encoder's fingerprint has what they lead to
        del content["encoder"][name]
    # As runs are called since there were other positives, which there aren't any more.
    content["train"] = _training(settings, HOW_NOT_WHAT) | {"positive": "sentence"}
    if settings.recipe is None:  # runs from before there was one keep their names
        del content["recipe"], content["loop"]["pilot_steps"]
    else:
        content["recipe"] = [[name, *recipe] for name, recipe in RECIPES.items()]
    for name in METHODS.keys() - methods_used(settings):  # a method that the run doesn't use can't change it
        content.pop(name, None)
    content["annotate"] = _annotation(settings)
    for name in ("engine", "share"):  # a stage is named by what auto comes to
        if (asked := getattr(settings.annotate, name)) != "auto":
            content["annotate"][name] = asked
    # Runs from before there were such settings keep their names.
    if settings.minutes is None:
        del content["minutes"]
    if settings.train.method != "idc" or not settings.train.distillation:
        del content["train"]["distillation"]
    if settings.validate.reading == "sentences":  # pyright: ignore
        del content["validate"]["reading"]
    return fingerprint("run", _FORMATS, source, encoder, content, *tokenizer, first_encoder, sts, methods)


def methods_used(settings: Settings) -> set[str]:
    """Names of the methods that a run may train with, whose sections it reads."""
    tried = set() if settings.recipe is None else {recipe.method for recipe in RECIPES.values()}
    return {settings.train.method, settings.loop.initialization} | tried


def few_shot_identity(settings: Settings, without_labels: str, rounds: int, fall_back: bool = True) -> str:
    """Of a whole run with labels: fine-tuning, or so many rounds of InfoCSE++ at most.

    Args:
        settings: of the run.
        without_labels: `run_identity` of the same.
        rounds: at most.
        fall_back: whether the first may fine-tune what training without labels made worse, as it was before.
    """
    asked = settings.labels.train_size
    mixed = [f"label share {share}"] if (share := settings.plusplus.label_share) else []
    # An epoch that was rounded to the nearest step may be another now; one of whole batches isn't.
    epoch = ["rounded up"] if asked == "all" or asked % settings.finetune.batch_size else []
    by = settings.labels, settings.finetune
    return fingerprint("few-shot", without_labels, *by, rounds, fall_back, *mixed, *epoch)


def with_plain(run: str, also_plain: bool) -> str:
    """Of a run that, if asked, also tests encoders without their whitening."""
    return fingerprint(run, "plain") if also_plain else run


def labels_identity(settings: Settings, store: str) -> str:
    """Of the draw of labelled examples of the token store of this fingerprint."""
    asked = settings.labels.train_size
    return fingerprint("labels", _LABELS_FORMAT, store, asked, settings.seed if asked != "all" else None)


def labelled_documents_identity(store: str, drawn: LabelSample, copied: bool) -> str:
    """Of the documents of drawn labels in the token store of this fingerprint, copied or only counted."""
    counted = [] if copied or drawn.last is None else ["counted"]
    return fingerprint("labelled documents", _LABELS_FORMAT, store, None if drawn.last is None else drawn, *counted)


def annotate_identity(
    settings: Settings,
    store: str,
    encoder: str,
    splits: Sequence[str],
    engine: EngineName = "torch",
    share: Share | None = None,
    prompted: bool = False,
) -> str:
    """Of an annotate stage on the token store and with the encoder of these fingerprints, by an engine.

    What annotates all documents is named as it was before shares were drawn; with an encoder that has a prompt for
    documents it has another name than when copies were told by more tokens than that leaves a sentence.
    """
    by = () if engine == "torch" else (engine,)
    drawn = () if share is None else (share.identity(),)
    copies = ("copies as they are cut behind the prompt",) if prompted else ()
    return fingerprint(
        "annotate",
        _FORMATS["annotate"],
        store,
        encoder,
        list(splits),
        _annotation(settings),
        settings.encoder.precision,
        *by,
        *drawn,
        *copies,
    )


def graph_identity(
    settings: Settings, store: str, encoder: str, splits: Sequence[str], engine: EngineName, version: str
) -> str:
    """Of the backbone of the encoder of this fingerprint, converted by OpenVINO of that version.

    With weights in 8 bits it is for the documents that it was tried on, too.
    """
    tried = (store, list(splits), settings.annotate.k) if engine == "openvino_int8" else ()
    return fingerprint("graph", _GRAPH_FORMAT, encoder, engine, version, settings.encoder.precision, *tried)


def examples_identity(source: str, splits: Sequence[str], method: Method) -> str:
    """Of the count of a method's examples in documents of this fingerprint."""
    return fingerprint("examples", _FORMATS["examples"], source, list(splits), method.count_identity())


def train_identity(
    settings: Settings,
    method: Method,
    examples: str,
    encoder: str,
    on: On,
    t: int,
    budget: Budget,
    whitening: WhiteningPlan | None,
    max_candidates: int | None = None,
) -> str:
    """Of the train stage of iteration t; `max_candidates` where it leaves out some."""
    unasked = {"patience", "sts", "max_candidates"}
    if settings.validate.reading == "sentences" or on != "counterpart":  # pyright: ignore
        unasked.add("reading")  # stages from before there were others keep their names; `whitening` has the rest
    validation = settings.validate.model_dump(mode="json", exclude=unasked)  # pyright: ignore
    unread = set() if method.head_is_new else {"head_learning_rate"}
    return fingerprint(
        "train",
        _FORMATS["train"],
        examples,
        encoder,
        method.identity(),
        _training(settings, HOW_NOT_WHAT | _OF_METHOD | unread),
        budget,
        validation,
        on,
        settings.seed,
        t,
        settings.encoder.precision,
        None if whitening is None else whitening.identity(),
        *([] if max_candidates is None else [max_candidates]),
    )


def whitening_identity(store: str, encoder: str, plan: WhiteningPlan, precision: Precision, share: float = 1.0) -> str:
    """Of the whitening of the encoder of this fingerprint, fitted on the token store of that.

    `share` is that of long documents' sentences which are drawn, see `Sample`: once none were drawn of such.
    """
    drawn = [] if share == 1.0 else [share]
    return fingerprint("whitening", _WHITENING_FORMAT, store, encoder, plan.identity(), precision, *drawn)


def _annotation(settings: Settings) -> dict[str, Any]:
    """What can change clusters, by any encoder: a method's own settings, and the seed where something is drawn."""
    section = settings.annotate
    asked = section.model_dump(mode="json", include={"clustering", *OF_CLUSTERING[section.clustering]})
    if section.clustering == "kmeans":
        return asked | {"seed": settings.seed}
    return asked | {"mutual": False, "min_edge_quantile": 0.0}  # as it was called when edges could be left out


def _training(settings: Settings, without: set[str]) -> dict[str, Any]:
    return settings.train.model_dump(mode="json", exclude=without)
