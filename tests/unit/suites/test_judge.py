"""All of `infocse evaluate --suite`, its actors in this process."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from infocse_ray.encoder.layout import write_layout
from infocse_ray.loop.contents import Contents
from infocse_ray.retrieval.correlation import Estimate, spearman_estimate
from infocse_ray.runtime.cluster import Placement
from infocse_ray.settings import Train
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet
from infocse_ray.suites import beir, bm25, judge
from infocse_ray.suites import pairs as pairs_module
from infocse_ray.suites.search import READINGS
from infocse_ray.suites.with_words import fused_found, read_found
from tests.unit.suites.data_sets import append, write_pairs, write_set
from tests.unit.suites.in_process import without_actors

pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Without Ray; the titles of what actors were started for."""
    monkeypatch.setattr(judge, "connect", lambda: None)
    monkeypatch.setattr(judge, "placement", lambda _: Placement(1, False, 1))
    return without_actors(monkeypatch)


def asked(tmp_path: Path, model: Path, **more: Any) -> Evaluate:
    content = {"model": str(model), "storage": str(tmp_path / "runs"), "precision": "fp32", "max_length": 16}
    return Evaluate.model_validate(content | more)


def test_before_and_after_on_everything_asked(
    tmp_path: Path, tiny_encoder: Path, started: list[str], capsys: pytest.CaptureFixture[str]
):
    pairs = write_pairs(tmp_path / "pairs.tsv")
    write_set(tmp_path / "sets" / "one")
    write_set(tmp_path / "sets" / "two", 20)
    settings = asked(
        tmp_path,
        tiny_encoder,
        compare=str(tiny_encoder),
        document_prompt="",
        suite="sts,beir",
        suite_path=[str(pairs), str(tmp_path / "sets")],
    )
    done = judge.judge(settings)
    said = capsys.readouterr().out
    assert "one: 30 documents, 30 queries" in said
    main = [row for row in done.rows if row.main]
    assert [(row.dataset, row.read_as, row.measure) for row in main] == [
        ("pairs.tsv", "sentences", "Spearman"),
        *(
            (name, how, "nDCG@10")
            for name in ("one", "two")
            for how in ("BM25", "passage", "mean of sentences", "both", "both and BM25")
        ),
    ]
    for row in done.rows:
        assert row.before is not None
        assert row.before.value == row.after.value, "they are the same encoder"
        assert row.read_as == "BM25" or row.difference == (0.0, 0.0, 0.0)
    lines = said.splitlines()
    head = lines.index("| data set | read as | measure | before | after | difference |")
    assert lines.index("", head) - head == 2 + len(main), "other measures are in the tables below"
    assert (
        f"Before: {tiny_encoder}. After: {tiny_encoder}. Scores with 95 % intervals; differences, after less " in said
    )
    assert any(line.startswith("| one | passage | nDCG@10 | 0.") and "| +0.0000 (" in line for line in lines)
    assert any(line.startswith("| after, mean of sentences | ") for line in lines)
    assert any(line.startswith("| BM25 | ") and line.endswith("|  |") for line in lines)
    written = json.loads((Path(done.folder.path) / "suites.json").read_text())
    assert written["rows"] == json.loads(json.dumps([row.content() for row in done.rows]))
    assert written["rows"][0]["questions"] == 30
    assert Path(written["scores_by_question"]["beir/one"]["model"]).exists()
    assert (Path(done.folder.path) / "suites.md").read_text() == "\n".join(done.lines) + "\n"
    assert started == ["judging pairs.tsv", "searching one (before)", "searching two (before)"], "the same is done once"

    del started[:]
    again = judge.judge(settings)
    assert started == []
    assert again.lines == done.lines


def test_scores_are_those_of_the_questions(tmp_path: Path, tiny_encoder: Path, started: list[str]):
    write_set(tmp_path / "one", split="dev")
    done = judge.judge(asked(tmp_path, tiny_encoder, suite="beir", suite_path=[str(tmp_path / "one")], qrels="dev"))
    assert started == ["searching one (model)"]
    assert "| data set | read as | measure | score |" in done.lines
    files = json.loads((Path(done.folder.path) / "suites.json").read_text())["scores_by_question"]["beir/one"]
    read = {"BM25": ["BM25"], "model": ["passage", "mean of sentences", "both"], "model and BM25": ["both and BM25"]}
    assert set(files) == set(read)
    for whose, readings in read.items():
        with open_parquet(Storage.open(files[whose])) as opened:
            rows = opened.read().to_pylist()
        assert {row["read_as"] for row in rows} == set(readings)
        for row in (row for row in done.rows if row.read_as in readings):
            column = {"nDCG@10": "ndcg@10", "R@5": "recall@5", "R@10": "recall@10", "R@100": "recall@100"}.get(
                row.measure, "mrr@10"
            )
            mine = [one[column] for one in rows if one["read_as"] == row.read_as]
            assert len(mine) == row.questions == 30
            assert np.mean(mine) == pytest.approx(row.after.value)
            assert row.before is None
            assert row.difference is None
    assert not list(Path(files["model"]).parent.glob("best/*")), "what was found by block is removed"


def test_results_are_named_by_all_that_can_change_them():
    def names(precision: str = "fp32", data: str = "d", encoder: str = "e", language: str = "en") -> tuple[str, ...]:
        stage = lambda _, identity, __: SimpleNamespace(fingerprint=identity)  # noqa: E731
        judged: Any = SimpleNamespace(settings=SimpleNamespace(precision=precision), stage=stage)
        of_data, of_encoder = (
            cast(Any, SimpleNamespace(fingerprint=data, name="")),
            SimpleNamespace(fingerprint=encoder),
        )
        words = bm25.words_of(language)
        by_vectors = beir._searched(judged, of_data, "model", of_encoder, language)  # pyright: ignore
        by_words = beir._lexical(judged, of_data, words)
        together = beir._together(judged, of_data, by_vectors, by_words)
        assert beir._together(judged, of_data, by_vectors, by_vectors) != together
        pairs = pairs_module._judged(judged, "", of_encoder, of_data)  # pyright: ignore
        return tuple(one.fingerprint for one in (by_vectors, by_words, together, pairs))

    first = names()
    assert names() == first
    for changed, kept in (
        ({"precision": "bf16"}, [False, True, False, False]),
        ({"data": "other"}, [False, False, False, False]),
        ({"encoder": "other"}, [False, True, False, False]),
        ({"language": "de"}, [False, False, False, True]),
    ):
        assert [one == other for one, other in zip(names(**changed), first, strict=True)] == kept, changed


def test_a_query_that_is_a_document_is_measured_without_itself(tmp_path: Path):
    data: Any = SimpleNamespace(query_ids=["q"], relevant={"q": {"a": 1}})
    folder = Storage.open(str(tmp_path))
    beir._score(folder, data, {"both": {"q": {"q": 1.0, "a": 0.5}}})
    assert (folder / "metrics.json").read_json()["metrics"]["both"]["mrr@10"] == 1.0


def test_a_difference_is_the_model_s_score_less_that_of_the_encoder_before(monkeypatch: pytest.MonkeyPatch):
    judged: Any = SimpleNamespace(encoders={"model": "after", "compare": "before"})
    scores = {"model": np.full(20, 0.75), "compare": np.full(20, 0.5)}

    def system(whose: str) -> Any:
        value = scores[whose].mean()
        estimate = Estimate(value, value, value)
        return SimpleNamespace(
            whose=whose, read_as="both", by_query=lambda _: scores[whose], estimate=lambda _: estimate
        )

    data: Any = SimpleNamespace(name="one", queries=["?"] * 20, documents=30)
    row = beir._row(judged, data, [system("compare"), system("model")], "both", "ndcg@10")
    assert row.before is not None
    assert (row.before.value, row.after.value) == (0.5, 0.75)
    assert row.difference == (0.25, 0.25, 0.25)
    assert row.questions == 20

    true = np.linspace(0, 1, 20)
    cosines = {"after": true, "before": -true}
    estimates = {whose: spearman_estimate(values, true) for whose, values in cosines.items()}
    stage: Any = lambda _, __, whose, ___: SimpleNamespace(folder=Path(whose), whose=whose)  # noqa: E731
    monkeypatch.setattr(pairs_module, "_judged", stage)
    monkeypatch.setattr(pairs_module, "_estimate", lambda stage: estimates[stage.whose])
    monkeypatch.setattr(pairs_module, "_cosines", lambda stage: cosines[stage.whose])
    row, _ = pairs_module.judge_pairs(judged, "pairs", SimpleNamespace(scores=true))  # pyright: ignore
    assert row.before is not None
    assert row.difference is not None
    assert (row.before.value, row.after.value) == (pytest.approx(-1), pytest.approx(1))
    assert row.difference.value == pytest.approx(2)


def test_each_ranking_is_held_against_bm25():
    judged: Any = SimpleNamespace(encoders={"model": "after"})
    scores = {"BM25": np.full(20, 0.5), "passage": np.full(20, 0.75)}

    def system(whose: str, read_as: str) -> Any:
        value = scores[read_as].mean()
        estimate, stage = Estimate(value, value, value), SimpleNamespace(summary={"cut": 1234})
        return SimpleNamespace(
            whose=whose, read_as=read_as, stage=stage, by_query=lambda _: scores[read_as], estimate=lambda _: estimate
        )

    data: Any = SimpleNamespace(name="a|b", queries=["?"] * 20, documents=30_000)
    lines = beir._table(judged, data, [system("BM25", "BM25"), system("model", "passage")], bm25.words_of("en"))
    assert lines == [
        "a\\|b: 20 queries, 30,000 documents, 1,234 of them cut as passages; BM25 with Snowball stemmer, stop words",
        "",
        "| ranked by | nDCG@10 | R@5 | R@10 | R@100 | MRR@10 | nDCG@10 less BM25's |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        "| BM25 | 0.5000 | 0.5000 | 0.5000 | 0.5000 | 0.5000 |  |",
        "| model, passage | 0.7500 | 0.7500 | 0.7500 | 0.7500 | 0.7500 | +0.2500 (+0.2500 to +0.2500) |",
    ]
    judged.encoders["compare"] = "before"
    systems = [system("BM25", "BM25"), system("compare", "passage"), system("model", "passage")]
    lines = beir._table(judged, data, systems, bm25.words_of("en"))
    assert ", 1,234 of them cut as passages" in lines[0], "alike of both"


def test_what_was_left_out_of_a_data_set_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_set(tmp_path / "one")
    append(tmp_path / "one" / "corpus.jsonl", "no JSON")
    append(tmp_path / "one" / "queries.jsonl", {"text": "no id"})
    beir.read_sets([str(tmp_path / "one")], "test")
    assert capsys.readouterr().out.splitlines()[-1] == (
        "one: 30 documents, 30 queries; left out: 1 lines of the corpus without an id or a text, 1 lines of "
        "queries.jsonl without an id or a text"
    )


def test_the_last_row_is_of_what_both_found(tmp_path: Path, tiny_encoder: Path, started: list[str]):
    write_set(tmp_path / "one")
    done = judge.judge(asked(tmp_path, tiny_encoder, suite="beir", suite_path=[str(tmp_path / "one")]))
    files = json.loads((Path(done.folder.path) / "suites.json").read_text())["scores_by_question"]["beir/one"]
    tables = {}
    for whose, file in files.items():
        with open_parquet(Storage.open(file)) as opened:
            rows = [row for row in opened.read().to_pylist() if row["read_as"] in ("BM25", "both", "both and BM25")]
        tables[whose] = {row.pop("query_id"): row for row in rows}
    found = {
        whose: read_found(Storage.open(str(Path(files[whose]).parent)) / "found.parquet") for whose in ("model", "BM25")
    }
    for whose, by_query in found.items():
        assert {query: next(iter(documents)) for query, documents in by_query.items()} == {
            query: row["first"] for query, row in tables[whose].items() if row["first"] is not None
        }
    fused = fused_found(list(tables["model"]), list(found.values()))
    best = {query: max(fused[query].items(), key=lambda one: (one[1], one[0]))[0] for query in fused}
    assert {query: row["first"] for query, row in tables["model and BM25"].items()} == best
    assert best != {query: row["first"] for query, row in tables["model"].items()}


def test_a_search_that_stopped_goes_on(
    tmp_path: Path, tiny_encoder: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("infocse_ray.suites.beir_layout._BLOCK_BYTES", 1_500)
    write_set(tmp_path / "one")
    settings = asked(tmp_path, tiny_encoder, suite="beir", suite_path=[str(tmp_path / "one")])
    search, blocks = beir.SearchBlocks._search, []

    def stop(self: Any, encoder: Any, block: int) -> dict[str, Any]:
        if len(blocks) == 2:
            raise KeyboardInterrupt
        blocks.append(block)
        return search(self, encoder, block)

    monkeypatch.setattr(beir.SearchBlocks, "_search", stop)
    with pytest.raises(KeyboardInterrupt):
        judge.judge(settings)
    kept = {file: file.stat().st_mtime_ns for file in (tmp_path / "runs").rglob("best/*/0000[01].parquet")}
    assert len(kept) == 2 * len(READINGS)
    monkeypatch.setattr(beir.SearchBlocks, "_search", search)
    times: dict[Path, int] = {}
    merge = beir._merge

    def look(*arguments: Any) -> None:
        times.update({file: file.stat().st_mtime_ns for file in kept})
        merge(*arguments)

    monkeypatch.setattr(beir, "_merge", look)
    resumed = judge.judge(settings)
    assert times == kept
    monkeypatch.setattr(beir, "_merge", merge)
    whole = judge.judge(settings.model_copy(update={"storage": str(tmp_path / "other")}))
    assert whole.rows == resumed.rows


@pytest.mark.parametrize(
    ("suite", "paths", "said"),
    [
        ("sts", ["none.tsv"], "none.tsv': no such file or folder"),
        ("sts", ["one"], "one': is a folder, which is for suite = beir; add that to suite, or leave it out"),
        ("beir", ["pairs.tsv"], "pairs.tsv': is a file, which is for suite = sts; add that to suite, or leave it out"),
        ("sts,beir", ["one"], "suite = sts,beir: suite_path names no file of sentence pairs"),
        ("beir", ["one", "other/one"], "suite_path: two data sets are called one; rename a folder"),
        ("beir", ["one/qrels"], "qrels': no corpus.jsonl in it"),
    ],
)
def test_a_mistake_is_one_line_before_work_starts(
    tmp_path: Path, tiny_encoder: Path, suite: str, paths: list[str], said: str, started: list[str]
):
    write_pairs(tmp_path / "pairs.tsv")
    write_set(tmp_path / "one")
    write_set(tmp_path / "other" / "one")
    with pytest.raises(ValueError, match="suite") as error:
        judge.judge(asked(tmp_path, tiny_encoder, suite=suite, suite_path=[str(tmp_path / path) for path in paths]))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert started == []
    assert not (tmp_path / "runs").exists()


def test_a_scheme_that_nothing_opens_is_told_with_the_setting(tmp_path: Path, tiny_encoder: Path):
    with pytest.raises(
        ValueError, match=r"^suite_path = 'nowhere://\*\*\*@b': nowhere://.* can't be opened: .*nowhere"
    ):
        judge.judge(asked(tmp_path, tiny_encoder, suite="sts", suite_path=["nowhere://a:secret@b"]))


def test_a_missing_package_is_named(
    tmp_path: Path, tiny_encoder: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    write_set(tmp_path / "one")
    settings = asked(tmp_path, tiny_encoder, suite="beir", suite_path=[str(tmp_path / "one")])
    for package, said in (("bm25s", "BM25"), ("pytrec_eval", "suite = beir")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(
            ValueError, match=rf"^{said}: {package} is not installed: pip install 'infocse-ray\[suites\]'$"
        ):
            judge.judge(settings)


def test_pairs_need_none_of_these_packages_and_names_of_files_cannot_break_the_table(
    tmp_path: Path, tiny_encoder: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    for package in ("bm25s", "pytrec_eval", "mteb"):
        monkeypatch.setitem(sys.modules, package, None)
    pairs = write_pairs(tmp_path / "a|b\x1b[31m.tsv")
    done = judge.judge(asked(tmp_path, tiny_encoder, suite=["sts"], suite_path=[str(pairs)]))
    [row] = [line for line in done.lines if line.startswith("| a")]
    assert row.startswith("| a\\|b \\[31m.tsv | sentences |")


def test_it_is_computed_where_the_settings_say(
    tmp_path: Path, tiny_encoder: Path, started: list[str], monkeypatch: pytest.MonkeyPatch
):
    asked_for: list[Any] = []
    at_work: list[str] = []

    def place(train: Train) -> Placement:
        asked_for.append(train)
        at_work.extend(Contents.of(Storage.open(str(tmp_path / "runs"))).drivers)
        return Placement(1, False, 1)

    monkeypatch.setattr(judge, "placement", place)
    more = {
        "suite": "sts",
        "suite_path": [str(write_pairs(tmp_path / "pairs.tsv"))],
        "num_workers": 3,
        "use_gpu": False,
    }
    done = judge.judge(asked(tmp_path, tiny_encoder, **more))
    assert [(one.num_workers, one.use_gpu) for one in asked_for] == [(3, False)]
    assert len(at_work) == 1, "`infocse clean` leaves what it reads"
    assert Contents.of(Storage.open(str(tmp_path / "runs"))).drivers == []
    written = json.loads((Path(done.folder.path) / "suites.json").read_text())["settings"]
    assert (written["max_length"], written["suite"]) == (16, ["sts"])


def test_files_of_one_name_are_all_judged_and_tables_say_which_encoder_is_which():
    files = ["a/dev.tsv", "b/dev.tsv", "b/test.tsv"]
    assert judge._named(files) == {"a/dev.tsv": "a/dev.tsv", "b/dev.tsv": "b/dev.tsv", "test.tsv": "b/test.tsv"}
    alone = Evaluate(model="new|er", suite=["sts"], suite_path=files)
    assert judge._head(alone) == ["new\\|er, with 95 % intervals:"]
    [line] = judge._head(alone.model_copy(update={"compare": "older"}))
    assert line.startswith("Before: older. After: new\\|er. ")


def test_no_credential_is_in_what_names_the_results():
    names = []
    for secret in ("one", "another"):
        settings = Evaluate(model=f"s3://KEY:{secret}@bucket/model", suite=["sts"], suite_path=["sts.csv"])
        judged = SimpleNamespace(
            settings=settings, stage=lambda _, name, __: names.append(name) or SimpleNamespace(folder=None)
        )
        judge._write(judged, [], [], {})  # pyright: ignore[reportArgumentType]
    assert names[0] == names[1]


def test_cut_passages_are_counted_by_encoder_where_lengths_differ(
    tmp_path: Path, tiny_encoder: Path, started: list[str]
):
    write_set(tmp_path / "set")
    short = shutil.copytree(tiny_encoder, tmp_path / "short")
    write_layout(short, 32, "mean", True, 16)
    more = {"suite": "beir", "suite_path": [str(tmp_path / "set")]}
    said = "\n".join(judge.judge(asked(tmp_path, tiny_encoder, compare=str(short), **more)).lines)
    assert "30 (before) and 15 (after) of them cut as passages" in said
    rows = {line.split(" | ")[0]: line for line in said.splitlines() if " and BM25 | " in line}
    assert rows["| before, both and BM25"].split(" | ")[1:] != rows["| after, both and BM25"].split(" | ")[1:]
    said = "\n".join(judge.judge(asked(tmp_path, tiny_encoder, **more)).lines)
    assert "30 documents, 15 of them cut as passages" in said
