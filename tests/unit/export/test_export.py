"""Exports against the encoder they are of: their vectors, what they say is lost, what is refused."""

from __future__ import annotations

import errno
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import ModernBertConfig, ModernBertModel

from infocse_ray.commands.export import main
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.graph import traced
from infocse_ray.encoder.layout import read_layout, write_layout
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.modules import Dense
from infocse_ray.encoder.origin import front_matter
from infocse_ray.encoder.prompts import ROLES, Prompts
from infocse_ray.export import questions as questions_module
from infocse_ray.export import run as run_module
from infocse_ray.export.card import exported_card
from infocse_ray.export.check import check, texts_of
from infocse_ray.export.dimensions import truncated
from infocse_ray.export.folder import place_of
from infocse_ray.export.formats import FORMATS, GraphEncoder
from infocse_ray.export.push import check_card
from infocse_ray.export.questions import Asked
from infocse_ray.export.run import export
from infocse_ray.loop.its_run import run_of
from infocse_ray.retrieval.scores import Scores
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.settings.export import Export
from infocse_ray.stages.stage import run_stage
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents
from tests.unit.encoder.test_encoder import SENTENCES, copy_of, load, tokenised
from tests.unit.encoder.test_encoder_modules import some_whitening
from tests.unit.stores import Written, write_store

PROMPTS = Prompts({"query": "a ", "passage": "the ship, "})
DOCUMENTS = make_documents(24, seed=1)


def whitened(folder: Path, tmp_path: Path) -> SentenceEncoder:
    """Cosine, prompts, whitening to 12 dimensions."""
    source = copy_of(folder, tmp_path)
    write_layout(source, 32, "mean", True, 60, prompts=PROMPTS)
    encoder = load(source, True)
    encoder.whitening = some_whitening(out=12)
    return encoder


def dense(folder: Path, tmp_path: Path) -> SentenceEncoder:
    """Inner products of what a Dense module makes of the first token."""
    encoder = load(folder, pooling="cls")
    torch.manual_seed(0)
    encoder.after.append(Dense(torch.nn.Linear(32, 10), torch.nn.Tanh()))
    return encoder


def prompts_not_pooled(folder: Path, tmp_path: Path) -> SentenceEncoder:
    """Inner products of the largest values among a text's own tokens."""
    source = copy_of(folder, tmp_path)
    write_layout(source, 32, "max", False, 60, prompts=PROMPTS, include_prompt=False)
    return load(source)


def a_run(encoder: SentenceEncoder, storage: Path, name: str = "news", **sections: Any) -> Path:
    """A finished run's model, with what `export` reads of a run."""
    root = Storage.open(str(storage))
    ids = [
        Written(
            d["id"],
            [tokenised(encoder, [s]).values.tolist() for s in d["sentences"]],
            counterparts=[tokenised(encoder, [d["counterpart"]]).values.tolist()],
            split="valid",
        )
        for d in DOCUMENTS
    ]
    store = run_stage(root, root / "corpora" / "c", "prepare", "c", lambda s: write_store(s.folder, ids, 2).summary)
    settings = {"name": name, "encoder": {"model": "m", "max_length": 12}, "corpus": {"source": "gone.jsonl"}}
    settings |= sections
    stages = {"corpus": {"kind": "prepare", "fingerprint": "c", "folder": store.folder.relative, "seconds": 1.0}}
    manifest = {"format": 2, "job": "pretrain", "settings": settings, "inputs": {}, "stages": stages}
    (root / name / "manifest.json").write_json(checked(manifest))
    encoder.save(storage / name / "model")
    card = "---\nlicense: mit\ntags: [infocse]\nmodel-index: []\n---\n\n# The news\n\nIts card.\n"
    (storage / name / "model" / "README.md").write_text(card)
    return storage / name / "model"


def refused(*argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "loading torch" not in line]
    assert len(lines) == 1
    return lines[0]


@pytest.mark.parametrize("make", [whitened, dense, prompts_not_pooled])
def test_graphs_give_the_encoders_vectors(make: Any, tiny_encoder: Path, tmp_path: Path) -> None:
    for package in ("onnxscript", "onnxruntime", "openvino", "nncf"):
        if importlib.util.find_spec(package) is None:  # importing them here would be another order than in use
            pytest.skip(f"there is no {package}")
    encoder = make(tiny_encoder, tmp_path)
    texts = tokenised(encoder, SENTENCES[:30])
    program = traced(encoder)
    for form in FORMATS.values():
        for int8, least in ((False, 0.999), (True, 0.98)):
            form.write(program, tmp_path, int8)
            graph = GraphEncoder(encoder, form.Session(tmp_path / form.file_name(int8), 1))
            for role in ROLES:
                ours = embed(encoder, texts, 200, role).vectors
                theirs = embed(graph, texts, 200, role).vectors  # pyright: ignore[reportArgumentType]
                assert torch.nn.functional.cosine_similarity(ours, theirs).min() > least
                if not int8 and form is FORMATS["onnx"]:  # OpenVINO may compute in bf16
                    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    assert sys.modules["openvino_telemetry"] is None  # nothing is sent


def test_padding_beyond_a_window_leaves_a_graphs_vectors_numbers(tiny_encoder: Path, tmp_path: Path) -> None:
    """Padding that no token is near attends to nothing."""
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("there is no openvino")
    folder = copy_of(tiny_encoder, tmp_path)
    (folder / "model.safetensors").unlink()
    shape: dict[str, Any] = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": 200}
    shape |= {"num_attention_heads": 4, "local_attention": 8, "global_attn_every_n_layers": 2}
    shape |= {"pad_token_id": 0, "cls_token_id": 2, "sep_token_id": 3}
    torch.manual_seed(0)
    ModernBertModel(ModernBertConfig(**shape)).eval().save_pretrained(folder)
    encoder = load(folder, pooling="mean")
    FORMATS["openvino"].write(traced(encoder), tmp_path, False)
    graph = FORMATS["openvino"].Session(tmp_path / FORMATS["openvino"].file_name(False), 1)
    ids, mask = encoder.pad(tokenised(encoder, ["the ship", " ".join(SENTENCES[:3])]))
    assert mask.sum(1).tolist() == [4, 16]
    found = torch.from_numpy(graph(ids.numpy(), mask.numpy()))
    with torch.inference_mode():
        assert torch.nn.functional.cosine_similarity(found, encoder(ids, mask)).min() > 0.999


def test_a_backbone_that_cannot_be_traced_is_one_line(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever export raises of it, which is of no one class."""

    class Unheard(Exception):
        pass

    def fails(*_: Any, **__: Any) -> None:
        raise Unheard("data-dependent sizes\nand where")

    monkeypatch.setattr(torch.export, "export", fails)
    with pytest.raises(ValueError, match=r"^model: a bert backbone can't be made a graph by .*: data-dependent sizes$"):
        traced(load(tiny_encoder))


def test_what_onnx_cannot_say_is_told_with_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        reason = ValueError("can't view a tensor so\nand where")
        raise torch.onnx.errors.OnnxExporterError("Failed.\x1b[96mThis is step 2/3\x1b[0m Next steps:\n-") from reason

    monkeypatch.setattr(torch.onnx, "export", fails)
    program: Any = None
    with pytest.raises(ValueError, match=r"^format = onnx: .*: can't view a tensor so; use openvino$"):
        FORMATS["onnx"].write(program, tmp_path, False)


def test_products_of_an_onnx_graph_in_8_bits_never_overflow_on_cpus_without_vnni(
    tiny_encoder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("onnxscript")
    onnx, form = pytest.importorskip("onnx"), FORMATS["onnx"]
    form.write(traced(load(tiny_encoder)), tmp_path, True)
    graph = onnx.load(tmp_path / form.file_name(True)).graph
    weights = [w for w in map(onnx.numpy_helper.to_array, graph.initializer) if w.dtype == "int8" and w.ndim == 2]
    assert len(weights) == 12  # six a layer
    # vpmaddubsw adds two products, of 8 unsigned bits and 8 signed ones, in 16 signed bits
    assert max(2 * 255 * abs(w.astype(int)).max() for w in weights) < 2**15


def test_the_export_of_a_run_is_checked_on_its_questions(
    tiny_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    model = a_run(whitened(tiny_encoder, tmp_path), tmp_path / "runs")
    done = export(Export(model=str(model)))
    said = capsys.readouterr().out
    assert done.check is not None
    assert done.check.lead.questions == 24
    assert done.check.before["recall@5"] == pytest.approx(done.check.after["recall@5"])
    assert done.check.before["recall@5"] > 0.2
    assert "judged by mrr, as the run news was; --metric takes another" in said
    assert "MRR lost: 0.0000 (mrr " in said
    folder = tmp_path / "runs" / "news" / "model_onnx"
    assert str(done.folder) == str(folder)
    assert not (folder / "model.safetensors").exists()
    assert read_layout(folder) == read_layout(model)
    # Another form of the same encoder goes beside it; another encoder does not.
    small = export(Export(model=str(model), int8=True, output=str(folder)))
    assert small.size < 0.8 * done.size  # of a tiny encoder the graph itself is a good part
    said = json.loads((folder / "export.json").read_text())
    assert list(said["exports"]) == ["onnx", "onnx int8"]
    assert said["exports"]["onnx"]["check"]["questions"] == 24
    card = ModelCard((folder / "README.md").read_text())
    assert card.data["license"] == "mit"
    assert card.data["tags"] == ["infocse", "onnx"]
    assert card.data["library_name"] == "sentence-transformers"  # which `infocse push` asks for
    assert {r.dataset_config for r in card.data.eval_results} == {"onnx", "onnx int8"}  # pyright: ignore
    assert "| onnx | " in card.text
    assert 'model_kwargs={"file_name": "model_qint8.onnx"}' in card.text
    assert card.text.index("# The news") < card.text.index("## What is exported here") < card.text.index("Its card.")
    with pytest.raises(ValueError, match="something else is there"):
        export(Export(model=str(a_run(load(tiny_encoder), tmp_path / "runs", "other")), output=str(folder)))
    with pytest.raises(ValueError, match="is an export itself"):
        export(Export(model=str(folder)))


def test_the_cards_lines_of_python_load_what_is_in_the_folder(tmp_path: Path) -> None:
    """Those of the original's card: a graph's folder has no weights that torch could load."""
    (tmp_path / "README.md").write_text(
        '# The news\n\nmodel = SentenceTransformer("path/to/this/folder")  # then ...\n'
    )

    def forms(**int8: bool) -> str:
        files = {"torch": "model.safetensors", "onnx": "onnx/model.onnx", "small": "onnx/model_qint8.onnx"}
        exports = {
            name: {"format": "torch" if name == "torch" else "onnx", "int8": eight, "file": files[name], "bytes": 9}
            | {"check": None, "vectors": {"difference": None, "cosine": None}}
            for name, eight in int8.items()
        }
        content = {"exports": exports, "dimensions": 4, "dimensions_of_original": 4}
        return exported_card(tmp_path, "m", "news", content).rpartition("card of the original.")[2]

    assert 'SentenceTransformer("path/to/this/folder", backend="onnx")  # then' in forms(small=True, onnx=False)
    assert '", backend="onnx", model_kwargs={"file_name": "model_qint8.onnx"})  # then' in forms(small=True)
    assert 'SentenceTransformer("path/to/this/folder")  # then' in forms(onnx=False, torch=False)


CHECKED = {"metric": "recall@5", "on": "counterpart", "questions": 24, "documents": 20, "difference": -0.05}
CHECKED |= {"low": -0.09, "high": -0.01, "before": {"recall@5": 0.8, "mrr": 0.6}, "after": {"recall@5": 0.75}}


def form_of(check: dict[str, Any] | None) -> dict[str, Any]:
    """What `export.json` says of an ONNX graph."""
    vectors = {"difference": 0.012, "cosine": 0.99, "texts": 9}
    return {"format": "onnx", "int8": False, "file": "onnx/model.onnx", "bytes": 2_500_000} | {
        "check": check,
        "vectors": vectors,
    }


def test_a_card_says_what_was_lost_and_how_sure_that_is(tmp_path: Path) -> None:
    content = {"exports": {"onnx": form_of(CHECKED)}, "dimensions": 4, "dimensions_of_original": 6}
    card = exported_card(tmp_path, "m", "news", content)
    lost = "+0.0500 (+0.0100 to +0.0900) of 24 questions"
    assert f"| onnx | 2.5 MB | {lost} | recall@5 0.8000 to 0.7500 | 0.012 | 0.990000 |" in card
    assert "Differences are between the original's vectors, cut alike, and the export's" in card
    [result] = ModelCard(card).data.eval_results  # pyright: ignore[reportAttributeAccessIssue]
    assert (result.metric_type, result.metric_value) == ("recall_at_5", 0.75), "of the export, not of the original"


def test_a_card_says_that_texts_want_prompts(tmp_path: Path) -> None:
    content = {"exports": {"onnx": form_of(CHECKED)}, "dimensions": 4, "dimensions_of_original": 4}
    said = "Texts want the prompts before them that `config_sentence_transformers.json` has"
    assert said not in exported_card(tmp_path, "m", "news", content)
    (tmp_path / "config_sentence_transformers.json").write_text('{"prompts": {"query": "query: "}}')
    assert said in exported_card(tmp_path, "m", "news", content)


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("language: no\ntags: [a, onnx]", {"language": "no", "tags": ["a", "onnx"]}),
        ("language: [no, nb]\ntags: a", {"language": ["no", "nb"], "tags": ["a", "onnx"]}),
        ("license: mit\ntags:", {"license": "mit", "tags": ["onnx"]}),
        ("license: mit\nlicense: mit\ntags: a", {"license": "mit", "tags": ["a", "onnx"]}),  # written twice by hand
    ],
)
def test_what_the_originals_card_says_of_it_is_said_of_an_export(
    tmp_path: Path, written: str, kept: dict[str, Any]
) -> None:
    """Norwegian is `no`, which by YAML 1.1 is false, and `infocse push` would refuse."""
    (tmp_path / "README.md").write_text(f"---\n{written}\nlibrary_name: transformers\n---\n\n# X\n")
    content = {"exports": {"onnx": form_of(None)}, "dimensions": 4, "dimensions_of_original": 4}
    (tmp_path / "card.md").write_text(exported_card(tmp_path, "m", "news", content))
    assert front_matter(tmp_path / "card.md") == kept | {"library_name": "sentence-transformers"}
    check_card(tmp_path / "card.md")


@pytest.mark.parametrize("check", [None, CHECKED])
def test_what_the_original_scored_is_not_said_of_an_export(tmp_path: Path, check: dict[str, Any] | None) -> None:
    original = {"onnx": form_of(CHECKED | {"after": {"recall@5": 0.875}})}
    content = {"exports": original, "dimensions": 4, "dimensions_of_original": 4}
    (tmp_path / "README.md").write_text(exported_card(tmp_path / "none", "m", "news", content))
    card = exported_card(tmp_path, "m", "news", content | {"exports": {"onnx": form_of(check)}})
    found = ModelCard(card).data.eval_results  # pyright: ignore[reportAttributeAccessIssue]
    said = [result.metric_value for result in found or []]
    assert said == ([] if check is None else [0.75])


def test_a_loss_is_compared_question_by_question_and_document_by_document() -> None:
    questions: Any = SimpleNamespace(doc_ids=["a", "a", "b", "c", "c", "c"])
    metrics: dict[str, float] = {}
    nothing = np.zeros((6, 1), np.int64)
    original = Scores(metrics, np.array([1, 1, 2, 4, 5, 9]), nothing)
    exported = Scores(metrics, np.array([1, 2, 2, 4, 6, 9]), nothing)
    for metric, lost in (("recall@5", 1 / 6), ("recall@10", 0.0), ("mrr", (1 - 1 / 2 + 1 / 5 - 1 / 6) / 6)):
        lead = check(original, exported, Asked(questions, "counterpart"), metric).lead  # pyright: ignore
        assert lead.difference == pytest.approx(-lost)
        assert (lead.questions, lead.documents) == (6, 3)


@pytest.mark.parametrize("job", ["pretrain", "finetune"])
def test_the_runs_settings_and_seed_draw_the_questions(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    seen: list[tuple[Any, ...]] = []

    def asked(store: Any, split: str, on: str, most: int, **how: Any) -> Any:
        seen.append((split, on, most, how))
        return SimpleNamespace(doc_ids=["a"])

    monkeypatch.setattr(questions_module, "questions_for", asked)
    encoder = load(tiny_encoder)
    validate = {"on": "sentence", "max_documents": 700, "max_candidates": 100, "reading": "both"}
    model = str(a_run(encoder, tmp_path / "runs", validate=validate, seed=5))
    manifest = tmp_path / "runs" / "news" / "manifest.json"
    content = {name: value for name, value in json.loads(manifest.read_text()).items() if name != "checksum"}
    Storage.open(str(manifest)).write_json(checked(content | {"job": job}))
    for most in (None, 300):
        questions_module.questions(Export(model=model, max_documents=most), run_of(model), None, encoder)
    how = {"seed": 5, "max_candidates": 100, "reading": "both"}
    on = "sentence" if job == "pretrain" else "counterpart"  # which is what fine-tuning was validated on
    assert seen == [("valid", on, 700, how), ("valid", on, 300, how)]


def test_a_check_without_a_question_is_refused_before_anything_is_made(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(run_module, "write_form", None)
    monkeypatch.setattr(questions_module, "questions_for", lambda *_, **__: SimpleNamespace(doc_ids=[]))
    model = str(a_run(whitened(tiny_encoder, tmp_path), tmp_path / "runs"))
    said = refused("--model", model, "--format=torch", "--dimensions=5", "--max_documents=1", capsys=capsys)
    assert "max_documents = 1, corpus.valid_fraction = 0.1: no validation document asks in the check; raise" in said


def graph_that_adds(more: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the place of what onnx makes of an encoder."""

    def stand_in(settings: Export, encoder: SentenceEncoder, *_: Any) -> GraphEncoder:
        def run(input_ids: np.ndarray, attention_mask: np.ndarray) -> np.ndarray:
            return encoder(torch.from_numpy(input_ids), torch.from_numpy(attention_mask)).numpy() + more

        return GraphEncoder(encoder, run)

    monkeypatch.setattr(run_module, "check_packages", lambda _: None)
    monkeypatch.setattr(run_module, "traced", lambda _: None)
    written = SimpleNamespace(write=lambda _, folder, __: (folder / "g").write_bytes(b"g"), file_name=lambda _: "g")
    monkeypatch.setattr(run_module, "FORMATS", {"onnx": written})
    monkeypatch.setattr(run_module, "opened", stand_in)


def test_a_graph_whose_vectors_are_no_numbers_is_no_export(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_that_adds(float("nan"), monkeypatch)
    whitened(tiny_encoder, tmp_path).save(tmp_path / "news")
    with pytest.raises(ValueError, match=r"^format = onnx: the graph's vectors are no numbers \(NaN\); give "):
        export(Export(model=str(tmp_path / "news"), check=False))
    assert not [*tmp_path.rglob("g")], "nothing is written"


def test_a_graph_of_fewer_dimensions_is_held_against_the_cut_and_its_score_against_the_whole(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph_that_adds(1e-3, monkeypatch)
    model = a_run(whitened(tiny_encoder, tmp_path), tmp_path / "runs", validate={"reading": "sentences"})
    done = export(Export(model=str(model), dimensions=3))
    assert done.vectors.difference == pytest.approx(1e-3, rel=1e-3)
    assert done.vectors.cosine > 0.999
    assert done.check is not None
    store = TokenStore.open(Storage.open(str(tmp_path / "runs")) / "corpora" / "c")
    asked = questions_for(store, "valid", "counterpart", 10_000, reading="sentences")
    assert done.check.before["mrr"] == score(load(model, max_length=12), asked).metrics["mrr"]
    assert done.check.after["mrr"] != done.check.before["mrr"]


def test_no_credential_is_in_a_card(tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = a_run(whitened(tiny_encoder, tmp_path), tmp_path / "runs")
    monkeypatch.setattr("infocse_ray.export.run.exported_card", lambda *_: "of s3://reader:swordfish@bucket/news\n")
    done = export(Export(model=str(model), format="torch", dimensions=5, check=False))
    assert (done.folder / "README.md").read_bytes() == b"of s3://***@bucket/news\n"


@pytest.mark.parametrize("format", ["torch", "onnx"])
def test_an_export_is_asked_as_the_run_was(format: Any, tiny_encoder: Path, tmp_path: Path) -> None:
    if format == "onnx":
        pytest.importorskip("onnxscript")
        pytest.importorskip("onnxruntime")
    encoder = whitened(tiny_encoder, tmp_path)
    scores = {}
    for reading in ("sentences", "both"):
        validate = {"reading": reading, "max_candidates": 100}
        model = a_run(encoder, tmp_path / "runs", reading, validate=validate)
        own = load(model, max_length=12)
        store = TokenStore.open(Storage.open(str(tmp_path / "runs")) / "corpora" / "c")
        asked = questions_for(store, "valid", "counterpart", 10_000, max_candidates=100, reading=reading)
        done = export(Export(model=str(model), format=format, dimensions=12 if format == "torch" else None))
        assert done.check is not None
        scores[reading] = done.check.before
        assert done.check.before == score(own, asked).metrics
        assert done.check.after == pytest.approx(done.check.before)
    assert scores["both"] != scores["sentences"]


def test_fewer_dimensions_are_the_leading_ones_of_length_1(
    tiny_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = pytest.importorskip("sentence_transformers")
    encoder = whitened(tiny_encoder, tmp_path)
    model = a_run(encoder, tmp_path / "runs", validate={"metric": "recall@10"})
    done = export(Export(model=str(model), format="torch", dimensions=5))
    assert done.check is not None
    assert "recall lost: " in capsys.readouterr().out
    assert done.check.metric == "recall@10", "as the run was judged"
    assert str(done.folder).endswith("/model_5")
    assert encoder.dimension == 12  # as before
    texts = tokenised(encoder, SENTENCES[:9])
    whole = embed(load(model, True, max_length=60), texts).vectors
    expected = torch.nn.functional.normalize(whole[:, :5], dim=1)
    found = library.SentenceTransformer(str(done.folder), device="cpu").encode(SENTENCES[:9], prompt="the ship, ")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert "of the original's 12 the leading components" in (Path(str(done.folder)) / "README.md").read_text()


def test_what_the_check_cuts_texts_to_is_not_in_the_export(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = whitened(tiny_encoder, tmp_path)
    encoder.max_seq_length = 20
    encoder.save(tmp_path / "news")
    for length in (None, 12, 50):  # without a run it is 32
        settings = Export(model=str(tmp_path / "news"), format="torch", dimensions=5, check=False, max_length=length)
        assert (
            read_layout(Path(str(export(settings).folder))).max_seq_length == 20
        )  # a second one is of the same encoder


def test_tokens_that_were_added_and_have_no_vector_are_not_asked_about(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = whitened(tiny_encoder, tmp_path)
    rows = len(encoder.backbone.get_input_embeddings().weight)
    encoder.tokenizer.add_tokens([f"<image_{number}>" for number in range(200)])  # most ids are of these
    encoder.save(tmp_path / "news")
    done = export(Export(model=str(tmp_path / "news"), format="torch", dimensions=12, check=False))
    assert done.vectors.difference == 0
    encoder = load(tmp_path / "news")
    texts = texts_of(None, encoder)
    assert texts.values.max() < rows
    assert not np.isin(texts.values, encoder.tokenizer.all_special_ids).any()
    assert texts.lengths.tolist() == list(range(1, encoder.room() + 1)), "one of each length that fits"


def test_dimensions_are_refused_where_a_cut_means_nothing(tiny_encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"dimensions = 8: the encoder isn't whitened.*encoder\.dimensions.*Matryoshka"
    ):
        truncated(load(tiny_encoder), 8)
    with pytest.raises(ValueError, match="dimensions = 13: the encoder's vectors have 12; set it to 12 or less"):
        truncated(whitened(tiny_encoder, tmp_path), 13)


def test_mistakes_are_told_in_one_line(
    tiny_encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "model = './none': no such folder" in refused("--model", "./none", capsys=capsys)
    model = str(copy_of(tiny_encoder, tmp_path))
    assert "belongs to no run" in refused("--model", model, capsys=capsys)
    for inside in (model, f"{model}/", f"{model}/onnx"):
        assert "is the model's own folder, or in it" in refused("--model", model, "--output", inside, capsys=capsys)
    assert not Path(model, "onnx").exists()
    assert "format = torch: is what the model is in" in refused("--model", model, "--format", "torch", capsys=capsys)
    said = refused("--model", model, "--corpus.text", "body", capsys=capsys)
    assert "corpus.text: says nothing without corpus.source" in said
    said = refused("--model", model, "--metric", "mrr", "--check", "false", capsys=capsys)
    assert "metric = 'mrr': is for the check; leave it out, or check = false" in said
    said = refused("--model", model, "--dimensions", "8", "--check", "false", capsys=capsys)
    assert "dimensions = 8: the encoder isn't whitened" in said
    assert not Path(f"{model}_onnx_8").exists()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    said = refused("--model", model, "--format", "openvino", capsys=capsys)
    assert "openvino and nncf are not installed: pip install 'infocse-ray[openvino]'" in said


def test_a_printed_configuration_is_taken_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main(["--model", str(tmp_path / "none"), "--print_config"])
    (tmp_path / "export.yaml").write_text(capsys.readouterr().out)
    assert "no such folder" in refused("--config", str(tmp_path / "export.yaml"), capsys=capsys)
    said = refused("--config", str(tmp_path / "export.yaml"), "--corpus.source", "", capsys=capsys)
    assert "corpus.source = '': name at least one path" in said


def test_a_run_is_found_by_its_models_folder(tiny_encoder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    model = a_run(load(tiny_encoder), tmp_path / "runs")
    monkeypatch.chdir(model.parent)
    for named in (str(model), f"{model}/", "../news/model", "model", "./model"):
        found = run_of(named)
        assert found is not None
        assert found.settings.name == "news"
    assert run_of(str(model.parent)) is None
    assert run_of(str(tmp_path / "model")) is None


def test_an_export_is_beside_the_model_however_that_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tmp_path / "news" / "model"
    model.mkdir(parents=True)
    monkeypatch.chdir(model)
    for named in (".", "./", "../model", "../../news/./model/", str(model), model.as_uri()):
        assert place_of(named, None, "onnx", 8).uri == f"{model}_onnx_8"
    assert place_of("memory://news/model/?a=b", None, "onnx", None).uri == "memory://news/model_onnx?a=b"
    with pytest.raises(ValueError, match=r"^output = .*: is in the folder that Ray unpacked this job into"):
        place_of(str(tmp_path), str(tmp_path / "_ray_pkg_0123" / "small"), "torch", 8)


def test_a_folder_that_is_no_place_for_an_export_is_told_before_any_work(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whitened(tiny_encoder, tmp_path).save(tmp_path / "news")
    (tmp_path / "a_file").write_text("")
    monkeypatch.setattr(run_module, "write_form", None)
    model = ("--model", str(tmp_path / "news"), "--format", "torch", "--dimensions", "5", "--check", "false")
    said = refused(*model, "--output", str(tmp_path / "a_file" / "below"), capsys=capsys)
    assert "below': can't be written: " in said
    assert said.endswith("name another folder or URI")
    for content in ("[]", "{", '{"of": "another"}'):
        (tmp_path / "there").mkdir(exist_ok=True)
        (tmp_path / "there" / "export.json").write_text(content)
        said = refused(*model, "--output", str(tmp_path / "there"), capsys=capsys)
        assert "there': something else is there; name another folder, or remove it" in said

    def readonly(*_: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Storage, "write_bytes", readonly)  # of a model that is shared, say: beside it is no place
    assert "news_5': can't be written: [Errno 30] Read-only file system; name another" in refused(*model, capsys=capsys)


def test_an_encoder_without_a_card_is_called_as_its_folder_is(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "encoder-of-news"
    whitened(tiny_encoder, tmp_path).save(folder)
    monkeypatch.chdir(folder)
    for model in (".", "../encoder-of-news/", folder.as_uri()):
        monkeypatch.setattr(run_module, "exported_card", lambda _, __, name, ___: f"# {name}\n")
        done = export(Export(model=model, format="torch", dimensions=5, check=False))
        assert Path(str(done.folder), "README.md").read_text() == "# encoder-of-news\n"
    assert run_module._name("s3://bucket/encoder-of-news/?region=eu") == "encoder-of-news"
    assert run_module._name("sentence-transformers/all-MiniLM-L6-v2") == "all-MiniLM-L6-v2"


def test_a_signal_is_handled_after_graphs_have_come_and_gone(tiny_encoder: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("openvino") is None:
        pytest.skip("there is no openvino")
    export(Export(model=str(tiny_encoder), format="openvino", output=str(tmp_path / "made"), check=False))
    script = f"""
import os, signal
from pathlib import Path
from infocse_ray.export.openvino_format import Session

file = Path({str(tmp_path / "made" / "openvino" / "openvino_model.xml")!r})
first, second = Session(file), Session(file)
del first
del second
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr
