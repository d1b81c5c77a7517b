"""The model card that goes with an exported encoder."""

from __future__ import annotations

from typing import Any

from infocse_ray import __version__
from infocse_ray.loop.identity import initialization_of
from infocse_ray.positives.registry import title_of
from infocse_ray.settings import Settings


def model_card(settings: Settings, metrics: dict[str, Any]) -> str:
    """Markdown with the front matter that sentence-transformers and the hub read."""
    rows = "\n".join(
        f"| {_name(entry['iteration'])} | "
        + " | ".join(_cells(entry.get("validation")))
        + " | "
        + " | ".join(_cells(entry.get("test")))
        + " |"
        for entry in metrics["iterations"]
    )
    first = initialization_of(settings)
    similarity = "cosine" if settings.train.similarity == "cosine" else "inner product"
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- infocse
---

# {settings.name}

A sentence encoder adapted without labels to a corpus of {metrics["corpus"]["documents"]:,} documents
({metrics["corpus"]["sentences"]:,} sentences) with {title_of(settings.train.strategy)} by
infocse_ray {__version__}. It is the encoder of iteration {metrics["best_iteration"]}; iteration 0 is the one it
{"started from" if first == "none" else "was initialised to with " + title_of(first)}.

- sentences are cut to {settings.encoder.max_length} tokens; similarity: {similarity}
- a document's vector is the mean of its sentences' vectors

```python
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("path/to/this/folder").encode(["A sentence.", "Another one."])
```

## Retrieval ({metrics["validate_on"]})

| encoder | validation R@5 | R@10 | R@20 | MRR | test R@5 | R@10 | R@20 | MRR |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{rows}

{_how(settings)}batch {settings.train.batch_size}, learning rate {settings.train.learning_rate:g}, seed {settings.seed}.
"""


def _how(settings: Settings) -> str:
    """InfoCSE's own settings."""
    if settings.train.strategy != "idc":
        return ""
    annotate, train = settings.annotate, settings.train
    parts = [f"K = {annotate.k}" if annotate.method == "partition" else f"{annotate.kmeans_clusters} global clusters"]
    parts += ["mutual edges"] if annotate.mutual else []
    parts += [f"edges above quantile {annotate.min_edge_quantile:g}"] if annotate.min_edge_quantile else []
    parts += ["another encoder annotated first"] if annotate.first_encoder else []
    parts += [f"positive = {train.positive}"] if train.positive != "sentence" else []
    return ", ".join([*parts, f"temperature {train.temperature:g}", ""])


def _name(iteration: int) -> str:
    return "start" if iteration == 0 else f"iteration {iteration}"


def _cells(scores: dict[str, float] | None) -> list[str]:
    names = ("recall@5", "recall@10", "recall@20", "mrr")
    return [f"{scores[name]:.4f}" if scores else "" for name in names]
