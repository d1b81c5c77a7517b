"""What a notebook shows of a run: its verdict, and scores of the encoder before and after, as HTML without styles."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, get_args

from infocse_ray.settings import Metric
from infocse_ray.storage.redact import redacted

_ENCODERS = {"start": "as it came", "whitened": "as it came, whitened", "result": "the result"}


def result_table(metrics: Mapping[str, Any], model_path: str) -> str:
    """The verdict and a table: a row an encoder, its scores on what the verdict is about (test, else validation).

    Args:
        metrics: the content of `metrics.json`.
        model_path: where the result is.
    """
    verdict = metrics["verdict"]
    split = verdict["judged_on"]
    scored = {said: metrics[name][split] for name, said in _ENCODERS.items() if split in metrics.get(name, {})}
    names = [name for name in get_args(Metric) if all(name in scores for scores in scored.values())]
    head = "".join(f'<th scope="col">{_text(name)}</th>' for name in names)
    rows = ""
    for said, scores in scored.items():
        cells = "".join(f"<td>{_score(scores, name)}</td>" for name in names)
        rows += f'<tr><th scope="row">{_text(said)}</th>{cells}</tr>'
    asked = next((scores.get("queries") for scores in scored.values()), None)
    questions = f", {asked:,} questions" if isinstance(asked, int) else ""
    return (
        f"<p><strong>{_text(metrics['name'])}</strong>: {_text(verdict['line'])}</p>"
        f"<table><caption>{_text(split)}{questions}; 95 % intervals</caption>"
        f'<thead><tr><th scope="col">encoder</th>{head}</tr></thead><tbody>{rows}</tbody></table>'
        f"<p>The encoder: <code>{_text(model_path)}</code></p>"
    )


def _score(scores: Mapping[str, Any], name: str) -> str:
    low, high = scores.get(f"{name}_low"), scores.get(f"{name}_high")
    interval = "" if low is None or high is None else f" ({low:.4f} to {high:.4f})"
    return f"{scores[name]:.4f}{interval}"


def _text(value: object) -> str:
    return escape(redacted(str(value)))
