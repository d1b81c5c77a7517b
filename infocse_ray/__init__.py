"""infocse_ray: teach a sentence encoder your documents, without labels, at any scale.

    from infocse_ray import adapt

    result = adapt("sentence-transformers/all-MiniLM-L6-v2", documents, name="news")
    model = result.sentence_transformer()

Torch and Ray are loaded with the first name that needs them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infocse_ray import errors
    from infocse_ray.annotate.in_process import ClusteredDocument, cluster_sentences
    from infocse_ray.api.calls import (
        adapt,
        embed,
        evaluate,
        evaluate_suites,
        finetune,
        plusplus,
        pretrain,
        sweep,
    )
    from infocse_ray.api.results import RunResult, Scores, SuiteScores, SweepResult
    from infocse_ray.embedding.document_encoder import DocumentEncoder
    from infocse_ray.encoder.model import SentenceEncoder
    from infocse_ray.search.hit import Hit
    from infocse_ray.search.index import Index
    from infocse_ray.settings import Settings
    from infocse_ray.tuning.config import Sweep

__version__ = "0.1.0"

_PLACES = {
    "ClusteredDocument": "annotate.in_process",
    "DocumentEncoder": "embedding.document_encoder",
    "Hit": "search.hit",
    "Index": "search.index",
    "RunResult": "api.results",
    "Scores": "api.results",
    "SentenceEncoder": "encoder.model",
    "Settings": "settings",
    "SuiteScores": "api.results",
    "Sweep": "tuning.config",
    "SweepResult": "api.results",
    "adapt": "api.calls",
    "cluster_sentences": "annotate.in_process",
    "embed": "api.calls",
    "evaluate": "api.calls",
    "evaluate_suites": "api.calls",
    "finetune": "api.calls",
    "plusplus": "api.calls",
    "pretrain": "api.calls",
    "sweep": "api.calls",
}

__all__ = [  # noqa: RUF022
    "adapt",
    "pretrain",
    "finetune",
    "plusplus",
    "sweep",
    "evaluate",
    "embed",
    "Index",
    "DocumentEncoder",
    "evaluate_suites",
    "cluster_sentences",
    "Settings",
    "Sweep",
    "SentenceEncoder",
    "RunResult",
    "SweepResult",
    "Scores",
    "SuiteScores",
    "ClusteredDocument",
    "Hit",
    "errors",
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return importlib.import_module("infocse_ray.errors")
    if name not in _PLACES:
        raise AttributeError(f"module 'infocse_ray' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"infocse_ray.{_PLACES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
