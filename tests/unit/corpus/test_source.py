import gzip
import json
import lzma
import os
import tempfile
import uuid
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infocse_ray.corpus import source as source_module
from infocse_ray.corpus.read import Piece, SourceRow, read_rows
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.source import Source, changed_since, find_source, packs_of
from infocse_ray.errors import UnreadableFile
from infocse_ray.settings import Corpus
from infocse_ray.storage.folder import Storage

LINE = b'{"id": "a", "text": "One. Two."}\n'


def found(where: str | list[str]) -> list[str]:
    return [piece.uri for piece in find_source(Corpus(source=where)).pieces]


def rows_of(where: Path, **settings) -> list[SourceRow]:
    corpus = Corpus(source=str(where), **settings)
    source = find_source(corpus)
    return [r for p in source.pieces for r in read_rows(p, source.columns, corpus.text_files == "line")]


def values_of(where: Path, **settings) -> list[dict]:
    return [row.values for row in rows_of(where, **settings) if row.values is not None]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("a1.jsonl", "a2.jsonl", "b1.jsonl", "x/a1.jsonl", "x/y/a3.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(LINE)
    return tmp_path


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a1.jsonl", ["a1.jsonl"]),
        ("*.jsonl", ["a1.jsonl", "a2.jsonl", "b1.jsonl"]),
        ("a?.jsonl", ["a1.jsonl", "a2.jsonl"]),
        ("[ab]1.jsonl", ["a1.jsonl", "b1.jsonl"]),
        ("[!a]1.jsonl", ["b1.jsonl"]),
        ("a[2-3].jsonl", ["a2.jsonl"]),
        ("*/a1.jsonl", ["x/a1.jsonl"]),
        ("**/a1.jsonl", ["a1.jsonl", "x/a1.jsonl"]),
        ("x/**", ["x/a1.jsonl", "x/y/a3.jsonl"]),
        ("**/y/*", ["x/y/a3.jsonl"]),
        ("x", ["x/a1.jsonl", "x/y/a3.jsonl"]),
        ("x/", ["x/a1.jsonl", "x/y/a3.jsonl"]),
        (".", ["a1.jsonl", "a2.jsonl", "b1.jsonl", "x/a1.jsonl", "x/y/a3.jsonl"]),
    ],
)
def test_paths_folders_and_globs(tree, pattern: str, names: list[str]):
    assert found(f"{tree}/{pattern}") == [f"{tree}/{name}" for name in names]


def test_glob_means_its_dots_and_other_marks(tree):
    (tree / "a1xjsonl").write_bytes(LINE)
    (tree / "a+1.jsonl").write_bytes(LINE)
    assert found(f"{tree}/a+*.jsonl") == [f"{tree}/a+1.jsonl"]
    assert f"{tree}/a1xjsonl" not in found(f"{tree}/a*.jsonl")
    with pytest.raises(ValueError, match="no such file"):
        found(f"{tree}/x?a1.jsonl")


def test_list_is_sorted_and_names_no_file_twice(tree):
    where = [f"{tree}/b1.jsonl", f"{tree}/*1.jsonl", f"{tree}/x"]
    assert found(where) == [f"{tree}/{n}" for n in ("a1.jsonl", "b1.jsonl", "x/a1.jsonl", "x/y/a3.jsonl")]


def test_relative_path_becomes_absolute(tree, monkeypatch):
    monkeypatch.chdir(tree)
    assert found("*1.jsonl") == [f"{tree}/a1.jsonl", f"{tree}/b1.jsonl"]


def test_folder_passes_over_what_is_no_document(tree):
    (tree / "x" / "README.md").write_text("no document")
    assert found(f"{tree}/x") == [f"{tree}/x/a1.jsonl", f"{tree}/x/y/a3.jsonl"]


@pytest.mark.parametrize("pattern", ["", "/", "/f1.jsonl", "/f?.jsonl", "/[ef]1.jsonl", "/f*", "/**"])
def test_files_of_a_remote_filesystem_are_found_by_uri(pattern: str):
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/d")
    (folder / "f1.jsonl").write_bytes(LINE)
    corpus = Corpus(source=f"{folder}{pattern}")
    source = find_source(corpus)
    assert [piece.uri for piece in source.pieces] == [f"{folder}/f1.jsonl"]
    assert [row.values for row in read_rows(source.pieces[0], source.columns, False)] == [
        {"id": "a", "text": "One. Two."}
    ]


@pytest.mark.parametrize(
    ("compress", "ending"), [(gzip.compress, ".gz"), (lzma.compress, ".xz"), (None, ".zst"), (bytes, "")]
)
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".ndjson", ".txt"])
def test_compressed_files_are_read(tmp_path, compress, ending: str, kind: str):
    content = LINE * 3 if kind != ".txt" else "Eins. Zwei. Größe".encode()
    if compress is None:
        compress = lambda data: pa.Codec("zstd").compress(data, asbytes=True)  # noqa: E731
    file = tmp_path / f"file{kind}{ending}"
    file.write_bytes(compress(content))
    if kind == ".txt":
        assert values_of(file) == [{"text": "Eins. Zwei. Größe", "id": file.name}]
    else:
        assert values_of(file) == [{"id": "a", "text": "One. Two."}] * 3


@pytest.mark.parametrize(("module", "ending"), [(gzip, ".gz"), (lzma, ".xz"), (None, ".zst")])
@pytest.mark.parametrize("kind", [".jsonl", ".txt"])
def test_broken_compressed_file_is_named(tmp_path, module, ending: str, kind: str):
    content = b"".join(b'{"text": "%s"}\n' % os.urandom(50).hex().encode() for _ in range(1000))
    whole = module.compress(content) if module else pa.Codec("zstd").compress(content, asbytes=True)
    for name, data in (("truncated", whole[: len(whole) // 2]), ("none", content)):
        file = tmp_path / f"{name}{kind}{ending}"
        file.write_bytes(data)
        with pytest.raises(UnreadableFile, match=f"corpus.source: {file}: can't be read"):
            rows_of(file)


def test_text_files_are_documents_or_lines(tmp_path):
    (tmp_path / "a.txt").write_bytes("\ufeffOne. Two.\n\nThree.\n".encode())
    (tmp_path / "b.txt").write_bytes(b"Four. \xff\n")
    assert rows_of(tmp_path) == [
        SourceRow(0, {"text": "One. Two.\n\nThree.\n", "id": "a.txt"}, None),
        SourceRow(0, None, "not UTF-8"),
    ]
    lines = rows_of(tmp_path, text_files="line")
    assert [row.values and row.values["text"].strip() for row in lines] == ["One. Two.", "Three.", None]
    assert lines[-1].reason == "not UTF-8"


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_lines_that_are_no_object_are_set_aside(tmp_path, ending: str):
    lines = [
        b'{"text": "A."}',
        b'{"text": "\xff"}',
        b"{",
        b"[1]",
        b"   ",
        b"[" * 100_000,
        b'{"text": ' + b"9" * 5000 + b"}",
    ]
    content = b"\n".join(lines)
    file = tmp_path / f"a.jsonl{ending}"
    file.write_bytes(gzip.compress(content) if ending else content)
    rows = rows_of(file)
    assert [row.reason for row in rows] == [None, "not UTF-8", "not JSON", "not a JSON object", "not JSON", "not JSON"]
    assert [content[row.number :].split(b"\n")[0] for row in rows] == [line for line in lines if line.strip()]
    assert [row.shown for row in rows] == [1, 2, 3, 4, 6, 7]


def test_nothing_found_is_refused(tmp_path):
    for where in (f"{tmp_path}/none.jsonl", f"{tmp_path}/*.jsonl", f"{tmp_path}/none/*.jsonl", str(tmp_path)):
        with pytest.raises(ValueError, match=r"corpus\.source = '.*': no such file"):
            find_source(Corpus(source=where))


def test_bad_glob_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"corpus\.source = .*: not a glob"):
        find_source(Corpus(source=f"{tmp_path}/[z-a].jsonl"))


@pytest.mark.parametrize("storage", ["runs", "deep/runs", "."])
def test_what_runs_and_embedding_wrote_is_no_document(tmp_path, storage: str):
    own = ["a.jsonl", "first/news.jsonl", "manifest/b.jsonl", "vectors/c.jsonl"]
    made = [
        f"stages/{32 * 'a'}.json",
        f"corpora/{32 * 'b'}/documents/shard-000000.parquet",
        f"evaluations/{32 * 'c'}/metrics.json",
        "run/manifest.json",
        "run/iteration_1/annotations/shard-000000.parquet",
        "tables/cells/one.json",
    ]
    embedded = ["embedding.json", "vectors/stage.json", "vectors/documents/shard-000000.parquet"]
    for name in [*own, *(f"{storage}/{one}" for one in made), *(f"news-vectors/{one}" for one in embedded)]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(LINE)
    for where in (str(tmp_path), f"{tmp_path}/**"):
        assert found(where) == [f"{tmp_path}/{name}" for name in own]


def test_what_only_looks_like_a_run_stays(tmp_path):
    own = ["corpora/a.json", "embedding.json", "news/manifest.json", "stages/one.json", "vectors/stage.jsonl"]
    for name in own:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(LINE)
    assert found(str(tmp_path)) == [f"{tmp_path}/{name}" for name in own]


def test_a_name_that_is_no_text_is_told_with_its_folder(tmp_path):
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")).write_text("x")
    with pytest.raises(ValueError, match=r"^corpus\.source = '.*': the name of a file there isn't UTF-8; rename it"):
        find_source(Corpus(source=str(tmp_path)))


def test_unknown_scheme_is_refused():
    with pytest.raises(ValueError, match=r"corpus\.source = 'nowhere://a': .*can't be opened"):
        find_source(Corpus(source="nowhere://a"))


def test_mixed_kinds_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(LINE)
    (tmp_path / "b.txt").write_bytes(b"One. Two.")
    with pytest.raises(ValueError, match=r"corpus\.source = .*several kinds \(jsonl, text\)"):
        find_source(Corpus(source=str(tmp_path)))


def test_a_folder_of_what_cant_be_read_is_told_what_it_has(tmp_path):
    for name in ("a.md", "b.MD", "c.pdf", "d.png", ".hidden.html"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ValueError, match=r"no such file, but 4 of other kinds; give .*\.txt \(.*\); ") as refused:
        find_source(Corpus(source=str(tmp_path)))
    said = "; texts of .md, .pdf are to be extracted first (docs/corpora.md shows how)"
    assert str(refused.value).endswith(said)
    with pytest.raises(ValueError, match=r"unknown kind of file; .*; texts of \.pdf are to be extracted first"):
        find_source(Corpus(source=str(tmp_path / "c.pdf")))
    (tmp_path / "e.html.gz").write_bytes(b"x")
    with pytest.raises(ValueError, match=r"e\.html\.gz: unknown kind of file; .*; texts of \.html are to be extracted"):
        find_source(Corpus(source=str(tmp_path / "e.html.gz")))
    with pytest.raises(ValueError, match=r"unknown kind of file; use [^;]*$"):
        find_source(Corpus(source=str(tmp_path / "d.png")))
    with pytest.raises(ValueError, match=r"no such file; give [^;]*$"):
        find_source(Corpus(source=str(tmp_path / "none")))


def test_documents_beside_those_that_are_read_are_said(tmp_path, capsys):
    for name in ("a.md", "b/c.pdf", ".d.html", "e.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "a.jsonl").write_bytes(LINE)
    assert len(find_source(Corpus(source=str(tmp_path))).pieces) == 1
    assert capsys.readouterr().out == (
        f"note: corpus.source = '{tmp_path}': 3 files of other kinds aren't read (.md, .pdf, .png); texts of .md, .pdf "
        "are to be extracted first (docs/corpora.md shows how)\n"
    )
    find_source(Corpus(source=f"{tmp_path}/*.jsonl"))
    for name in ("a.md", "b/c.pdf", "e.png"):
        (tmp_path / name).unlink()
    for name in ("part-0001", "a.jsonl.bz2", "_SUCCESS", *(f"x.{kind}" for kind in "klmnop")):
        (tmp_path / name).write_bytes(b"x")
    assert capsys.readouterr().out == ""
    find_source(Corpus(source=str(tmp_path)))
    said = "8 files of other kinds aren't read (.bz2, .k, .l, .m, .n, .o, ...)"
    assert capsys.readouterr().out == f"note: corpus.source = '{tmp_path}': {said}\n"
    for name in ("a.jsonl.bz2", *(f"x.{kind}" for kind in "klmnop")):
        (tmp_path / name).unlink()
    find_source(Corpus(source=str(tmp_path)))
    assert "1 files of other kinds aren't read (without an ending)\n" in capsys.readouterr().out
    (tmp_path / "part-0001").unlink()
    find_source(Corpus(source=str(tmp_path)))
    assert capsys.readouterr().out == "", "what says that others are whole is nobody's document"


def test_endings_may_have_capitals(tmp_path):
    for name in ("a.JSONL", "b.jsonl", "c.Jsonl.GZ"):
        (tmp_path / name).write_bytes(gzip.compress(LINE) if name.endswith("GZ") else LINE)
    corpus = Corpus(source=str(tmp_path))
    source = find_source(corpus)
    assert {piece.kind for piece in source.pieces} == {"jsonl"}
    rows = [row for piece in source.pieces for row in read_rows(piece, source.columns, by_line=False)]
    assert len(rows) == 3
    assert all(row.reason is None for row in rows)


@pytest.mark.parametrize("name", ["a.docx", "a.parquet.gz", "a"])
def test_unknown_kind_is_refused(tmp_path, name: str):
    (tmp_path / name).write_bytes(LINE)
    with pytest.raises(ValueError, match=f"corpus.source: {tmp_path / name}: unknown kind of file; use .parquet"):
        find_source(Corpus(source=str(tmp_path / name)))


@pytest.mark.parametrize("role", ["id", "text", "sentences", "counterpart", "split"])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_missing_column_is_refused_and_those_there_are_named(tmp_path, role: str, kind: str):
    file = tmp_path / f"a.{kind}"
    if kind == "jsonl":
        file.write_bytes(LINE)
    else:
        pq.write_table(pa.table({"id": ["a"], "text": ["One. Two."]}), file)
    with pytest.raises(ValueError, match=rf"corpus\.{role} = 'nope': .*: no such column; there is id, text$"):
        find_source(Corpus.model_validate({"source": str(file), role: "nope"}))


def test_no_text_column_is_refused_and_those_there_are_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"body": "One. Two.", "title": "T"}\n')
    with pytest.raises(ValueError, match=r"corpus\.text: .* name one of body, title with corpus\.text"):
        find_source(Corpus(source=str(tmp_path)))
    assert values_of(tmp_path, text="body", id="title") == [{"id": "T", "text": "One. Two."}]


@pytest.mark.parametrize("role", ["id", "sentences", "counterpart", "split"])
def test_text_files_have_no_columns_to_name(tmp_path, role: str):
    (tmp_path / "a.txt").write_bytes(b"One. Two.")
    with pytest.raises(ValueError, match=rf"corpus\.{role} = 'c': text files have no columns"):
        find_source(Corpus.model_validate({"source": str(tmp_path), role: "c"}))


def test_roles_are_taken_by_name_and_sentences_win(tmp_path):
    row = {"id": 1, "text": "T.", "sentences": ["S."], "counterpart": "C.", "split": "test", "more": 1}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    assert values_of(tmp_path) == [{"id": 1, "sentences": ["S."], "counterpart": "C.", "split": "test"}]
    assert values_of(tmp_path, text="text") == [{"id": 1, "text": "T.", "counterpart": "C.", "split": "test"}]
    assert values_of(tmp_path, text="text", sentences="sentences") == values_of(tmp_path)


def test_columns_are_those_of_any_of_the_first_rows(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'not JSON\n{"id": 1}\n{"text": "T."}\n')
    assert values_of(tmp_path) == [{"id": 1, "text": None}, {"id": None, "text": "T."}]


def test_columns_of_one_name_are_refused_where_they_are_read(tmp_path):
    texts, titles = pa.array(["T."]), pa.array(["C."])
    pq.write_table(pa.table([texts, titles, titles], ["text", "title", "title"]), tmp_path / "a.parquet")
    assert values_of(tmp_path) == [{"text": "T."}]
    with pytest.raises(ValueError, match=r"^corpus.counterpart: .*a.parquet has several columns 'title'; give each"):
        values_of(tmp_path, counterpart="title")


def test_parquet_is_read_by_row_groups(tmp_path, monkeypatch):
    table = pa.table({"id": list(range(10)), "text": [f"text {i}" for i in range(10)], "more": [0] * 10})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    pq.ParquetWriter(tmp_path / "b.parquet", table.schema).close()
    text = 4 * os.path.getsize(tmp_path / "a.parquet")
    for most, ends in ((1, (1, 2, 3)), (2 * text // 3 + 1, (2, 3)), (text, (3,))):
        monkeypatch.setattr(source_module, "_PIECE_BYTES", most)
        pieces = find_source(Corpus(source=str(tmp_path))).pieces
        assert [(p.order, p.start, p.end) for p in pieces] == [
            *((0, start, end) for start, end in zip((0, *ends), ends, strict=False)),
            (1, 0, 0),
        ]
        rows = rows_of(tmp_path)
        assert [row.number for row in rows] == list(range(10))
        assert [row.values for row in rows] == [{"id": i, "text": f"text {i}"} for i in range(10)]


def test_bad_strings_of_parquet_are_set_aside(tmp_path):
    bad = pa.array([b"ok", b"\xff", None], pa.binary())
    lists = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3]), bad)
    for name, text in (("binary", bad), ("string", bad.view(pa.string()))):
        pq.write_table(pa.table({"text": text}), tmp_path / f"{name}.parquet")
        assert rows_of(tmp_path / f"{name}.parquet") == [
            SourceRow(0, {"text": "ok"}, None),
            SourceRow(1, None, "not UTF-8"),
            SourceRow(2, {"text": None}, None),
        ]
    for name, sentences in (("lists", lists), ("strings", lists.view(pa.list_(pa.string())))):
        pq.write_table(pa.table({"sentences": sentences}), tmp_path / f"{name}.parquet")
        assert [row.reason for row in rows_of(tmp_path / f"{name}.parquet")] == [None, "not UTF-8", None]


def test_broken_parquet_file_is_named(tmp_path):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": [os.urandom(50).hex() for _ in range(1000)]}), file, compression="zstd")
    whole = file.read_bytes()
    # Without its footer nothing can be planned; a broken page header shows when it is read.
    for broken in (whole[: len(whole) // 2], b"", whole[:4] + bytes(100) + whole[104:]):
        file.write_bytes(broken)
        with pytest.raises(UnreadableFile, match=f"corpus.source: {file}: can't be read"):
            rows_of(file)


@pytest.mark.parametrize("role", ["id", "text"])
def test_parquet_file_that_lacks_a_column_every_document_needs_is_named(tmp_path, role: str):
    row = {"id": ["1"], "text": ["T."]}
    pq.write_table(pa.table(row), tmp_path / "a.parquet")
    del row[role]
    pq.write_table(pa.table(row | {"more": [0]}), tmp_path / "b.parquet")
    with pytest.raises(
        ValueError, match=rf"corpus\.{role}: .*b\.parquet has no column '{role}', which other files have"
    ):
        rows_of(tmp_path)


def test_labels_may_be_in_some_of_the_files_only(tmp_path):
    labelled = {"id": "1", "text": "T.", "counterpart": "C."}
    bare = {"id": "0", "text": "T."}
    for i, row in enumerate((bare, labelled)):
        pq.write_table(pa.Table.from_pylist([row]), tmp_path / f"{i}.parquet")
        (tmp_path / f"{i}.jsonl").write_text(json.dumps(row))
    for kind, none in (("parquet", {"counterpart": None}), ("jsonl", {})):
        assert values_of(tmp_path / f"*.{kind}") == [bare | none, labelled]
        assert values_of(tmp_path / f"*.{kind}", counterpart="counterpart") == [bare | none, labelled]


@pytest.mark.parametrize("ending", ["jsonl", "json"])
@pytest.mark.parametrize("kind", ["auto", "browsing"])
def test_labels_and_splits_of_late_rows_are_read_in_json(tmp_path, ending: str, kind: str):
    body, label = ("text", "counterpart") if kind == "auto" else ("history", "target")
    rows = [{"id": str(i), body: "T." if kind == "auto" else ["T.", "U."]} for i in range(150)]
    rows[-1] |= {label: "C.", "split": "test", "headline": "H."}
    text = json.dumps(rows) if ending == "json" else "\n".join(map(json.dumps, rows))
    (tmp_path / f"a.{ending}").write_text(text)

    def read(**named: str) -> tuple[Source, list]:
        corpus = Corpus.model_validate({"source": str(tmp_path), "kind": kind, **named})
        source = find_source(corpus)
        rows = [row for p in source.pieces for row in KINDS[kind].rows(p, source.columns, corpus, None)]
        return source, [(row.values.get("counterpart"), row.values.get("split")) for row in rows if row.values]

    source, found = read()
    assert found == [(None, None)] * 149 + [("C.", "test")]
    assert [source.has(role) for role in ("counterpart", "split")] == [False, False], "not to be counted on"
    source, found = read(counterpart="headline")
    assert found == [(None, None)] * 149 + [("H.", "test")]
    assert source.has("counterpart"), "it was looked for"
    with pytest.raises(ValueError, match=r"corpus.counterpart = 'headlin'.*no such column; there is .*headline"):
        read(counterpart="headlin")


def test_hidden_files_are_no_documents_unless_they_are_named(tree):
    for name in (".ipynb_checkpoints/a1-checkpoint.jsonl", "x/.old.jsonl", "x/_temporary/0/attempt_1/a1.jsonl"):
        (tree / name).parent.mkdir(exist_ok=True, parents=True)
        (tree / name).write_bytes(LINE)
    every = [f"{tree}/{name}" for name in ("a1.jsonl", "a2.jsonl", "b1.jsonl", "x/a1.jsonl", "x/y/a3.jsonl")]
    assert found(str(tree)) == found(f"{tree}/**/*.jsonl") == every
    assert found(f"{tree}/x/.*.jsonl") == [f"{tree}/x/.old.jsonl"]
    assert found(f"{tree}/.ipynb_checkpoints") == [f"{tree}/.ipynb_checkpoints/a1-checkpoint.jsonl"]


def test_a_path_that_is_there_is_no_glob(tmp_path):
    folder = tmp_path / "news [2024]?"
    folder.mkdir()
    (folder / "a*.jsonl").write_bytes(LINE)
    (folder / "ab.jsonl").write_bytes(LINE)
    assert found(str(folder / "a*.jsonl")) == [str(folder / "a*.jsonl")]
    assert found(str(folder)) == [str(folder / "a*.jsonl"), str(folder / "ab.jsonl")]


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xef\xbb\xbf" + LINE)
    assert values_of(tmp_path) == [{"id": "a", "text": "One. Two."}]


def test_pieces_and_packs_of_a_large_corpus_are_larger(tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 50)
    monkeypatch.setattr(source_module, "_MOST_PIECES", 10)
    monkeypatch.setattr(source_module, "_MOST_PIECE_BYTES", 1_000)
    for size, pieces in ((200, 4), (500, 10), (5_000, 10), (20_000, 20)):
        (tmp_path / "a.jsonl").write_bytes(LINE + b" " * (size - len(LINE)))
        assert len(find_source(Corpus(source=str(tmp_path))).pieces) == pieces
    # 10 TiB, of which a task reads 256 MiB.
    many = [Piece(str(i), "text", i, 0, 2**26, 2**26) for i in range(10 * 2**14)]
    assert {len(pack) for pack in packs_of(many)} == {4}


@given(st.lists(st.integers(0, 3 * 2**20), max_size=40))
def test_small_pieces_are_read_together(sizes: list[int]):
    pieces = [Piece(str(i), "text", i, 0, size, size) for i, size in enumerate(sizes)]
    packs = packs_of(pieces)
    assert [piece for pack in packs for piece in pack] == pieces
    for pack in packs:
        assert len(pack) == 1 or sum(piece.size for piece in pack) <= 2**20
    for pack, after in pairwise(packs):
        assert sum(piece.size for piece in pack) + after[0].size > 2**20
    many = [Piece("", "text", i, 0, 0, 0) for i in range(2_500)]
    assert [len(pack) for pack in packs_of(many)] == [1_000, 1_000, 500]


def test_a_storage_that_does_not_answer_is_named(monkeypatch):
    def unreachable(*_: object) -> None:
        raise OSError("no route to host")

    monkeypatch.setattr(source_module, "_listed", unreachable)
    with pytest.raises(ValueError, match=r"^corpus\.source = 'a/\*\.jsonl': can't be reached: no route to host"):
        found("a/*.jsonl")


def test_only_plain_json_lines_larger_than_a_piece_are_cut(tmp_path, monkeypatch):
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 50)
    (tmp_path / "a.jsonl").write_bytes(LINE * 3)
    (tmp_path / "b.jsonl").write_bytes(LINE)
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(os.urandom(200).hex().encode()))
    pieces = [(p.uri[-len("a.jsonl") :], p.start, p.end) for p in find_source(Corpus(source=str(tmp_path))).pieces]
    assert pieces[:3] == [("a.jsonl", 0, 50), ("a.jsonl", 50, len(LINE) * 3), ("b.jsonl", 0, len(LINE))]
    assert len(pieces) == 4


@settings(max_examples=300)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=30),
    piece=st.integers(1, 60),
    ends=st.sampled_from([b"\n", b"\r\n"]),
    last=st.booleans(),
)
def test_every_line_of_a_cut_file_is_read_once(lengths: list[int], piece: int, ends: bytes, last: bool):
    # A length of 0 is a blank line, which is skipped; the others are padded with spaces to their length.
    rows = [json.dumps({"text": str(i)}).encode() for i in range(len(lengths))]
    lines = [row + b" " * n if n else b"" for row, n in zip(rows, lengths, strict=True)]
    content = ends.join(lines) + (ends if last else b"")
    wanted = [str(i) for i, n in enumerate(lengths) if n]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(source_module, "_PIECE_BYTES", piece)
        file = Path(folder, "a.jsonl")
        file.write_bytes(content)
        if not wanted:
            return
        read = rows_of(file)
    assert [row.values and row.values["text"] for row in read] == wanted
    assert all(content[row.number :].startswith(b'{"text"') for row in read)


def test_fingerprint_is_of_the_content_and_not_of_the_place(tmp_path):
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(LINE)
        os.utime(tmp_path / folder / "a.jsonl", (1, 1))
    first = find_source(Corpus(source=str(tmp_path / "one"))).fingerprint
    assert find_source(Corpus(source=str(tmp_path / "two" / "*.jsonl"))).fingerprint == first
    (tmp_path / "two" / "a.jsonl").write_bytes(LINE * 2)
    assert find_source(Corpus(source=str(tmp_path / "two"))).fingerprint != first


def test_text_bytes_allow_for_compression(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(LINE)
    assert find_source(Corpus(source=str(tmp_path))).text_bytes == len(LINE)
    (tmp_path / "a.jsonl").unlink()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(LINE))
    assert find_source(Corpus(source=str(tmp_path))).text_bytes > os.path.getsize(tmp_path / "a.jsonl.gz")


def test_text_files_are_told_apart_by_their_folder_and_named_the_same_wherever_they_are(tmp_path: Path) -> None:
    for place in ("here", "there"):
        for folder in ("a", "b"):
            (tmp_path / place / folder).mkdir(parents=True)
            (tmp_path / place / folder / "readme.txt").write_text("One sentence. And another.")
    for place in ("here", "there"):
        source = find_source(Corpus.model_validate({"source": str(tmp_path / place)}))
        ids = [
            row.values["id"] for piece in source.pieces for row in read_rows(piece, source.columns, False) if row.values
        ]
        assert ids == ["a/readme.txt", "b/readme.txt"]


def ids_of(source: str | list[str]) -> list[str]:
    found = find_source(Corpus(source=source))
    return [r.values["id"] for p in found.pieces for r in read_rows(p, found.columns, False) if r.values]


@pytest.mark.parametrize("remote", [False, True])
def test_text_files_keep_their_names_when_others_come(tmp_path: Path, remote: bool) -> None:
    folder = Storage.open(f"memory://{uuid.uuid4().hex}/d" if remote else str(tmp_path / "d"))
    (folder / "2024-11" / "a.txt").write_bytes(b"One sentence. And another.")
    asked = [str(folder), f"{folder}/*/a*", [f"{folder}/2024-11", f"{folder}/2024-12"]]
    (folder / "2024-12" / "c.txt").write_bytes(b"One sentence. And another.")
    assert [ids_of(one) for one in asked] == [
        ["2024-11/a.txt", "2024-12/c.txt"],
        ["2024-11/a.txt"],
        ["2024-11/a.txt", "2024-12/c.txt"],
    ]
    assert ids_of(f"{folder}/2024-11") == ids_of(f"{folder}/2024-11/a.txt") == ["a.txt"]
    (folder / "2024-12").delete()
    assert ids_of(str(folder)) == ids_of(f"{folder}/*/a*") == ["2024-11/a.txt"]


def test_what_changed_since_is_told_file_by_file(tmp_path: Path):
    for name in ("a.jsonl", "b.jsonl", "labels/c.jsonl"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(LINE)
    (tmp_path / "labels" / "c.jsonl").write_text('{"id": "a", "counterpart": "One."}\n')
    labels = str(tmp_path / "labels")
    named = Corpus(source=[str(tmp_path / name) for name in ("a.jsonl", "b.jsonl")], labels=labels)
    globbed = named.model_copy(update={"source": str(tmp_path / "*")})
    sources = [(corpus, find_source(corpus)) for corpus in (named, globbed)]
    assert [changed_since(*one) for one in sources] == [[], []]
    (tmp_path / "d.jsonl.part").write_text("of no kind that could be read")
    assert [changed_since(*one) for one in sources] == [[], []], "what came since is no matter, whatever it is"
    (tmp_path / "b.jsonl").unlink()
    assert [changed_since(*one) for one in sources] == [[str(tmp_path / "b.jsonl")]] * 2, "a is as it was"
    (tmp_path / "labels" / "c.jsonl").unlink()
    assert len(changed_since(*sources[0])) == 2


def test_where_nobody_can_look_nothing_is_said_to_have_changed(tmp_path: Path, monkeypatch):
    (tmp_path / "a.jsonl").write_bytes(LINE)
    corpus = Corpus(source=str(tmp_path))
    source = find_source(corpus)

    def fails(*_: object) -> None:
        raise OSError("Permission denied")

    monkeypatch.setattr(source_module, "_listed", fails)
    with pytest.raises(ValueError, match=r"can't be reached: Permission denied"):
        changed_since(corpus, source)


@pytest.mark.parametrize(("header", "said"), [("id|text", True), ("id;text,more", True), ("key,body", False)])
def test_columns_that_arent_cut_are_told_how_they_are(tmp_path, header: str, said: bool):
    (tmp_path / "a.csv").write_text(f"{header}\n1|One.\n")
    with pytest.raises(ValueError, match="neither a `text` nor a `sentences` column") as refused:
        find_source(Corpus(source=str(tmp_path / "a.csv")))
    assert ("in CSV commas separate columns, or else semicolons or tabs" in str(refused.value)) == said


def test_a_column_that_only_some_files_have_is_said(tmp_path, capsys):
    for name, columns in (("a", {"title": ["T"]}), ("b", {}), ("c", {})):
        pq.write_table(pa.table({"id": [name], "text": ["One. Two."], **columns}), tmp_path / f"{name}.parquet")
    find_source(Corpus(source=str(tmp_path), counterpart="title"))
    said = f"note: corpus.counterpart: {tmp_path}/b.parquet and 1 more of 3 files have no column 'title'\n"
    assert capsys.readouterr().out == said
    find_source(Corpus(source=str(tmp_path)))
    find_source(Corpus(source=f"{tmp_path}/a.parquet", counterpart="title"))
    assert capsys.readouterr().out == ""
