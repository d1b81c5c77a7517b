"""Prompts and lengths: ours against sentence-transformers on the same folder, by tokenizers of every kind."""

import json
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from infocse_ray.corpus.documents import tokenise_rows
from infocse_ray.corpus.read import SourceRow
from infocse_ray.corpus.store import Counterparts, Documents
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.layout import write_layout
from infocse_ray.encoder.prompts import Prompts, Role
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.encoder.texts import tokenised
from infocse_ray.loop.first_encoder import load_first_encoder
from infocse_ray.methods.label_sample import leaking
from infocse_ray.retrieval.validation import questions_for, score
from infocse_ray.settings import Corpus, Settings
from infocse_ray.settings.section import Pooling
from infocse_ray.storage.folder import Storage
from tests.unit.encoder.test_encoder import SENTENCES, copy_of, load, refused
from tests.unit.stores import Written, write_store
from tests.unit.trainees import Run, annotated, ragged

ROLES: tuple[Role, Role] = ("document", "query")
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TEXTS = [*SENTENCES[:30], "42 ships - (in a storm) - sail", "unfamiliarity", '"Quoted," she said.', "'s old ship"]
E5 = Prompts({"query": "query: ", "passage": "passage: "})


def byte_level() -> Tokenizer:
    """As RoBERTa's and ModernBERT's: the space before a word is in its first token."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    prompted = [f"query: {s} passage: {s} it's" for s in SENTENCES]
    tokenizer.train_from_iterator([*SENTENCES, *prompted], trainer)
    return tokenizer


def unigram() -> Tokenizer:
    """As XLM-RoBERTa's: a mark stands for the space before a word, and there is one before the first."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=SPECIAL, unk_token="[UNK]", show_progress=False, max_piece_length=12
    )
    tokenizer.train_from_iterator([*SENTENCES, *(f"query: {s} passage: {s}" for s in SENTENCES)], trainer)
    return tokenizer


def encoder_with(tokenizer: Tokenizer, folder: Path) -> Path:
    """A tiny BERT with that tokenizer."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    pad, unknown, start, end, mask = SPECIAL
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=pad, unk_token=unknown, cls_token=start, sep_token=end, mask_token=mask
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=64,
        pad_token_id=0,
    )
    BertModel(config).save_pretrained(folder)
    return folder


def space_marked() -> Tokenizer:
    """As Gemma's: a mark stands for each space, put there by the normalizer; there is none before the first word."""
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(vocab_size=600, special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator([*SENTENCES, *(f"query: {s} passage: {s}" for s in [*SENTENCES, *TEXTS])], trainer)
    return tokenizer


MADE = {"byte level": byte_level, "unigram": unigram, "space marked": space_marked}


@pytest.fixture(params=["word piece", *MADE])
def folder(request, tiny_encoder, tmp_path) -> Path:
    """An encoder without prompts."""
    if request.param == "word piece":
        return copy_of(tiny_encoder, tmp_path)
    return encoder_with(MADE[request.param](), tmp_path / "encoder")


def ours(encoder, role: Role = "document", texts=TEXTS) -> torch.Tensor:
    return embed(encoder, tokenised(encoder, texts, role), role=role).vectors


def theirs(folder, prompt=None, length=None, texts=TEXTS) -> torch.Tensor:
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = length or model.max_seq_length
    return model.encode(texts, prompt=prompt, convert_to_tensor=True, show_progress_bar=False).cpu()


def close(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("pooling", get_args(Pooling))
@pytest.mark.parametrize("include_prompt", [True, False])
def test_prompts_are_put_before_texts_as_others_do(folder, tmp_path, pooling, include_prompt):
    write_layout(folder, 32, pooling, True, 16, prompts=E5, include_prompt=include_prompt)
    encoder = load(folder)
    for role in ROLES:
        close(ours(encoder, role), theirs(folder, encoder.prompts.of(role)))
        assert not torch.allclose(ours(encoder, role), theirs(folder), atol=1e-3)
    # And what is exported says so by itself.
    encoder.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert again.fingerprint() == encoder.fingerprint()
    assert torch.equal(ours(again, "query"), ours(encoder, "query"))
    model = pytest.importorskip("sentence_transformers").SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    for role in ROLES:
        encode = model.encode_document if role == "document" else model.encode_query
        close(ours(encoder, role), encode(TEXTS, convert_to_tensor=True, show_progress_bar=False).cpu())


def test_the_settings_prompts_come_first_and_are_exported(folder, tmp_path):
    write_layout(folder, 32, "mean", True, 16, prompts=Prompts({"passage": "x y ", "title": "t: "}, "title"))
    found = load(folder)
    assert (found.prompts.of("document"), found.prompts.of("query")) == ("x y ", "t: ")
    other = load(folder, document_prompt="a b: ", query_prompt="c: ")
    close(ours(other), theirs(folder, "a b: "))
    close(ours(other, "query"), theirs(folder, "c: "))
    other.save(tmp_path / "saved")
    said = json.loads((tmp_path / "saved" / "config_sentence_transformers.json").read_text())
    expected = {"document": "a b: ", "passage": "a b: ", "query": "c: ", "title": "t: "}
    assert (said["prompts"], said["default_prompt_name"]) == (expected, "document")
    none = load(folder, document_prompt="", query_prompt="")
    close(ours(none), theirs(folder, ""))
    prints = {e.fingerprint() for e in (found, other, none, load(folder, query_prompt="c: "))}
    assert len(prints) == 4
    # Without any prompt the corpus is tokenised as ever, and the encoder is called what it was.
    write_layout(folder, 32, "mean", True, 16)
    plain = load(folder)
    assert load(folder, document_prompt="").fingerprint() == plain.fingerprint()
    assert plain.corpus_tokenizer() == none.corpus_tokenizer()


@pytest.mark.parametrize(("document", "kept"), [("", None), ("near ", "x")])
def test_a_default_that_documents_do_not_get_is_not_exported(tiny_encoder, tmp_path, document, kept):
    source = copy_of(tiny_encoder, tmp_path)
    write_layout(source, 32, "mean", True, 16)
    prompts = {"prompts": {"query": "", "document": document, "x": "near "}, "default_prompt_name": "x"}
    file = source / "config_sentence_transformers.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | prompts))
    encoder = load(source)
    encoder.save(tmp_path / "saved")
    said = json.loads((tmp_path / "saved" / "config_sentence_transformers.json").read_text())
    assert said["default_prompt_name"] == kept
    assert load(tmp_path / "saved").fingerprint() == encoder.fingerprint()
    close(ours(encoder), theirs(tmp_path / "saved"))


@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.parametrize("document", ["", "passage: "])
@pytest.mark.parametrize("query", ["query: ", "Query:", "near"])
def test_counterparts_may_be_tokenised_behind_the_query_prompt(folder, query, document, include_prompt, tmp_path):
    prompts = Prompts({"query": query, "document": document})
    write_layout(folder, 32, "mean", True, 16, prompts=prompts, include_prompt=include_prompt)
    encoder = load(folder)
    if query == "near" and document:
        assert encoder.corpus_tokenizer().prompt is not None, "a word that runs into the next"
    for role in ROLES:
        close(ours(encoder, role), theirs(folder, prompts.of(role)))
    assert not torch.allclose(ours(encoder), ours(encoder, "query"), atol=1e-3)
    assert not encoder.one_prompt, "training would pool the query prompt as a document's"
    encoder.save(tmp_path / "saved")
    assert load(tmp_path / "saved").fingerprint() == encoder.fingerprint()
    # As the corpus stage has them.
    row = SourceRow(0, {"id": "a", "sentences": TEXTS, "counterpart": TEXTS}, None)
    corpus = Corpus(source="x", sentences="sentences", counterpart="counterpart")
    table = tokenise_rows([row], "file", 0, corpus, encoder.corpus_tokenizer().ready(), pa.uint32(), 1)
    for name, role in zip(("sentences", "counterparts"), ROLES, strict=True):
        [ids] = table[name].to_pylist()
        close(embed(encoder, ragged(ids), role=role).vectors, theirs(folder, prompts.of(role)))


@pytest.mark.parametrize("made", ["byte level", "space marked"])
def test_tokens_that_were_added_to_a_tokenizer_that_marks_spaces(made, tmp_path):
    tokenizer = MADE[made]()
    tokenizer.add_tokens(["<b>"])
    folder, texts = encoder_with(tokenizer, tmp_path / "encoder"), ["near<b>the sea", "<b>ships", "ships<b>", ""]
    encoder = load(folder, document_prompt="passage: ", query_prompt="query: ")
    for role in ROLES:
        close(ours(encoder, role, texts), theirs(folder, encoder.prompts.of(role), 16, texts))
    assert encoder.ids_behind_a_space is None, "each sentence begins with its mark"
    other = load(folder, document_prompt="passage: ", query_prompt="near").corpus_tokenizer()
    assert other.of_sentences == encoder.corpus_tokenizer().of_sentences != load(folder).corpus_tokenizer().of_sentences


@pytest.mark.parametrize("made", ["byte level", "unigram"])
def test_counterparts_are_told_from_the_prompt_before_them(made, tmp_path):
    made = MADE[made]()
    own = [made.normalizer] if made.normalizer else []
    made.normalizer = normalizers.Sequence([normalizers.Lowercase(), normalizers.Replace("\n", " "), *own])
    folder = encoder_with(made, tmp_path / "encoder")
    encoder = load(folder, max_length=40, query_prompt="Find\nQuery", document_prompt="passage: ")
    tokenizer = encoder.corpus_tokenizer()
    ready, texts = tokenizer.ready(), ["the law of tides", "ships", "sail on the sea"]
    assert tokenizer.prompt is not None
    found = ragged(ready.counterparts(texts))
    rows = [ready.tokenizer.decode(row.tolist()) for row in np.split(found.values, found.offsets[1:-1])]
    assert [ready.without_prompt(row) for row in rows] == texts
    # A counterpart that is a sentence of its own document leaks, whatever is before it.
    labels = Counterparts(np.array([0, 0, 1]), np.arange(3), found)
    sentences, offsets = ragged(ready.sentences([texts[0], "near", texts[2]])), np.array([0, 2, 3])
    documents = Documents(None, np.arange(2), offsets, sentences, None, labels)  # pyright: ignore[reportArgumentType]
    assert leaking(documents, tokenizer).tolist() == [True, False, True]


def test_prompts_that_cannot_be_put_before_tokens(tiny_encoder, tmp_path):
    folder = copy_of(tiny_encoder, tmp_path)
    message = refused(folder, "encoder.model", document_prompt="near")
    assert 'let encoder.document_prompt end with a space, or set it to ""' in message
    write_layout(folder, 32, "mean", True, 16, prompts=Prompts({"document": "near"}))
    with pytest.raises(ValueError, match=r"^annotate\.first_encoder = .*; name another encoder$"):
        load_first_encoder(
            Settings.model_validate(
                {
                    "name": "run",
                    "corpus": {"source": "a"},
                    "encoder": {"model": "m"},
                    "annotate": {"first_encoder": str(folder)},
                }
            )
        )
    load(tiny_encoder, document_prompt="near,")


def test_a_prompt_that_leaves_no_room(tiny_encoder):
    message = refused(tiny_encoder, "encoder.max_length = 6", max_length=6, query_prompt="the ship, ")
    assert "set it to 7 or more" in message
    load(tiny_encoder, max_length=7, query_prompt="the ship, ")
    assert "set it to 5 or more" in refused(tiny_encoder, "encoder.max_length = 4", max_length=4, query_prompt="near")


def test_a_prompt_takes_part_of_the_length(tiny_encoder):
    encoder = load(tiny_encoder, document_prompt="the ship, ", query_prompt="a ")
    spec = EncoderSpec.of(encoder)
    assert (spec.sentence_tokens, spec.query_tokens, spec.longest) == (11, 13, 59)
    assert encoder.lengths(ragged([[7] * 20])).tolist() == [16]
    ids, mask = encoder.pad(ragged([[7] * 20, [8]]), role="query")
    assert ids.shape == (2, 16)
    assert mask.sum(1).tolist() == [16, 4]


def test_training_and_validation_give_documents_and_counterparts_their_prompts(tiny_encoder, tmp_path):
    prompted = copy_of(tiny_encoder, tmp_path)
    prompts = Prompts({"query": "a ", "document": "the ship, "})
    write_layout(prompted, 32, "mean", False, 16, prompts=prompts, include_prompt=False)
    run = Run(prompted, annotated(tmp_path / "source", prompted), case="labelled", dropout=False)
    batch = run.stream.next_batch()
    encoder, state = run.encoder.eval(), run.state
    prepared = state.prepare(batch)
    vectors, tokens = torch.zeros(prepared.texts, 32), 0
    with torch.no_grad():
        for chunk in prepared.chunks:
            vectors[chunk.rows] = state.model(**chunk.inputs)[0]
            tokens += int(chunk.inputs["attention_mask"].sum())
    vectors = prepared.placed(vectors)
    assert state.tokens(batch).sum() == tokens
    queries = batch.labels == 1
    assert 0 < queries.sum() < len(queries)
    for role in ROLES:
        rows = np.flatnonzero(queries if role == "query" else batch.labels == 0)
        close(vectors[torch.from_numpy(rows)], embed(encoder, batch.texts.take(rows), role=role).vectors)
    asked = torch.from_numpy(queries)
    assert not torch.allclose(vectors[asked], embed(encoder, batch.texts).vectors[asked], atol=1e-3)

    documents = [Written(f"d{i}", [[7 + i, 20 + j] for j in range(4)], (), [[7 + i, 40]], "valid") for i in range(9)]
    questions = questions_for(write_store(Storage.open(str(tmp_path / "store")), documents, 1), "valid", "counterpart")
    assert questions.candidates is not None
    assert (questions.documents.role, questions.true.role, questions.candidates.role) == ("document", "query", "query")
    close(questions.true.vectors(encoder), embed(encoder, questions.true.sentences, role="query").vectors)
    assert score(encoder, questions).metrics["queries"] == 9


def test_labelled_counterparts_are_cut_where_retrieval_cuts_them(tiny_encoder, tmp_path):
    prompted = copy_of(tiny_encoder, tmp_path)
    write_layout(prompted, 32, "mean", False, 8, prompts=Prompts({"query": "", "document": "the ship, "}))
    run = Run(prompted, annotated(tmp_path / "source", prompted), case="labelled")
    batch = run.stream.next_batch()
    lengths = batch.texts.lengths
    assert lengths[batch.labels == 0].max() == run.encoder.room() == 11
    assert 11 < lengths[batch.labels == 1].max() <= run.encoder.room("query") == 14


def test_the_exported_encoder_reads_as_far_as_the_source(tiny_encoder, tmp_path):
    opening = "the old ship was near the island with every sail under the storm " * 3
    first, second = opening + " the judge and the jury", opening + " a recipe of bread and butter"
    source = copy_of(tiny_encoder, tmp_path)
    write_layout(source, 32, "mean", True, 60)
    encoder = load(source, max_length=32)
    assert (encoder.max_length, encoder.max_seq_length) == (32, 60)
    tokens = tokenised(encoder, [first, second])
    assert tokens.lengths.min() > 40
    saved = EncoderFolder.save(encoder, Storage.open(str(tmp_path / "saved")))
    for mine in (encoder, saved.load()):
        found = embed(mine, tokens).vectors
        assert float(found[0] @ found[1]) == pytest.approx(1.0, abs=1e-6)
    assert saved.load().fingerprint() == encoder.fingerprint()
    exported = theirs(tmp_path / "saved", texts=[first, second])
    assert float(exported[0] @ exported[1]) < 0.9999
    close(exported, theirs(source, texts=[first, second]))
    # Cut by hand they are ours again.
    close(theirs(tmp_path / "saved", length=32, texts=[first, second]), embed(encoder, tokens).vectors)
    # What is exported is another's where the source's length is, though the vectors here are the same.
    write_layout(source, 32, "mean", True, 50)
    assert load(source, max_length=32).fingerprint() != encoder.fingerprint()


def test_lengths_where_the_folder_says_none(tiny_encoder, tmp_path):
    assert load(tiny_encoder, max_length=16).max_seq_length == 64
    folder = copy_of(tiny_encoder, tmp_path)
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer | {"model_max_length": 48}))
    assert load(folder).max_seq_length == 48
    # More than there are positions, and less than was trained with.
    write_layout(folder, 32, "mean", False, 512)
    assert load(folder).max_seq_length == 64
    write_layout(folder, 32, "mean", False, 12)
    assert load(folder).max_seq_length == 16
    (folder / "sentence_bert_config.json").rename(folder / "sentence_roberta_config.json")
    write_layout(folder, 32, "mean", False, None)
    (folder / "sentence_bert_config.json").unlink()
    assert load(folder, max_length=8).max_seq_length == 12
