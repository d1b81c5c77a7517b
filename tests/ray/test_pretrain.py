"""The whole job on a small corpus, on a shared local cluster: results, idempotence, refusals."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer

from infocse_ray.annotate import actor
from infocse_ray.annotate.annotations import clustered
from infocse_ray.annotate.idc import cluster
from infocse_ray.annotate.stage import annotate
from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.schema import SPLITS, stable_hash
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore, documents_of
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop import evaluate as evaluate_module
from infocse_ray.loop import iteration_stages
from infocse_ray.loop import run as run_module
from infocse_ray.loop.infocse import pretrain
from infocse_ray.loop.manifest import read_manifest
from infocse_ray.loop.prepared import prepare_corpus
from infocse_ray.loop.scored import evaluate_encoders
from infocse_ray.methods.chance import mix
from infocse_ray.methods.registry import method_of
from infocse_ray.retrieval.questions import read_ranks
from infocse_ray.retrieval.ranks import shown
from infocse_ray.retrieval.refit import WhiteningPlan
from infocse_ray.runtime.cluster import Placement, placement
from infocse_ray.sampling.examples import Examples
from infocse_ray.sampling.shards import Shards
from infocse_ray.settings import Annotate, Corpus, Settings
from infocse_ray.settings.commands import Prepare
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.stages.stage import Stage, read_stage
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loop import Training
from infocse_ray.train.schedule import Budget
from infocse_ray.train.trainer import train
from tests.conftest import make_documents, write_jsonl

pytestmark = pytest.mark.usefixtures("ray_cluster")

STAGES = [(iteration_stages, name) for name in ("annotate", "count_examples", "train")]


def settings_for(folder: Path, model: Path, /, **sections: Any) -> Settings:
    content: dict[str, Any] = {
        "name": "run",
        "storage": str(folder / "runs"),
        "corpus": {"source": str(folder / "corpus.jsonl"), "lanes": 4, "valid_fraction": 0.2, "test_fraction": 0.2},
        "encoder": {"model": str(model), "max_length": 16, "precision": "fp32"},
        "train": {"batch_size": 16, "max_steps": 6, "learning_rate": 1e-3, "chunk_tokens": 128, "similarity": "cosine"},
        "validate": {"every": 3},
        "loop": {"max_iterations": 1, "initialization": "none"},
    }
    # What it trains is looked at, however little that is worth.
    content["train"] |= {"temperature": 0.05, "never_worse": False}
    for section, values in sections.items():
        content[section] = content[section] | values if isinstance(values, dict) and section in content else values
    return Settings.model_validate(content)


@pytest.fixture(scope="module")
def still_encoder(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Path:
    """The tiny encoder without dropout, whose noise differs between numbers of workers."""
    config = AutoConfig.from_pretrained(tiny_encoder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    folder = tmp_path_factory.mktemp("still-encoder")
    AutoModel.from_pretrained(tiny_encoder, config=config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_encoder).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, still_encoder: Path, ray_cluster: None) -> tuple[Path, dict]:
    folder = tmp_path_factory.mktemp("finished")
    write_jsonl(folder / "corpus.jsonl", make_documents(150))
    metrics = pretrain(settings_for(folder, still_encoder, loop={"max_iterations": 2, "early_stop": False}))
    return folder, metrics


def test_the_result_is_an_encoder_that_other_libraries_load(finished: tuple[Path, dict]) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    folder, metrics = finished
    model = folder / "runs" / "run" / "model"
    sentences = [s for d in make_documents(5, seed=9) for s in d["sentences"]]
    ours = EncoderFolder(Storage.open(str(model)), "x", 16).load()
    ids = [ours.tokenizer(s, add_special_tokens=False)["input_ids"] for s in sentences]
    tokens = Tokens(np.concatenate(ids).astype(np.uint16), offsets_of(np.array([len(i) for i in ids])))
    other = sentence_transformers.SentenceTransformer(str(model), device="cpu")
    assert other.max_seq_length == 64  # what the source had
    other.max_seq_length = 16
    np.testing.assert_allclose(embed(ours, tokens).vectors.numpy(), other.encode(sentences), atol=1e-5)
    weights = AutoModel.from_pretrained(model).state_dict()
    assert all(torch.equal(weights[name], tensor) for name, tensor in ours.backbone.state_dict().items())
    assert f"iteration {metrics['best_iteration']}" in (model / "README.md").read_text()


def test_metrics_say_what_was_done(finished: tuple[Path, dict]) -> None:
    folder, metrics = finished
    assert metrics == json.loads((folder / "runs" / "run" / "metrics.json").read_text())
    assert metrics["validate_on"] == "counterpart"
    assert torch.__version__.startswith(metrics["versions"]["torch"])
    first = metrics["iterations"][1]
    assert [entry["step"] for entry in first["history"]] == [0, 3, 6]
    assert first["annotations"]["documents"] == 150
    assert first["annotations"]["pairs"] > 0
    assert {"recall@5", "recall@10", "recall@20", "mrr"} <= set(metrics["iterations"][0]["test"])
    assert first["seconds"]["train"] > 0
    scores = [entry["validation"]["mrr"] for entry in metrics["iterations"]]
    assert scores[metrics["best_iteration"]] == max(scores)


def test_annotations_are_the_clusters_of_each_documents_own_vectors(finished: tuple[Path, dict]) -> None:
    folder, _ = finished
    run = folder / "runs" / "run"
    encoder = EncoderFolder(Storage.open(str(run / "iteration_0" / "whitening" / "model")), "x", 16).load()
    seen = 0
    [store] = (folder / "runs" / "corpora").iterdir()
    for file in sorted((run / "iteration_1" / "annotations").glob("shard-*.parquet")):
        written, own = pq.read_table(file), pq.read_table(store / "documents" / file.name)
        assert own["split"].to_pylist() == sorted(own["split"].to_pylist(), key=SPLITS.index), "all are annotated"
        documents = clustered(documents_of(own), written, Storage.open(str(file)))
        assert documents.clusters is not None
        for i in range(len(documents.keys)):
            rows = np.arange(documents.offsets[i], documents.offsets[i + 1])
            vectors = embed(encoder, documents.sentences.take(rows)).vectors
            expected = cluster(vectors, np.array([0, len(rows)]), 1)
            assert documents.clusters[rows].tolist() == expected.tolist()
            seen += 1
    assert seen == 150


@pytest.mark.parametrize("workers", [1, 2])
def test_actors_annotate_as_the_one_process_of_a_small_corpus(
    finished: tuple[Path, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr(actor, "_SMALL_ON_CPU", 0.0)
    folder, _ = finished
    run = Storage.open(str(folder / "runs" / "run"))
    corpora = folder / "runs" / "corpora"
    store = TokenStore.open(Storage.open(str(next(corpora.iterdir()))))
    encoder = EncoderFolder(run / "iteration_0" / "whitening" / "model", "x", 16)
    stage = Stage("annotate", "other", Storage.open(str(tmp_path)))
    there = Placement(workers, False, 1)
    summary = annotate(stage, store, ["train", "valid", "test"], encoder, Annotate(), 0, "fp32", there, "again")
    reference = read_stage(run / "iteration_1" / "annotations")
    assert summary["pairs"] == (reference.summary or {})["pairs"]
    for name in reference.folder.files():
        if name.startswith("shard-"):
            assert (tmp_path / name).read_bytes() == (reference.folder / name).read_bytes()


def test_counts_of_what_a_crash_left_are_those_of_one_go(finished: tuple[Path, dict], tmp_path: Path) -> None:
    folder, _ = finished
    run = Storage.open(str(folder / "runs" / "run"))
    store = TokenStore.open(Storage.open(str(next((folder / "runs" / "corpora").iterdir()))))
    encoder = EncoderFolder(run / "iteration_0" / "whitening" / "model", "x", 16)
    stage = Stage("annotate", "again", Storage.open(str(tmp_path)))
    reference = read_stage(run / "iteration_1" / "annotations")
    for name in reference.folder.files():
        if name.startswith("shard-"):
            (tmp_path / name).write_bytes((reference.folder / name).read_bytes())
    there = placement(Annotate())
    summary = annotate(stage, store, ["train", "valid", "test"], encoder, Annotate(), 0, "fp32", there, "again")
    assert summary["tokens"] > 0
    assert summary == {k: v for k, v in (reference.summary or {}).items() if k != "seconds"}


def test_the_driver_fetches_no_more_for_a_larger_corpus(
    still_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.setattr(actor, "_SMALL_ON_CPU", 0.0)
    fetched: list[int] = []
    rows_of = ray.data.Dataset.iter_rows

    def counted(dataset: ray.data.Dataset) -> Any:
        for row in rows_of(dataset):
            fetched[-1] += len(str(row))
            yield row

    monkeypatch.setattr(ray.data.Dataset, "iter_rows", counted)
    for other in ("take", "take_all", "to_pandas"):
        monkeypatch.setattr(ray.data.Dataset, other, lambda *_: pytest.fail("the driver took rows another way"))
    encoder = EncoderFolder(Storage.open(str(still_encoder)), "x", 16)
    for count in (30, 300):
        fetched.append(0)
        root = Storage.open(str(tmp_path / str(count)))
        corpus = Corpus(source=str(write_jsonl(tmp_path / f"{count}.jsonl", make_documents(count))), lanes=4)
        store = prepare(
            root, corpus, find_source(corpus), CorpusTokenizer((still_encoder / "tokenizer.json").read_text())
        )
        there = placement(Annotate())
        stage = Stage("annotate", "x", root / "annotations")
        summary = annotate(stage, store, ["train"], encoder, Annotate(), 0, "fp32", there, "annotating")
        assert summary["documents"] > 0.6 * count
    assert 0 < fetched[1] < 1.3 * fetched[0]


def test_ranks_that_another_number_of_workers_left_are_removed(
    finished: tuple[Path, dict], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = finished
    store = TokenStore.open(Storage.open(str(next((folder / "runs" / "corpora").iterdir()))))
    encoder = EncoderFolder(Storage.open(str(tmp_path / "encoder")), "x", 16)
    asked = [evaluate_module.Asked(encoder, "test", "halves")]
    arguments = (Storage.open(str(tmp_path)), Storage.open(str(tmp_path / "e")), store, asked, "fp32")

    def work(_: object, argument: Any, *__: object, **___: object) -> None:
        for _, place in argument.todo:
            assert not (place / "ranks").exists()
            (place / "ranks" / "part-00000.parquet").write_bytes(b"")
            (place / "metrics.json").write_json(checked({"metrics": {}, "seconds": 1.0}))

    def crash(_: object, argument: Any, *__: object, **___: object) -> None:
        for _, place in argument.todo:
            (place / "ranks" / "part-00003.parquet").write_bytes(b"")
        raise RuntimeError("crash")

    monkeypatch.setattr(evaluate_module, "run_workers", crash)
    with pytest.raises(RuntimeError, match="crash"):
        evaluate_module.evaluate(*arguments, Placement(4, False, 1), 0)
    monkeypatch.setattr(evaluate_module, "run_workers", work)
    (stage,) = evaluate_module.evaluate(*arguments, Placement(2, False, 1), 0)
    assert list((stage.folder / "ranks").files()) == ["part-00000.parquet"]
    assert stage.seconds == 1.0


def test_a_finished_run_does_nothing(
    finished: tuple[Path, dict], still_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, metrics = finished
    for room, work in [(run_module, "connect"), (run_module, "prepare"), (run_module, "evaluate"), *STAGES]:
        monkeypatch.setattr(room, work, lambda *a, work=work, **k: pytest.fail(f"{work} was called"))
    assert pretrain(settings_for(folder, still_encoder, loop={"max_iterations": 2, "early_stop": False})) == metrics


def test_a_finished_training_stage_keeps_its_encoder_and_no_checkpoints(finished: tuple[Path, dict]) -> None:
    for t in (1, 2):
        training = finished[0] / "runs" / "run" / f"iteration_{t}" / "train"
        assert {file.name for file in training.iterdir()} == {"models", "result.json", "stage.json", "started.json"}
        assert len(list((training / "models").iterdir())) == 1


def test_a_run_whose_stages_were_other_ones_trains_beside_what_these_left(
    finished: tuple[Path, dict], still_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the corpus' files have changed: the folder of the run's name has another stage, maybe of use."""
    folder = shutil.copytree(finished[0], tmp_path / "copy")
    kept = folder / "runs" / "run" / "iteration_1" / "train"
    assert (kept / "result.json").exists()
    used = []
    monkeypatch.setattr(
        iteration_stages, "train", lambda training, *a: used.append(training.folder) or pytest.fail("there")
    )
    with pytest.raises(pytest.fail.Exception, match="there"):
        pretrain(settings_for(folder, still_encoder, train={"learning_rate": 2e-3}))
    place = Path(used[0].path)
    assert place.parent == kept.parent
    assert place != kept


def test_another_run_in_the_storage_shares_finished_stages(
    finished: tuple[Path, dict], still_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, metrics = finished
    for room, work in STAGES:
        monkeypatch.setattr(room, work, lambda *a, work=work, **k: pytest.fail(f"{work} was called"))
    # The same documents in another file, of another day: the token store is made again, nothing else.
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes((folder / "corpus.jsonl").read_bytes())
    corpus = {"source": str(copy)}
    again = pretrain(settings_for(folder, still_encoder, name="twin", corpus=corpus, loop={"max_iterations": 1}))
    assert again["iterations"][1]["history"] == metrics["iterations"][1]["history"]
    assert (folder / "runs" / "twin" / "model" / "model.safetensors").exists()


def test_two_workers_train_the_encoder_that_one_worker_trains(
    finished: tuple[Path, dict], still_encoder: Path, tmp_path: Path
) -> None:
    folder, metrics = finished
    run = Storage.open(str(folder / "runs" / "run"))
    settings = settings_for(folder, still_encoder)
    store = TokenStore.open(Storage.open(str(next((folder / "runs" / "corpora").iterdir()))))
    encoder = load_encoder(still_encoder, settings.encoder, cosine=True)
    method = method_of("idc", settings, EncoderSpec.of(encoder))
    assert method is not None
    source = Shards(store.folder / "documents", "f", store.shards, store.summary["lanes"], list(SPLITS))
    source = source._replace(annotations=run / "iteration_1" / "annotations")
    training = Training(
        settings,
        store,
        Examples.of(read_stage(run / "iteration_1" / "examples"), source),
        method,
        Budget(settings.train.max_steps, None, settings.validate.patience),  # pyright: ignore
        EncoderFolder(run / "iteration_0" / "whitening" / "model", "x", 16),
        mix(settings.seed, 1),
        Storage.open(str(tmp_path)),
        "counterpart",
        whitening=WhiteningPlan(None, None, list(SPLITS), settings.seed, whole=True),
    )
    summary = train(training, Placement(2, False, 1), "two workers")
    assert summary["workers"] == 2
    one, two = metrics["iterations"][1]["history"], summary["history"]
    assert [entry["step"] for entry in one] == [entry["step"] for entry in two] == [0, 3, 6]
    for a, b in zip(one, two, strict=True):
        assert set(a) == set(b)
        for name in a:
            if name == "whitening":
                assert a[name] == b[name]
            elif name != "padded":  # each worker pads its own sentences
                assert a[name] == pytest.approx(b[name], rel=1e-4), (a["step"], name)


def test_a_batch_larger_than_the_corpus_is_refused_before_anything_is_trained(
    finished: tuple[Path, dict], still_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = finished
    monkeypatch.setattr(iteration_stages, "annotate", lambda *a, **k: pytest.fail("annotate was called"))
    with pytest.raises(
        ValueError, match=r"train.batch_size = 3200: the corpus has 150 training documents.*150 or less"
    ):
        pretrain(settings_for(folder, still_encoder, train={"batch_size": 3200}))
    assert read_manifest(Storage.open(str(folder / "runs")) / "run")["finished"], "of its name a run was, and is still"


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"annotate": {"num_workers": 99}}, r"annotate.num_workers = 99: the cluster has 2 CPU cores"),
        ({"train": {"use_gpu": True}}, r"train.use_gpu = true: the cluster has no GPU"),
        (
            {"corpus": {"text": "body"}},
            r"corpus.text = 'body': .*: no such column; there is counterpart, id, sentences",
        ),
        ({"encoder": {"model": "./nowhere"}}, r"encoder.model = './nowhere': no such folder"),
        ({"encoder": {"max_length": 4096}}, r"encoder.max_length = 4096"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    finished: tuple[Path, dict], still_encoder: Path, sections: dict, message: str
) -> None:
    folder, _ = finished
    with pytest.raises(ValueError, match=message) as refusal:
        pretrain(settings_for(folder, still_encoder, name="refused", **sections))
    assert "\n" not in str(refusal.value)


def test_actors_use_the_cores_they_were_given(ray_cluster: None) -> None:
    import ray

    from infocse_ray.runtime.cluster import assigned_cores

    @ray.remote(num_cpus=2)
    def threads() -> tuple[int, int]:
        torch.set_num_threads(assigned_cores())
        return assigned_cores(), torch.get_num_threads()

    assert ray.get(threads.remote()) == (2, 2)


@pytest.mark.usefixtures("workers_here")
def test_evaluate_scores_any_encoder_on_all_documents(
    finished: tuple[Path, dict], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = finished
    content = {
        "model": str(folder / "runs" / "run" / "model"),
        "max_length": 16,
        "precision": "fp32",
        "storage": str(folder / "runs"),
        "corpus": {"source": str(folder / "corpus.jsonl"), "lanes": 4},
    }
    [scored], _ = evaluate_encoders(Evaluate.model_validate(content))
    metrics = scored.metrics
    said = capsys.readouterr().out
    assert "(counterpart) among 150 candidates, documents read both whole and by their sentences, with" in said
    assert f"| {content['model']} | {shown(metrics, 'recall@5')} |" in said
    assert metrics["queries"] == 150
    (stage,) = (read_stage(Storage.open(str(f))) for f in (folder / "runs" / "evaluations").glob("*") if f.is_dir())
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text().splitlines()]
    ranks = read_ranks(stage.folder).to_pylist()
    assert {(row["doc_id"], row["key"]) for row in ranks} == {(r["id"], stable_hash(r["counterpart"])) for r in rows}
    assert np.mean([row["rank"] <= 5 for row in ranks]) == metrics["recall@5"]
    assert metrics["recall@5"] <= metrics["recall@10"] <= metrics["recall@20"]
    unlabelled = write_jsonl(folder / "unlabelled.jsonl", [{"sentences": d["sentences"]} for d in make_documents(20)])
    content["corpus"] = {"source": str(unlabelled), "lanes": 4}
    [unasked], _ = evaluate_encoders(Evaluate.model_validate(content))
    found = unasked.metrics
    assert 70 < found["candidates"] <= found["queries"] <= 80, "without counterparts, up to four sentences of each"
    with pytest.raises(ValueError, match=r"on = counterpart: no document of split all has a counterpart"):
        evaluate_encoders(Evaluate.model_validate(content | {"on": "counterpart"}))


def write_pairs(file: Path) -> None:
    """Sentence pairs with scores, as `validate.sts` names them."""
    pairs = [f"{a['sentences'][0]}\t{a['sentences'][1]}\t{n % 5}" for n, a in enumerate(make_documents(12))]
    file.write_text("\n".join(pairs))


@pytest.mark.usefixtures("workers_here")
def test_general_ability_is_told_of_every_iteration(
    finished: tuple[Path, dict], still_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, before = finished
    write_pairs(folder / "pairs.tsv")
    settings = settings_for(folder, still_encoder, loop={"max_iterations": 2, "early_stop": False})
    validate = settings.validate.model_copy(update={"sts": str(folder / "pairs.tsv")})
    monkeypatch.setattr(iteration_stages, "train", lambda *_: pytest.fail("trained again"))
    metrics = pretrain(settings.model_copy(update={"name": "judged", "validate": validate}))
    told = [entry["sts"] for entry in metrics["iterations"]]
    assert len(told) == 3
    assert len(set(told)) > 1
    assert (told[0], told[metrics["best_iteration"]]) == (metrics["sts"]["whitened"], metrics["sts"]["result"])
    assert not any("sts" in entry for entry in before["iterations"])


@pytest.mark.usefixtures("workers_here")
def test_evaluate_puts_two_encoders_side_by_side(
    finished: tuple[Path, dict], tiny_encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, _ = finished
    write_pairs(folder / "pairs.tsv")
    model = str(folder / "runs" / "run" / "model")
    content = {
        "model": model,
        "compare": str(tiny_encoder),
        "metric": "mrr",
        "max_length": 16,
        "sts": str(folder / "pairs.tsv"),
        "storage": str(folder / "runs"),
        "corpus": {"source": str(folder / "corpus.jsonl"), "lanes": 4},
    }
    evaluate_encoders(Evaluate.model_validate(content))
    said = capsys.readouterr().out
    assert "(counterpart) among 150 candidates, documents read both whole and by their sentences, with" in said
    assert "| encoder | R@5 | R@10 | R@20 | MRR | Spearman |" in said
    rows = {
        name: line for line in said.splitlines() for name in (model, str(tiny_encoder)) if line.startswith(f"| {name}")
    }
    assert len(rows) == 2
    verdict, spearman = [line for line in said.splitlines() if f"{model} less {tiny_encoder} is " in line]
    assert verdict.startswith("verdict: ")
    assert "150 questions of 150 documents" in verdict
    assert spearman.startswith("Spearman: ")
    assert spearman.endswith(", 12 pairs")
    assert said.count("must find: ") == 3
    assert said.count("found first: ") == 6


def test_prepare_reports_the_store_and_what_was_set_aside(
    tmp_path: Path, tiny_encoder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*make_documents(10), {"id": "lonely", "sentences": ["Only one."]}]
    write_jsonl(tmp_path / "corpus.jsonl", rows)
    content = {
        "model": str(tiny_encoder),
        "storage": str(tmp_path / "runs"),
        "list_rejected": True,
        "corpus": {"source": str(tmp_path / "corpus.jsonl"), "lanes": 2},
    }
    prepare_corpus(Prepare.model_validate(content))
    printed = capsys.readouterr().out
    assert "1 rows set aside (1 fewer than 2 sentences)" in printed
    assert "lonely\tfewer than 2 sentences" in printed
    assert len(list((tmp_path / "runs" / "corpora").iterdir())) == 1
