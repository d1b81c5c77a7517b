import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from infocse_ray.corpus.documents import Rejected, batches_of, document_of, tokenise_rows, tokenised_schema
from infocse_ray.corpus.read import SourceRow
from infocse_ray.corpus.schema import SPLITS, draw_split, shard_of, stable_hash, token_type
from infocse_ray.corpus.store import counterparts_of
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import Tokens, bounded_ranges, concatenate, flat, offsets_of, tokens_of
from infocse_ray.settings import Corpus

CORPUS = Corpus(source="a", max_document_sentences=4, max_sentence_chars=20)


def document(corpus: Corpus = CORPUS, **values) -> dict:
    return document_of(values, corpus)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"text": None}, "null"),
        ({}, "null"),
        ({"sentences": None}, "null"),
        ({"text": ""}, "empty"),
        ({"text": " \n\t "}, "empty"),
        ({"sentences": []}, "empty"),
        ({"sentences": ["", None, "  "]}, "empty"),
        ({"text": "Only one."}, "fewer than 2 sentences"),
        ({"sentences": ["Only one.", "  ", None]}, "fewer than 2 sentences"),
        ({"sentences": ["a", "b", "c", "d", "e"]}, "more than 4 sentences"),
        ({"text": "A one. A two. A three. A four. A five."}, "more than 4 sentences"),
        ({"sentences": ["a", "b" * 21]}, "a sentence of more than 20 characters"),
        ({"text": f"A one. {'b' * 21}."}, "a sentence of more than 20 characters"),
        ({"text": 3}, "text is not a string"),
        ({"text": ["A one.", "A two."]}, "text is not a string"),
        ({"sentences": "A one. A two."}, "sentences are not a list of strings"),
        ({"sentences": ["a", 3]}, "sentences are not a list of strings"),
        ({"text": json.loads(r'"A one \ud800. A two."')}, "not UTF-8"),
        ({"sentences": ["a", "\ud800"]}, "not UTF-8"),
        ({"sentences": ["a", "b"], "counterpart": "\udfff"}, "not UTF-8"),
        ({"sentences": ["a", "b"], "counterpart": ["a", "\udfff"]}, "not UTF-8"),
        ({"sentences": ["a", "b"], "id": "\ud800"}, "not UTF-8"),
        ({"sentences": ["a", "b"], "id": None}, "no id"),
        ({"sentences": ["a", "b"], "id": ""}, "no id"),
        ({"sentences": ["a", "b"], "id": float("nan")}, "no id"),
        ({"sentences": ["a", "b"], "id": [1]}, "no id"),
        ({"sentences": ["a", "b"], "id": {"a": 1}}, "no id"),
        ({"sentences": ["a", "b"], "split": "holdout"}, "split is none of train, valid, test"),
        ({"sentences": ["a", "b"], "split": 3}, "split is none of train, valid, test"),
    ],
)
def test_row_is_set_aside_with_a_reason(values: dict, reason: str):
    with pytest.raises(Rejected) as rejected:
        document_of(values if "id" in values else {"id": "a", **values}, CORPUS)
    assert str(rejected.value) == reason


@pytest.mark.parametrize("nothing", ["\u200b", "\ufeff\u00ad ", "\x00\u2028"])
def test_what_shows_nothing_is_no_sentence(nothing: str):
    """Tokenizers leave no token of zero-width spaces and soft hyphens, of which scraped pages have paragraphs."""
    document = document_of({"sentences": ["One.", nothing, "Two."], "counterpart": [nothing, "A."]}, CORPUS)
    assert (document["sentences"], document["counterparts"]) == (["One.", "Two."], ["A."])
    assert document_of({"text": f"One.\n\n{nothing}\n\nTwo."}, CORPUS)["sentences"] == ["One.", "Two."]
    with pytest.raises(Rejected, match="empty"):
        document_of({"text": f"{nothing}\n\n{nothing}\n\n{nothing}"}, CORPUS)


def test_caps_are_the_most_that_is_kept():
    assert len(document(sentences=["a", "b", "c", "d"])["sentences"]) == 4
    assert document(sentences=["a", "b" * 20])["sentences"][1] == "b" * 20


def test_min_sentences_is_a_setting():
    corpus = Corpus(source="a", min_sentences=3)
    with pytest.raises(Rejected, match="fewer than 3 sentences"):
        document(corpus, sentences=["a", "b"])
    assert len(document(corpus, sentences=["a", "b", "c"])["sentences"]) == 3


def test_text_is_split_and_sentences_are_kept_as_they_are():
    assert document(text="A one. A two.")["sentences"] == ["A one.", "A two."]
    assert document(sentences=["A one. A two.", None, " b\n c "])["sentences"] == ["A one. A two.", "b c"]


def test_surrogate_pairs_are_fine():
    assert document(sentences=[json.loads(r'"\ud83d\ude00"'), "b"])["sentences"][0] == "\U0001f600"


@pytest.mark.parametrize(
    ("given_id", "doc_id"),
    [
        *[(7, "7"), (0, "0"), (-3, "-3"), (2**70, str(2**70)), ("ü", "ü"), ("1.0", "1.0")],
        *[(1.0, "1"), (1e16, str(10**16)), (2.5, "2.5")],
    ],
)
def test_ids_are_kept_as_text(given_id, doc_id: str):
    assert document(id=given_id, sentences=["a", "b"])["doc_id"] == doc_id


def test_without_an_id_the_content_names_the_document():
    one = document(sentences=["a", "b"])["doc_id"]
    assert len(one) == 16
    assert document(sentences=[" a", "b\n"])["doc_id"] == one
    assert document(sentences=["a b"] * 2)["doc_id"] != one
    assert document(sentences=["b", "a"])["doc_id"] != one


@pytest.mark.parametrize(
    ("given_split", "split"),
    [
        ("train", "train"),
        ("training", "train"),
        ("valid", "valid"),
        ("dev", "valid"),
        ("validation", "valid"),
        (" Test ", "test"),
        ("DEV", "valid"),
    ],
)
def test_names_of_splits(given_split: str, split: str):
    assert document(sentences=["a", "b"], split=given_split)["split"] == split


@pytest.mark.parametrize("null", [None, float("nan")])
def test_split_that_is_null_is_drawn(null: float | None):
    drawn = {i: document(id=i, sentences=["a", "b"], split=null)["split"] for i in range(200)}
    assert drawn == {i: draw_split(str(i), CORPUS.valid_fraction, CORPUS.test_fraction) for i in range(200)}
    assert set(drawn.values()) == set(SPLITS)


@pytest.mark.parametrize("counterpart", [None, "", "  ", 3, [], ["", None, 3, ["a"]], {"a": 1}])
def test_what_is_no_text_is_no_counterpart(counterpart):
    assert document(sentences=["a", "b"], counterpart=counterpart)["counterparts"] == []


def test_counterparts_have_single_spaces():
    assert document(sentences=["a", "b"], counterpart=" a\n query ")["counterparts"] == ["a query"]


def test_several_counterparts_are_kept_once_each_in_their_order():
    several = ["b query", " a  query", None, "", "a query", "b\nquery", "c"]
    assert document(sentences=["a", "b"], counterpart=several)["counterparts"] == ["b query", "a query", "c"]


@pytest.mark.parametrize(("valid", "test"), [(0.1, 0.1), (0.3, 0.05), (0.0, 0.2), (0.5, 0.5), (0.0, 0.0)])
def test_drawn_splits_have_about_the_fractions_asked_for(valid: float, test: float):
    n = 20_000
    drawn = Counter(draw_split(f"doc-{i}", valid, test) for i in range(n))
    for split, share in (("valid", valid), ("test", test), ("train", 1 - valid - test)):
        # Five standard deviations.
        assert abs(drawn[split] - n * share) <= 5 * (n * share * (1 - share)) ** 0.5
    assert sum(drawn.values()) == n


def test_drawn_splits_and_hashes_never_change():
    # They decide which documents a finished store holds where, so that a changed value is a changed format.
    assert [draw_split(f"doc-{i}", 0.3, 0.3) for i in range(8)] == [
        *("train", "test", "valid", "test", "train", "train", "train", "test")
    ]
    assert stable_hash("doc-0") == 8271447667166624144


def test_a_larger_validation_split_keeps_the_smaller_one():
    small = {i for i in range(1000) if draw_split(str(i), 0.1, 0.1) == "valid"}
    large = {i for i in range(1000) if draw_split(str(i), 0.2, 0.1) == "valid"}
    assert small < large


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1), st.integers(1, 10_000))
def test_shards_are_ranges_of_the_hash(keys: list[int], shards: int):
    placed = [shard_of(key, shards) for key in sorted(keys)]
    assert placed == sorted(placed)
    assert placed[0] >= 0
    assert placed[-1] < shards
    assert shard_of(0, shards) == 0
    assert shard_of(2**63 - 1, shards) == shards - 1


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_hash_has_63_bits_and_a_salt(text: str):
    assert 0 <= stable_hash(text) < 2**63
    assert stable_hash(text) == stable_hash(text) != stable_hash(text, "salt")


@pytest.mark.parametrize(
    ("vocabulary", "kind"),
    [
        (256, pa.uint8()),
        (257, pa.uint16()),
        (2**16, pa.uint16()),
        (2**16 + 1, pa.uint32()),
        (250_002, pa.uint32()),
    ],
)
def test_smallest_type_that_holds_every_id(vocabulary: int, kind: pa.DataType):
    assert token_type(vocabulary) == kind
    assert np.iinfo(kind.to_pandas_dtype()).max >= vocabulary - 1


@pytest.fixture(scope="module")
def tokenizer(tiny_encoder) -> Tokenizer:
    return Tokenizer.from_file(str(tiny_encoder / "tokenizer.json"))


def tokenised(rows: list[SourceRow], tokenizer: Tokenizer, token: pa.DataType | None = None) -> pa.Table:
    ready = CorpusTokenizer(tokenizer.to_str()).ready()
    return tokenise_rows(rows, "some/file", 3, CORPUS, ready, token or pa.uint8(), shards=8)


def test_tokens_are_the_ids_of_the_tokenizer(tokenizer):
    bodies = [["Wave over tide.", "a judge"], ["bread 42", "x, y", "Salt"], ["a", "b"]]
    labels = [["Old ship", "A moon"], None, "Salt"]
    rows = [
        SourceRow(i, {"id": str(i), "sentences": b, "counterpart": c}, None)
        for i, (b, c) in enumerate(zip(bodies, labels, strict=True))
    ]
    table = tokenised(rows, tokenizer)

    def ids_of(texts: list[str]) -> list[list[int]]:
        return [tokenizer.encode(s, add_special_tokens=False).ids for s in texts]

    ids = [ids_of(body) for body in bodies]
    assert table["sentences"].to_pylist() == ids
    assert table["counterparts"].to_pylist() == [ids_of(["Old ship", "A moon"]), [], ids_of(["Salt"])]
    assert table["counterpart_keys"].to_pylist() == [
        [stable_hash("Old ship"), stable_hash("A moon")],
        [],
        [stable_hash("Salt")],
    ]
    found = counterparts_of(table)
    assert found.document.tolist() == [0, 0, 2]
    assert found.keys.tolist() == [stable_hash(text) for text in ("Old ship", "A moon", "Salt")]
    assert unpack(found.tokens) == ids_of(["Old ship", "A moon", "Salt"])
    sentences, offsets = flat(table["sentences"])
    assert offsets.tolist() == [0, 2, 5, 7]
    assert [t.tolist() for t in np.split(*flat_tokens(sentences))] == [s for body in ids for s in body]


def flat_tokens(sentences: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    tokens = tokens_of(sentences)
    return tokens.values, tokens.offsets[1:-1]


@pytest.mark.parametrize("token", [pa.uint8(), pa.uint16(), pa.uint32()])
def test_tokens_are_kept_in_the_type_asked_for(tokenizer, token: pa.DataType):
    table = tokenised([SourceRow(0, {"id": "a", "sentences": ["wave", "tide"]}, None)], tokenizer, token)
    assert table.schema == tokenised_schema(token)
    assert tokens_of(flat(table["sentences"])[0]).values.dtype == token.to_pandas_dtype()


def test_rows_set_aside_keep_their_place_and_have_no_tokens(tokenizer):
    rows = [
        SourceRow(0, {"id": "a", "sentences": ["wave", "tide"], "split": "dev"}, None),
        SourceRow(17, None, "not JSON"),
        SourceRow(30, {"id": 5, "sentences": ["wave"]}, None),
        SourceRow(40, {"id": "\ud800", "sentences": ["wave", "tide"]}, None),
        SourceRow(50, {"id": 7.0, "sentences": ["wave"]}, None),
        SourceRow(60, {"id": float("nan"), "sentences": ["wave"]}, None),
    ]
    table = tokenised(rows, tokenizer).to_pylist()
    assert [row["reason"] for row in table] == [
        *(None, "not JSON", "fewer than 2 sentences", "not UTF-8", "fewer than 2 sentences", "fewer than 2 sentences")
    ]
    assert [row["doc_id"] for row in table] == ["a", None, "5", "?", "7", None]
    assert [(row["file"], row["order"], row["row"]) for row in table] == [
        ("some/file", 3, n) for n in (0, 17, 30, 40, 50, 60)
    ]
    for column in ("sentences", "counterparts", "counterpart_keys"):
        assert [row[column] is None for row in table] == [False] + [True] * 5
    assert [row["split"] for row in table] == ["valid"] + [None] * 5
    assert table[0]["key"] == stable_hash("a")
    assert all(row["shard"] == shard_of(row["key"], 8) for row in table)


def test_only_rows_set_aside(tokenizer):
    table = tokenised([SourceRow(0, None, "not JSON")], tokenizer)
    assert table.schema == tokenised_schema(pa.uint8())
    assert table["sentences"].to_pylist() == [None]


@given(st.lists(st.lists(st.text(max_size=30) | st.none(), max_size=5), max_size=40), st.integers(1, 60))
def test_batches_hold_every_row_once_and_end_when_full(bodies: list[list[str | None]], most: int):
    rows = [
        SourceRow(i, {"sentences": body} if i % 3 else {"text": body and body[0]}, None)
        for i, body in enumerate(bodies)
    ]

    def size(row: SourceRow) -> int:
        (value,) = (row.values or {}).values()
        return sum(len(s or "") for s in value) if isinstance(value, list) else len(value or "")

    batches = list(batches_of(iter(rows), most))
    assert [row for batch in batches for row in batch] == rows
    assert all(batch for batch in batches)
    assert all(sum(map(size, batch[:-1])) < most for batch in batches)
    assert all(sum(map(size, batch)) >= most for batch in batches[:-1])


def test_batches_of_short_rows_are_bounded():
    rows = [SourceRow(i, None, "not JSON") for i in range(10_000)]
    assert max(map(len, batches_of(iter(rows), 2**20))) <= 4096


ragged = st.lists(st.lists(st.integers(0, 2**16 - 1), max_size=6), min_size=1, max_size=12)


def pack(rows: list[list[int]]) -> Tokens:
    values = np.array([v for row in rows for v in row], np.uint16)
    return Tokens(values, offsets_of(np.array([len(row) for row in rows])))


def unpack(tokens: Tokens) -> list[list[int]]:
    return [tokens.values[a:b].tolist() for a, b in zip(tokens.offsets[:-1], tokens.offsets[1:], strict=True)]


@given(ragged, st.data())
def test_take_is_that_of_a_list(rows: list[list[int]], data: st.DataObject):
    index = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    taken = pack(rows).take(np.array(index, np.int64))
    assert unpack(taken) == [rows[i] for i in index]
    assert taken.values.dtype == np.uint16


@given(ragged, st.integers(0, 7))
def test_cut_is_that_of_a_list(rows: list[list[int]], length: int):
    cut = pack(rows).cut(length)
    assert unpack(cut) == [row[:length] for row in rows]
    assert cut.lengths.tolist() == [min(len(row), length) for row in rows]


@given(st.lists(ragged, min_size=1, max_size=4))
def test_concatenate_is_that_of_lists(parts: list[list[list[int]]]):
    joined = concatenate([pack(rows) for rows in parts])
    assert unpack(joined) == [row for rows in parts for row in rows]
    assert len(joined) == sum(map(len, parts))


@given(ragged, st.data())
def test_hashes_are_equal_where_rows_are(rows: list[list[int]], data: st.DataObject):
    # Near misses: the order, the length, a zero more, the same sum.
    rows = rows + [row[::-1] for row in rows] + [[*row, 0] for row in rows] + [row[:1] + row for row in rows]
    rows = data.draw(st.permutations(rows))
    hashes = pack(rows).hashes()
    assert hashes.dtype == np.int64
    assert len(set(hashes.tolist())) == len({tuple(row) for row in rows})
    assert [pack([row]).hashes()[0] for row in rows] == hashes.tolist()


def test_hashes_do_not_depend_on_the_integer_type():
    small = Tokens(np.array([1, 2, 3], np.uint8), np.array([0, 1, 3]))
    assert (small.hashes() == Tokens(small.values.astype(np.uint32), small.offsets).hashes()).all()


def test_hashes_of_many_rows_do_not_collide():
    rows = [[i, j] for i in range(300) for j in range(300)]
    assert len(set(pack(rows).hashes().tolist())) == len(rows)


@given(ragged, st.data())
def test_arrays_of_a_slice_are_those_of_its_rows(rows: list[list[int]], data: st.DataObject):
    first = data.draw(st.integers(0, len(rows)))
    column = pa.array(rows, pa.list_(pa.uint16())).slice(first)
    assert unpack(tokens_of(column)) == rows[first:]
    assert unpack(tokens_of(pa.chunked_array([column, column]))) == rows[first:] * 2


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 12))
def test_bounded_ranges_cover_every_document_within_the_bound(lengths: list[int], most: int):
    offsets = offsets_of(np.array(lengths, np.int64))
    ranges = list(bounded_ranges(offsets, most))
    assert [i for first, last in ranges for i in range(first, last)] == list(range(len(lengths)))
    assert all(sum(lengths[first:last]) <= most or last == first + 1 for first, last in ranges)
    # No range could have taken the next document too.
    assert all(sum(lengths[first : last + 1]) > most for first, last in ranges[:-1])
