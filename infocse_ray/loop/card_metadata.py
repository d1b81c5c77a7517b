"""The front matter of a model card: what the hub, and what reads cards from it, finds there.

Results are written as mteb writes its own: task types and metric names are the ones that it has, a metric's interval
and its number of questions are among its arguments. The corpus is the user's, so it has no name here, and no data set
is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from huggingface_hub import EvalResult, ModelCardData

from infocse_ray.encoder.origin import Origin

_METRICS = {
    "recall@5": ("recall_at_5", "Recall@5"),
    "recall@10": ("recall_at_10", "Recall@10"),
    "recall@20": ("recall_at_20", "Recall@20"),
    "mrr": ("mrr", "MRR"),
}
_FOUND = {
    "counterpart": "each document must find its counterpart",
    "sentence": "each document must find a sentence that was taken out of it",
    "halves": "one half of each document must find the other",
    "readings": "each document as one text must find the mean of its sentences",
}


def retrieval_results(scores: Mapping[str, float], on: str, split: str, form: str | None = None) -> list[EvalResult]:
    """Recall@5, 10 and 20 and MRR on a split of the corpus, each with its interval.

    Args:
        scores: of a validation or test, as `metrics.json` has them.
        on: what documents had to find.
        split: validation or test.
        form: of the encoder, where it is another than torch.
    """
    return [
        EvalResult(
            task_type="text-retrieval",
            task_name="Retrieval",
            dataset_type="private",
            dataset_name=f"a private corpus: {_FOUND.get(on, on)}" + (f" ({form})" if form else ""),
            dataset_config=form or "default",
            dataset_split=split,
            metric_type=kind,
            metric_name=name,
            metric_value=round(float(scores[metric]), 6),
            metric_args=_interval(scores, metric),
        )
        for metric, (kind, name) in _METRICS.items()
        if metric in scores
    ]


def sts_result(spearman: float) -> EvalResult:
    """General ability: Spearman's rank correlation of cosines with people's scores of pairs of sentences."""
    return EvalResult(
        task_type="sentence-similarity",
        task_name="STS",
        dataset_type="private",
        dataset_name="pairs of sentences scored by people",
        dataset_config="default",
        dataset_split="test",
        metric_type="cosine_spearman",
        metric_name="Spearman's rank correlation of cosines",
        metric_value=round(float(spearman), 6),
    )


def front_matter(
    name: str, origin: Origin, results: Sequence[EvalResult], tags: Sequence[str] = (), whitened: bool = False
) -> str:
    """YAML between its two lines of dashes.

    Args:
        name: of the model.
        origin: of the encoder that it was made of.
        results: that become the `model-index`.
        tags: besides the usual ones.
        whitened: whether whitening is in the encoder.
    """
    data = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=["sentence-transformers", "sentence-similarity", "infocse", *(["whitening"] if whitened else []), *tags],
        license=origin.license,
        license_name=origin.license_name if origin.license == "other" else None,
        license_link=origin.license_link if origin.license == "other" else None,
        base_model=origin.name,
        model_name=name if results else None,
        eval_results=list(results) or None,
    )
    return fenced(data.to_dict())


def fenced(values: dict[str, Any]) -> str:
    """Any values as front matter: whatever is in them, they end neither it nor its lines."""
    return f"---\n{yaml.safe_dump(values, sort_keys=False, allow_unicode=True)}---\n"


def _interval(scores: Mapping[str, float], metric: str) -> dict[str, Any] | None:
    if f"{metric}_low" not in scores:  # found by a version that kept none
        return None
    low, high = (round(float(scores[f"{metric}_{end}"]), 6) for end in ("low", "high"))
    counts = {name: int(scores[name]) for name in ("queries", "candidates") if name in scores}
    return {"confidence": 0.95, "low": low, "high": high, **counts}
