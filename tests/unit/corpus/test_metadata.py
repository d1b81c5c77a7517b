"""Further columns of a corpus: of the types that are asked for, or missing; never what spoils a document."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from infocse_ray.corpus.metadata import alike_values, check_types, metadata_columns, metadata_of, metadata_type
from infocse_ray.corpus.prepare import reading
from infocse_ray.corpus.read import read_rows
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.errors import UnreadableFile
from infocse_ray.settings import Corpus
from infocse_ray.settings.embed import Embed, EveryDocument
from infocse_ray.settings.nested import nested
from tests.conftest import write_jsonl

BERLIN = timezone(timedelta(hours=1))


@pytest.mark.parametrize(
    ("kind", "value", "typed"),
    [
        ("text", "Graz", "Graz"),
        ("text", 7.0, "7"),
        ("text", True, "true"),
        ("text", ["a", 1], '["a", 1]'),
        ("text", {"ä": None}, '{"ä": null}'),
        ("text", b"caf\xe9", "caf�"),
        ("text", "half \ud800", "half ?"),
        ("text", date(2026, 1, 31), "2026-01-31"),
        ("text", "", ""),
        ("texts", ["a", None, 3], ["a", "3"]),
        ("texts", "a", ["a"]),
        ("texts", '["a", "b"]', ["a", "b"]),
        ("integer", "2026", 2026),
        ("integer", 2026.0, 2026),
        ("integer", Decimal("3"), 3),
        ("integer", 2.5, None),
        ("integer", True, None),
        ("integer", 2**63, None),
        ("integer", "unknown", None),
        ("number", "2.5", 2.5),
        ("number", Decimal("2.5"), 2.5),
        ("number", "inf", None),
        ("number", [1], None),
        ("number", False, None),
        ("boolean", "True", True),
        ("boolean", 0, False),
        ("boolean", "perhaps", None),
        ("time", "2026-01-31", datetime(2026, 1, 31, tzinfo=UTC)),
        ("time", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("time", datetime(2026, 1, 31, 1, tzinfo=BERLIN), datetime(2026, 1, 31, tzinfo=UTC)),
        ("time", date(2026, 1, 31), datetime(2026, 1, 31, tzinfo=UTC)),
        ("time", "31.1.2026", None),
        ("time", 1_769_817_600, None),
        ("time", datetime.max.replace(tzinfo=timezone(timedelta(hours=-1))), None),
    ],
)
def test_a_value_is_of_its_type_or_missing(kind: Any, value: Any, typed: Any):
    its, unfit = metadata_of({"metadata:x": value}, {"x": kind})
    assert its == {"x": typed}
    assert pa.array([its], metadata_type({"x": kind})).to_pylist() == [its], "Arrow takes it"
    assert list(unfit) == (["x"] if typed is None else [])


@pytest.mark.parametrize("value", [None, math.nan, "  "])
def test_what_is_missing_is_no_mistake(value: Any):
    assert metadata_of({"metadata:x": value}, {"x": "number"}) == ({"x": None}, {})


def shown(corpus: EveryDocument) -> Source:
    source = find_source(corpus)
    source.columns.update(metadata_columns(corpus, source))
    return source


def corpus_of(file: Path, **metadata: Any) -> EveryDocument:
    return EveryDocument(source=str(file), text="body", metadata=metadata)


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_files_have_further_columns(tmp_path: Path, form: str):
    rows = [{"body": "One.", "year": 2020, "place": "Graz"}, {"body": "Two.", "year": 2021, "place": None}]
    file = tmp_path / f"c.{form}"
    if form == "jsonl":
        del rows[1]["place"]
        write_jsonl(file, rows)
    elif form == "csv":
        file.write_text("body,year,place\nOne.,2020,Graz\nTwo.,2021,\n")
    else:
        pq.write_table(pa.Table.from_pylist(rows), file)
    corpus = corpus_of(file, year="integer", place="text")
    source = shown(corpus)
    check_types(corpus, source)
    found = [
        metadata_of(row.values or {}, corpus.metadata)[0]
        for piece in source.pieces
        for row in KINDS["auto"].rows(piece, source.columns, corpus, None)
    ]
    assert found == [{"year": 2020, "place": "Graz"}, {"year": 2021, "place": None}]


def test_browsing_sequences_have_them_too(tmp_path: Path):
    file = write_jsonl(tmp_path / "b.jsonl", [{"history": ["A", "B"], "country": "AT"}])
    corpus = EveryDocument(source=str(file), kind="browsing", metadata={"country": "text"})
    source = shown(corpus)
    [row] = KINDS["browsing"].rows(source.pieces[0], source.columns, corpus, None)
    assert metadata_of(row.values or {}, corpus.metadata) == ({"country": "AT"}, {})


def test_they_can_not_spoil_a_document(tmp_path: Path):
    csv, parquet = tmp_path / "c.csv", tmp_path / "c.parquet"
    csv.write_bytes(b"body,note\nOne.,caf\xe9\nTwo.,plain\n")
    column = pa.array([b"caf\xe9", b"plain"], pa.binary()).view(pa.string())
    late = pa.array([2**62, 0], pa.timestamp("us"))
    days = pa.array([2**30, 0], pa.int32()).view(pa.date32())
    pq.write_table(pa.table({"body": ["One.", "Two."], "note": column, "late": late, "day": days}), parquet)
    for file, names in ((csv, ["note"]), (parquet, ["note", "late", "day"])):
        corpus = corpus_of(file, **dict.fromkeys(names, "text"))
        source = shown(corpus)
        rows = list(read_rows(source.pieces[0], source.columns, by_line=False))
        assert [(row.values or {}).get("text") for row in rows] == ["One.", "Two."]
        typed, _ = metadata_of(rows[1].values or {}, corpus.metadata)
        assert typed["note"] == "plain"


def test_a_cell_that_looks_like_a_list_is_a_text_where_a_text_is_asked_for(tmp_path: Path):
    (tmp_path / "c.csv").write_text('body,note\nOne.,"[""u"",  ""v""]"\n')
    for kind, value in (("text", '["u",  "v"]'), ("texts", ["u", "v"])):
        corpus = corpus_of(tmp_path / "c.csv", note=kind)
        source = shown(corpus)
        [row] = read_rows(source.pieces[0], source.columns, by_line=False)
        assert metadata_of(row.values or {}, corpus.metadata)[0] == {"note": value}


def test_times_of_a_zone_that_is_not_known_here_are_told(tmp_path: Path):
    late = pa.array([1_000_000_000_000_000], pa.timestamp("us", "W. Europe Standard Time"))
    pq.write_table(pa.table({"body": ["One."], "at": late}), tmp_path / "c.parquet")
    corpus = corpus_of(tmp_path / "c.parquet", at="time")
    source = shown(corpus)
    [row] = read_rows(source.pieces[0], source.columns, by_line=False)
    assert metadata_of(row.values or {}, corpus.metadata)[0] == {"at": datetime(2001, 9, 9, 1, 46, 40, tzinfo=UTC)}


@pytest.mark.parametrize(
    ("kind", "values", "typed"),
    [
        ("time", [date(2026, 1, 1), datetime(2026, 1, 2, 10, 30)], [(2026, 1, 1), (2026, 1, 2, 10, 30)]),
        ("integer", [2020, 2**70, None], [2020, None, None]),
        ("boolean", [True, 0, 1], [True, False, True]),
        ("integer", [2020.0, "?", 2021], [2020, None, 2021]),
        ("text", [{"a": 1}, "b"], ['{"a": 1}', "b"]),
        ("texts", [["a"], 3, "b"], [["a"], ["3"], ["b"]]),
        ("text", ["half \ud800"], ["half ?"]),
    ],
)
def test_values_from_python_are_each_what_they_were(kind: Any, values: list, typed: list):
    column = pa.array(alike_values(values, kind)).to_pylist()
    wanted = [datetime(*one, tzinfo=UTC) if kind == "time" else one for one in typed]
    assert [metadata_of({"metadata:x": value}, {"x": kind})[0]["x"] for value in column] == wanted


@pytest.mark.parametrize(
    ("content", "metadata", "said"),
    [
        ('{"body": "One.", "year": 1}', {"yeer": "integer"}, r"corpus.metadata: .*c.jsonl: no column 'yeer'; there is"),
        (
            "\n".join(json.dumps({"body": "One.", "day": day}) for day in ("31.1.2026", "1.2.2026", "2026-02-02")),
            {"day": "time"},
            r"corpus.metadata.day = time: of 3 documents looked at 2 have none but '31.1.2026', say; give text",
        ),
    ],
)
def test_a_mistake_is_told_before_anything_is_read(tmp_path: Path, content: str, metadata: dict, said: str):
    (tmp_path / "c.jsonl").write_text(content + "\n")
    corpus = corpus_of(tmp_path / "c.jsonl", **metadata)
    with pytest.raises(ValueError, match=said):
        check_types(corpus, shown(corpus))


def test_a_few_that_are_not_of_the_type_stop_nothing(tmp_path: Path):
    file = write_jsonl(tmp_path / "c.jsonl", [{"body": "One.", "n": n} for n in (1, 2, "?")])
    corpus = corpus_of(file, n="integer")
    check_types(corpus, shown(corpus))


def test_text_files_and_releases_have_none(tmp_path: Path):
    (tmp_path / "a.txt").write_text("One. Two.")
    corpus = EveryDocument(source=str(tmp_path / "a.txt"), metadata={"x": "text"})
    with pytest.raises(ValueError, match="text files have no further columns; leave it out"):
        metadata_columns(corpus, find_source(corpus))
    of_mind = corpus.model_copy(update={"kind": "mind"})
    with pytest.raises(ValueError, match=r"corpus.kind = mind has no further columns"):
        metadata_columns(of_mind, find_source(corpus))


@pytest.mark.parametrize(("given", "typed"), [("b", {"b": "text"}), (["b", "a"], {"a": "text", "b": "text"}), ([], {})])
def test_names_alone_are_text(given: Any, typed: dict):
    assert EveryDocument(source="x", metadata=given).metadata == typed


def test_names_and_types_mixed_are_refused():
    with pytest.raises(ValidationError, match="give names alone"):
        EveryDocument.model_validate({"source": "x", "metadata": ["url", {"year": "integer"}]})


@pytest.mark.parametrize("name", ["a.b", "a`b", " ", "\ud800"])
def test_a_name_that_no_condition_can_have_is_refused(name: str):
    with pytest.raises(ValidationError, match="rename the column"):
        EveryDocument(source="x", metadata={name: "text"})


def test_a_dotted_name_is_refused_as_it_was_given():
    given = {"model": "m", "output": "o", **nested({"corpus": {"source": "x", "metadata": {"user.name": "text"}}})}
    with pytest.raises(ValidationError, match=r"'user\.name' can't be asked for by a condition; rename the column"):
        Embed.model_validate(given)


def test_several_columns_of_a_name_are_refused(tmp_path: Path):
    table = pa.table([["One."], ["a"], ["b"]], names=["body", "x", "x"])
    pq.write_table(table, tmp_path / "c.parquet")
    corpus = corpus_of(tmp_path / "c.parquet", x="text")
    with pytest.raises(ValueError, match="several columns 'x'; give each a name of its own"):
        shown(corpus)


def test_a_file_that_nobody_looked_at_is_named_if_it_has_several_columns_of_a_name(tmp_path: Path):
    pq.write_table(pa.table([["One."], ["a"], ["b"]], names=["body", "x", "x"]), tmp_path / "c.parquet")
    [piece] = find_source(corpus_of(tmp_path / "c.parquet")).pieces
    with pytest.raises(UnreadableFile, match=r"c.parquet: has several columns 'x'; give each a name of its own"):
        list(read_rows(piece, {"text": "body", "metadata:x": "x"}, by_line=False))


def test_documents_are_the_same_with_and_without():
    plain, more = EveryDocument(source="x"), EveryDocument(source="x", metadata={"a": "text"})
    assert reading(plain) == reading(more)
    fields = {"min_sentences": plain.min_sentences, "lanes": plain.lanes}
    assert reading(plain) == reading(Corpus(source="x").model_copy(update=fields)), "a token store is a run's, too"
