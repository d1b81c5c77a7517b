"""Questions whose rank changed most, and their texts out of the token store."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from infocse_ray.corpus.schema import stable_hash
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.retrieval.examples import Example, Texts, decoded, examples, moves
from infocse_ray.settings.text import plain
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.parquet import open_parquet, write_parquet
from tests.unit.retrieval.test_questions import stage
from tests.unit.stores import Written, write_store

WORDS = ["[UNK]", *"abcdefghijklmnopqrstuvwxyz"]


def tokenizer(words: list[str] = WORDS) -> CorpusTokenizer:
    return CorpusTokenizer(Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]")).to_str())


def ids(text: str, words: list[str] = WORDS) -> list[int]:
    return [words.index(word) for word in text.split()]


def hash_of(text: str, words: list[str] = WORDS) -> int:
    row = np.array(ids(text, words), np.uint16)
    return int(Tokens(row, np.array([0, len(row)])).hashes()[0])


TEXTS = {f"d{i}": [f"{a} {b}", f"{b} {c}", f"{c} {a}"] for i, (a, b, c) in enumerate(["abc", "def", "ghi", "jkl"])}
LABELS = {"d0": "x", "d1": "y", "d2": "z", "d3": "w"}


def written(split: str = "test", words: list[str] = WORDS) -> list[Written]:
    return [
        Written(d, [ids(s, words) for s in sentences], (), [ids(LABELS[d], words)], split if d != "d3" else "train")
        for d, sentences in TEXTS.items()
    ]


@pytest.fixture
def root(tmp_path) -> Storage:
    return Storage.open(str(tmp_path))


def key(label: str) -> int:
    """As `write_store` has it."""
    return stable_hash(repr(ids(label)))


def ranks(root: Storage, name: str, rows: dict[tuple[str, int], tuple[int, int]]) -> Storage:
    """An evaluate stage with so many ranks and keys found first."""
    folder = stage(root / name, {question: rank for question, (rank, _) in rows.items()}, 1)
    [part] = (folder / "ranks").files()
    with open_parquet(folder / "ranks" / part) as file:
        table = file.read()
    table = table.set_column(3, "top_key", [[top for _, top in rows.values()]])
    write_parquet(folder / "ranks" / part, table, [len(table)])
    return folder


def test_a_prompt_among_a_counterparts_tokens_is_not_shown(root):
    store = write_store(root / "store", written(), 2, group=1)
    x, w = key("x"), key("w")
    before, after = (ranks(root, name, {("d0", x): (rank, w)}) for name, rank in (("before", 9), ("after", 2)))
    prompted = tokenizer()._replace(prompt="x")
    [found] = examples(before, after, Texts(store, prompted, "test", "counterpart"))
    assert (found.true, found.tops) == ("", (["w"], ["w"]))
    assert found.document == "a b b c c a"


def test_counterparts_that_climbed_or_fell_most(root):
    store = write_store(root / "store", written(), 2, group=1)
    x, y, z, w = (key(label) for label in "xyzw")
    before = ranks(root, "before", {("d0", x): (9, w), ("d1", y): (300, w), ("d2", z): (1, z)})
    after = ranks(root, "after", {("d0", x): (1, x), ("d1", y): (200, x), ("d2", z): (40, y)})
    found = examples(before, after, Texts(store, tokenizer(), "test", "counterpart"), count=2)
    assert found == [
        Example("d2", "g h h i i g", "z", (1, 40), (["z"], ["y"])),
        Example("d0", "a b b c c a", "x", (9, 1), (["w"], ["x"])),
    ]
    assert found[1].lines() == [
        "d0: a b b c c a",
        "  must find: x",
        "  before, rank 9; found first: w",
        "  now, rank 1; found first: x",
    ]
    assert examples(before, before, Texts(store, tokenizer(), "test", "counterpart")) == []


def test_sentences_under_tokenizers_of_their_own(root):
    other = ["[UNK]", *reversed(WORDS[1:])]
    store, store_after = (write_store(root / n, written(words=w), 2) for n, w in (("a", WORDS), ("b", other)))
    before = ranks(root, "before", {("d0", 1): (8, hash_of("d e")), ("d0", 2): (4, 1), ("d1", 0): (5, 1)})
    after = ranks(root, "after", {("d0", 1): (1, hash_of("b c", other)), ("d0", 2): (1, 1), ("d2", 0): (5, 1)})
    texts = Texts(store, tokenizer(), "test", "sentence")
    [found] = examples(before, after, texts, Texts(store_after, tokenizer(other), "test", "sentence"))
    # One of a document, and only what both were asked.
    assert found == Example("d0", "a b c a", "b c", (8, 1), (["d e"], ["b c"]))


def test_three_that_were_found_first_and_how_many_moved(root):
    store = write_store(root / "store", written(), 2)
    x, y, z, w = (key(label) for label in "xyzw")
    before = ranks(root, "before", {("d0", x): (9, w), ("d1", y): (2, y), ("d2", z): (1, z)})
    after = ranks(root, "after", {("d0", x): (2, y), ("d1", y): (3, y), ("d2", z): (1, z)})
    [part] = (after / "ranks").files()
    with open_parquet(after / "ranks" / part) as file:
        table = file.read()
    for name, tops in (("second_key", [x, w, w]), ("third_key", [z, 0, 0])):
        table = table.append_column(name, [tops])
    write_parquet(after / "ranks" / part, table, [len(table)])
    texts = Texts(store, tokenizer(), "test", "counterpart")
    first, second = examples(before, after, texts)
    assert first.tops == (["w"], ["y", "x", "z"])
    assert second.tops[1] == ["y", "w"]
    assert first.content() == {
        "doc_id": "d0",
        "document": "a b b c c a",
        "true": "x",
        "ranks": [9, 2],
        "tops": [
            [{"text": "w", "true": False}],
            [{"text": "y", "true": False}, {"text": "x", "true": True}, {"text": "z", "true": False}],
        ],
    }
    assert moves(before, after) == (1, 1, 1)


def test_halves(root):
    store = write_store(root / "store", written(), 2)
    d0, d1 = stable_hash("d0"), stable_hash("d1")
    before, after = ranks(root, "before", {("d0", d0): (2, d1)}), ranks(root, "after", {("d0", d0): (1, d0)})
    found = examples(before, after, Texts(store, tokenizer(), "test", "halves"))
    assert found == [Example("d0", "a b c a", "b c", (2, 1), (["e f"], ["b c"]))]


def test_readings(root):
    store = write_store(root / "store", written(), 2)
    d0, d1 = stable_hash("d0"), stable_hash("d1")
    before, after = ranks(root, "before", {("d0", d0): (2, d1)}), ranks(root, "after", {("d0", d0): (1, d0)})
    [found] = examples(before, after, Texts(store, tokenizer(), "test", "readings"))
    assert (found.document, found.true, found.ranks) == ("a b b c c a", "a b b c c a", (2, 1))


def test_texts_obey_no_terminal():
    evil = "red \x1b[31mtext\x07\r\n\u202eback\u2028wards"
    lines = Example(evil, evil, evil, (1, 2), ([evil], [evil])).lines()
    assert all(line.isprintable() for line in lines)
    assert plain("a\tb\nc", 99) == "a b c"
    assert plain("word " * 50, 20) == "word word word w ..."
    assert len(plain("x" * 50, 20)) == 20


def test_word_pieces_are_put_together():
    words = ["[UNK]", "don", "'", "t", "(", "a", ")", "os", ".", "path", "##s"]
    made = Tokenizer(models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    made.decoder = decoders.WordPiece()
    tokens = Tokens(np.arange(1, 11), np.array([0, 6, 10]))
    assert decoded(made, tokens) == ["don't (a)", "os.paths"]


def test_what_is_unknown_is_shown_where_it_stands():
    made = Tokenizer(models.WordPiece({"[UNK]": 0, "ship": 1}, unk_token="[UNK]"))
    made.add_special_tokens(["[UNK]"])
    made.decoder = decoders.WordPiece()
    assert decoded(made, Tokens(np.array([0, 1, 0, 0]), np.array([0, 3, 4]))) == ["[UNK] ship [UNK]", "[UNK]"]
