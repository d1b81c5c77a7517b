"""What becomes of sentences on an encoder's device."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.annotate.annotator import Annotator
from infocse_ray.annotate.idc import cluster
from infocse_ray.annotate.in_process import cluster_sentences
from infocse_ray.corpus.store import Documents
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.encoder.texts import tokenised
from infocse_ray.methods.idc import Idc
from infocse_ray.settings import Encoder, Train
from infocse_ray.storage.folder import Storage


def test_behind_a_prompt_copies_are_sentences_that_are_equal_as_they_are_cut(tmp_path: Path, tiny_encoder: Path):
    settings = Encoder(model=str(tiny_encoder), max_length=14, document_prompt="the great sea : ")
    encoder = load_encoder(tiny_encoder, settings, cosine=True)
    assert encoder.room() == 6
    wave = "wave tide ship sail coast harbour"
    texts = [wave, "judge law trial witness", f"{wave} storm", "bread salt soup", "pan spoon butter"]
    sentences = tokenised(encoder, texts)
    documents = Documents(pa.array(["d"]), np.array([1]), np.array([0, len(texts)]), sentences)
    folder = EncoderFolder.save(encoder, Storage.open(str(tmp_path / "encoder")))
    clusters, first = Annotator(folder, "fp32", torch.device("cpu")).clusters(
        documents, functools.partial(cluster, k=1)
    )
    assert first.tolist() == [True, True, False, True, True]
    assert clusters.tolist() == list(cluster_sentences(encoder, [texts])[0].clusters)
    method = Idc(Train(), EncoderSpec.of(encoder))  # pyright: ignore[reportCallIssue]
    assert method.count(documents._replace(clusters=clusters)).examples[0] > 0
