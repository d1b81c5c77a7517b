"""What is measured on: documents, pairs, a token store, the encoder here and in sentence-transformers."""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Iterable
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from infocse_ray.corpus.documents import Rejected, document_of
from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.read import read_rows
from infocse_ray.corpus.source import find_source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.demo.docstrings import write_docstrings
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.tokenizer import tokenizer_json
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage

MAX_LENGTH = 32
"""Tokens a sentence is cut to, as in the paper."""
LANES = 64


def corpus_of(arguments: argparse.Namespace, folder: str) -> Corpus:
    """The corpus that the command line names, else docstrings, written to `folder`."""
    if arguments.corpus:
        return Corpus(source=arguments.corpus, text=arguments.text)
    file = Path(folder) / "docstrings.jsonl"
    write_docstrings(file, arguments.documents, processes=os.cpu_count() or 1)
    return Corpus(source=str(file))


def read_documents(arguments: argparse.Namespace, most_sentences: int | None = None) -> list[list[str]]:
    """Documents as lists of sentences, in a random order that is always the same, until there are enough sentences.

    Raises:
        ValueError: there are none.
    """
    with tempfile.TemporaryDirectory() as folder:
        settings = corpus_of(arguments, folder)
        source = find_source(settings)
        rows = [row.values for piece in source.pieces for row in read_rows(piece, source.columns, by_line=False)]
    random.Random(0).shuffle(rows)
    documents: list[list[str]] = []
    total, reason = 0, "there is none"
    for row in rows[: arguments.documents]:
        if most_sentences is not None and total >= most_sentences:
            break
        try:
            documents.append(document_of(row or {}, settings)["sentences"])
            total += len(documents[-1])
        except Rejected as rejected:
            reason = str(rejected)
    if not documents:
        what = f"{arguments.corpus}, column {arguments.text}" if arguments.text else str(arguments.corpus)
        raise ValueError(f"{what}: no row is a document ({reason}); name another file, or the column of its text")
    return documents


def pairs_of(documents: list[list[str]], count: int) -> list[tuple[int, str, str]]:
    """Pairs of neighbouring sentences with their document's number: one of each document, then a second, ..."""
    by_document = [
        [(number, *pair) for pair in zip(sentences[::2], sentences[1::2], strict=False)]
        for number, sentences in enumerate(documents)
    ]
    pairs = [pair for round_ in zip_longest(*by_document) for pair in round_ if pair is not None][:count]
    if len(pairs) < count:
        raise ValueError(f"--batch_size {count}: the corpus has {len(pairs)} pairs; set it to that")
    return pairs


def make_store(work: str, model: str, documents: Iterable[list[str]], lanes: int = LANES) -> TokenStore:
    """Run the prepare stage on the documents."""
    file = Path(work) / "corpus.jsonl"
    with file.open("w", encoding="utf-8") as lines:
        for i, sentences in enumerate(documents):
            lines.write(json.dumps({"id": str(i), "sentences": sentences}) + "\n")
    corpus = Corpus(source=str(file), lanes=lanes)
    tokenizer = CorpusTokenizer(tokenizer_json(AutoTokenizer.from_pretrained(model)))
    return prepare(Storage.open(work), corpus, find_source(corpus), tokenizer)


def encoder_in(model: str) -> EncoderFolder:
    """The encoder in a local folder, as stages take it."""
    return EncoderFolder(Storage.open(model), "benchmark", MAX_LENGTH)


def load_baseline(model: str, dtype: str) -> Any:
    """The same folder in sentence-transformers."""
    from sentence_transformers import SentenceTransformer

    baseline = SentenceTransformer(model)
    baseline.max_seq_length = MAX_LENGTH
    return baseline.to(torch.bfloat16) if dtype == "bf16" else baseline
