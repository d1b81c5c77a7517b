"""What `infocse_ray` offers without a run: its names, quickly; clusters of a few documents, in this process."""

from __future__ import annotations

import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from transformers.utils import logging

import infocse_ray
from infocse_ray import RunResult, Scores, SuiteScores, SweepResult, adapt, cluster_sentences, evaluate
from infocse_ray.api import calls, results
from infocse_ray.loop.scored import Evaluated
from infocse_ray.settings import Settings
from infocse_ray.settings.validated import validated
from infocse_ray.storage.checksums import digest
from infocse_ray.storage.folder import Storage

WRONG: dict[str, dict[str, Any]] = {
    "max_steps": {"max_steps": 20},
    "train": {"train": "idc"},
    "stages": {"stages": 3},
    "corpus": {"corpus": "body"},
}
"""Arguments that are no sections."""

TEXT = "The ship and the tide. A judge of the court. The tide and the ship."


@pytest.fixture
def any_encoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is named is an encoder."""
    monkeypatch.setattr(calls, "resolve_encoder", lambda *_: Path())


def test_importing_loads_neither_torch_nor_ray():
    code = "import sys, infocse_ray; dir(infocse_ray); print(*{'torch', 'ray', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_every_name_is_there():
    assert all(getattr(infocse_ray, name) is not None for name in infocse_ray.__all__)
    assert set(infocse_ray.__all__) <= set(dir(infocse_ray))
    with pytest.raises(AttributeError, match="has no attribute 'adopt'"):
        _ = infocse_ray.adopt  # pyright: ignore[reportAttributeAccessIssue]


def test_the_sweep_is_a_function_also_after_its_room_was_imported():
    import infocse_ray.tuning.run

    assert callable(infocse_ray.sweep)


def test_sentences_are_clustered_inside_each_document(tiny_encoder: Path):
    sentences = ["the ship", "a judge", "the ship", "a court of law"]
    text, given = cluster_sentences(tiny_encoder, [TEXT, sentences], k=1)
    assert cluster_sentences(str(tiny_encoder), [TEXT, sentences], k=1) == [text, given]
    assert text.sentences == ["The ship and the tide.", "A judge of the court.", "The tide and the ship."]
    assert given.sentences == sentences
    assert given.clusters[0] == given.clusters[2] == 0, "equal texts are one node"
    assert [len(group) for group in given.groups()] == [given.clusters.count(i) for i in range(max(given.clusters) + 1)]


def test_an_encoder_is_loaded_without_a_bar_of_the_librarys_own(tiny_encoder: Path, capfd: pytest.CaptureFixture[str]):
    logging.enable_progress_bar()  # as in a worker's process, where nobody has asked for quiet yet
    cluster_sentences(tiny_encoder, [TEXT])
    assert capfd.readouterr().err == ""


def test_sentences_that_a_corpus_leaves_out_are_in_no_cluster(tiny_encoder: Path):
    sentences = ["the ship", "a judge", "the  tide\n"]
    [found] = cluster_sentences(str(tiny_encoder), [["", *sentences, " ", "\u200b"]])
    assert found.sentences == ["the ship", "a judge", "the tide"]
    assert [found] == cluster_sentences(str(tiny_encoder), [found.sentences])


@pytest.mark.parametrize("length", [2, 100_000])
def test_a_length_that_the_encoder_cant_have_is_named_as_it_was_given(tiny_encoder: Path, length: int):
    with pytest.raises(ValueError, match=rf"^max_length = {length}: "):
        cluster_sentences(str(tiny_encoder), [TEXT], max_length=length)


def test_documents_without_sentences_have_no_clusters(tiny_encoder: Path):
    assert cluster_sentences(str(tiny_encoder), [[], ["one"]]) == [([], []), (["one"], [0])]


def test_one_text_is_no_list_of_documents(tiny_encoder: Path):
    with pytest.raises(ValueError, match="give a list of texts"):
        cluster_sentences(str(tiny_encoder), TEXT)


@pytest.mark.parametrize(
    ("documents", "said"),
    [
        ([{"body": TEXT}], r"item 0 is \{'body': .*give a list of texts"),
        ({"a": TEXT}, "is a dict; give a list of texts"),
        (pd.DataFrame({"body": [TEXT]}), "is a DataFrame; give a list of texts.*such as a column of it"),
        ([TEXT, None], "item 1 is None"),
        ([TEXT, 5], "item 1 is 5"),
        (["A \ud800 ship."], r"item 0 isn't UTF-8: 'A \\ud800 ship.'; leave out what is no character"),
        ([TEXT, ["a", "\udcff"]], r"item 1 isn't UTF-8"),
        ([["a", 5]], r"item 0 is \['a', 5\]"),
    ],
)
def test_what_is_no_text_is_not_clustered(documents: Any, said: str):
    with pytest.raises(ValueError, match=rf"^documents: {said}"):
        cluster_sentences("e", documents)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"encoder": 5}, "encoder: is a int; give its folder or name, or RunResult.encoder"),
        ({"encoder": None}, "encoder: is a NoneType"),
        ({"documents": None}, "documents: is a NoneType; give a list of texts"),
        ({"k": 0}, "k = 0: give how many edges a sentence keeps, from 1"),
        ({"k": 1.5}, r"k = 1\.5: give how many"),
        ({"k": "1"}, "k = '1': give how many"),
        ({"language": None}, "language = None: give the language.s ISO 639-1 code"),
        ({"language": "English"}, "language = .English.: give the language.s ISO 639-1 code"),
    ],
)
def test_what_clusters_nothing_is_refused_in_a_line(given: dict[str, Any], said: str):
    with pytest.raises(ValueError, match=rf"^{said}"):
        cluster_sentences(**{"encoder": "e", "documents": [TEXT], **given})


def test_a_column_of_lists_is_clustered(tiny_encoder: Path):
    column = pd.Series([np.array(["the ship", "a judge"], dtype=object), np.array(["a tide"], dtype=object)])
    assert [one.sentences for one in cluster_sentences(str(tiny_encoder), column)] == [  # pyright: ignore
        ["the ship", "a judge"],
        ["a tide"],
    ]


def test_the_encoder_is_given_once():
    for twice in ({"encoder": {"model": "other"}}, {"encoder.model": "other"}):
        given: dict[str, Any] = twice
        with pytest.raises(ValueError, match=r"^encoder\.model: the encoder is given; leave it out$"):
            adapt("e", [TEXT], "n", **given)


@pytest.mark.usefixtures("any_encoder")
def test_every_section_of_settings_can_be_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Settings] = []
    monkeypatch.setattr(calls, "pretrain", asked.append)
    given: dict[str, Any] = {"encoder": {"whiten": "off"}, "train.max_steps": 5, "train": {"batch_size": 4}}
    adapt("e", [TEXT], "n", storage=str(tmp_path), seed=7, minutes=2.5, recipe="auto", **given)
    (settings,) = asked
    assert (settings.name, settings.seed, settings.minutes, settings.recipe) == ("n", 7, 2.5, "auto")
    assert (settings.encoder.model, settings.encoder.whiten) == ("e", "off")
    assert (settings.train.max_steps, settings.train.batch_size) == (5, 4)
    assert Path(str(settings.corpus.source)).parent == tmp_path / "sources"


@pytest.mark.usefixtures("any_encoder")
def test_adapt_takes_configurations_as_the_command_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Settings] = []
    monkeypatch.setattr(calls, "pretrain", asked.append)
    own = tmp_path / "own.yaml"
    own.write_text("train.batch_size: 9\ntrain: {max_steps: 7}\ncorpus: {text: body}\nencoder: {max_length: 12}\n")
    adapt("e", [TEXT], "n", storage=str(tmp_path), config="paper-plus", train={"max_steps": 5})
    adapt("e", [{"body": TEXT}], "n", storage=str(tmp_path), config=own, train={"batch_size": 8})
    first, second = asked
    assert (first.train.learning_rate, first.train.max_steps, first.encoder.model) == (5e-5, 5, "e")
    assert (second.train.batch_size, second.train.max_steps, second.encoder.max_length) == (8, 7, 12)
    for name in ("name", "storage", "seed", "minutes", "recipe"):
        own.write_text(f"{name}: 1")
        with pytest.raises(ValueError, match=f"has {name}; give that to adapt itself"):
            adapt("e", [TEXT], "n", config=own)
    for text, said in (
        ("train: {max_steps: 1}\nseed: 1", "has seed; give"),
        ("corpus.source: a", "corpus.source: the documents are given"),
    ):
        own.write_text(text)
        with pytest.raises(ValueError, match=said):
            adapt("e", [TEXT], "n", config=str(own))
    for wrong in ("corpus: news.jsonl", "encoder: 5", "train: [a]"):
        own.write_text(wrong)
        with pytest.raises(ValueError, match=rf"^config = .*: {wrong[:5]}.* = .*: settings come in sections"):
            adapt("e", [TEXT], "n", config=own)
    for wrong, said in (("bert", "the shipped ones are"), (7, "config: is a int")):
        with pytest.raises(ValueError, match=said):
            adapt("e", [TEXT], "n", config=wrong)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "call",
    [
        lambda: infocse_ray.adapt("e", ["a"], name="no such/name"),
        lambda: infocse_ray.adapt({"model": "e"}, ["a"], "n"),  # pyright: ignore[reportArgumentType]
        lambda: infocse_ray.evaluate("e", ["a"], split="tset"),
        lambda: infocse_ray.embed("e", ["a"], output="o", precision="fp4"),
        lambda: infocse_ray.evaluate_suites("e", "stst"),
        lambda: infocse_ray.adapt("e", ["a"], "n", **WRONG["max_steps"]),
        lambda: infocse_ray.adapt("e", ["a"], "n", **WRONG["train"]),
        lambda: infocse_ray.adapt("e", ["a"], "n", **WRONG["stages"]),
        lambda: infocse_ray.adapt("e", ["a"], name="stages"),
        lambda: infocse_ray.evaluate("e", ["a"], **WRONG["corpus"]),
        lambda: infocse_ray.evaluate("e", ["a"], suite="sts", suite_path=["a.tsv"]),
    ],
)
def test_a_wrong_setting_is_one_line_that_names_it(call: Callable[[], object]):
    with pytest.raises(
        ValueError,
        match=r"^(encoder\.model = \{'model': 'e'\}: should be"
        r"|name = '(no such/name|stages)'|split = 'tset'|precision = 'fp4'|suite = "
        r"|suite: .* call evaluate_suites|stages = 3: no such setting"
        r"|max_steps = 20: .*: train=\{'max_steps': 20\}|(train|corpus) = '\w+': .* each a dict).*$",
    ) as said:
        call()
    assert type(said.value) is ValueError
    assert "\n" not in str(said.value)


@pytest.mark.usefixtures("any_encoder")
def test_settings_of_the_corpus_may_have_dotted_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []
    place = SimpleNamespace(folder=Storage.open(str(tmp_path)))
    scored: Any = SimpleNamespace(metrics={}, stage=place)
    monkeypatch.setattr(calls, "evaluate_encoders", lambda one: (asked.append(one), Evaluated([scored], None))[1])
    monkeypatch.setattr(calls, "embed_corpus", lambda one: (asked.append(one), SimpleNamespace(uri=""))[1])
    given: dict[str, Any] = {"storage": str(tmp_path), "corpus.text": "body", "corpus": {"valid_fraction": 0.5}}
    evaluate("e", [{"body": TEXT}], **given)
    infocse_ray.embed("e", [{"body": TEXT}], output="o", **given)
    assert [(one.corpus.text, one.corpus.valid_fraction) for one in asked] == [("body", 0.5)] * 2


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda **given: adapt("/no/encoder", [TEXT], "n", **given), "encoder.model"),
        (lambda **given: evaluate("/no/encoder", [TEXT], **given), "model"),
        (lambda **given: evaluate(given.pop("there"), [TEXT], compare="/no/encoder", **given), "compare"),
        (lambda **given: infocse_ray.embed("/no/encoder", [TEXT], output="o", **given), "model"),
    ],
)
def test_an_encoder_is_looked_for_before_documents_are_written(
    tmp_path: Path, tiny_encoder: Path, call: Callable[..., object], named: str
):
    given = {"storage": str(tmp_path / "runs")} | ({"there": str(tiny_encoder)} if named == "compare" else {})
    with pytest.raises(ValueError, match=rf"^{named} = '/no/encoder'"):
        call(**given)
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("any_encoder")
def test_scores_beside_another_encoders_have_a_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    verdict = {"label": "LEVEL", "line": "LEVEL, neither is better"}
    stage = SimpleNamespace(folder=Storage.open(str(tmp_path)))
    scored: Any = SimpleNamespace(metrics={"mrr": 0.5}, stage=stage)
    asked: list[Any] = []

    def evaluate_encoders(settings: Any) -> Evaluated:
        asked.append(settings)
        return Evaluated([scored] * 2, {"verdict": verdict}) if settings.compare else Evaluated([scored], None)

    monkeypatch.setattr(calls, "evaluate_encoders", evaluate_encoders)
    alone = evaluate("e", [TEXT], storage=str(tmp_path))
    assert (alone.verdict, alone.summary, alone.comparison) == (None, None, None)
    assert (alone.metrics, alone.ranks) == ({"mrr": 0.5}, str(tmp_path / "ranks"))
    found = evaluate("e", [TEXT], compare="other", storage=str(tmp_path))
    assert asked[1].compare == "other"
    assert (found.verdict, found.summary) == ("LEVEL", "LEVEL, neither is better")
    assert found.comparison == {"verdict": verdict}
    assert repr(found) == repr(alone), "of the comparison its verdict is to be asked for"


def test_what_suites_and_sweeps_came_to_is_returned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked: list[Any] = []
    row = SimpleNamespace(content=lambda: {"suite": "sts"})
    judged = SimpleNamespace(rows=[row], lines=["| a |", "| b |"], folder=Storage.open(str(tmp_path / "suites")))
    monkeypatch.setattr(calls, "judge", lambda settings: (asked.append(settings), judged)[1])
    found = infocse_ray.evaluate_suites("m", "sts", compare="before", suite_path=Path("a.csv"), storage=tmp_path)
    assert found == SuiteScores([{"suite": "sts"}], "| a |\n| b |", str(tmp_path / "suites"))
    infocse_ray.evaluate_suites("m", ["mteb"], tasks=["STSBenchmark"])
    said = [(one.model, one.compare, one.suite_path, one.tasks) for one in asked]
    assert said == [("m", "before", ["a.csv"], []), ("m", None, [], ["STSBenchmark"])]
    monkeypatch.setattr(calls, "run_sweep", lambda _: 3)
    config = infocse_ray.Sweep.model_construct(name="s", storage=str(tmp_path))
    assert infocse_ray.sweep(config) == SweepResult(str(tmp_path / "s"), 3)


@pytest.mark.usefixtures("any_encoder")
@pytest.mark.parametrize("documents", [[TEXT], "news.jsonl"])
def test_what_embed_takes_of_a_corpus_it_takes_in_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, documents: Any
):
    monkeypatch.setattr(calls, "embed_corpus", lambda settings: SimpleNamespace(uri=settings.corpus.min_sentences))
    given = {"output": str(tmp_path / "out"), "storage": str(tmp_path), "corpus": {"min_sentences": 1}}
    assert infocse_ray.embed("e", documents, **given) == 1, "which a run, that needs pairs, doesn't take"


def test_a_result_loads_its_own_encoder_and_no_later_runs(tmp_path: Path, tiny_encoder: Path):
    model = tmp_path / "run" / "model"
    shutil.copytree(tiny_encoder, model)
    files = {file.name: digest(file.read_bytes()).hex() for file in model.iterdir()}
    result = RunResult(Storage.open(str(tmp_path / "run")), {"settings": {"encoder": {"max_length": 8}}}, files=files)
    assert (result.encoder().dimension, result.encoder().max_length) == (32, 8)
    assert not result.encoder().normalize, "it is as its folder says"
    (model / "config.json").write_text((model / "config.json").read_text() + "\n")
    with pytest.raises(
        ValueError, match=r"isn't this result's encoder any more \(config\.json is another, or gone\): a run"
    ):
        result.encoder()
    (model / "config.json").unlink()
    with pytest.raises(ValueError, match="any more"):
        result.sentence_transformer()


def test_a_result_is_exported_and_pushed_as_the_commands_do(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    from infocse_ray.export import push, run

    model = tmp_path / "run" / "model"
    shutil.copytree(tiny_encoder, model)
    files = {"config.json": digest((model / "config.json").read_bytes()).hex()}
    result = RunResult(Storage.open(str(tmp_path / "run")), {}, files=files)
    asked: list[Any] = []

    def export(settings: Any) -> Any:
        asked.append(settings)
        return SimpleNamespace(folder=Storage.open(str(tmp_path / "out")))

    def pushed(settings: Any) -> str:
        asked.append(settings)
        return "https://example.org"

    monkeypatch.setattr(run, "export", export)
    monkeypatch.setattr(push, "push", pushed)
    given = {"format": "openvino", "int8": True, "output": tmp_path / "out", "corpus.source": tmp_path / "c.jsonl"}
    assert result.export(**given) == str(tmp_path / "out")
    assert result.push("me/news", private=True) == "https://example.org"
    exported, shared = asked
    assert (exported.model, exported.format, exported.int8) == (str(model), "openvino", True)
    assert (exported.output, exported.corpus.source) == (str(tmp_path / "out"), str(tmp_path / "c.jsonl"))
    assert (shared.model, shared.repo, shared.private) == (str(model), "me/news", True)
    for call in (lambda **more: result.export(**more), lambda **more: result.push("me/news", **more)):
        with pytest.raises(ValueError, match=r"^model: is this result's; leave it out"):
            call(model="x")
        with pytest.raises(ValueError, match=r"^privat is not a setting"):
            call(privat=True)
    (model / "config.json").write_text("{}")
    for call in (result.export, lambda: result.push("me/news")):
        with pytest.raises(ValueError, match="isn't this result's encoder any more"):
            call()
    assert len(asked) == 2, "nothing was done of what was refused"


def test_results_are_shown_without_credentials():
    secret = "s3://KEY:averysecretword@bucket/runs/news"
    for result in (SweepResult(secret, 0), Scores({}, secret), SuiteScores([], "", secret)):
        assert "bucket/runs/news" in repr(result)
        assert "averysecretword" not in repr(result)


SECRET: Any = "s3://KEY:averysecretword@bucket/news"


@pytest.mark.parametrize(
    "call",
    [
        lambda: adapt("e", [TEXT], "n", corpus=SECRET),
        lambda: adapt("e", [TEXT], "n", sources=SECRET),
        lambda: adapt("e", [TEXT], "n", config=SECRET),
        lambda: adapt("e", [TEXT], "n", train={"max_steps": SECRET}),
        lambda: evaluate([SECRET], [TEXT]),  # pyright: ignore[reportArgumentType]
        RunResult(Storage.open(SECRET), {"settings": {"encoder": {"max_length": 8}}}, files={"gone": ""}).encoder,
    ],
)
@pytest.mark.usefixtures("any_encoder")
def test_a_mistake_is_told_without_credentials(call: Callable[[], object], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(results, "resolve_encoder", lambda *_: Path())
    with pytest.raises(ValueError, match=r"\*\*\*@bucket") as told:
        call()
    assert "averysecretword" not in "".join(traceback.format_exception(told.value, limit=0))


def test_a_wrong_setting_is_refused_before_anything_is_written(tmp_path: Path, tiny_encoder: Path):
    with pytest.raises(ValueError, match=r"train\.batch_sise"):
        adapt(tiny_encoder, [TEXT], name="x", storage=tmp_path, train={"batch_sise": 3})
    with pytest.raises(ValueError, match="splits"):
        evaluate(tiny_encoder, [TEXT], storage=tmp_path, splits="test")
    assert list(tmp_path.iterdir()) == []


def test_documents_in_another_place_are_not_told_whole():
    documents: Any = [f"Document {number} has some sentences. They are long." for number in range(600)]
    calls: list[Callable[[], object]] = [
        lambda: adapt(documents, "e", name="n"),
        lambda: adapt("e", documents, name="n", corpus=documents),
        lambda: adapt("e", documents, name="n", train=documents),
        lambda: infocse_ray.embed(documents, "e", output="o"),
        lambda: evaluate("m", documents, compare=documents),
        lambda: infocse_ray.Index(documents),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r" = \['Document 0 has .* \.\.\. \(a list of 600\)") as refused:
            call()
        assert len(str(refused.value)) < 1_200


@pytest.mark.parametrize("given", [{"name": "x"}, None, "paper"])
def test_what_is_no_settings_is_told_what_to_give(given: Any):
    for job in (infocse_ray.pretrain, infocse_ray.finetune, infocse_ray.plusplus):
        with pytest.raises(ValueError, match=r"^settings: is a (dict; give Settings.model_validate|NoneType|str)"):
            job(given)
    with pytest.raises(ValueError, match=r"^config: is a (dict; give Sweep.model_validate|NoneType|str)"):
        infocse_ray.sweep(given)


def test_settings_may_be_paths() -> None:
    given = {"model": Path("m"), "output": Path("out"), "corpus": {"source": "documents", "text": "body"}}
    checked = validated(calls.Embed, given)
    assert (checked.model, checked.output) == ("m", "out")
    suites = {"model": "m", "suite": "sts", "suite_path": [Path("a.csv"), "b.csv"]}
    assert validated(calls.Evaluate, suites).suite_path == ["a.csv", "b.csv"]
