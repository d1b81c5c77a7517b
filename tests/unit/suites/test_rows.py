"""The tables of suites, for people."""

from __future__ import annotations

from infocse_ray.retrieval.correlation import Estimate
from infocse_ray.suites.rows import Row, escaped, markdown, no_interval, shown, signed


def test_scores_and_differences_have_their_intervals_where_there_are_any():
    assert shown(Estimate(0.82041, 0.761, 0.869)) == "0.8204 (0.76 to 0.87)"
    assert shown(no_interval(0.5)) == "0.5000"
    assert signed(Estimate(-0.03125, -0.0521, 0.0104)) == "-0.0312 (-0.0521 to +0.0104)"


def test_a_row_has_what_its_suite_knows():
    before, after = Estimate(0.5, 0.4, 0.6), Estimate(0.75, 0.7, 0.8)
    paired = Row("beir", "a|b", "both", "nDCG@10", after, before, Estimate(0.25, 0.125, 0.375), 9)
    of_mteb = Row("mteb", "Tiny", "Retrieval", "ndcg_at_10", no_interval(0.75), no_interval(0.5))
    words = Row("beir", "c", "BM25", "nDCG@10", after, after)  # no encoder has a part in it
    assert markdown([paired, of_mteb, words], True) == [
        "| data set | read as | measure | before | after | difference |",
        "| --- | --- | --- | ---: | ---: | ---: |",
        "| a\\|b | both | nDCG@10 | 0.5000 (0.40 to 0.60) | 0.7500 (0.70 to 0.80) | +0.2500 (+0.1250 to +0.3750) |",
        "| Tiny | Retrieval | ndcg_at_10 | 0.5000 | 0.7500 | +0.2500 |",
        "| c | BM25 | nDCG@10 | 0.7500 (0.70 to 0.80) | 0.7500 (0.70 to 0.80) |  |",
    ]
    assert markdown([of_mteb._replace(before=None)], False) == [
        "| data set | read as | measure | score |",
        "| --- | --- | --- | ---: |",
        "| Tiny | Retrieval | ndcg_at_10 | 0.7500 |",
    ]


def test_names_of_files_mark_nothing_up():
    shown = {
        "all_mini_LM_v2": "all_mini_LM_v2",
        "_x_ *y* `z": "\\_x\\_ \\*y\\* \\`z",
        "a\\|b": "a\\\\\\|b",
        "<img src=x>": "\\<img src=x\\>",
        "[l](http://e)": "\\[l\\](http://e)",
        "__init__": "\\_\\_init\\_\\_",
        "two\nlines": "two lines",
    }
    assert {name: escaped(name) for name in shown} == shown
