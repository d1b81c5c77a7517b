"""Which settings name another run or stage: those that can change its result, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from infocse_ray.annotate.share import Share
from infocse_ray.loop import identity
from infocse_ray.loop.identity import (
    annotate_identity,
    examples_identity,
    few_shot_identity,
    graph_identity,
    labels_identity,
    run_identity,
    train_identity,
    whitening_identity,
)
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.recipes import Recipe
from infocse_ray.methods.registry import Use, method_of
from infocse_ray.retrieval.refit import WhiteningPlan
from infocse_ray.settings import MethodName, Settings, fingerprint
from infocse_ray.settings.fields import dotted_names
from infocse_ray.train.schedule import Budget
from tests.unit.stores import SPEC

BASE = {
    "name": "run",
    "corpus": {"source": "a"},
    "encoder": {"model": "m"},
    "train": {"similarity": "dot", "distillation": 0.0},
    "loop": {"initialization": "conpono"},
}

ALL, RUN, TRAIN, NONE = "run annotate train first", "run", "run train first", ""
SHARES = [(4, 1, 1), (5, 1, 1), (4, 2, 1), (4, 1, 2)]
"""Shards a lane, seed, iteration."""
FIRST = "run first_examples first"
"""Of what the encoder is initialised with: here conpono."""
# The token store's fingerprint has the corpus settings, the encoder's has pooling and length, and the paths' contents
# have fingerprints of their own; stages get these.
CHANGES: dict[str, tuple[Any, str]] = {
    "name": ("other", NONE),
    "storage": ("other", NONE),
    "tracking.sinks": (["mlflow"], NONE),
    "tracking.group": ("some", NONE),
    "seed": (1, TRAIN),
    "recipe": (None, NONE),  # see below: pilots start from an encoder that isn't initialised
    "minutes": (10.0, "run"),  # what it settles is a budget, which names a training
    "corpus.source": ("b", NONE),
    "corpus.kind": ("mind", RUN),
    "corpus.id": ("c", RUN),
    "corpus.text": ("c", RUN),
    "corpus.sentences": ("c", RUN),
    "corpus.counterpart": ("c", RUN),
    "corpus.labels": ("c", NONE),
    "corpus.split": ("c", RUN),
    "corpus.unlabelled": ("train", RUN),
    "corpus.valid_fraction": (0.2, RUN),
    "corpus.test_fraction": (0.2, RUN),
    "corpus.language": ("de", RUN),
    "corpus.encoding": ("cp1252", NONE),  # the corpus' own fingerprint has it
    "corpus.text_files": ("line", RUN),
    "corpus.min_sentences": (3, RUN),
    "corpus.max_sentence_chars": (99, RUN),
    "corpus.max_document_sentences": (99, RUN),
    "corpus.lanes": (8, RUN),
    "encoder.model": ("n", NONE),
    "encoder.pooling": ("cls", RUN),
    "encoder.max_length": (16, RUN),
    "encoder.document_prompt": ("text: ", NONE),
    "encoder.query_prompt": ("text: ", NONE),
    "encoder.precision": ("fp32", ALL),
    "encoder.whiten": (0.5, RUN),
    "encoder.dimensions": (8, RUN),
    "annotate.clustering": ("kmeans", "run annotate"),
    "annotate.k": (2, "run annotate"),
    "annotate.kmeans_clusters": (5, NONE),
    "annotate.kmeans_sample": (999, NONE),
    "annotate.first_encoder": ("n", NONE),
    "annotate.engine": ("openvino", "run"),  # a stage is named by what auto comes to
    "annotate.share": (0.5, "run"),
    "annotate.num_workers": (3, NONE),
    "annotate.use_gpu": (False, NONE),
    "train.method": ("simcse", "run examples train"),
    "train.distillation": (0.5, "run train"),
    "train.batch_size": (64, TRAIN),
    "train.learning_rate": (1e-3, TRAIN),
    "train.head_learning_rate": (1e-2, "run first"),  # the pairs' training has no head
    "train.warmup_steps": (7, TRAIN),
    "train.weight_decay": (0.1, TRAIN),
    "train.max_gradient_norm": (1.0, TRAIN),
    "train.max_steps": (7, TRAIN),
    "train.max_tokens": (7, TRAIN),
    "train.temperature": (0.5, TRAIN),
    "train.similarity": ("cosine", TRAIN),
    "train.chunk_tokens": (128, NONE),
    "train.num_workers": (3, NONE),
    "train.whitened": (True, TRAIN),
    "train.never_worse": (False, TRAIN),
    "train.interpolation": ([0.5], TRAIN),
    "train.use_gpu": (False, NONE),
    "train.adam_beta1": (0.8, TRAIN),
    "train.adam_beta2": (0.8, TRAIN),
    "train.adam_epsilon": (1e-6, TRAIN),
    "train.checkpoint_every": (9, NONE),
    "train.max_failures": (9, NONE),
    "validate.every": (9, TRAIN),
    "validate.every_tokens": (9, TRAIN),
    "validate.patience": (9, TRAIN),
    "validate.metric": ("recall@5", TRAIN),
    "validate.on": ("halves", TRAIN),
    "validate.reading": ("sentences", TRAIN),
    "validate.max_documents": (999, TRAIN),
    "validate.max_candidates": (999, RUN),
    "validate.sts": ("pairs.tsv", NONE),
    "loop.max_iterations": (9, RUN),
    "loop.early_stop": (False, RUN),
    "loop.pilot_steps": (9, NONE),
    "loop.initialization": ("ict", FIRST),
    "loop.initialization_steps": (9, "run first"),
    "loop.initialization_tokens": (9, "run first"),
    "loop.initialization_patience": (9, "run first"),
    "labels.train_size": (9, "few labels"),
    "finetune.batch_size": (9, "few"),
    "finetune.epochs": (9, "few"),
    "finetune.patience": (9, "few"),
    "finetune.learning_rate": (1e-3, "few"),
    "finetune.temperature": (0.5, "few"),
    "plusplus.max_rounds": (9, "few"),
    "plusplus.label_share": (0.5, "few"),  # stages are named by the method
    "explorer.documents": (9, NONE),
    "explorer.ids": (["a"], NONE),
    "conpono.context": (2, FIRST),
    "conpono.offsets": (1, "run first"),
    "conpono.targets": (1, "run first"),
    "conpono.form": ("margin", "run first"),
    "conpono.margin": (0.5, "run first"),
    "conpono.temperature": (0.5, "run first"),
} | {
    # Methods that the run doesn't use.
    name: (value, NONE)
    for name, value in {
        "simcse.temperature": 0.5,
        "simcse.dropout": 0.2,
        "consert.first": "none",
        "consert.second": "none",
        "consert.cutoff": 0.1,
        "consert.temperature": 0.5,
        "mirror_bert.span": 3,
        "mirror_bert.shortest": 3,
        "mirror_bert.temperature": 0.5,
        "mirror_bert.dropout": 0.2,
        "ict.block": "sentences",
        "ict.query_tokens": 3,
        "ict.block_tokens": 30,
        "ict.keep_query": 0.5,
        "ict.projection": 0,
        "ict.temperature": 0.5,
        "cpc.context": 1,
        "cpc.ahead": 1,
        "cpc.temperature": 0.5,
        "declutr.anchors": 1,
        "declutr.positives": 1,
        "declutr.min_tokens": 3,
        "declutr.max_tokens": 99,
        "declutr.mask": 0.1,
        "declutr.temperature": 0.5,
        "tsdae.deleted": 0.5,
    }.items()
}


def test_behind_a_prompt_an_annotation_has_a_name_of_its_own():
    asked = "store", "encoder", ["train"]
    settings = Settings.model_validate(BASE)
    plain, prompted = (annotate_identity(settings, *asked, prompted=prompt) for prompt in (False, True))
    assert plain == annotate_identity(settings, *asked) != prompted


def identities(settings: Settings) -> dict[str, str]:
    main, first, patience = settings.train, settings.loop, settings.validate.patience  # pyright: ignore
    found = {
        "run": run_identity(settings, "source", "encoder", "tokenizer"),
        "annotate": annotate_identity(settings, "store", "encoder", ["train"]),
        "labels": labels_identity(settings, "store"),
    }
    # What names a run without labels names one with labels too.
    found["few"] = few_shot_identity(settings, "without labels", settings.plusplus.max_rounds)
    trainings: list[tuple[str, MethodName, Budget]] = [
        ("", main.method, Budget(main.max_steps, main.max_tokens, patience)),
        (
            "first_",
            settings.loop.initialization,
            Budget(
                first.initialization_steps or main.max_steps,
                first.initialization_tokens or main.max_tokens,
                first.initialization_patience or patience,
            ),
        ),
    ]
    for prefix, name, budget in trainings:
        method = method_of(name, settings, SPEC, Use(initializes=bool(prefix)))
        examples = train = ""
        if method is not None:
            examples = examples_identity("source", ["train"], method)
            train = train_identity(settings, method, "examples", "encoder", "counterpart", 1, budget, None)
        found[f"{prefix}examples"] = examples
        found["first" if prefix else "train"] = train
    return found


def test_every_setting_is_spoken_of():
    assert set(CHANGES) == set(dotted_names(Settings))


def changed(base: dict[str, Any], name: str, value: Any) -> set[str]:
    """Which identities another value of one setting changes."""
    content: dict[str, Any] = {key: dict(v) if isinstance(v, dict) else v for key, v in base.items()}
    section, _, key = name.rpartition(".")
    (content.setdefault(section, {}) if section else content)[key] = value
    before, after = identities(Settings.model_validate(base)), identities(Settings.model_validate(content))
    return {kind for kind in before if before[kind] != after[kind]}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_names_another_result_if_it_can_change_it(name: str):
    value, expected = CHANGES[name]
    assert changed(BASE, name, value) == set(expected.split())


@pytest.mark.parametrize(
    ("annotate", "name", "value", "expected"),
    [
        ({"clustering": "kmeans"}, "annotate.kmeans_clusters", 5, "run annotate"),
        ({"clustering": "kmeans"}, "annotate.kmeans_sample", 999, "run annotate"),
        ({"clustering": "kmeans"}, "annotate.k", 2, NONE),
        ({"clustering": "kmeans"}, "seed", 1, ALL),
        ({"k": 2}, "seed", 1, TRAIN),
    ],
)
def test_a_method_of_annotating_has_its_own_settings(annotate: dict[str, Any], name: str, value: Any, expected: str):
    assert changed(BASE | {"annotate": annotate}, name, value) == set(expected.split())


def test_what_is_done_as_before_is_named_as_when_there_were_other_pairs(monkeypatch: pytest.MonkeyPatch):
    settings = Settings.model_validate(BASE)
    named = {"clustering": "partition", "k": 1, "mutual": False, "min_edge_quantile": 0.0}
    assert identity._annotation(settings) == named
    monkeypatch.setattr(identity, "fingerprint", lambda *parts: parts)
    (_, _, _, _, content, *_) = run_identity(settings, "source", "encoder", "tokenizer")
    assert content["train"]["positive"] == "sentence"  # pyright: ignore[reportArgumentType]
    method = Idc(settings.train, SPEC)
    assert (method.identity()[:2], method.count_identity()) == (("idc", "sentence"), ("idc", False, 14))


def test_distillation_names_no_run_that_doesnt_read_it():
    base = BASE | {"train": {"method": "simcse", "distillation": 0.0}}
    assert changed(base, "train.distillation", 0.5) == set()


def test_a_run_that_chooses_its_training_is_named_by_what_it_chooses_among(monkeypatch: pytest.MonkeyPatch):
    base = BASE | {"train": {}, "loop": {}}
    assert changed(base, "recipe", "auto") == {"run"}, "stages are named by what was chosen"
    chooses = base | {"recipe": "auto"}
    assert changed(chooses, "loop.pilot_steps", 9) == {"run"}
    assert changed(chooses, "simcse.temperature", 0.5) == {"run"}, "of a method that may be chosen"
    assert changed(chooses, "ict.temperature", 0.5) == set()
    settings = Settings.model_validate(chooses)
    before = run_identity(settings, "source", "encoder", "tokenizer")
    monkeypatch.setitem(identity.RECIPES, "infocse_distillation", Recipe("idc", 0.25))
    assert run_identity(settings, "source", "encoder", "tokenizer") != before


def test_a_seed_draws_other_labels_where_not_all_are_taken():
    drawn = BASE | {"labels": {"train_size": 9}}
    assert changed(drawn, "seed", 1) == {*TRAIN.split(), "labels"}
    settings = Settings.model_validate(BASE)
    assert few_shot_identity(settings, "one", 3) != few_shot_identity(settings, "other", 3)
    assert few_shot_identity(settings, "one", 3) != few_shot_identity(settings, "one", 3, fall_back=False)
    assert labels_identity(settings, "store") != labels_identity(settings, "other")


def test_a_run_whose_epochs_were_whole_batches_is_named_as_before_they_were_rounded_up():
    def named(size: int | str) -> tuple[str, str]:
        settings = Settings.model_validate(BASE | {"labels": {"train_size": size}})
        before = fingerprint("few-shot", "one", settings.labels, settings.finetune, 3, True)
        return few_shot_identity(settings, "one", 3), before

    for size in (64, 128):
        now, before = named(size)
        assert now == before
    for size in (95, 100, "all"):
        now, before = named(size)
        assert now != before


def test_inputs_name_another_result():
    settings = Settings.model_validate(BASE)
    idc, none = method_of("idc", settings, SPEC), method_of("none", settings, SPEC)
    assert idc is not None
    assert none is None

    def trained(
        examples="examples",
        encoder="encoder",
        on: Any = "counterpart",
        t=1,
        budget=Budget(9, None, 9),  # noqa: B008
        whitening=None,
        max_candidates=None,
    ):
        return train_identity(settings, idc, examples, encoder, on, t, budget, whitening, max_candidates)

    found = [
        run_identity(settings, "source", "encoder", "tokenizer"),
        run_identity(settings, "other", "encoder", "tokenizer"),
        run_identity(settings, "source", "other", "tokenizer"),
        run_identity(settings, "source", "encoder", "other"),
        run_identity(settings, "source", "encoder", "tokenizer", "first"),
        run_identity(settings, "source", "encoder", "tokenizer", "other"),
        run_identity(settings, "source", "encoder", "tokenizer", None, "pairs"),
        run_identity(settings, "source", "encoder", "tokenizer", "other", methods=[("declutr", "its head")]),
        annotate_identity(settings, "store", "encoder", ["train"]),
        annotate_identity(settings, "other", "encoder", ["train"]),
        annotate_identity(settings, "store", "other", ["train"]),
        annotate_identity(settings, "store", "encoder", ["train", "test"]),
        annotate_identity(settings, "store", "encoder", ["train"], "openvino"),
        *(annotate_identity(settings, "store", "encoder", ["train"], share=Share(*of)) for of in SHARES),
        annotate_identity(settings, "store", "encoder", ["train"], "openvino", Share(*SHARES[0])),
        examples_identity("source", ["train"], idc),
        examples_identity("other", ["train"], idc),
        examples_identity("source", ["train", "test"], idc),
        trained(),
        trained(examples="other"),
        trained(encoder="other"),
        trained(on="halves"),
        trained(whitening=WhiteningPlan(0.5, None, ["train"], 1)),
        trained(whitening=WhiteningPlan(None, None, ["train"], 1)),
        trained(whitening=WhiteningPlan(None, None, ["train"], 1, whole=True)),
        trained(max_candidates=100),
        trained(t=2),
        trained(budget=Budget(8, None, 9)),
        trained(budget=Budget(9, 8, 9)),
        trained(budget=Budget(9, None, 8)),
    ]
    assert len(set(found)) == len(found)


def test_a_converted_backbone_is_named_by_what_converts_it_and_in_8_bits_by_what_it_was_tried_on():
    def named(engine: Any = "openvino", version="1", store="store", encoder="encoder", splits=("train",), **base: Any):
        return graph_identity(Settings.model_validate(BASE | base), store, encoder, splits, engine, version)

    bf16: dict[str, Any] = {"encoder": {"model": "m", "precision": "bf16"}}
    k: dict[str, Any] = {"annotate": {"k": 2}}
    found = [named(), named(version="2"), named(encoder="other"), named(**bf16), named("openvino_int8")]
    assert len(set(found)) == len(found)
    assert named(store="other") == named(splits=("train", "test")) == named(**k) == named()
    others: list[dict[str, Any]] = [{}, {"store": "other"}, {"splits": ("train", "test")}, k]
    tried = [named("openvino_int8", **one) for one in others]
    assert len(set(tried)) == len(tried)


def test_a_whitening_is_named_by_what_it_is_fitted_on_and_how():
    plan = WhiteningPlan(None, None, ["train"], 1)
    found = [
        whitening_identity("store", "encoder", plan, "fp32"),
        whitening_identity("other", "encoder", plan, "fp32"),
        whitening_identity("store", "other", plan, "fp32"),
        whitening_identity("store", "encoder", plan, "bf16"),
        whitening_identity("store", "encoder", plan, "fp32", 0.5),
        *(
            whitening_identity("store", "encoder", plan._replace(**changed), "fp32")
            for changed in ({"power": 0.5}, {"dimensions": 8}, {"splits": ["train", "test"]}, {"seed": 2})
        ),
    ]
    assert len(set(found)) == len(found)


def test_a_finished_run_is_not_what_a_stage_that_gives_another_result_would_make(monkeypatch: pytest.MonkeyPatch):
    settings = Settings.model_validate(BASE)
    before = run_identity(settings, "source", "encoder", "tokenizer")
    monkeypatch.setitem(identity._FORMATS, "train", 0)
    assert run_identity(settings, "source", "encoder", "tokenizer") != before


def test_the_reading_names_what_it_can_change_and_whitening_for_sentences_is_named_as_before_there_was_another():
    by: dict[str, Settings] = {
        reading: Settings.model_validate(
            {"name": "n", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "validate": {"reading": reading}}
        )
        for reading in ("sentences", "both")
    }
    idc = method_of("idc", by["both"], SPEC)
    assert idc is not None

    def trained(reading: str, on: Any) -> str:
        return train_identity(by[reading], idc, "examples", "encoder", on, 1, Budget(9, None, 9), None)

    assert trained("sentences", "counterpart") != trained("both", "counterpart")
    assert trained("sentences", "sentence") == trained("both", "sentence")
    plan = WhiteningPlan(None, None, ["train"], 1)
    before = fingerprint("whitening", 1, "store", "encoder", [None, None, ["train"], 1], "fp32")
    assert whitening_identity("store", "encoder", plan, "fp32") == before
    assert whitening_identity("store", "encoder", plan._replace(whole=True), "fp32") != before
