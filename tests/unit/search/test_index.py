"""An index opened: with the encoder that made it, or not at all; the command around it."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from transformers import BertConfig, BertModel

import infocse_ray
from infocse_ray.corpus import tokenizer
from infocse_ray.corpus.store import shard_name
from infocse_ray.encoder import model
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.texts import tokenised
from infocse_ray.errors import DamagedFile
from infocse_ray.search.hit import Hit
from infocse_ray.search.index import Index
from infocse_ray.search.searched import search
from infocse_ray.search.sides import Placed, search_sides
from infocse_ray.settings.command_line import parse
from infocse_ray.settings.search import Search
from tests.unit.indexes import TEXTS, Text, tiny, write_index

pytest.importorskip("lance")


def test_a_query_has_the_encoders_query_prompt(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder, query_prompt="ship : ")))
    encoder = tiny(tiny_encoder, query_prompt="ship : ").eval()
    tokens = tokenised(encoder, ["the tide"])
    asked, stated = (embed(encoder, tokens, role=role).vectors[0].numpy() for role in ("query", "document"))
    assert np.abs(index.vector("the  tide\n") - asked).max() < 1e-5
    assert np.abs(asked - stated).max() > 1e-3


def test_a_query_is_cut_as_the_index_is(tmp_path: Path, tiny_encoder: Path):
    assert Index(str(write_index(tmp_path, tiny_encoder, dimensions=8))).vector("tide").shape == (8,)


@pytest.mark.parametrize("over", ["documents", "sentences"])
def test_an_index_is_opened_again_where_it_is_sent(tmp_path: Path, tiny_encoder: Path, monkeypatch, over):
    write_index(tmp_path, tiny_encoder, sentences=True)
    monkeypatch.chdir(tmp_path)
    index = Index("index", over, words=0.25 if over == "documents" else "auto")
    sent = pickle.dumps(index)
    monkeypatch.chdir("/")
    again = pickle.loads(sent)
    assert (again.words, again.best_sentence) == (index.words, index.best_sentence)
    assert again.search("tide", top=3) == index.search("tide", top=3)


def test_the_model_must_be_the_one_that_made_it(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder, query_prompt="ship : ", document_prompt="")
    assert Index(str(output), model=str(tiny_encoder)).search("tide", top=1)
    assert Index(str(output), model=tiny_encoder).search("tide", top=1)
    other = write_index(tmp_path / "other", tiny_encoder)
    from safetensors.torch import load_file, save_file

    weights = other / "encoder" / "model" / "model.safetensors"
    changed = {name: tensor * 1.5 for name, tensor in load_file(weights.path).items()}
    save_file(changed, weights.path, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"^model = .*: index = .* was made by another encoder"):
        Index(str(output), model=(other / "encoder" / "model").path)


def test_a_model_that_cant_be_shaped_as_the_index_isnt_the_one_that_made_it(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder)
    short = shutil.copytree(tiny_encoder, tmp_path / "short")
    config = BertConfig.from_pretrained(tiny_encoder)
    config.max_position_embeddings = 8
    BertModel(config).save_pretrained(short)
    with pytest.raises(ValueError, match=r"^model = .*: isn't the encoder that made index = .* has 8 positions"):
        Index(str(output), model=short)


def test_what_is_no_index_is_said_in_one_line(tmp_path: Path, tiny_encoder: Path):
    with pytest.raises(ValueError, match=r"^index = .*: no vectors are there; `infocse embed` writes them$"):
        Index(str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^index = .*: is a file; name a folder"):
        Index(str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"^index = .*: is an encoder, and no vectors are there"):
        Index(str(tiny_encoder))
    output = write_index(tmp_path, tiny_encoder)
    with pytest.raises(ValueError, match="has no sentences; embed with --sentences true"):
        Index(str(output), over="sentences")
    index = Index(Path(output.path), words=0.5)
    hits = index.search("oil", top=1)
    for column in (np.array(["oil", "tide"]), pd.Series(["oil", "tide"]), iter(["oil", "tide"])):
        assert index.search(column, top=1) == index.search(["oil", "tide"], top=1)  # pyright: ignore
    with pytest.raises(ValueError, match="query: is a dict; give one text"):
        index.search({"query": "oil"})  # pyright: ignore
    with pytest.raises(ValueError, match="query: is a NoneType; give one text"):
        index.with_passages(None, hits)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="query: has no text"):
        index.with_passages(" ", hits)
    with pytest.raises(ValueError, match="query: is a list; give one text"):
        index.with_passages(["oil"], hits)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="query: has no text"):
        index.search(" ")
    with pytest.raises(ValueError, match=r"^query\[1\]: has no text"):
        index.search(["oil", " "])
    with pytest.raises(ValueError, match=r"^query\[2\]: is a NoneType; give one text"):
        index.search(("oil", "tide", None))  # pyright: ignore[reportArgumentType, reportCallIssue]
    for ask in (index.search, index.vector):
        with pytest.raises(ValueError, match=r"^query = 'ship \\udcff coast': isn't UTF-8; leave out"):
            ask("ship \udcff coast")
    for top in (0, -1, 2.5, "3", None):
        with pytest.raises(ValueError, match=f"^top = {top!r}: give how many to find"):
            index.search("tide", top=top)  # pyright: ignore[reportArgumentType, reportCallIssue]
    for place in (None, 3):
        with pytest.raises(ValueError, match=f"^index = {place}: give the folder, or URI, that `infocse embed` wrote$"):
            Index(place)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="over = 'all': give one of documents, sentences"):
        Index(output.path, over="all")  # pyright: ignore[reportArgumentType]
    for words in ("0.4", None, 2, True, float("nan")):
        with pytest.raises(ValueError, match=f"words = {words!r}: give a number from 0"):
            Index(output.path, words=words)  # pyright: ignore[reportArgumentType]
    (output / "vectors" / "stage.json").delete()
    with pytest.raises(ValueError, match="isn't finished; run its `infocse embed` again"):
        Index(str(output))


def test_numpys_numbers_are_numbers(tmp_path: Path, tiny_encoder: Path):
    index = Index(write_index(tmp_path, tiny_encoder).path, words=np.float32(0.5))  # pyright: ignore[reportArgumentType]
    assert index.words == 0.5
    assert len(index.search("tide", top=np.int64(2))) == 2  # pyright: ignore[reportArgumentType, reportCallIssue]


@pytest.mark.parametrize("words", [0.0, 0.5])
def test_queries_are_searched_for_together_as_one_after_the_other(tmp_path: Path, tiny_encoder: Path, words: float):
    index = Index(write_index(tmp_path, tiny_encoder).path, words=words)
    queries = ["tide", "a ship that left the coast in the morning", "soup", "tide"]
    together = index.search(queries, top=2)
    for hits, query in zip(together, queries, strict=True):
        alone = index.search(query, top=2)
        assert [(hit.rank, hit.doc_id, hit.words) for hit in hits] == [
            (hit.rank, hit.doc_id, hit.words) for hit in alone
        ]
        assert np.allclose([hit.similarity for hit in hits], [hit.similarity for hit in alone], atol=1e-5)
    assert len({hits[0].doc_id for hits in together}) > 1
    assert index.search([]) == []


def test_an_index_that_lost_part_of_its_vectors_is_not_searched(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder)
    assert Index(str(output)).search("tide", top=9)
    for name in (f"documents/{shard_name(1)}", "sampled.parquet"):
        file = output / "vectors" / name
        whole = file.read_bytes()
        for why, content in (("it is missing", None), ("it has 5 bytes, not [0-9,]+", whole[:5])):
            file.delete() if content is None else file.write_bytes(content)
            said = rf"^index = .*: .*{name} is damaged \({why}\); run its `infocse embed` again, or copy it whole$"
            with pytest.raises(DamagedFile, match=said):
                Index(str(output))
        file.write_bytes(whole)
    assert len(Index(str(output))) == len(TEXTS), "copied whole"


def test_who_searches_is_not_told_that_it_mends_what_is_damaged(tmp_path: Path, tiny_encoder: Path):
    output = write_index(tmp_path, tiny_encoder)
    file = output / "vectors" / "documents" / shard_name(1)
    whole = file.read_bytes()
    file.write_bytes(whole[:9] + bytes([whole[9] ^ 1]) + whole[10:])
    with pytest.raises(DamagedFile, match=r"\(its content .*\); run its `infocse embed` again, or copy it whole$"):
        Index(str(output))
    file.write_bytes(whole)
    assert len(Index(str(output))) == len(TEXTS)


class Fixed:
    """An index that always answers the same."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def search(self, query: str, top: int, exact: bool, where: str | None) -> list[Hit]:
        return [Hit(rank, doc_id, None, doc_id, "", 1 / rank) for rank, doc_id in enumerate(self.ids[:top], 1)]

    def with_passages(self, query: str, hits: list[Hit]) -> list[Hit]:
        return [hit._replace(passage=f"{query} in {hit.doc_id}") for hit in hits]


def test_each_result_has_its_rank_in_the_other_list(monkeypatch):
    from infocse_ray.search import sides

    before, after = Fixed("a", "b", "c", "d"), Fixed("d", "a", "x", "b")
    left, right = search_sides([before, after], "q", 2)  # pyright: ignore[reportArgumentType]
    assert [(one.hit.doc_id, one.other) for one in left] == [("a", 2), ("b", 4)]
    assert [(one.hit.doc_id, one.other) for one in right] == [("d", 4), ("a", 1)]
    assert [one.hit.passage for one in left] == ["q in a", "q in b"]
    monkeypatch.setattr(sides, "DEPTH", 3)
    left, right = search_sides([before, after], "q", 2)  # pyright: ignore[reportArgumentType]
    assert [one.other for one in left] == [2, None]
    [alone] = search_sides([after], "q", 1)  # pyright: ignore[reportArgumentType]
    assert alone == [Placed(Hit(1, "d", None, "d", "", 1.0, passage="q in d"), None)]


def test_a_passage_is_the_sentence_most_similar_to_the_query(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder, query_prompt="ship : ", dimensions=8)))
    query = "A wave and the soup."
    hits = index.search(query, top=9)
    assert {hit.passage for hit in hits} == {None}
    shown = index.with_passages(query, hits)
    assert [hit._replace(passage=None) for hit in shown] == hits
    encoder = tiny(tiny_encoder, query_prompt="ship : ").eval()
    sentences = {text.doc_id: text.sentences for text in TEXTS}
    asked = embed(encoder, tokenised(encoder, [query]), role="query").vectors[0]
    for hit in shown:
        own = sentences[hit.doc_id]
        assert hit.passage == own[int((embed(encoder, tokenised(encoder, own)).vectors @ asked).argmax())]
    assert any(hit.passage != sentences[hit.doc_id][0] for hit in shown)
    assert index.with_passages(query, []) == []
    [blank] = index.with_passages(query, [hits[0]._replace(text=" ")])
    assert blank.passage == " "


def test_a_passage_of_a_long_text_is_one_of_its_first_sentences(tmp_path: Path, tiny_encoder: Path):
    texts = [*TEXTS, Text("long", ["The moon."] * 64 + ["A judge of the court."])]
    index = Index(str(write_index(tmp_path, tiny_encoder, texts)))
    [long] = [hit for hit in index.search("A judge of the court.", top=9) if hit.doc_id == "long"]
    [shown] = index.with_passages("A judge of the court.", [long])
    assert shown.passage == "The moon."


def test_the_tokenizer_is_read_once_for_all_queries(tmp_path: Path, tiny_encoder: Path, monkeypatch):
    index = Index(str(write_index(tmp_path, tiny_encoder)))
    hits = index.search("tide", top=9)

    def again(*_: object) -> None:
        raise AssertionError("the tokenizer is read again")

    monkeypatch.setattr(model, "tokenizer_json", again)
    monkeypatch.setattr(tokenizer, "Tokenizer", again)
    assert index.search("tide", top=9) == hits
    assert index.with_passages("tide", hits)[0].passage


def test_a_sentence_that_was_found_has_no_passage(tmp_path: Path, tiny_encoder: Path):
    index = Index(str(write_index(tmp_path, tiny_encoder, sentences=True)), over="sentences")
    hits = index.search("tide", top=3)
    assert index.with_passages("tide", hits) == hits


def test_the_command_shows_the_passage_in_place_of_where_the_text_begins(tmp_path: Path, tiny_encoder: Path, capsys):
    output = write_index(tmp_path, tiny_encoder)
    search(Search(index=str(output), query="A pan and a spoon.", top=9))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "… A pan and a spoon." in lines
    search(Search(index=str(output), query="Bread with butter.", top=9))
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert "Bread with butter." in lines


def test_the_command_prints_both_lists_without_what_would_move_a_terminal(tmp_path: Path, tiny_encoder: Path, capsys):
    texts = [*TEXTS, Text("evil\x1b[2J", ["The tide\x1b]0;owned\x07 <script>.", "A ship."])]
    output = write_index(tmp_path, tiny_encoder, texts)
    search(Search(index=str(output), compare_index=str(output), query="tide", top=9))
    out = capsys.readouterr().out
    assert out.count("before: ") == out.count("after: ") == 1
    assert out.count("[the same rank in the other]") == 2 * len(texts)
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "<script>" in out


def test_the_query_needs_no_name():
    for argv in (["--index", "i", "two words"], ["two words", "--index=i"], ["--index", "i", "--query", "two words"]):
        assert parse(Search, argv, "infocse search", "", unnamed="query").query == "two words"
    for query in ("[draft] budget", "null", "{x", "a, b"):
        for argv in ([query], ["--query", query], [f"--query={query}"]):
            assert parse(Search, ["--index=i", *argv], "infocse search", "", unnamed="query").query == query
    with pytest.raises(SystemExit):
        parse(Search, ["one", "two", "--index", "i"], "infocse search", "", unnamed="query")


def test_behind_two_dashes_a_query_may_begin_with_them(capsys: pytest.CaptureFixture[str]):
    argv = ["--index", "i", "--", "--force of git push"]
    assert parse(Search, argv, "infocse search", "", unnamed="query").query == "--force of git push"
    with pytest.raises(SystemExit):
        parse(Search, [*argv, "--top"], "infocse search", "", unnamed="query")
    assert "'--top' is one word too many: put a query of several words into quotes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "query is required"),
        ({"query": "  "}, "query is required"),
        ({"query": os.fsdecode(b"ship \xff coast")}, r"query = 'ship \\udcff coast': isn't UTF-8; leave out"),
        ({"query": "x", "serve": True}, "the page asks for queries"),
        ({"query": "x", "compare": "m"}, "give compare_index"),
        ({"query": "x", "port": 80}, "port = 80: is of the page; add --serve"),
    ],
)
def test_settings_that_make_no_sense_are_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Search(index="i", **given)


def test_the_index_is_a_name_of_the_package():
    assert infocse_ray.Index is Index
