"""The model cards that go with exported encoders."""

from __future__ import annotations

from typing import Any

from infocse_ray import __version__
from infocse_ray.loop.identity import initialization_of
from infocse_ray.positives.registry import title_of
from infocse_ray.retrieval.ranks import shown
from infocse_ray.settings import Settings


def model_card(settings: Settings, metrics: dict[str, Any]) -> str:
    """Of an encoder adapted without labels: Markdown, its front matter as sentence-transformers and the hub read it."""
    first = initialization_of(settings)
    began = "started from" if first == "none" else f"was initialised to with {title_of(first)}"
    method = title_of(settings.train.strategy)
    about = f"""A sentence encoder adapted without labels to {_corpus(metrics)} with {method} by
infocse_ray {__version__}. It is the encoder of iteration {metrics["best_iteration"]}; iteration 0 is the one it
{began}."""
    rows = [_row(_name(entry["iteration"]), entry) for entry in metrics["iterations"]]
    return _card(settings, metrics, about, rows, _training(settings))


def few_shot_card(settings: Settings, metrics: dict[str, Any]) -> str:
    """Of a fine-tuned encoder."""
    labels, best = metrics["labels"], metrics["best_round"]
    drawn = labels["train_size"]
    count = labels["labelled"]["train"] if drawn == "all" else drawn
    pretrained = settings.train.strategy != "none"
    how = f" and with {title_of(settings.train.strategy)}, in turns," if pretrained else ""
    about = f"""A sentence encoder adapted to {_corpus(metrics)}, fine-tuned on {count:,} labelled examples{how} by
infocse_ray {__version__}. It is the fine-tuned encoder of round {best}."""
    rows = []
    for one in metrics["rounds"]:
        rows.append(_row(f"round {one['round']}: {_name(one['zero_shot']['iteration'])}", one["zero_shot"]))
        rows.append(_row(f"round {one['round']}: fine-tuned", one["fine_tuned"]))
    section = settings.finetune
    tuning = f"fine-tuning: batch {section.batch_size}, learning rate {section.learning_rate:g}, at most "
    tuning += f"{section.epochs} epochs, temperature {section.temperature or settings.train.temperature:g}"
    return _card(settings, metrics, about, rows, "; ".join(([_training(settings)] if pretrained else []) + [tuning]))


def _corpus(metrics: dict[str, Any]) -> str:
    corpus = metrics["corpus"]
    return f"a corpus of {corpus['documents']:,} documents ({corpus['sentences']:,} sentences)"


def _training(settings: Settings) -> str:
    return f"{_how(settings)}batch {settings.train.batch_size}, learning rate {settings.train.learning_rate:g}"


def _card(settings: Settings, metrics: dict[str, Any], about: str, rows: list[str], how: str) -> str:
    similarity = "cosine" if settings.train.similarity == "cosine" else "inner product"
    table = "\n".join(rows)
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- sentence-similarity
- infocse
---

# {settings.name}

{about}

- sentences are cut to {settings.encoder.max_length} tokens; similarity: {similarity}
- a document's vector is the mean of its sentences' vectors

```python
from sentence_transformers import SentenceTransformer
vectors = SentenceTransformer("path/to/this/folder").encode(["A sentence.", "Another one."])
```

## Retrieval ({metrics["validate_on"]})

| encoder | validation R@5 | R@10 | R@20 | MRR | test R@5 | R@10 | R@20 | MRR |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
{table}

Recalls are ± one standard error, which is that of the number of questions asked.

{how}, seed {settings.seed}.
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


def _row(name: str, entry: dict[str, Any]) -> str:
    return f"| {' | '.join([name, *_cells(entry.get('validation')), *_cells(entry.get('test'))])} |"


def _cells(scores: dict[str, float] | None) -> list[str]:
    return [shown(scores, name) if scores else "" for name in ("recall@5", "recall@10", "recall@20", "mrr")]
