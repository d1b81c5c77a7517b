"""The numbers of tables.json and tables.md, by hand."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.report.markdown import escape
from infocse_ray.report.paper import COLUMNS, paper_recalls
from infocse_ray.report.runner import chosen_iteration, reproduce
from infocse_ray.report.studies import STUDIES
from tests.unit.table_runs import Ranks, Runs, tables

pytest.importorskip("matplotlib")

RANKS = {
    ("infocse", 1, 0): [30, 30, 30, 30],
    ("infocse", 1, 1): [1, 2, 8, 15],
    ("infocse", 1, 2): [1, 1, 1, 1],
    ("infocse", 2, 0): [30, 30, 30, 30],
    ("infocse", 2, 1): [1, 2, 3, 15],
    ("infocse", 2, 2): [1, 1, 1, 1],
    ("simcse", 1, 0): [30, 30, 30, 30],
    ("simcse", 1, 1): [9, 2, 30, 30],
    ("simcse", 1, 2): [9, 2, 30, 30],
    ("simcse", 2, 0): [30, 30, 30, 30],
    ("simcse", 2, 1): [9, 2, 30, 12],
    ("simcse", 2, 2): [9, 2, 30, 12],
}


def of_hand(method: str, seed: int, iteration: int) -> list[int]:
    return RANKS[method, seed, iteration]


def made(folder: Path, runs: Runs, **changes: Any) -> tuple[dict[str, Any], str]:
    reproduce(tables(folder, **changes), runs)
    out = folder / "runs" / changes.get("name", "t")
    return json.loads((out / "tables.json").read_text()), (out / "tables.md").read_text()


def row_of(found: dict[str, Any], key: str, table: str = "zero_shot") -> dict[str, Any]:
    [row] = [row for row in found["corpora"]["a"]["tables"][table] if row["key"] == key]
    return row


def test_numbers_by_hand(tmp_path: Path):
    # Validation chose iteration 1, though the test likes 2 better.
    runs = Runs(of_hand, best=1, iterations=2)
    found, text = made(tmp_path, runs, seeds=[1, 2], only_rows=["simcse", "infocse"])
    simcse, infocse = row_of(found, "simcse"), row_of(found, "infocse")
    assert infocse["metrics"]["recall@5"]["seeds"] == {"1": 0.5, "2": 0.75}
    assert infocse["metrics"]["recall@5"]["mean"] == pytest.approx(0.625)
    assert infocse["metrics"]["recall@5"]["sd"] == pytest.approx(0.25 / 2**0.5)
    assert infocse["metrics"]["recall@10"]["mean"] == 0.75
    assert infocse["metrics"]["recall@20"]["mean"] == 1.0
    assert infocse["metrics"]["mrr"]["seeds"]["1"] == pytest.approx((1 + 1 / 2 + 1 / 8 + 1 / 15) / 4)
    assert infocse["iteration"] == {"1": 1, "2": 1}
    assert infocse["tokens"] == {"1": 300, "2": 300}  # of the whole run: 100 + 200
    assert infocse["annotation_tokens"] == {"1": 14, "2": 14}
    assert infocse["seconds"] == {"1": 10.0, "2": 10.0}
    assert infocse["questions"] == 4
    assert infocse["candidates"] == 50
    assert simcse["metrics"]["recall@20"]["seeds"] == {"1": 0.5, "2": 0.75}
    assert simcse["annotation_tokens"] == {"1": None, "2": None}
    assert found["versions"]["cells"] == [{"infocse_ray": "0"}]
    assert infocse["steps"] == {"1": 120, "2": 120}
    cell = found["cells"]["a-infocse-1"]
    assert [entry["steps"] for entry in cell["iterations"]] == [None, 60, 60]
    assert cell["iterations"][1]["validation"] == {"recall@5": 0.9, "recall@10": 0.9, "recall@20": 0.9, "mrr": 0.9}
    assert {n: c["state"] for n, c in found["cells"].items() if c["state"] != "to do"} == {
        f"a-{method}-{seed}": "finished" for seed in (1, 2) for method in ("simcse", "infocse")
    }
    assert "| ICT | to do | to do | to do |" in text
    assert f"| SimCSE | 0.2500 ± 0.0000 | 0.5000 ± 0.0000 | 0.6250 ± {0.25 / 2**0.5:.4f} |" in text
    assert "| InfoCSE | **0.6250 ± 0.1768** | **0.7500 ± 0.0000** | **1.0000 ± 0.0000** |" in text
    assert "600 tokens in training: a baseline in one stage, InfoCSE 200 tokens in its initialisation" in text
    assert "not in it: 14 tokens a run." in text
    assert "4 of 18 cells are finished" in text


def test_lead_averages_seeds_question_by_question(tmp_path: Path):
    found, text = made(tmp_path, Runs(of_hand, best=1), seeds=[1, 2], only_rows=["simcse", "infocse"])
    lead = found["corpora"]["a"]["leads"]["zero_shot"][0]
    # Hits of InfoCSE by question: 1, 1, 1/2, 0; of SimCSE: 0, 1, 0, 0.
    assert lead["difference"] == pytest.approx((1 + 0 + 0.5 + 0) / 4)
    assert (lead["over"], lead["seeds"], lead["questions"]) == ("SimCSE", [1, 2], 4)
    # Two documents with two questions each: 1 and 1/2 hits ahead; both draws are of either in a quarter of resamples.
    assert (lead["documents"], lead["low"], lead["high"], lead["no_lead"]) == (2, 0.25, 0.5, 0.0)
    assert "InfoCSE less SimCSE, the strongest other row, is +0.3750 in R@5" in text
    assert "resamples of the 2 test documents, with 4 questions, show no lead): InfoCSE leads, over the" in text
    assert "over the choice of test documents (seeds 1, 2; seeds averaged)." in text


@pytest.mark.parametrize(
    ("ours", "theirs", "said"),
    [(1, 30, "InfoCSE leads"), (30, 1, "InfoCSE is behind"), (1, 1, "no telling them apart")],
)
def test_lead_is_put_in_words(tmp_path: Path, ours: int, theirs: int, said: str):
    def ranks(method: str, seed: int, iteration: int) -> list[int]:
        return [ours if method == "infocse" else theirs] * 20

    found, text = made(tmp_path, Runs(ranks), only_rows=["simcse", "infocse"])
    assert f"{said}, over the choice of test documents (seed 1; one seed: training's own noise is not in it)." in text
    assert found["corpora"]["a"]["leads"]["zero_shot"][0]["difference"] == (theirs - ours) / 29


def test_questions_of_one_document_are_told_apart_by_key(tmp_path: Path):
    # Two questions a document; in SimCSE's files they come in another order than in InfoCSE's.
    keys = {"infocse": [5, 3, 7, 1], "simcse": [3, 5, 1, 7]}
    ranks = {"infocse": [1, 30, 1, 30], "simcse": [30, 1, 30, 30]}
    runs = Runs(lambda method, seed, iteration: ranks[method])
    for method in ("simcse", "infocse"):
        runs.keys = keys[method]
        reproduce(tables(tmp_path, only_rows=[method]), runs)
    found, _ = made(tmp_path, runs, only_rows=["simcse", "infocse"])
    assert len(runs.calls) == 2
    lead = found["corpora"]["a"]["leads"]["zero_shot"][0]
    assert lead["difference"] == 0.25  # keys 5 and 7 are found by InfoCSE, 5 by SimCSE
    assert lead["no_lead"] == pytest.approx(1 / 4, abs=0.02)  # only the document without 7 is drawn


def test_lead_says_when_it_cannot_be_had(tmp_path: Path):
    runs = Runs(of_hand, best=1)
    found, text = made(tmp_path, runs, only_rows=["infocse"])
    assert "no scores yet" in found["corpora"]["a"]["leads"]["zero_shot"][0]["missing"]
    made(tmp_path, runs, only_rows=["simcse", "infocse"])
    for part in (tmp_path / "runs" / "t-a-simcse-1" / "test-1" / "ranks").iterdir():
        part.unlink()
    found, text = made(tmp_path, runs, only_rows=["simcse", "infocse"])
    assert "the ranks can't be read" in text
    assert row_of(found, "infocse")["metrics"]["recall@5"]["mean"] == 0.5


def test_iterations_are_shown_by_number(tmp_path: Path):
    ranks: Ranks = lambda method, seed, t: [1] * t + [30] * (4 - t)  # noqa: E731
    found, text = made(tmp_path, Runs(ranks, best=1), tables=["iterations"])
    rows = found["corpora"]["a"]["tables"]["iterations"]
    assert [row["metrics"]["recall@5"]["mean"] for row in rows] == [0.25, 0.5, 0.75]
    assert [row["tokens"]["1"] for row in rows] == [100, 300, 600]
    assert "| InfoCSE (iteration 3) | **0.7500** |" in text
    assert len(found["cells"]) == 1


def test_a_row_shows_a_trained_encoder_even_if_validation_liked_the_start_better(tmp_path: Path):
    ranks: Ranks = lambda method, seed, t: [1, 1] if t == 0 else [1, 30]  # noqa: E731
    found, text = made(tmp_path, Runs(ranks, best=0), only_rows=["start", "consert"])
    start, consert = row_of(found, "start"), row_of(found, "consert")
    assert (start["iteration"], consert["iteration"]) == ({"1": 0}, {"1": 1})
    assert consert["below_start"] == {"1": {"metric": "recall@5", "score": 0.2, "start": 0.9}}
    assert start["below_start"] == {}
    assert "| The encoder as it is | **1.0000** |" in text
    assert "| ConSERT | 0.5000 [1] |" in text
    assert "1. ConSERT, a, seed 1: its validation recall@5, 0.2000, is below that of the encoder its training" in text


def test_an_initialised_encoder_is_held_against_the_untouched_one(tmp_path: Path):
    runs = Runs(of_hand, best=0, iterations=2)  # its initialisation has 0.9, iterations 1 and 2 have 0.2 and 0.3
    runs.began = 0.3
    found, _ = made(tmp_path, runs, only_rows=["infocse"])
    assert row_of(found, "infocse")["iteration"] == {"1": 2}
    assert row_of(found, "infocse")["below_start"] == {}
    assert found["cells"]["a-infocse-1"]["start_validation"]["recall@5"] == 0.3
    runs.began = 0.31
    found, text = made(tmp_path, runs, name="again", only_rows=["infocse"])
    assert row_of(found, "infocse")["below_start"] == {"1": {"metric": "recall@5", "score": 0.3, "start": 0.31}}
    assert "1. InfoCSE, a, seed 1: its validation recall@5, 0.3000, is below" in text


def test_the_run_s_own_metric_chooses_and_the_first_of_equals_wins():
    def entry(t: int, recall: float, mrr: float) -> dict[str, Any]:
        return {"iteration": t, "validation": {"recall@5": recall, "mrr": mrr}}

    entries = [entry(0, 0.9, 0.9), entry(1, 0.2, 0.5), entry(2, 0.4, 0.3), entry(3, 0.4, 0.5)]
    assert chosen_iteration(entries, "recall@5") == 2
    assert chosen_iteration(entries, "mrr") == 1
    assert chosen_iteration(entries[:1], "mrr") == 0


def test_few_steps_are_said_below_the_table(tmp_path: Path):
    runs = Runs(lambda method, seed, t: [1, 30])
    runs.steps = 50
    _, text = made(tmp_path, runs, only_rows=["start", "simcse"])
    assert "Few steps" not in text
    runs.steps = 49
    made(tmp_path, runs, only_rows=["cpc"])
    runs.steps = 12
    found, text = made(tmp_path, runs, seeds=[1, 2], only_rows=["cpc"])
    assert "\n\nFew steps: CPC, a: the budget in tokens is 12 to 49 steps of this method's batch.\n\n" in text
    assert row_of(found, "cpc")["steps"] == {"1": 49, "2": 12}


def test_a_score_of_0_is_a_score(tmp_path: Path):
    _, text = made(tmp_path, Runs(lambda method, seed, t: [30, 30]), only_rows=["simcse"])
    assert "| SimCSE | **0.0000** | **0.0000** | **0.0000** |" in text
    assert "| ICT | to do | to do | to do |" in text


def test_what_is_missing_is_said_below_the_table(tmp_path: Path):
    runs = Runs(lambda method, seed, t: [1, 30])
    runs.failing = {"a-simcse-2": ValueError("too | small\nfor *this*"), "a-ict-1": RuntimeError("")}
    runs.failing["a-ict-2"] = runs.failing["a-ict-1"]
    found, text = made(tmp_path, runs, seeds=[1, 2], only_rows=["simcse", "ict", "infocse"])
    assert row_of(found, "simcse")["failures"] == {"2": "too | small"}
    assert "| SimCSE | **0.5000** [1] | **0.5000** | **0.5000** |" in text
    assert "1. SimCSE, a, seed 2: failed: too \\| small\n" in text
    assert "| ICT | failed [2] | failed | failed |" in text
    assert "2. ICT, a, seeds 1, 2: failed: RuntimeError" in text
    _, text = made(tmp_path, runs, seeds=[1, 2], tables=["annotator"])
    assert "| InfoCSE (first\\_encoder) | skipped [1] | skipped | skipped |" in text
    assert "first\\_encoder isn't set" in text


def test_columns_are_corpora(tmp_path: Path):
    config = tables(tmp_path)
    corpora = [{"name": n, "settings": config.corpora[0].settings} for n in ("a", "b_c")]
    corpora[1]["like"] = "web_browsing"
    runs = Runs(lambda method, seed, t: [1, 30])
    _, text = made(tmp_path, runs, corpora=corpora, only_rows=["simcse", "conpono"])
    assert "| | a R@5 | a R@10 | a R@20 | b\\_c R@5 | b\\_c R@10 | b\\_c R@20 |" in text
    assert "Web Browsing (like b\\_c) R@5" in text
    assert "| CONPONO | 0.0142 | 0.0251 | 0.0403 |" in text
    assert "**They were not measured here**" in text
    _, text = made(tmp_path, runs)
    assert "0.0142" not in text


def test_text_is_escaped():
    assert escape("a|b\n c*d_e <f>") == "a\\|b c\\*d\\_e \\<f\\>"
    assert escape("[x](y) `z` \\ #1 R&D") == "\\[x\\](y) \\`z\\` \\\\ \\#1 R&amp;D"


def test_the_papers_numbers():
    assert paper_recalls("declutr", "web_document") == (0.3155, 0.3925, 0.5104)
    assert paper_recalls("iteration_3", "web_browsing") == (0.0656, 0.0956, 0.1369)
    assert paper_recalls("start", "news") is None
    assert paper_recalls("cpc_2000", "web_document") == (0.4513,)
    assert paper_recalls("cpc_300", "web_document") is None
    assert paper_recalls("infocse_plusplus_1000", "web_browsing") == (0.0940, 0.1308, 0.1794)
    for column in COLUMNS:
        # What the paper says of them: InfoCSE leads, with partition, and has converged after 2 iterations.
        rows = {row.key: paper_recalls(row.key, column) for study in STUDIES.values() for row in study.rows}
        assert rows["infocse"] == rows["iteration_2"]
        others = [rows[row.key] for row in STUDIES["zero_shot"].rows if row.key != "infocse"]
        baselines = [recalls for recalls in others if recalls]
        assert len(baselines) == 7
        assert rows["infocse"] == max([*baselines, rows["infocse"] or (0.0, 0.0, 0.0)])
        assert all(one[0] < one[1] < one[2] for one in rows.values() if one)
    by_hand = {"simcse": 0.3236, "consert": 0.2512, "mirror_bert": 0.2950, "ict": 0.3872, "cpc": 0.3250}
    assert all((recalls := paper_recalls(row, "news")) and recalls[0] == r for row, r in by_hand.items())
    assert statistics.fmean(paper_recalls("infocse", "news") or ()) == pytest.approx((0.6345 + 0.7016 + 0.7864) / 3)


def test_few_shot_tables(tmp_path: Path):
    """Rows are fine-tuned encoders; InfoCSE++ shows the round that validation chose, and is set against one round."""

    def ranks(method: str, seed: int, r: int) -> list[int]:
        return {"infocse_3": [1, 30], "infocse_plusplus_3": [1, 30] if r == 1 else [1, 1], "start_3": [30, 30]}.get(
            method, [30, 1]
        )

    runs = Runs(ranks)
    config = tables(tmp_path, tables=["few_shot", "plusplus"], label_sizes=[3], rounds=2)
    assert reproduce(config, runs, runs.few_shot) == 0
    assert {name for name in runs.calls if "plusplus" in name} == {"a-infocse_plusplus_3-1", "a-infocse_plusplus_all-1"}
    assert all(name.split("-")[1].endswith(("_3", "_all")) for name in runs.calls)
    folder = tmp_path / "runs" / "t"
    found = json.loads((folder / "tables.json").read_text())
    rows = {row["key"]: row for row in found["corpora"]["a"]["tables"]["few_shot_3"]}
    assert (rows["start_3"]["metrics"]["recall@5"]["mean"], rows["infocse_3"]["metrics"]["recall@5"]["mean"]) == (
        0,
        0.5,
    )
    assert rows["infocse_3"]["label"] == "InfoCSE"
    plus = {row["key"]: row for row in found["corpora"]["a"]["tables"]["plusplus"]}
    assert list(plus) == ["infocse_3", "infocse_plusplus_3", "infocse_all", "infocse_plusplus_all"]
    assert plus["infocse_plusplus_3"]["metrics"]["recall@5"]["mean"] == 1.0
    assert plus["infocse_plusplus_3"]["iteration"] == {"1": 2}
    # 100 tokens without labels and 9 of fine-tuning a round; 7 of annotating.
    assert (plus["infocse_plusplus_3"]["tokens"], plus["infocse_plusplus_3"]["annotation_tokens"]) == (
        {"1": 218},
        {"1": 14},
    )
    [small, every] = found["corpora"]["a"]["leads"]["plusplus"]
    assert (small["of"], small["over"], small["difference"]) == ("InfoCSE++ (3)", "Fine-tuned (3)", 0.5)
    assert every["difference"] == 0.0
    text = (folder / "tables.md").read_text()
    assert "## Few-shot retrieval, 3 labelled examples" in text
    assert "a: InfoCSE++ (3) less Fine-tuned (3) is +0.5000 in R@5" in text
    assert {file.name for file in folder.glob("*.png")} == {"few_shot_3.png", "plusplus.png"}
