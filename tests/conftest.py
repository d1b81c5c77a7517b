"""A tiny encoder, a small corpus with topics, and one Ray cluster for all tests that need one."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Trainings here take a second: looked at every two they would wait longer for Ray Train than they work.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
# No node is ever reclaimed here, and the actor that looks out for it costs each training its start.
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")

ON_RAY = ("tests/ray/", "tests/faults/")
"""Tests that start Ray: on a small machine one at a time is enough, and starting it once costs least."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `pytest -n`: each file's tests run in one process, those on Ray all in the same."""
    from xdist.scheduler import LoadFileScheduling

    class OneRay(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "ray" if nodeid.startswith(ON_RAY) else super()._split_scope(nodeid)

    return OneRay(config, log)


TOPICS = {
    "sea": ["wave", "tide", "ship", "sail", "harbour", "anchor", "coast", "storm", "island", "fish"],
    "court": ["judge", "law", "trial", "witness", "verdict", "appeal", "jury", "lawyer", "case", "guilt"],
    "kitchen": ["bread", "oven", "salt", "butter", "flour", "soup", "pan", "recipe", "spoon", "pepper"],
    "sky": ["star", "moon", "orbit", "comet", "planet", "telescope", "galaxy", "eclipse", "meteor", "light"],
}
GLUE = [
    "the",
    "a",
    "of",
    "and",
    "to",
    "in",
    "on",
    "with",
    "was",
    "is",
    "near",
    "under",
    "over",
    "every",
    "old",
    "new",
    "great",
    "small",
]


def topic_sentence(topic: str, draw: random.Random) -> str:
    words = [
        draw.choice(TOPICS[topic]) if draw.random() < 0.6 else draw.choice(GLUE) for _ in range(draw.randint(4, 12))
    ]
    return " ".join(words).capitalize() + "."


def make_documents(count: int, seed: int = 0, sentences: tuple[int, int] = (4, 10)) -> list[dict]:
    """Documents of two topics each, with a counterpart about the first."""
    draw = random.Random(seed)
    documents = []
    for i in range(count):
        topics = draw.sample(sorted(TOPICS), 2)
        body = [topic_sentence(draw.choice(topics), draw) for _ in range(draw.randint(*sentences))]
        documents.append({"id": f"doc-{i:05d}", "sentences": body, "counterpart": topic_sentence(topics[0], draw)})
    return documents


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a BERT of 2 layers and 32 dimensions, random weights, and a word-piece tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        ".",
        ",",
        *GLUE,
        *(w for t in TOPICS.values() for w in t),
    ]
    words += list("abcdefghijklmnopqrstuvwxyz0123456789") + [f"##{c}" for c in "abcdefghijklmnopqrstuvwxyz0123456789"]
    vocabulary = {w: i for i, w in enumerate(dict.fromkeys(words))}
    tokenizer = Tokenizer(models.WordPiece(vocab=vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    folder = tmp_path_factory.mktemp("tiny-encoder")
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    """One local Ray for the whole session: starting it costs seconds."""
    import ray

    from infocse_ray.runtime.cluster import connect

    os.environ["RAY_ADDRESS"] = "local"
    connect()
    yield
    ray.shutdown()
