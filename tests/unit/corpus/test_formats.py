"""CSV, TSV, JSON arrays, other encodings, and what is said of files that can't be read."""

import gzip
import json
import lzma
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from infocse_ray.corpus import delimited, json_array
from infocse_ray.corpus import source as source_module
from infocse_ray.corpus.documents import document_of
from infocse_ray.corpus.prepare import lanes_for, shards_for
from infocse_ray.corpus.read import SourceRow, count_lines
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.source import Source, find_source
from infocse_ray.errors import UnreadableFile
from infocse_ray.settings import Corpus

GERMAN = "Die Größe zählt. Das Öl läuft über."


def rows_of(where: Path, **settings) -> list[SourceRow]:
    corpus = Corpus.model_validate({"source": str(where), **settings})
    source = find_source(corpus)
    return [row for p in source.pieces for row in KINDS[corpus.kind].rows(p, source.columns, corpus, None)]


def values_of(where: Path, **settings) -> list[dict]:
    return [row.values for row in rows_of(where, **settings) if row.values is not None]


def compressed(data: bytes, ending: str) -> bytes:
    zstd = lambda data: pa.Codec("zstd").compress(data, asbytes=True)  # noqa: E731
    return {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress, ".zst": zstd}[ending](data)


CSV = 'id,text,counterpart\r\n1,"A ""big"" one,\nover lines. Two.",One\r\n\r\n2,B. C.,\r\n'


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("ending", [".csv", ".tsv"])
def test_csv_is_read(tmp_path: Path, ending: str, compression: str) -> None:
    text = CSV if ending == ".csv" else CSV.replace(",", "\t").replace("one\t", "one,")
    (tmp_path / f"a{ending}{compression}").write_bytes(compressed(b"\xef\xbb\xbf" + text.encode(), compression))
    rows = rows_of(tmp_path)
    assert [row.values for row in rows] == [
        {"id": "1", "text": 'A "big" one,\nover lines. Two.', "counterpart": "One"},
        {"id": "2", "text": "B. C.", "counterpart": None},
    ]
    assert [row.shown for row in rows] == [2, 5]  # the lines that they begin in


def test_csv_with_semicolons_and_lists(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        '\nid;sentences;counterpart\n[7];"[""A; one."", ""B.""]";"[""q"", ""r""]"\nb;no list;"[1]"\n'
    )
    assert [(row.values, row.shown) for row in rows_of(tmp_path)] == [
        ({"id": "[7]", "sentences": ["A; one.", "B."], "counterpart": ["q", "r"]}, 3),
        ({"id": "b", "sentences": "no list", "counterpart": "[1]"}, 4),
    ]


def test_csv_rows_that_do_not_fit_are_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,text\n1,A. B.\n2\n3,A,B\n4,\xe4\n5,C. D.\n")
    assert [(row.shown, row.reason) for row in rows_of(tmp_path)] == [
        (2, None),
        (3, "not as many columns as the header"),
        (4, "not as many columns as the header"),
        (5, "not UTF-8"),
        (6, None),
    ]


def test_csv_files_must_have_the_columns_that_documents_need(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,A. B.\n")
    (tmp_path / "b.csv").write_text("id,body\n2,A. B.\n")
    with pytest.raises(UnreadableFile, match=r"b\.csv: has no column 'text', which other files have"):
        rows_of(tmp_path)
    with pytest.raises(ValueError, match=r"corpus\.text = 'nope': .*a\.csv: no such column; there is id, text"):
        rows_of(tmp_path / "a.csv", text="nope")


def test_a_csv_column_that_is_read_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,text,,,\n1,A. B.,,,\n")
    assert values_of(tmp_path) == [{"id": "1", "text": "A. B."}], "nothing is read of columns without a name"
    (tmp_path / "a.csv").write_text("id,text,text\n1,A. B.,C. D.\n")
    with pytest.raises(UnreadableFile, match=r"a\.csv: has several columns 'text'; give each a name of its own"):
        rows_of(tmp_path)


def test_csv_quote_that_nothing_closes_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_LONGEST_CELL", 1000)
    (tmp_path / "a.csv").write_text("text\nA. B.\n" + '"C.' + "x\n" * 2000)
    with pytest.raises(UnreadableFile, match=r"a\.csv: line 3: field larger than field limit .*quote that nothing"):
        rows_of(tmp_path)


@pytest.mark.parametrize("ending", [".csv", ".tsv"])
@pytest.mark.parametrize(
    ("first", "second", "line", "reason"),
    [
        (4, None, 6, "unexpected end of data"),
        (9, None, 11, "unexpected end of data"),  # in the last line, whose end is the file's
        (4, 8, 6, "expected after '\"'"),
    ],
)
def test_a_quote_in_a_text_does_not_swallow_rows(
    tmp_path: Path, ending: str, first: int, second: int | None, line: int, reason: str
) -> None:
    mark = "," if ending == ".csv" else "\t"
    rows = [f"{i}{mark}" + '"' * (i in (first, second)) + f"A {i}. B." for i in range(10)]
    (tmp_path / f"a{ending}").write_text("\n".join([f"id{mark}text", *rows]))
    with pytest.raises(UnreadableFile, match=rf"a\{ending}: line {line}: .*{reason}.*quotes are doubled"):
        rows_of(tmp_path)


def test_blanks_behind_a_quote_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,text\n"1\n" ,"A ""x"" \nB." \n2,C.\n')
    assert [(row.values, row.reason) for row in rows_of(tmp_path)] == [
        ({"id": "1\n ", "text": 'A "x" \nB. '}, None),
        ({"id": "2", "text": "C."}, None),
    ]


def test_a_quote_in_the_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('\nid,"text\n1,A. B.\n')
    with pytest.raises(UnreadableFile, match=r"a\.csv: line 2: unexpected end of data"):
        rows_of(tmp_path)


def test_labels_may_be_csv(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"id": "1", "text": "A. B."}))
    (tmp_path / "labels.csv").write_text("doc,query\n1,first\n1,second\n,none\n")
    corpus = Corpus.model_validate(
        {"source": str(tmp_path / "a.jsonl"), "labels": str(tmp_path / "labels.csv"), "counterpart": "query"}
    )
    with pytest.raises(ValueError, match=r"corpus\.labels: .*no column 'id'; there is doc, query"):
        find_source(corpus)
    (tmp_path / "labels.csv").write_text("id,query\n1,first\n1,second\n,none\n")
    source = find_source(corpus)
    labels = KINDS["auto"].labels(source.companions, corpus)  # pyright: ignore[reportOptionalCall]
    found = labels.find("1")
    assert found is not None
    assert found.counterparts == ["first", "second"]
    assert labels.lines["row"].to_pylist() == [2, 3, 4]


ITEMS = [{"id": str(i), "text": f"Größe {i}. " + 'Two, "and" [three]. ' * i} for i in range(40)]


@pytest.mark.parametrize("compression", ["", ".gz", ".xz", ".zst"])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_array_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None, compression: str
) -> None:
    monkeypatch.setattr(json_array, "_STEP", 7)
    content = "\n " + json.dumps([*ITEMS, 12, None], indent=indent, ensure_ascii=indent is None) + "\n"
    (tmp_path / f"a.json{compression}").write_bytes(compressed(content.encode(), compression))
    rows = rows_of(tmp_path)
    assert [row.values for row in rows[:40]] == ITEMS
    assert [(row.shown, row.reason) for row in rows[40:]] == [(40, "not a JSON object"), (41, "not a JSON object")]


def test_a_broken_array_is_named_with_the_item(tmp_path: Path) -> None:
    for content, item in (
        (json.dumps(ITEMS)[:-1], 39),
        (json.dumps(ITEMS)[:-10], 39),
        ('[{"text": "A."}, {"text": oops}, {"text": "B."}]', 1),
    ):
        (tmp_path / "a.json").write_text(content)
        with pytest.raises(UnreadableFile, match=rf"a\.json: item {item} of the array .* isn't JSON, or the array's"):
            rows_of(tmp_path)


@pytest.mark.parametrize("step", [1, 7, 2**18])
def test_arrays_that_were_appended_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    monkeypatch.setattr(json_array, "_STEP", step)
    content = json.dumps(ITEMS[:3]) + " [] \n" + json.dumps(ITEMS[3:], indent=1) + "\n "
    (tmp_path / "a.json").write_text(content)
    assert values_of(tmp_path) == ITEMS
    (tmp_path / "a.json").write_text(content + '{"text": "B."}')
    with pytest.raises(UnreadableFile, match=r"a\.json: after 40 items the array ends, and something follows"):
        rows_of(tmp_path)


def test_an_array_larger_than_a_piece_is_not_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 50)
    (tmp_path / "a.json").write_text(json.dumps(ITEMS, indent=1))
    assert values_of(tmp_path) == ITEMS
    (tmp_path / "a.json").write_text("".join(json.dumps(item) + "\n" for item in ITEMS))
    assert len(find_source(Corpus(source=str(tmp_path))).pieces) > 2
    assert values_of(tmp_path) == ITEMS


def test_browsing_histories_may_be_an_array(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"history": ["A", "B"], "target": "C"}] * 2, indent=1))
    rows = values_of(tmp_path, kind="browsing")
    assert [(row["sentences"], row["counterpart"]) for row in rows] == [(["A", "B"], "C")] * 2
    assert rows[0]["id"] != rows[1]["id"]


@pytest.mark.parametrize("encoding", ["cp1252", "latin-1", "utf-16", "utf-16-le", "utf-8-sig"])
@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".json", ".csv", ".jsonl.gz"])
def test_other_encodings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str, ending: str) -> None:
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 50)  # a file that is recoded isn't cut
    row = {"id": f"a{ending}", "text": GERMAN}
    lines = json.dumps(row, ensure_ascii=False)
    text = {".txt": GERMAN, ".json": f"[{lines}]", ".csv": f"id,text\na.csv,{GERMAN}\n"}.get(ending, f"{lines}\n\n")
    (tmp_path / f"a{ending}").write_bytes(compressed(text.encode(encoding), ".gz" if ".gz" in ending else ""))
    (found,) = rows_of(tmp_path, encoding=encoding)
    assert found.values == row


def test_an_encoding_names_another_corpus_and_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"One. Two.")
    prints = [
        find_source(Corpus(source=str(tmp_path), encoding=encoding)).fingerprint
        for encoding in ("utf-8", "UTF8", "cp1252", "windows-1252")
    ]
    assert prints[0] == prints[1] != prints[2] == prints[3]
    for wrong in ("nope", "base64", "rot13"):
        with pytest.raises(ValidationError, match="no such encoding; give one that Python knows"):
            Corpus(source="a", encoding=wrong)


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv", ".json"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b" \n\n", "has nothing but white space"),
        (bytes(range(256)) * 20, "is binary, not text"),
        (b"PK\x03\x04\x00\x00" + b"abc" * 100, "is binary, not text"),
        (GERMAN.encode("utf-16"), "is UTF-16, not UTF-8; set corpus.encoding = utf-16"),
    ],
)
def test_what_is_no_text_is_named(tmp_path: Path, ending: str, content: bytes, said: str) -> None:
    (tmp_path / f"a{ending}").write_bytes(content)
    with pytest.raises(UnreadableFile) as error:
        rows_of(tmp_path)
    assert str(error.value) == f"corpus.source: {tmp_path}/a{ending}: {said}"


@pytest.mark.parametrize("ending", [".txt", ".jsonl", ".csv"])
def test_another_encoding_is_an_error_that_says_which_to_try(tmp_path: Path, ending: str) -> None:
    row = json.dumps({"text": GERMAN}, ensure_ascii=False)
    text = {".txt": GERMAN, ".jsonl": f"{row}\n" * 3, ".csv": f"text\n{GERMAN}\n"}[ending].encode("cp1252")
    for i in range(3):
        (tmp_path / f"{i}{ending}").write_bytes(text)
    (tmp_path / f"ascii{ending}").write_bytes({".csv": b"text\nA.\n"}.get(ending, b'{"text": "A."}'))
    with pytest.raises(UnreadableFile, match=rf"corpus\.source: .*\{ending}: isn't UTF-8.*corpus\.encoding .* cp1252"):
        rows_of(tmp_path)
    assert len(values_of(tmp_path, encoding="cp1252")) >= 4
    with pytest.raises(UnreadableFile, match=r"isn't SHIFT_JIS"):
        rows_of(tmp_path, encoding="shift_jis")


def test_a_header_in_another_encoding_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes("text,größe\nA. B.,1\n".encode("cp1252"))
    with pytest.raises(UnreadableFile, match="isn't UTF-8"):
        rows_of(tmp_path)


def test_one_bad_file_or_row_of_many_is_set_aside(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(GERMAN)
    (tmp_path / "b.txt").write_bytes(GERMAN.encode("cp1252"))
    (tmp_path / "c.txt").write_bytes(b"")
    assert [row.reason for row in rows_of(tmp_path)] == [None, "not UTF-8", None]


def test_no_object_in_json_lines_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"data": ITEMS}, indent=1))
    with pytest.raises(UnreadableFile, match=r"none of its first lines is a JSON object; give an object a line"):
        rows_of(tmp_path)


def test_parquet_has_no_encoding_to_name(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["A. B."]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"corpus\.encoding = 'cp1252': text in Parquet files is UTF-8"):
        rows_of(tmp_path, encoding="cp1252")


def test_rows_before_a_row_group_are_summed_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    class Counting(pq.ParquetFile):
        @property
        def metadata(self) -> Any:
            return SimpleNamespace(row_group=lambda number: asked.append(number) or of_file.row_group(number))

    where = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [f"A {i}. B." for i in range(20)]}), where, row_group_size=2)
    of_file = pq.read_metadata(where)
    corpus = Corpus.model_validate({"source": str(where)})
    [piece] = find_source(corpus).pieces
    monkeypatch.setattr("infocse_ray.corpus.read.pq.ParquetFile", Counting)
    rows = list(KINDS[corpus.kind].rows(piece, {"text": "text"}, corpus, None))
    assert [row.number for row in rows] == list(range(20))
    assert len(asked) == 10, "once a row group"
    later = KINDS[corpus.kind].rows(piece._replace(start=7), {"text": "text"}, corpus, None)
    assert [row.number for row in later] == list(range(14, 20))


def test_lines_of_a_cut_file_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [json.dumps({"text": "x" * (i % 7)}) if i % 3 else "" for i in range(60)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines) + "\n")
    for size in (1, 2, 17, 40, 1000):
        monkeypatch.setattr(source_module, "_PIECE_BYTES", size)
        corpus = Corpus(source=str(tmp_path))
        source = find_source(corpus)
        before, found = 0, []
        for piece in source.pieces:
            found += [before + row.shown for row in KINDS["auto"].rows(piece, source.columns, corpus, None)]
            before += count_lines(piece) if piece.cut else 0
        assert found == [i + 1 for i, line in enumerate(lines) if line]


def test_a_long_sentence_is_the_reason_not_that_there_are_few() -> None:
    from infocse_ray.corpus.documents import Rejected

    with pytest.raises(Rejected, match="a sentence of more than 10000 characters"):
        document_of({"text": "x" * 2_000_000}, Corpus(source="a"))


@pytest.mark.parametrize(
    ("text_bytes", "lanes"), [(0, 4), (5 * 2**20, 5), (63 * 2**20, 63), (64 * 2**20, 64), (2**40, 64)]
)
def test_a_small_corpus_can_have_fewer_lanes(text_bytes: int, lanes: int) -> None:
    source = Source("jsonl", [], {}, "f", text_bytes)
    assert lanes_for(source, "auto") == lanes
    assert lanes_for(source, 64) == 64
    assert Corpus(source="a", lanes="auto").lanes == "auto"
    assert Corpus(source="a").lanes == 64


def test_a_large_corpus_has_larger_shards_not_ever_more() -> None:
    def shards(text_bytes: int, lanes: int = 64) -> int:
        return shards_for(Source("jsonl", [], {}, "f", text_bytes), lanes)

    assert [shards(size) for size in (0, 2**30, 2**33, 2**38)] == [64, 64, 128, 4096]
    assert [shards(size) for size in (2**39, 2**40, 2**43)] == [8192] * 3
    assert shards(2**45) == 2**15, "no shard is of more than 1 GiB"
    assert all(shards(size, 100) % 100 == 0 and shards(size, 100) <= 8200 for size in (2**39, 2**41, 2**43 - 1))
