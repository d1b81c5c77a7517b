"""The kinds of corpus against files in the published formats, with the bad lines that such files have."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from infocse_ray.corpus import source as source_module
from infocse_ray.corpus.documents import Rejected, document_of
from infocse_ray.corpus.labels import LabelTable, LabelWriter
from infocse_ray.corpus.registry import KINDS
from infocse_ray.corpus.schema import draw_split, stable_hash
from infocse_ray.corpus.source import find_source
from infocse_ray.errors import UnreadableFile
from infocse_ray.settings import Corpus

SHARED = Path(__file__).parents[3] / "shared" / "data"


def labels_of(corpus: Corpus) -> LabelTable | None:
    companions = find_source(corpus).companions
    read = KINDS[corpus.kind].labels
    return read(companions, corpus) if read and companions else None


def read(where: Path | list[str], kind: str, **settings: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The documents of a corpus and the reasons of the rows set aside, as the corpus stage makes them."""
    given = [str(w) for w in where] if isinstance(where, list) else str(where)
    corpus = Corpus.model_validate({"source": given, "kind": kind, **settings})
    source, labels = find_source(corpus), labels_of(corpus)
    documents, reasons = [], []
    for piece in source.pieces:
        for row in KINDS[kind].rows(piece, source.columns, corpus, labels):
            try:
                if row.values is None:
                    raise Rejected(row.reason)
                documents.append(document_of(row.values, corpus))
            except Rejected as rejected:
                reasons.append(str(rejected))
    return documents, reasons


def lines_of(labels: LabelTable | None) -> list[tuple[Any, ...]]:
    assert labels is not None
    columns = labels.lines.select(["doc_id", "file", "row", "reason", "label"]).to_pydict().values()
    return list(zip(*columns, strict=True))


def at(file: Path, line: bytes) -> tuple[str, int]:
    """A line's file and place, as label lines and rows set aside name it."""
    content = file.read_bytes()
    return str(file), 1 + content[: content.index(line)].count(b"\n")


def news(*lines: bytes) -> bytes:
    return b"".join(line + b"\n" for line in lines)


def news_line(news_id: str, title: str, url: str, end: str = "") -> bytes:
    return "\t".join([news_id, "sports", "golf", title, 'An "abstract', url, "[]", f"[]{end}"]).encode()


URL = "https://assets.msn.com/labels/mind/{}.html"
GOOD = news_line("N1", '"The quoted" title', URL.format("AAGH0ET"))
CARRIAGE = news_line("N2", "A 5\" screen's price", URL.format("AABmf2I"), end="\r")
OLD = news_line("N3", "Old address", "https://www.msn.com/en-us/news/world/three-die/ar-AAJ43pw?ocid=chopendata")
UNTITLED = news_line("N4", " ", URL.format("AAI33em"))
NO_BODY = news_line("N5", "Never crawled", URL.format("AAAAAA1"))
SHORT = b"N6\tsports\tgolf\tToo few tabs"
BYTES = GOOD.replace(b"quoted", b"\xff").replace(b"N1", b"N7")
NO_URL = news_line("N8", "No address", "")
AGAIN = news_line("N9", "Another headline", URL.format("AAGH0ET"))


@pytest.fixture
def mind(tmp_path: Path) -> Path:
    for folder, content in (
        ("MINDsmall_dev", news(GOOD, CARRIAGE, SHORT)),
        ("MINDsmall_train", news(GOOD, OLD, UNTITLED, NO_BODY, b"", BYTES, NO_URL, AGAIN)),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "news.tsv").write_bytes(content)
        for other in ("behaviors.tsv", "entity_embedding.vec", "relation_embedding.vec"):
            (tmp_path / folder / other).write_bytes(b"no news\n")
    return tmp_path


def items(*rows: dict | bytes) -> bytes:
    """What `scrapy crawl -o msn.json` writes."""
    return b"[\n" + b",\n".join(r if isinstance(r, bytes) else json.dumps(r).encode() for r in rows) + b"\n]"


FIRST = {"nid": "AAGH0ET", "body": ["One sentence", ", with a link ", "in it. ", "Another one.", "A last one."]}
SECOND = {"nid": "AABmf2I", "body": "A body as a text. It has two."}
THIRD = {"nid": "AAJ43pw", "body": ["\r\nThe family shares video.\r\n", "And pictures."]}
FOURTH = {"nid": "AAI33em", "body": ["No headline.", "But two sentences."]}


def test_mind_as_released(mind):
    # Run again, the crawler appends a second array.
    (mind / "msn.json").write_bytes(items(FIRST, SECOND) + items(THIRD, FOURTH))
    documents, reasons = read(mind, "mind", valid_fraction=0.0, test_fraction=0.0)
    assert not reasons
    assert documents == [
        {
            "doc_id": "N1",
            "split": "train",
            "sentences": ["One sentence, with a link in it.", "Another one.", "A last one."],
            "counterparts": ['"The quoted" title', "Another headline"],
        },
        {
            "doc_id": "N2",
            "split": "train",
            "sentences": ["A body as a text.", "It has two."],
            "counterparts": ["A 5\" screen's price"],
        },
        {
            "doc_id": "N3",
            "split": "train",
            "sentences": ["The family shares video.", "And pictures."],
            "counterparts": ["Old address"],
        },
        {"doc_id": "N4", "split": "train", "sentences": ["No headline.", "But two sentences."], "counterparts": []},
    ]


def test_mind_items_that_are_no_document_are_set_aside(mind):
    bad = [
        {"nid": "AAGH0ET", "body": []},
        {"nid": "AAGH0ET", "body": None},
        {"nid": "AAGH0ET", "body": ["a", 3]},
        {"nid": "AAGH0ET", "body": ["Only one."]},
        {"nid": "ZZZZ", "body": ["One.", "Two."]},
        {"nid": "\ud800", "body": ["One.", "Two."]},
        {"body": ["One.", "Two."]},
        {},
        {"nid": 7, "body": ["One.", "Two."]},
        b'{"nid": "AAGH0ET", "body": ["\xff", "Two."]}',
        b'{"nid": "AAGH0ET", "body": ["cut',
    ]
    (mind / "msn.jl.gz").write_bytes(gzip.compress(items(*bad)))
    documents, reasons = read(mind, "mind")
    assert not documents
    assert reasons == [
        "empty",
        "null",
        "text is not a string",
        "fewer than 2 sentences",
        "nid not in news.tsv",
        "nid not in news.tsv",
        "no nid",
        "no nid",
        "no nid",
        "not UTF-8",
        "not JSON",
    ]


def test_mind_news_lines_that_give_no_label_are_listed(mind):
    (mind / "msn.json").write_bytes(items(FIRST))
    dev, train = mind / "MINDsmall_dev/news.tsv", mind / "MINDsmall_train/news.tsv"
    labels = labels_of(Corpus(source=str(mind), kind="mind"))
    uncrawled, columns = "news without a crawled body", "news not of 8 columns"
    # N1 is listed once though both folders have it, N9 not at all: it is another headline of N1's article.
    assert lines_of(labels) == [
        ("N1", *at(dev, GOOD), uncrawled, True),
        ("N2", *at(dev, CARRIAGE), uncrawled, True),
        (None, *at(dev, SHORT), columns, False),
        ("N3", *at(train, OLD), uncrawled, True),
        ("N4", *at(train, UNTITLED), uncrawled, True),
        ("N4", *at(train, UNTITLED), "news without a title", False),
        ("N5", *at(train, NO_BODY), uncrawled, True),
        (None, *at(train, BYTES), "not UTF-8", False),
        ("N8", *at(train, NO_URL), "news without an id or a URL", False),
    ]


def test_mind_bodies_without_news_are_refused(tmp_path):
    (tmp_path / "msn.json").write_bytes(items(FIRST))
    with pytest.raises(ValueError, match=r"corpus\.source = .*: bodies but no news\.tsv; add"):
        find_source(Corpus(source=str(tmp_path), kind="mind"))
    (tmp_path / "news.tsv").write_bytes(news(GOOD))
    with pytest.raises(ValueError, match=r"corpus\.source = .*: no documents .* add the crawler's bodies"):
        find_source(Corpus(source=str(tmp_path / "news.tsv"), kind="mind"))


LONG = 'Body of D1 with a "quote. A second sentence of it. \tA third after a tab.'
DOCS = [
    ["D1", "http://a", "Title one", LONG],
    ["D2", "http://b", "", "Second body. It has two."],
    ["D3", "http://c", "Title", "Third body. No query is of it.\r"],
    ["D4", "http://d", "Too few"],
    ["D5", "http://e", "Empty", ""],
    ["D6", "http://f", "One", "Just one."],
    ["", "http://g", "No id", "First. Second."],
    ["D7", "http://h", "In dev", "Dev body. It has two."],
]
TRAIN_QUERIES = ["1\tfirst query", "2\t second  query ", "3\tfirst query", "4\t", "broken", "5\tof no document"]
TRAIN_QUERIES += ["6\tidle", "1\tanother text", "2\tsecond query"]
DEV_QUERIES = ["70\tdev \"query'", "71\tof a missing document\r"]
TRAIN_QRELS = ["1 0 D1 1", "2\t0\tD1\t2", "3 0 D1 1", "2 0 D2 0", "1 0 D7 1", "99 0 D1 1", "5 0 D404 1"]
TRAIN_QRELS += ["1 0 D2", "1 0 D2 x"]
DEV_QRELS = ["70 0 D7 1", "71 0 D405 1", ""]


def write(path: Path, lines: list[str], bad: bytes = b"") -> Path:
    content = "".join(f"{line}\n" for line in lines).encode() + bad
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.fixture
def msmarco(tmp_path: Path) -> Path:
    write(tmp_path / "msmarco-docs.tsv", ["\t".join(doc) for doc in DOCS], bad=b"D8\thttp://i\t\xff\tOne. Two.\n")
    write(tmp_path / "msmarco-doctrain-queries.tsv", TRAIN_QUERIES, bad=b"8\t\xff\n")
    write(tmp_path / "msmarco-doctrain-qrels.tsv", TRAIN_QRELS, bad=b"8 0 \xff 1\n")
    write(tmp_path / "msmarco-docdev-queries.tsv.gz", DEV_QUERIES)
    write(tmp_path / "msmarco-docdev-qrels.tsv.gz", DEV_QRELS)
    write(tmp_path / "msmarco-docs-lookup.tsv.gz", ["D1\t0\t0"])
    write(tmp_path / "msmarco-doctrain-top100.gz", ["1 Q0 D1 1 -5 IndriQueryLikelihood"])
    return tmp_path


def test_msmarco_as_released(msmarco):
    documents, reasons = read(msmarco, "msmarco", valid_fraction=0.9, test_fraction=0.0)
    # Only the dev set's documents are valid, whatever corpus.valid_fraction says.
    assert documents == [
        {
            "doc_id": "D1",
            "split": "train",
            "sentences": ['Body of D1 with a "quote.', "A second sentence of it.", "A third after a tab."],
            "counterparts": ["first query", "second query"],
        },
        {"doc_id": "D2", "split": "train", "sentences": ["Second body.", "It has two."], "counterparts": []},
        {"doc_id": "D3", "split": "train", "sentences": ["Third body.", "No query is of it."], "counterparts": []},
        {
            "doc_id": "D7",
            "split": "valid",
            "sentences": ["Dev body.", "It has two."],
            "counterparts": ["dev \"query'", "first query"],
        },
    ]
    assert reasons == ["document not of 4 columns", "empty", "fewer than 2 sentences", "no id", "not UTF-8"]


def test_msmarco_label_lines_that_give_no_label_are_listed(msmarco):
    labels = labels_of(Corpus(source=str(msmarco), kind="msmarco"))
    found = [(doc_id, reason, label) for doc_id, _, _, reason, label in lines_of(labels)]
    missing = "qrels line of a missing document"
    wrong = "qrels line not of `query 0 document relevance`"
    assert found == [
        (None, "query without text", False),
        (None, "query not of 2 columns", False),
        (None, "query of an id that another has", False),
        (None, "not UTF-8", False),
        ("D7", missing, True),
        ("D405", missing, True),
        ("D1", missing, True),
        ("D1", missing, True),
        ("D1", missing, True),
        ("D7", missing, True),
        ("D1", "qrels line of a missing query", False),
        ("D404", missing, True),
        (None, wrong, False),
        (None, wrong, False),
        (None, "not UTF-8", False),
        (None, "query without a qrels line", False),
    ]
    *_, idle = lines_of(labels)
    assert idle[1:3] == at(msmarco / "msmarco-doctrain-queries.tsv", b"6\tidle")


def test_msmarco_without_a_dev_set_is_split_by_hash_and_with_one_between_train_and_test(msmarco):
    write(msmarco / "msmarco-docs.tsv", [f"D{i}\tu\tt\tOne body. Two." for i in range(100, 400)])
    with_dev, _ = read(msmarco, "msmarco", valid_fraction=0.3, test_fraction=0.3)
    names = [f"D{i}" for i in range(100, 400)]
    assert {d["doc_id"]: d["split"] for d in with_dev} == {name: draw_split(name, 0, 0.3) for name in names}
    for file in msmarco.glob("msmarco-docdev-*"):
        file.unlink()
    without, _ = read(msmarco, "msmarco", valid_fraction=0.3, test_fraction=0.3)
    assert {d["doc_id"]: d["split"] for d in without} == {name: draw_split(name, 0.3, 0.3) for name in names}
    assert {d["split"] for d in without} == {"train", "valid", "test"}


def test_msmarco_without_labels_is_allowed_and_with_half_of_them_refused(msmarco, capsys):
    for file in msmarco.glob("*-qrels.tsv*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"corpus\.source = .*queries\.tsv\.gz but no msmarco-doc\*-qrels\.tsv; add"):
        find_source(Corpus(source=str(msmarco), kind="msmarco"))
    documents, _ = read(msmarco / "msmarco-docs.tsv", "msmarco")
    assert [d["doc_id"] for d in documents] == ["D1", "D2", "D3", "D7"]
    assert not any(d["counterparts"] for d in documents)
    assert "no document has a counterpart" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["mind", "msmarco", "browsing"])
def test_large_files_are_cut_into_pieces_and_every_line_is_read_once(mind, tmp_path, kind, monkeypatch):
    count = 200
    if kind == "msmarco":
        where = write(tmp_path / "msmarco-docs.tsv", [f"D{i}\tu\tt\tBody {i}. Second." for i in range(count)])
    elif kind == "browsing":
        where = write(tmp_path / "a.tsv", ["history\tn", *(f"Body {i}.||Second.\t{i}" for i in range(count))])
    else:
        where = mind
        (mind / "news.tsv").write_bytes(news(*(news_line(f"N{i}", "t", URL.format(f"M{i}")) for i in range(count))))
        (mind / "msn.json").write_bytes(items(*({"nid": f"M{i}", "body": f"Body {i}. Second."} for i in range(count))))
    monkeypatch.setattr(source_module, "_PIECE_BYTES", 300)
    assert len(find_source(Corpus(source=str(where), kind=kind)).pieces) > 10
    documents, reasons = read(where, kind)
    assert not reasons
    assert [d["sentences"][0] for d in documents] == [f"Body {i}." for i in range(count)]


HISTORY = ["Home | Shop", " Sofas  | Shop", "Sofas | Shop", None, "", "Sofas | Shop", "Bikes. And more!", "Home | Shop"]
TITLES = ["Home | Shop", "Sofas | Shop", "Bikes. And more!", "Home | Shop"]


def test_browsing_json_lines(tmp_path):
    rows = [
        {"user": "u1", "history": HISTORY, "target": "Bicycle advertisement"},
        {"user": "u1", "history": HISTORY, "target": None},
        {"user": "u2", "history": ["Reloaded", "Reloaded", " Reloaded "]},
        {"user": "u2", "history": "Home||Sofas"},
        {"user": "u2", "history": [1, 2]},
        {"user": "u2"},
        {"user": "u3", "history": ["One page", "Two pages"], "target": ["First", "Second", "First"]},
    ]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode() + b'{"history": ["\xff", "b"]}\n'
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content))
    documents, reasons = read(tmp_path, "browsing")
    assert [d["sentences"] for d in documents] == [TITLES, TITLES, ["One page", "Two pages"]]
    assert [d["counterparts"] for d in documents] == [["Bicycle advertisement"], [], ["First", "Second"]]
    # Equal sequences of two visits are two documents.
    assert len({d["doc_id"] for d in documents}) == 3
    no_list = "sentences are not a list of strings"
    assert reasons == ["fewer than 2 sentences", no_list, no_list, "null", "not UTF-8"]


def test_browsing_ids_are_the_same_wherever_the_files_are(tmp_path):
    ids = []
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
        for name in ("a.jsonl", "b.jsonl"):
            (tmp_path / place / name).write_text(json.dumps({"history": ["One", "Two"]}))
        ids.append([d["doc_id"] for d in read(tmp_path / place, "browsing")[0]])
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 2


def test_browsing_columns_are_named_by_the_settings(tmp_path):
    row = {
        "visit": 7,
        "titles": ["One", "Two"],
        "click": "Advertisement",
        "history": ["Other", "Pages"],
        "split": "dev",
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    documents, _ = read(tmp_path, "browsing", id="visit", sentences="titles", counterpart="click")
    assert documents == [
        {"doc_id": "7", "split": "valid", "sentences": ["One", "Two"], "counterparts": ["Advertisement"]}
    ]


def test_browsing_tsv_has_a_header_and_titles_in_a_cell(tmp_path):
    lines = [
        "user\thistory\ttarget",
        f"u1\t{json.dumps(HISTORY)}\tBicycle advertisement",
        'u1\t"Home | Shop || Sofas | Shop||Sofas | Shop\t"quoted"\r',
        "u2\tOne title only\tTarget",
        "u2\tOne||Two",
        'u2\t["broken", "list\tTarget',
        "u2\t\tTarget",
        "u3\t[Brackets] are a title || Two\t",
    ]
    write(tmp_path / "a.tsv", lines, bad=b"u4\tOne||\xff\tTarget\n")
    documents, reasons = read(tmp_path, "browsing")
    assert [(d["sentences"], d["counterparts"]) for d in documents] == [
        (TITLES, ["Bicycle advertisement"]),
        (['"Home | Shop', "Sofas | Shop"], ['"quoted"']),
        (["[Brackets] are a title", "Two"], []),
    ]
    assert reasons == [
        "fewer than 2 sentences",
        "not as many columns as the header",
        "sentences are not a list of strings",
        "null",
        "not UTF-8",
    ]


def test_browsing_with_another_separator_or_no_titles_is_refused(tmp_path):
    write(tmp_path / "a.tsv", ["history\ttarget", "One;Two\tTarget", "Three;Four\tTarget"])
    with pytest.raises(ValueError, match=r"corpus\.sentences = 'history': .*a\.tsv: no cell .* titles by ` \|\| `"):
        find_source(Corpus(source=str(tmp_path), kind="browsing"))
    write(tmp_path / "a.tsv", ["pages\ttarget", "One||Two\tTarget"])
    with pytest.raises(ValueError, match=r"corpus\.sentences: .*no column `history`; .* of pages, target, with"):
        find_source(Corpus(source=str(tmp_path), kind="browsing"))
    with pytest.raises(ValueError, match=r"corpus\.counterpart = 'click': .*no such column; there is pages, target"):
        find_source(Corpus(source=str(tmp_path), kind="browsing", sentences="pages", counterpart="click"))
    (tmp_path / "b.jsonl").write_text('{"history": ["One", "Two"]}')
    with pytest.raises(ValueError, match=r"several kinds \(jsonl, tsv\)"):
        find_source(Corpus(source=str(tmp_path), kind="browsing"))


@pytest.mark.parametrize("role", ["id", "text", "sentences", "counterpart", "split"])
@pytest.mark.parametrize("kind", ["mind", "msmarco"])
def test_columns_of_published_files_have_no_names_to_set(mind, msmarco, kind, role):
    (mind / "msn.json").write_bytes(items(FIRST))
    with pytest.raises(ValueError, match=rf"corpus\.{role} = 'c': corpus\.kind = {kind} has no such column to name"):
        find_source(Corpus.model_validate({"source": str(mind), "kind": kind, role: "c"}))


def test_titles_are_not_named_as_a_text(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"history": ["One", "Two"]}')
    with pytest.raises(ValueError, match=r"corpus\.text = 'history': corpus\.kind = browsing has no such column"):
        find_source(Corpus(source=str(tmp_path), kind="browsing", text="history"))


@pytest.mark.parametrize("kind", ["mind", "msmarco", "browsing"])
def test_files_of_no_part_are_passed_over_in_a_folder_and_refused_by_name(tmp_path, kind):
    (tmp_path / "a.parquet").write_bytes(b"")
    with pytest.raises(
        ValueError, match="no such file, but 1 of other kinds; give an existing path, glob or folder of "
    ):
        find_source(Corpus(source=str(tmp_path), kind=kind))
    with pytest.raises(ValueError, match=r"a\.parquet: unknown kind of file; use "):
        find_source(Corpus(source=str(tmp_path / "a.parquet"), kind=kind))


def test_files_that_go_with_the_documents_name_another_source(mind):
    (mind / "msn.json").write_bytes(items(FIRST))
    corpus = Corpus(source=str(mind), kind="mind")
    before = find_source(corpus)
    (mind / "MINDsmall_dev" / "behaviors.tsv").write_bytes(b"other clicks\n")
    assert find_source(corpus).fingerprint == before.fingerprint
    (mind / "MINDsmall_dev" / "news.tsv").write_bytes(news(GOOD, CARRIAGE))
    assert find_source(corpus).fingerprint != before.fingerprint
    assert [piece.kind for piece in before.companions] == ["news", "news"]
    assert before.text_bytes == (mind / "msn.json").stat().st_size


@pytest.mark.parametrize("kind", ["mind", "msmarco"])
def test_a_label_file_that_can_not_be_read_is_named(mind, msmarco, kind):
    (mind / "msn.json").write_bytes(items(FIRST))
    broken = mind / ("news.tsv.gz" if kind == "mind" else "msmarco-docdev-qrels.tsv.gz")
    broken.write_bytes(b"no gzip")
    with pytest.raises(UnreadableFile, match=f"corpus.source: {broken}: can't be read"):
        labels_of(Corpus(source=str(mind), kind=kind))


def test_labels_are_found_by_name_also_where_hashes_are_equal(monkeypatch):
    monkeypatch.setattr("infocse_ray.corpus.labels.stable_hash", lambda name: stable_hash(name) % 7)
    writer = LabelWriter()
    for i in range(40):
        writer.add(f"n{i}", f"d{i}", f"text {i}")
        writer.add(f"n{i}", "later", f"text {i}")
        writer.add(f"n{i}", "later", f"more {i % 3}", "valid" if i % 2 else None)
    labels = writer.labels()
    for i in range(40):
        expected = (f"d{i}", [f"text {i}", f"more {i % 3}"], "valid" if i % 2 else None)
        assert tuple(labels.find(f"n{i}") or ()) == expected
    assert labels.find("n40") is None
    assert LabelWriter().labels().find("n0") is None


@pytest.mark.skipif(not SHARED.is_dir(), reason="no stand-in corpora beside the repository")
def test_a_stand_in_for_web_browsing_loads():
    where = SHARED / "wikispeedia" / "sequences.jsonl.gz"
    documents, reasons = read(where, "browsing")
    with gzip.open(where, "rt") as lines:
        rows = [json.loads(line) for line in lines]
    kept = [row for row in rows if any(a != b for a, b in zip(row["history"], row["history"][1:], strict=False))]
    assert len(documents) == len(kept) == len(rows) - len(reasons)
    assert set(reasons) == {"fewer than 2 sentences"}
    assert len({d["doc_id"] for d in documents}) == len(documents), "equal sequences of two people stay apart"
    assert [d["counterparts"] for d in documents] == [[" ".join(row["target"].split())] for row in kept]
    assert {d["split"] for d in documents} == {"train", "valid", "test"}
