"""A start that is no sentence encoder: an encoder trained as a masked-language model until it is none any more.

Where the weights of a plain language model can't be had, a sentence encoder goes on with the task that language models
are trained by (Devlin et al. 2019, section 3.1, without the second task), on general text, and how much of a sentence
encoder is left is scored as it goes. What is made in this way is no BERT: it has read far less, and has seen sentence
pairs once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer, DataCollatorForLanguageModeling

from infocse_ray.benchmarks.corpora import read_documents
from infocse_ray.benchmarks.labelled import Truth, load_at, prepare_labelled
from infocse_ray.benchmarks.measure import default_device, in_fresh_process
from infocse_ray.benchmarks.report import notes, table
from infocse_ray.benchmarks.rival import make_empty, take_step
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.embed import for_inference
from infocse_ray.methods.mlm_head import MaskedLanguageModel
from infocse_ray.retrieval.sts import read_sts, sts_spearman
from infocse_ray.runtime.progress import say

MASKED = 0.15
WARMUP = 0.05
"""Share of the tokens over which the learning rate rises; after them it falls to nothing, in a line."""
MAX_LENGTH = 128


def scores_of(folder: str, store: TokenStore, sts: str | None) -> dict[str, float]:
    """Recall and MRR of an encoder without whitening, and its correlation with people's judgement."""
    encoder = for_inference(load_at(folder), "auto", default_device())
    scores = Truth.of(encoder, store).scores(None)
    return scores | ({"sts": sts_spearman(encoder, read_sts(sts, "--sts"))} if sts else {})


def packed(tokenizer: Any, documents: list[list[str]], longest: int, rng: np.random.Generator) -> Iterator[list[int]]:
    """Endlessly, stretches of at most so many tokens, each of one document, documents in another order at each pass."""
    room = longest - 2
    while True:
        for place in rng.permutation(len(documents)):
            ids = tokenizer(" ".join(documents[place]), add_special_tokens=False, verbose=False)["input_ids"]
            for begin in range(0, len(ids), room):
                yield [tokenizer.cls_token_id, *ids[begin : begin + room], tokenizer.sep_token_id]


def train_once(arguments: argparse.Namespace, store: TokenStore) -> list[tuple]:
    """Train, write the encoder to `--to` whenever it is scored, and return the rows of the table."""
    torch.manual_seed(arguments.seed)
    rng, device = np.random.default_rng(arguments.seed), default_device()
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model: Any = AutoModel.from_pretrained(arguments.model, dtype=torch.float32).to(device).train()
    words = model.get_input_embeddings().weight
    head = MaskedLanguageModel(model.config.hidden_size, words.shape[1], len(tokenizer)).to(device)
    collate = DataCollatorForLanguageModeling(tokenizer, mlm_probability=MASKED)
    source = argparse.Namespace(corpus=arguments.train, text=arguments.train_text, documents=arguments.documents)
    longest = min(MAX_LENGTH, model.config.max_position_embeddings)
    documents = read_documents(source)
    stretches = packed(tokenizer, documents, longest, rng)
    optimizer = torch.optim.AdamW(
        [*model.parameters(), *head.parameters()], lr=arguments.learning_rate, weight_decay=0.01
    )

    def loss_of(batch: Any) -> torch.Tensor:
        """The mean cross entropy of the masked tokens, whose logits alone are computed."""
        labels = batch.pop("labels")
        states = model(**batch).last_hidden_state[labels >= 0]
        return head.mlm_loss(states, labels[labels >= 0], words) / len(states)

    def scored(tokens: int, losses: list[float]) -> tuple:
        """A row of the table: what there is after so many tokens, whose losses since the last row these are."""
        if tokens:
            model.save_pretrained(arguments.to)
            tokenizer.save_pretrained(arguments.to)
        scores = scores_of(arguments.to if tokens else arguments.model, store, arguments.sts)
        loss = f"{np.mean(losses):.3f}" if losses else ""
        sts = f"{scores['sts']:.4f}" if "sts" in scores else ""
        row = (f"{tokens:,}", loss, f"{scores['recall@5']:.4f}", f"{scores['mrr']:.4f}", sts)
        say(" | ".join(row))
        return row

    rows, losses = [scored(0, [])], []
    tokens, due, begun = 0, arguments.every, time.perf_counter()
    while tokens < arguments.tokens:
        batch = collate([{"input_ids": next(stretches)} for _ in range(arguments.batch_size)]).to(device)
        share = tokens / arguments.tokens
        for group in optimizer.param_groups:
            group["lr"] = arguments.learning_rate * min(max(share, 1e-3) / WARMUP, (1 - share) / (1 - WARMUP))
        losses.append(take_step(lambda batch=batch: loss_of(batch), optimizer, device))
        tokens += int(batch["attention_mask"].sum())
        if tokens >= due or tokens >= arguments.tokens:
            say(f"{tokens / (time.perf_counter() - begun):,.0f} tokens/s, scoring included")
            rows.append(scored(tokens, losses))
            losses, due = [], due + arguments.every
    return rows


def run(arguments: argparse.Namespace) -> None:
    """Train, score and print."""
    make_empty(arguments.to)
    with tempfile.TemporaryDirectory() as work:
        store = in_fresh_process(prepare_labelled, work, arguments)
        rows = in_fresh_process(train_once, arguments, store)
    table(("tokens", "loss", "R@5", "MRR", "STS, Spearman"), rows)
    notes(
        f"Masked-language modelling from {Path(arguments.model).name} with a new head, {MASKED:.0%} of the tokens, "
        f"stretches of at most {MAX_LENGTH} tokens, batches of {arguments.batch_size}, AdamW, learning rate "
        f"{arguments.learning_rate:g} falling to nothing, seed {arguments.seed}. Scores are those of the mean of "
        "token vectors, not whitened. The last is in " + arguments.to + ".",
    )
