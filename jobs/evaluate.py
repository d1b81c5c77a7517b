"""Score an encoder on a labelled corpus: every document must find its counterparts among all distinct ones.

A document's vector is the mean of its sentences' vectors. Prints Recall@5/10/20 and MRR, and writes them and every
question's rank below <storage>/evaluations. Without a counterpart column, one half of each document (alternating
sentences) must find the other half.

Example:
  python jobs/evaluate.py --model runs/news/model --corpus.source news.parquet --corpus.text body
      --corpus.counterpart headline
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field

from infocse_ray.cluster import connect, placement
from infocse_ray.corpus.prepare import prepare, show_rejected
from infocse_ray.corpus.schema import SPLITS
from infocse_ray.corpus.source import find_source
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.model import load_encoder, tokenizer_json
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.job import run_job
from infocse_ray.loop.evaluate import evaluate
from infocse_ray.progress import say
from infocse_ray.repair import repairing
from infocse_ray.settings import Corpus, Encoder, OnGpu, Section, Train, Workers, fingerprint
from infocse_ray.stage import run_stage
from infocse_ray.storage import Storage


class Evaluate(Section):
    """Score an encoder."""

    model: str = Field(description="Encoder to score: a folder, a URI or a hub name.")
    split: Literal["all", "train", "valid", "test"] = Field(
        default="all", description="Whose documents ask; candidates are always the counterparts of all splits."
    )
    on: Literal["auto", "counterpart", "halves"] = Field(
        default="auto", description="What a document must find; `auto`: its counterpart if there are any."
    )
    pooling: Literal["auto", "mean", "cls"] = Field(default="auto", description="As encoder.pooling of pretrain.py.")
    max_length: int = Field(default=32, ge=4, description="As encoder.max_length of pretrain.py.")
    precision: Literal["auto", "fp32", "bf16"] = Field(default="auto", description="As in pretrain.py.")
    similarity: Literal["dot", "cosine"] = Field(
        default="dot", description="`cosine` normalises vectors even if the encoder's folder doesn't say so."
    )
    storage: str = Field(default="runs", min_length=1, description="Folder or URI that runs share.")
    num_workers: Workers = Field(default="auto", description="Workers. `auto`: one a GPU, one on CPUs.")
    use_gpu: OnGpu = Field(default="auto", description="`auto`: when the cluster has GPUs.")
    corpus: Corpus


@repairing
def main(settings: Evaluate) -> None:
    """Score and report."""
    # Asking of all documents is asking of one split that they are all in.
    corpus = settings.corpus
    if settings.split == "all":
        corpus = corpus.model_copy(update={"split": None, "valid_fraction": 0.0, "test_fraction": 0.0})
    source = find_source(corpus)
    if settings.split == "all":
        source.columns.pop("split", None)
    shape = Encoder(model=settings.model, pooling=settings.pooling, max_length=settings.max_length)
    encoder = load_encoder(resolve_encoder(settings.model), shape, cosine=settings.similarity == "cosine")
    root = Storage.for_runs(settings.storage)
    connect()
    where = placement(Train(num_workers=settings.num_workers, use_gpu=settings.use_gpu))
    store = prepare(root, corpus, source, tokenizer_json(encoder.tokenizer))
    split = "train" if settings.split == "all" else settings.split
    labelled = store.summary["labelled"][split]
    if settings.on == "counterpart" and not labelled:
        raise ValueError(
            f"on = counterpart: no document of split {settings.split} has a counterpart; name the column with "
            "corpus.counterpart"
        )
    on = settings.on if settings.on != "auto" else "counterpart" if labelled else "halves"
    if store.summary["documents"][split] < 2:
        raise ValueError(
            f"split = {settings.split}: it has {store.summary['documents'][split]} documents; name another"
        )
    say(f"{sum(store.summary['documents'][s] for s in SPLITS):,} documents; {show_rejected(store)}")
    name = encoder.fingerprint()
    saved = run_stage(
        root,
        root / "encoders" / name,
        "encoder",
        fingerprint("encoder", name),
        lambda stage: {"max_length": EncoderFolder.save(encoder, stage.folder / "model").max_length},
    )
    folder = EncoderFolder(saved.folder / "model", name, settings.max_length)
    stage = evaluate(root, root / "evaluations", store, [folder], split, on, settings.precision, where)[0]
    say(json.dumps((stage.summary or {})["metrics"], indent=1))
    say(f"every question's rank is in {stage.folder / 'ranks'}")


if __name__ == "__main__":
    run_job(Evaluate, None, "evaluate.py", __doc__ or "", main)
