"""The card's own lines of Python, run on an exported folder, against the document vectors that validation compares."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from infocse_ray.corpus.sentences import split_sentences
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.layout import write_layout
from infocse_ray.encoder.origin import Origin
from infocse_ray.encoder.prompts import Prompts
from infocse_ray.encoder.texts import tokenised
from infocse_ray.loop.card import model_card
from infocse_ray.loop.card_snippet import SAID
from infocse_ray.retrieval.documents import document_vectors
from infocse_ray.settings import Settings
from tests.unit.encoder.test_encoder import SENTENCES, copy_of, load
from tests.unit.encoder.test_encoder_modules import some_whitening

RUN_ON = " ".join(SENTENCES[12:30]).replace(".", "")
DOCUMENTS = [" ".join(SENTENCES[:9]), "  ".join(SENTENCES[9:12]) + "\n\n" + RUN_ON]


def card(whitening: dict[str, Any] | None = None, more: dict[str, Any] | None = None, **sections: Any) -> str:
    content = {"name": "r", "corpus": {"source": "a"}, "encoder": {"model": "m", "max_length": 16}} | sections
    metrics = {
        "corpus": {"documents": 5, "sentences": 9},
        "best_iteration": 1,
        "validate_on": "counterpart",
        "iterations": [{"iteration": 0}, {"iteration": 1}],
    }
    metrics |= more or {}
    metrics |= {} if whitening is None else {"whitening": whitening}
    return model_card(Settings.model_validate(content), metrics)


def snippet_of(text: str) -> str:
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return code


@pytest.mark.parametrize("reading", ["sentences", "whole", "both"])
@pytest.mark.parametrize("whitened", [False, True])
@pytest.mark.parametrize("prompts", [{}, {"query": "a ", "passage": "the ship, "}])
@pytest.mark.parametrize(("similarity", "normalized"), [("cosine", True), ("dot", False), ("dot", True)])
def test_the_snippet_gives_the_document_vectors_of_validation(
    tiny_encoder, tmp_path, whitened, prompts, similarity, normalized, reading
):
    pytest.importorskip("sentence_transformers")
    source = copy_of(tiny_encoder, tmp_path)
    write_layout(source, 32, "mean", normalized, 60, prompts=Prompts(prompts))
    encoder = load(source, similarity == "cosine")
    encoder.whitening = some_whitening(out=8) if whitened else None
    encoder.save(tmp_path / "model")
    whitening = {"power": 0.5, "dimension": 8} if whitened else None
    text = card(whitening, train={"similarity": similarity}, validate={"reading": reading})
    assert f"a document's vector is {SAID[reading]}\n" in text
    names: dict[str, Any] = {}
    exec(snippet_of(text).replace("path/to/this/folder", str(tmp_path / "model")), names)
    sentences = [split_sentences(document) for document in DOCUMENTS]
    assert [len(s) for s in sentences] == [9, 4]
    tokens = tokenised(encoder, [s for document in sentences for s in document])
    assert tokens.lengths.max() > 16  # one that is cut
    [ours] = document_vectors(encoder, [None], tokens, np.array([0, 9, 13]), reading)
    theirs = torch.from_numpy(np.stack([names["document_vector"](document) for document in DOCUMENTS]))
    torch.testing.assert_close(theirs, ours, rtol=0, atol=1e-5)
    query = tokenised(encoder, ["what is searched for"], "query")
    asked = embed(encoder, query, role="query").vectors[0]
    torch.testing.assert_close(torch.from_numpy(names["query"]), asked, rtol=0, atol=1e-5)


def test_the_card_says_what_whitening_there_is():
    assert "whiten" not in card().replace("(pooling, further layers, whitening, prompts)", "")
    whitened = card({"power": 0.5, "dimension": 128})
    assert "whitened with power 0.5 and have 128 dimensions" in whitened
    assert "similarity: cosine" in whitened
    assert "with InfoCSE (Yang et al., arXiv 2202.13802) and whitening by" in whitened
    alone = card({"power": 0.5, "dimension": 128}, train={"method": "none"})
    assert "with whitening by" in alone
    assert "No training, seed 42" in alone
    assert "with no training by" in card(train={"method": "none"})
    for text in (whitened, alone):
        assert "`AutoModel` loads the\nbackbone alone" in text


def test_the_card_of_what_training_began_with_claims_no_training():
    start = {"best_iteration": 0}
    whitened = card({"power": 0.5, "dimension": 128}, start)
    assert "adapted without labels to a corpus of 5 documents (9 sentences) with whitening by" in whitened
    assert "with InfoCSE (Yang et al., arXiv 2202.13802) validated no better." in whitened
    assert "What was tried: K = 1" in whitened
    assert "A sentence encoder as it came, exported by" in card(None, start)
    for text in (whitened, card(None, start)):
        assert "adapted without labels to a corpus of 5 documents (9 sentences) with InfoCSE" not in text
    # Nothing was to be trained.
    assert "with whitening by" in card({"power": 0.5, "dimension": 128}, start, train={"method": "none"})


def test_the_card_of_what_was_only_initialised_claims_no_more_than_that():
    """The paper's set-up, where InfoCSE validates no better than the encoder that CONPONO made."""
    conpono = {"loop": {"initialization": "conpono"}}
    its = "with CONPONO (Iter et al. 2020) by\n"
    said = card(None, {"best_iteration": 0}, **conpono)
    assert its in said
    assert "It is the encoder of iteration 0; iteration 0 is the one it\nwas initialised to with CONPONO" in said
    assert "Training it further with InfoCSE (Yang et al., arXiv 2202.13802) validated no better." in said
    assert said.endswith("\nbatch 128, learning rate 2e-05, seed 42.\n")
    alone = card(None, {"best_iteration": 0}, train={"method": "none"}, **conpono)
    assert its in alone
    assert "Training it further" not in alone
    whitened = card({"power": 0.5, "dimension": 8}, {"best_iteration": 0}, train={"method": "none"}, **conpono)
    assert "with CONPONO (Iter et al. 2020) and whitening by\n" in whitened
    assert "\nbatch 128, learning rate 2e-05, seed 42.\n" in whitened

    scores = dict.fromkeys(("recall@5", "recall@10", "recall@20", "mrr"), 0.25)
    returned = {"best_iteration": 0, "iterations": [{"iteration": 0, "validation": {"kind": "start", **scores}}]}
    said = card(None, returned, **conpono)
    assert "A sentence encoder as it came, exported by" in said
    further = "training it with CONPONO (Iter et al. 2020), and further with InfoCSE (Yang et al., arXiv 2202.13802),"
    assert f"It is what training began with: {further} validated no better." in said
    assert "\nWhat was tried: K = 1, " in said
    alone = card(None, returned, train={"method": "none"}, **conpono)
    assert "training it with CONPONO (Iter et al. 2020) validated no better." in alone
    both = card(None, returned | {"best_iteration": 1}, **conpono)
    assert "It is the encoder of iteration 1" in both


def test_the_start_has_one_row_and_what_was_initialised_its_own():
    def scores(value: float) -> dict[str, Any]:
        return {"validation": dict.fromkeys(("recall@5", "recall@10", "recall@20", "mrr"), value)}

    more = {
        "start": scores(0.125),
        "whitened": scores(0.25),
        "iterations": [{"iteration": 0} | scores(0.375), {"iteration": 1} | scores(0.5)],
    }
    names = [line.split(" | ")[0] for line in card(more=more).splitlines() if " | 0." in line]
    assert names == ["| the encoder as it came", "| the same, whitened", "| iteration 1"]
    said = card(more=more, loop={"initialization": "conpono"})
    names = [line.split(" | ")[0] for line in said.splitlines() if " | 0." in line]
    assert names == ["| the encoder as it came", "| the same, whitened", "| iteration 0", "| iteration 1"]
    del more["start"], more["whitened"]
    names = [line.split(" | ")[0] for line in card(more=more).splitlines() if " | 0." in line]
    assert names == ["| start", "| iteration 1"]


def test_the_card_says_how_vectors_are_made_and_compared():
    said = card()
    assert "- sentences were cut to 16 tokens; similarity: cosine\n" in said
    assert "It is the encoder of iteration 1; iteration 0 is the one it\nstarted from." in said
    dot = {"train": {"similarity": "dot"}}
    assert "similarity: inner product\n" in card(**dot)
    assert "similarity: cosine\n" in card({"power": 0.5, "dimension": 8}, **dot), "whitened vectors are of length 1"
    assert "## Retrieval (counterpart)\n" in said
    without = {"validate_on": "sentence"}
    assert "## Retrieval (sentence)\n" in card(more=without)
    tested = {"result": {"validation": {}, "test": {"mrr": 0.5}}}
    assert "## Retrieval (validation: sentence, test: counterpart)\n" in card(more=without | tested)
    assert "## Retrieval (counterpart)\n" in card(more=tested)
    said = card(more={"corpus": {"documents": 5000, "sentences": 90000}}, seed=7, train={"learning_rate": 3e-5})
    assert "5,000 documents (90,000 sentences)" in said
    assert said.endswith("temperature 0.05, batch 128, learning rate 3e-05, seed 7.\n")
    assert "K = 1, another encoder annotated first, distillation = 0.5" in card(annotate={"first_encoder": "other"})


def test_the_snippet_says_which_package_splits():
    assert "from sentencex import segment  # pip install sentencex\n" in snippet_of(card())


def test_the_snippet_splits_by_the_corpus_language():
    assert 'segment("de", text)' in snippet_of(card(corpus={"source": "a", "language": "de"}))


def test_the_card_says_what_it_is_held_against_and_what_it_costs() -> None:
    assert "Verdict" not in card()
    scores = dict.fromkeys(("recall@5", "recall@10", "recall@20", "mrr"), 0.25)
    more = {
        "start": {"validation": scores},
        "whitened": {"validation": {**scores, "mrr": 0.75}},
        "verdict": {"line": "WIN, against the encoder as it came, whitened"},
        "sts": {"start": 0.9, "result": 0.8},
    }
    said = card(more=more)
    assert "Verdict: WIN, against the encoder as it came, whitened." in said
    assert "start 0.9000, result 0.8000. Being adapted cost 0.1000." in said
    assert "Being adapted gave 0.0500." in card(more={"sts": {"start": 0.8, "result": 0.85}})
    before, whitened = said.index("| the encoder as it came | 0.2500"), said.index("| the same, whitened | 0.2500")
    assert before < whitened < said.index("0.7500")


def test_programs_read_the_scores_the_licence_and_the_base_model() -> None:
    scores = {
        "recall@5": 0.25,
        "recall@5_low": 0.125,
        "recall@5_high": 0.5,
        "recall@10": 0.3,
        "recall@20": 0.4,
        "mrr": 0.2,
        "queries": 40,
        "candidates": 90,
    }
    more = {
        "result": {"validation": scores, "test": {**scores, "mrr": 0.75}},
        "sts": {"start": 0.9, "result": 0.8},
        "origin": Origin("acme/encoder", "apache-2.0")._asdict(),
        "validate_on": "sentence",
    }
    read = ModelCard(card(more=more)).data
    assert (read["license"], read["base_model"], read["library_name"]) == (
        "apache-2.0",
        "acme/encoder",
        "sentence-transformers",
    )
    assert read["datasets"] is None
    assert read["model_name"] == "r"
    found = {(one.task_name, one.dataset_split, one.metric_type): one for one in read["eval_results"]}
    assert set(found) == {
        *(("Retrieval", split, f"recall_at_{k}") for split in ("validation", "test") for k in (5, 10, 20)),
        ("Retrieval", "validation", "mrr"),
        ("Retrieval", "test", "mrr"),
        ("STS", "test", "cosine_spearman"),
    }
    recall = found["Retrieval", "validation", "recall_at_5"]
    assert recall.metric_value == 0.25
    assert recall.metric_args == {"confidence": 0.95, "low": 0.125, "high": 0.5, "queries": 40, "candidates": 90}
    assert "a sentence that was taken out of it" in recall.dataset_name
    assert "its counterpart" in found["Retrieval", "test", "mrr"].dataset_name
    values = [found["Retrieval", "test", name].metric_value for name in ("recall_at_10", "recall_at_20", "mrr")]
    assert values == [0.3, 0.4, 0.75]
    assert found["STS", "test", "cosine_spearman"].metric_value == 0.8
    assert read["pipeline_tag"] == "sentence-similarity"
    assert "whitening" not in read["tags"]
    assert "whitening" in ModelCard(card({"power": 0.5, "dimension": 8})).data["tags"]
    for on, asked in (("halves", "one half of each document"), ("readings", "each document as one text must find")):
        of_it = ModelCard(card(more=more | {"validate_on": on})).data["eval_results"]
        assert [asked in one.dataset_name for one in of_it] == [True] * 4 + [False] * 5


def test_the_card_says_whose_work_the_base_is_and_what_prompts_there_are() -> None:
    assert "its licence isn't known here: look it up" in card()
    assert "license" not in ModelCard(card()).data.to_dict()
    said = card(more={"origin": Origin("a/b", "other", "gemma", "https://x.example/terms")._asdict()})
    assert "base model: `a/b`; its licence: gemma" in said
    read = ModelCard(said).data
    assert (read["license"], read["license_name"], read["license_link"]) == (
        "other",
        "gemma",
        "https://x.example/terms",
    )
    named = ModelCard(card(more={"origin": Origin("a/b", "mit", "its own name", "its link")._asdict()})).data.to_dict()
    assert {"license_name", "license_link"}.isdisjoint(named), "which the hub has of other licences alone"
    assert "- prompts:" not in card(more={"prompts": {"document": "", "query": ""}})
    said = card(more={"prompts": {"document": "", "query": "query: "}})
    assert '- prompts: a query\'s texts are put behind "query: "' in said


@pytest.mark.parametrize("name", ["null", "1.0", "2026-01-01", "on", "a-b_c.d"])
def test_no_name_of_a_run_breaks_the_front_matter(name: str) -> None:
    scores = {"result": {"validation": {"mrr": 0.5}}}
    assert ModelCard(card(more=scores, name=name)).data["model_name"] == name


def test_the_card_says_how_a_training_was_chosen_and_what_it_holds_on_to():
    pilots = {"infocse": {"validation": {}}, "simcse": {"left_out": "no dropout"}}
    text = card(more={"recipe": {"chosen": "infocse", "pilots": pilots}}, train={"distillation": 0.5})
    assert "Short trainings chose how it is trained (infocse): infocse validated best." in text
    assert "distillation = 0.5" in text
    none = card(more={"recipe": {"chosen": None, "pilots": pilots}}, train={"method": "none"})
    assert "none validated better than the start" in none
    assert "Short trainings" not in card()
    assert "distillation" not in card(train={"distillation": 0.0})
