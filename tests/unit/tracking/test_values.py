"""What is shown of a finished run."""

from __future__ import annotations

from infocse_ray.tracking.values import final_scores, verdict_words


def test_all_encoders_that_a_run_is_judged_by_are_shown() -> None:
    scored = {"validation": {"mrr": 0.5, "mrr_low": 0.4, "queries": 9}, "test": {"recall@5": 0.25}}
    metrics = dict.fromkeys(("start", "whitened", "result"), scored) | {"sts": {"result": 0.75}, "best_round": 2}
    each = {"validation/mrr": 0.5, "test/recall@5": 0.25}
    shown = {f"{name}/{what}": score for name in ("start", "whitened", "result") for what, score in each.items()}
    assert final_scores(metrics) == shown | {"result/sts": 0.75, "best_round": 2.0}
    assert final_scores({}) == {}
    assert verdict_words({"verdict": {"label": "WIN", "line": "WIN, by much", "low": 0.1}}) == {
        "verdict": "WIN",
        "verdict_line": "WIN, by much",
    }
