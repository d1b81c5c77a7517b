"""TSDAE as sentence-transformers has it, trained on a corpus: what its documentation recommends for this.

A sentence with most of its words deleted is encoded, and a decoder, in training only, writes the whole sentence from
that one vector (Wang et al., Findings of EMNLP 2021). The loss is the library's, with the encoder's weights tied to the
decoder's.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from infocse_ray.benchmarks.corpora import MAX_LENGTH, read_documents
from infocse_ray.benchmarks.measure import default_device, in_fresh_process
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.benchmarks.rival import make_empty, take_step
from infocse_ray.runtime.progress import say

DELETED = 0.6
"""Share of the words, as published."""


def noisy(sentence: str, rng: np.random.Generator) -> str:
    """The sentence without most of its words, but with one at least."""
    words = sentence.split()
    kept = rng.random(len(words)) >= DELETED
    kept[rng.integers(len(words))] |= not kept.any()
    return " ".join(word for word, stays in zip(words, kept, strict=True) if stays)


def train_once(arguments: argparse.Namespace) -> list[tuple]:
    """Train, write the encoder to `--to`, and return the rows of the table."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.losses import DenoisingAutoEncoderLoss

    torch.manual_seed(arguments.seed)
    rng, device = np.random.default_rng(arguments.seed), default_device()
    sentences = [s for document in read_documents(arguments) for s in document if s.split()]
    model = SentenceTransformer(arguments.model, device=str(device))
    model.max_seq_length = MAX_LENGTH
    objective = DenoisingAutoEncoderLoss(model).to(device).train()
    # The decoder's parameters are the encoder's: each once.
    optimizer = torch.optim.AdamW(objective.parameters(), lr=arguments.learning_rate, weight_decay=0.0)
    rows, losses, order = [], [], np.zeros(0, np.int64)
    tokens, step, due, begun = 0, 0, arguments.tokens // 8, time.perf_counter()
    while tokens < arguments.tokens:
        if len(order) < arguments.batch_size:
            order = rng.permutation(len(sentences))
        chosen, order = order[: arguments.batch_size], order[arguments.batch_size :]
        pair = [[noisy(sentences[i], rng) for i in chosen], [sentences[i] for i in chosen]]
        features = [
            {k: v.to(device) for k, v in model.preprocess(texts).items() if torch.is_tensor(v)} for texts in pair
        ]
        losses.append(take_step(lambda features=features: objective(features, torch.empty(0)), optimizer, device))
        # What is encoded and what is decoded both cost a pass.
        tokens, step = tokens + sum(int(one["attention_mask"].sum()) for one in features), step + 1
        if tokens >= due or tokens >= arguments.tokens:
            rows.append((f"{tokens:,}", f"{step:,}", f"{np.mean(losses):.3f}", f"{time.perf_counter() - begun:,.0f}"))
            say(" | ".join(rows[-1]))
            losses, due = [], due + arguments.tokens // 8
    model.save_pretrained(arguments.to)
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Train and print; how good it is, `evaluate --compare` and `benchmark validators` say."""
    make_empty(arguments.to)
    rows = in_fresh_process(train_once, arguments)
    table(("tokens", "steps", "loss", "seconds"), rows)
    notes(
        f"TSDAE of sentence-transformers, weights tied, {DELETED:.0%} of the words deleted, batches of "
        f"{arguments.batch_size}, AdamW, learning rate {arguments.learning_rate:g}, seed {arguments.seed}. The encoder "
        f"is in {arguments.to}."
    )
