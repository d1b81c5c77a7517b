"""The ways to annotate on Ray: other encoders' tokens in the first iteration, several passes over the shards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from tokenizers import Tokenizer, models
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from infocse_ray.annotate import documents
from infocse_ray.annotate.idc import cluster
from infocse_ray.annotate.stage import annotate
from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.layout import write_layout
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.loop import infocse, iteration_stages
from infocse_ray.loop import run as run_module
from infocse_ray.runtime.cluster import Placement
from infocse_ray.settings import Annotate, Corpus, Settings
from infocse_ray.stages.stage import Stage
from infocse_ray.storage.folder import Storage
from infocse_ray.train.loop import Training
from tests.conftest import make_documents, write_jsonl
from tests.unit.passes import SPLITS, Passes, encoder_in, pieces

pytestmark = pytest.mark.usefixtures("ray_cluster")

POSITIONS = 20


@pytest.fixture(scope="module")
def spelling_encoder(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path) -> Path:
    """An encoder that reads letters rather than words, few of them, and takes the first token's vector."""
    tokenizer = Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))
    letters = "abcdefghijklmnopqrstuvwxyz"
    special = [token for token, i in sorted(tokenizer.get_vocab().items(), key=lambda t: t[1]) if i < 5]
    words = [*special, ".", *letters, *(f"##{letter}" for letter in letters)]
    tokenizer.model = models.WordPiece(vocab={word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    folder = tmp_path_factory.mktemp("spelling-encoder")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=POSITIONS,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
    write_layout(folder, 16, "cls", False, POSITIONS)
    return folder


def expected_clusters(encoder: SentenceEncoder, sentences: list[str]) -> list[int]:
    """IDC of a document by its text, tokenised here."""
    ids = [encoder.tokenizer(sentence, add_special_tokens=False)["input_ids"] for sentence in sentences]
    tokens = Tokens(np.concatenate(ids).astype(np.uint16), offsets_of(np.array([len(i) for i in ids])))
    return cluster(embed(encoder, tokens).vectors, np.array([0, len(ids)]), 1).tolist()


@pytest.mark.usefixtures("workers_here")
def test_the_first_encoder_annotates_the_first_iteration_and_no_other(
    tmp_path: Path, tiny_encoder: Path, spelling_encoder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"id": d["id"], "sentences": d["sentences"]} for d in make_documents(60)]
    content = {
        "name": "run",
        "storage": str(tmp_path / "runs"),
        "corpus": {"source": str(write_jsonl(tmp_path / "corpus.jsonl", rows)), "lanes": 4, "valid_fraction": 0.2},
        "encoder": {"model": str(tiny_encoder), "max_length": 40, "precision": "fp32"},
        "annotate": {"first_encoder": str(spelling_encoder)},
        "train": {"batch_size": 8, "similarity": "dot"},
        "loop": {"max_iterations": 2, "initialization": "none"},
    }
    main = EncoderFolder(Storage.open(str(tiny_encoder)), "x", 40).load()

    def train(training: Training, *_: Any) -> dict[str, Any]:
        EncoderFolder.save(main, training.folder / "models" / "step-00000001")
        better = 0.5 + int("iteration_1" in str(training.folder)) / 10
        history = [
            {"step": step, "recall@5": 1, "recall@10": 1, "recall@20": 1, "mrr": step * better, "queries": 13}
            for step in (0, 1)
        ]
        chosen = history[1] | {"kind": "trained"}
        return {"best_step": 1, "best": better, "steps": 1, "tokens": 9, "history": history, "chosen": chosen}

    monkeypatch.setattr(iteration_stages, "train", train)
    infocse.pretrain(Settings.model_validate(content))
    run = tmp_path / "runs" / "run"
    first = EncoderFolder(Storage.open(str(spelling_encoder)), "x", POSITIONS).load()
    assert first.pooling == "cls"
    of = {stable_hash(row["id"]): row["sentences"] for row in rows}
    differ = 0
    for t, encoder in ((1, first), (2, main)):
        seen = 0
        for file in sorted((run / f"iteration_{t}" / "annotations").glob("shard-*.parquet")):
            for row in pq.read_table(file).to_pylist():
                assert row["cluster"] == expected_clusters(encoder, of[row["key"]])
                differ += row["cluster"] != expected_clusters(main, of[row["key"]])
                seen += 1
        assert 40 <= seen < 60
    assert differ, "the two encoders give other clusters"
    assert len(list((tmp_path / "runs" / "corpora").iterdir())) == 2
    assert (run / "first_encoder" / "model" / "model.safetensors").exists()
    monkeypatch.setattr(iteration_stages, "annotate", lambda *a, **k: pytest.fail("annotate was called"))
    infocse.pretrain(Settings.model_validate(content))
    content["annotate"] = {"first_encoder": str(tmp_path / "nowhere")}
    monkeypatch.setattr(run_module, "connect", lambda: pytest.fail("connect was called"))
    with pytest.raises(ValueError, match=r"annotate\.first_encoder = .*nowhere': no such folder"):
        infocse.pretrain(Settings.model_validate(content))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, tiny_encoder: Path, ray_cluster: None) -> TokenStore:
    folder = tmp_path_factory.mktemp("store")
    corpus = Corpus(source=str(write_jsonl(folder / "corpus.jsonl", make_documents(1_000))), lanes=4)
    tokenizer = (tiny_encoder / "tokenizer.json").read_text()
    return prepare(Storage.open(str(folder)), corpus, find_source(corpus), CorpusTokenizer(tokenizer))


@pytest.mark.parametrize(
    ("section", "left"),
    [
        ({"k": 2}, set()),
        ({"clustering": "kmeans", "kmeans_sample": 500}, {"centroids.npy"}),
    ],
    ids=["partition", "kmeans"],
)
def test_passes_on_ray_give_what_they_give_in_this_process(
    store: TokenStore,
    tiny_encoder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    section: dict[str, Any],
    left: set[str],
) -> None:
    encoder, kind, there = encoder_in(tiny_encoder), Annotate.model_validate(section), Placement(2, False, 1)
    monkeypatch.setattr(documents, "_SENTENCES_TOGETHER", 1)
    stage = Stage("annotate", "x", Storage.open(str(tmp_path / "ray")))
    summary = annotate(stage, store, SPLITS, encoder, kind, 7, "fp32", there, "annotating")
    assert summary["documents"] == store.documents(SPLITS)
    here = Passes(monkeypatch, encoder).annotate(store, tmp_path / "here", kind)
    assert summary == here
    shards = {f"shard-{i:06d}.parquet" for i in range(store.shards)}
    ours, theirs = pieces(tmp_path / "ray"), pieces(tmp_path / "here")
    assert theirs.keys() == shards | left | {"examples.json"}
    assert ours.keys() == theirs.keys() | {"examples.json"}, "counted where shards are added up"
    assert all(ours[name] == theirs[name] for name in shards)
