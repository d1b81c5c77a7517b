"""Encoders made to compare with: a language model out of a sentence encoder, and TSDAE."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from infocse_ray.benchmarks import language_model, rival, tsdae
from tests.conftest import make_documents, write_jsonl


def arguments(tmp_path: Path, encoder: Path, **more: object) -> argparse.Namespace:
    corpus = write_jsonl(tmp_path / "text.jsonl", make_documents(40))
    given = {"model": str(encoder), "to": str(tmp_path / "made"), "seed": 1, "documents": None, "text": None}
    given |= {"tokens": 12_000, "batch_size": 16, "learning_rate": 2e-3, "corpus": str(corpus)}
    return argparse.Namespace(**given | more)


def changed(before: Path, after: Path) -> list[str]:
    """Names of the encoder's weights that are others now; none has got lost."""
    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    assert set(new) <= set(old)
    return [name for name in new if not torch.equal(new[name], old[name])]


def test_a_language_model_is_scored_on_its_way(tmp_path: Path, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch):
    scored = []

    def score(folder: str, *_: object) -> dict[str, float]:
        scored.append(folder)
        return {"recall@5": 0.5, "mrr": 0.25, "sts": 0.125}

    monkeypatch.setattr(language_model, "scores_of", score)
    asked = arguments(tmp_path, tiny_encoder, tokens=60_000, every=20_000, sts="pairs", train_text=None)
    asked.train = asked.corpus
    rows = language_model.train_once(asked, None)  # pyright: ignore[reportArgumentType]
    assert scored == [str(tiny_encoder), *[asked.to] * (len(rows) - 1)]
    assert len(rows) == 4
    assert all(row[2:] == ("0.5000", "0.2500", "0.1250") for row in rows)
    losses = [float(row[1]) for row in rows[1:]]
    # A mean over masked tokens: chance is the logarithm of the vocabulary.
    assert losses[-1] < losses[0] < 2 * np.log(len(AutoTokenizer.from_pretrained(tiny_encoder)))
    assert any("attention" in name for name in changed(tiny_encoder, Path(asked.to)))
    AutoModel.from_pretrained(asked.to)


def test_stretches_have_no_two_documents(tiny_encoder: Path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
    documents = [[f"{word} {word}"] * 100 for word in ("the", "a", "of")]
    stretches = list(islice(language_model.packed(tokenizer, documents, 64, np.random.default_rng(0)), 30))
    assert all(len(s) <= 64 for s in stretches)
    assert all(s[0] == tokenizer.cls_token_id and s[-1] == tokenizer.sep_token_id for s in stretches)
    assert max(len({*s[1:-1]}) for s in stretches) == len({*tokenizer("the", add_special_tokens=False)["input_ids"]})


def test_tsdae_learns_to_write_a_sentence_again(tmp_path: Path, tiny_encoder: Path):
    pytest.importorskip("sentence_transformers")
    asked = arguments(tmp_path, tiny_encoder)
    losses = [float(row[2]) for row in tsdae.train_once(asked)]
    assert losses[-1] < losses[0] - 0.1
    assert any("attention" in name for name in changed(tiny_encoder, Path(asked.to)))


def test_deleted_words():
    draw, sentence = np.random.default_rng(0), " ".join(map(str, range(1_000)))
    kept = tsdae.noisy(sentence, draw).split()
    assert kept == sorted(kept, key=int)
    assert 350 < len(kept) < 450
    assert all(len(tsdae.noisy("one two", draw).split()) >= 1 for _ in range(50))


@pytest.mark.parametrize("benchmark", [language_model, tsdae])
def test_a_folder_that_is_there_is_not_written_over(tmp_path: Path, benchmark):
    there = tmp_path / "there"
    there.write_text("of another")
    for folder in (tmp_path, there):
        with pytest.raises(ValueError, match=r"--to .*: is there already; name another folder"):
            benchmark.run(argparse.Namespace(to=str(folder)))
    assert there.read_text() == "of another"


@pytest.mark.parametrize("benchmark", [language_model, tsdae])
def test_a_folder_that_cant_be_made_is_found_out_before_training(tmp_path: Path, benchmark):
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match=r"--to .*/file/to: can't be written \(Not a directory\); name another folder"):
        benchmark.run(argparse.Namespace(to=str(tmp_path / "file" / "to")))


def test_an_empty_folder_is_as_good_as_none(tmp_path: Path):
    for folder in (tmp_path, tmp_path / "new" / "folder"):
        rival.make_empty(str(folder))
        assert folder.is_dir()


def test_a_corpus_with_nothing_to_train_on_is_refused(tmp_path: Path, tiny_encoder: Path):
    pytest.importorskip("sentence_transformers")
    asked = arguments(tmp_path, tiny_encoder, train_text=None)
    asked.train = asked.corpus = str(write_jsonl(tmp_path / "short.jsonl", [{"text": "One alone."}]))
    with pytest.raises(ValueError, match=r"short.jsonl: no row is a document \(fewer than 2 sentences\)"):
        language_model.train_once(asked, None)  # pyright: ignore[reportArgumentType]
    asked.text = "sentences"
    write_jsonl(tmp_path / "short.jsonl", [{"sentences": ["A list.", "Of sentences."]}])
    with pytest.raises(ValueError, match=r"column sentences: no row is a document \(text is not a string\)"):
        tsdae.train_once(asked)
