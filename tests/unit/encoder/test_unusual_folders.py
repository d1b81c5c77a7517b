"""Folders and backbones that others handle otherwise than most: as sentence-transformers does, or refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from infocse_ray.corpus.schema import token_type, vocabulary_of
from infocse_ray.encoder import backbone
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.encoder.texts import TextEncoder
from infocse_ray.encoder.tokenizer import special_tokens
from infocse_ray.settings import Encoder
from tests.unit.trainees import Run, annotated, method_for

SHAPE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 66,
}


def backbone_in(folder: Path, tiny_encoder: Path, kind: str, **more: Any) -> Path:
    """A backbone of another kind, of random weights, with the tiny encoder's tokenizer."""
    torch.manual_seed(0)
    vocabulary = json.loads((tiny_encoder / "config.json").read_text())["vocab_size"]
    config = transformers.AutoConfig.for_model(kind, vocab_size=vocabulary, **SHAPE, **more)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    for file in tiny_encoder.glob("*token*"):
        shutil.copy(file, folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "more"),
    [("convbert", {"embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3}), ("nystromformer", {})],
)
def test_backbones_whose_vectors_change_with_padding_are_refused(
    kind: str, more: dict[str, Any], tmp_path: Path, tiny_encoder: Path
):
    folder = backbone_in(tmp_path, tiny_encoder, kind, **more)
    with pytest.raises(ValueError, match=rf"^encoder\.model = .*: a {kind} encoder makes other vectors .*; use BERT"):
        load_encoder(folder, Encoder(model=str(folder)), cosine=True)


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_a_backbone_that_takes_no_short_text_is_refused(
    pooling: Any, tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("too short")

    monkeypatch.setattr(transformers.BertModel, "forward", fails)
    with pytest.raises(ValueError, match=r"^encoder\.model = .*: a bert encoder makes other vectors"):
        load_encoder(tiny_encoder, Encoder(model="x", pooling=pooling), cosine=True)


@pytest.mark.parametrize("case", ["consert", "declutr"])
def test_word_embeddings_may_be_shorter_than_what_the_embedding_layer_puts_out(
    case: str, tmp_path: Path, tiny_encoder: Path
):
    folder = backbone_in(tmp_path / "model", tiny_encoder, "mobilebert", embedding_size=16, intra_bottleneck_size=32)
    run = Run(folder, annotated(tmp_path / "source", tiny_encoder), case=case)
    assert np.isfinite(run.losses(2)).all()


@pytest.mark.parametrize(("lower", "normalised"), [(True, True), (True, False), (False, False)])
def test_capitals_are_as_in_sentence_transformers(lower: bool, normalised: bool, tmp_path: Path, tiny_encoder: Path):
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "model"
    load_encoder(tiny_encoder, Encoder(model="x"), cosine=True).save(folder)
    config = folder / "sentence_bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"do_lower_case": lower}))
    if not normalised:
        said = json.loads((folder / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(said | {"normalizer": None}))
    texts = ["The SHIP and the Tide.", "the ship and the tide."]
    loaded = load_encoder(folder, Encoder(model="x"), cosine=True)
    ours = TextEncoder(loaded).vectors(texts).numpy()
    assert np.allclose(ours[0], ours[1]) == (lower or normalised)
    loaded.save(tmp_path / "saved")
    for place in (folder, tmp_path / "saved"):
        theirs = library.SentenceTransformer(str(place), device="cpu").encode(texts)
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("name", ["PreTrainedTokenizerFast", "BertTokenizer", "RobertaTokenizer"])
def test_capitals_stay_as_they_were_in_what_is_saved(name: str, tmp_path: Path, tiny_encoder: Path):
    """A tokenizer's class may make its normaliser anew when it is loaded, and forget what was put before it."""
    library = pytest.importorskip("sentence_transformers")
    folder, kinds = tmp_path / "model", ("pad", "unk", "cls", "sep", "mask")
    special: dict[str, Any] = {f"{kind}_token": f"[{kind.upper()}]" for kind in kinds}
    words = [*special.values(), "the", "The", "ship", "SHIP", *"theshipTSHIP\u0120"]
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys(words))}
    if name == "RobertaTokenizer":
        ends: dict[str, Any] = {"bos_token": "[CLS]", "eos_token": "[SEP]"}
        tokenizer: Any = transformers.RobertaTokenizer(vocab=vocabulary, merges=[], **special, **ends)
    elif name == "BertTokenizer":
        tokenizer = transformers.BertTokenizer(vocab=vocabulary, do_lower_case=False, **special)
    else:
        made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
        made.pre_tokenizer = pre_tokenizers.Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
        tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    load_encoder(tiny_encoder, Encoder(model="x"), cosine=True).save(folder)
    tokenizer.save_pretrained(folder)
    config = folder / "sentence_bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"do_lower_case": True}))
    texts = ["The SHIP", "the ship"]
    loaded = load_encoder(folder, Encoder(model="x"), cosine=True)
    loaded.save(tmp_path / "saved")
    again = load_encoder(tmp_path / "saved", Encoder(model="x"), cosine=True)
    theirs = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu").encode(texts)
    for vectors in (TextEncoder(loaded).vectors(texts).numpy(), TextEncoder(again).vectors(texts).numpy(), theirs):
        np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)


def test_a_folder_without_modules_keeps_its_lower_case(tmp_path: Path, tiny_encoder: Path):
    shutil.copytree(tiny_encoder, tmp_path / "model")
    (tmp_path / "model" / "sentence_bert_config.json").write_text('{"do_lower_case": true}')
    load_encoder(tmp_path / "model", Encoder(model="x"), cosine=True).save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "sentence_bert_config.json").read_text())["do_lower_case"] is True


@pytest.mark.parametrize(
    ("said", "named"),
    [
        ({"config_args": {"num_hidden_layers": 1}}, r"sentence_bert_config\.json sets config_args\.num_hidden_layers,"),
        (
            {"processing_kwargs": {"text": {"add_special_tokens": False}}},
            r"processing_kwargs\.text\.add_special_tokens,",
        ),
        (
            {"modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}}},
            "modality_config",
        ),
        ({"module_output_name": "sentence_embedding"}, "module_output_name"),
    ],
)
def test_options_that_change_vectors_are_refused(said: dict[str, Any], named: str, tmp_path: Path, tiny_encoder: Path):
    with pytest.raises(ValueError, match=rf"^encoder\.model: .*{named}"):
        load_encoder(saved_with(tmp_path, tiny_encoder, said), Encoder(model="x"), cosine=True)


@pytest.mark.parametrize(
    "said",
    [
        {
            "tokenizer_args": {"model_max_length": 20},
            "model_args": {"torch_dtype": "float16"},
            "transformer_task": "fill-mask",
        },
        {"processing_kwargs": {"text": {"max_length": 20, "truncation": True}}},
    ],
)
def test_the_length_may_be_among_the_options(said: dict[str, Any], tmp_path: Path, tiny_encoder: Path):
    folder = saved_with(tmp_path, tiny_encoder, {"max_seq_length": None} | said)
    assert load_encoder(folder, Encoder(model="x", max_length=8), cosine=True).max_seq_length == 20


def test_folders_of_something_else_are_refused_by_what_they_are(tmp_path: Path, tiny_encoder: Path):
    def changed(name: str, modules: Any) -> Path:
        folder = tmp_path / name
        load_encoder(tiny_encoder, Encoder(model="x"), cosine=True).save(folder)
        (folder / "modules.json").write_text(modules if isinstance(modules, str) else json.dumps(modules))
        return folder

    def refused(folder: Path, pooling: Any = "auto") -> str:
        with pytest.raises(ValueError, match=r"^encoder\.model") as caught:
            load_encoder(folder, Encoder(model="x", pooling=pooling), cosine=True)
        return str(caught.value)

    transformer = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    alone = changed("alone", [transformer])
    assert (
        "no Pooling module; set encoder.pooling to one of mean, cls, lasttoken, max, weightedmean, mean_sqrt_len_tokens"
        in refused(alone)
    )
    assert load_encoder(alone, Encoder(model="x", pooling="cls"), cosine=True).pooling == "cls"
    assert "is code of the encoder's own" in refused(changed("own", [transformer | {"type": "custom_st.Transformer"}]))
    static = changed("static", [transformer | {"type": "sentence_transformers.models.StaticEmbedding"}])
    (static / "config.json").unlink()
    assert "a StaticEmbedding module is not supported" in refused(static)
    assert "modules.json is no JSON" in refused(changed("broken", "[{"))
    pooling = transformer | {"path": "1_Pool", "type": "sentence_transformers.models.Pooling"}
    assert "1_Pool/config.json is missing" in refused(changed("unpooled", [transformer, pooling]))
    normalize = transformer | {"path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
    tokens = changed("tokens", [transformer, pooling | {"path": "1_Pooling"}, normalize])
    (tokens / "2_Normalize").mkdir(exist_ok=True)
    (tokens / "2_Normalize" / "config.json").write_text('{"module_input_name": "token_embeddings"}')
    assert "2_Normalize works on token vectors" in refused(tokens)
    listed = changed("listed", [transformer, pooling | {"path": "1_Pooling"}])
    for file in ("config_sentence_transformers.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        before = (listed / file).read_text()
        (listed / file).write_text("[]")
        assert f"{file} has no object in braces" in refused(listed)
        (listed / file).write_text(before)
    adapter = changed("adapter", [transformer, pooling | {"path": "1_Pooling"}])
    (adapter / "adapter_config.json").write_text("{}")
    assert "merge it into the weights" in refused(adapter)


def test_a_tokenizer_of_another_encoder_is_refused(tmp_path: Path, tiny_encoder: Path):
    """Before a corpus is tokenised with it: its ids have no vectors."""
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder, folder)
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 20}
    transformers.AutoModel.from_config(transformers.BertConfig.from_dict(config)).save_pretrained(folder)
    with pytest.raises(ValueError, match=r"^encoder\.model = 'x': its tokenizer has ids up to .* vectors of 20 tokens"):
        load_encoder(folder, Encoder(model="x"), cosine=True)


@pytest.mark.parametrize("kind", ["bert", "roberta", "mpnet", "electra", "xlm-roberta"])
def test_a_folder_without_its_tokenizer_is_refused(kind: str, tmp_path: Path, tiny_encoder: Path):
    """Transformers makes one that knows no word, and says nothing."""
    folder = backbone_in(tmp_path / "model", tiny_encoder, kind)
    loaded = load_encoder(folder, Encoder(model="x", pooling="mean"), cosine=True)
    assert loaded.dimension == 32
    for file in folder.glob("*token*"):
        file.unlink()
    with pytest.raises(ValueError, match=r"^encoder\.model = 'x': its tokenizer (knows no word|can't be loaded)"):
        load_encoder(folder, Encoder(model="x", pooling="mean"), cosine=True)


def test_vectors_that_the_folder_cuts_are_refused(tmp_path: Path, tiny_encoder: Path):
    folder = tmp_path / "model"
    load_encoder(tiny_encoder, Encoder(model="x"), cosine=True).save(folder)
    file = folder / "config_sentence_transformers.json"
    said = json.loads(file.read_text())
    file.write_text(json.dumps(said | {"truncate_dim": 8}))
    with pytest.raises(ValueError, match=r"^encoder\.model = 'x': .* cut to 8 of 32 dimensions, .* --dimensions 8$"):
        load_encoder(folder, Encoder(model="x"), cosine=True)
    for harmless in (None, 32):
        file.write_text(json.dumps(said | {"truncate_dim": harmless}))
        assert load_encoder(folder, Encoder(model="x"), cosine=True).dimension == 32


def test_big_bird_attends_to_all_here_and_as_saved(tmp_path: Path, tiny_encoder: Path):
    """Its attention to blocks is turned off by the first short text, for good: what is saved says so."""
    folder = backbone_in(tmp_path / "model", tiny_encoder, "big_bird", block_size=4, num_random_blocks=1)
    assert json.loads((folder / "config.json").read_text())["attention_type"] == "block_sparse"
    encoder = load_encoder(folder, Encoder(model="x", pooling="mean"), cosine=True)
    encoder.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["attention_type"] == "original_full"


def test_a_model_of_more_than_text_is_refused(tiny_encoder: Path, monkeypatch: pytest.MonkeyPatch):
    class Several(transformers.BertConfig):
        def __getattribute__(self, name: str) -> Any:
            if name == "hidden_size":  # it has those of its parts
                raise AttributeError(name)
            return super().__getattribute__(name)

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", lambda *_, **__: Several())
    monkeypatch.setitem(backbone.MODEL_FOR_MASKED_LM_MAPPING._extra_content, Several, None)
    with pytest.raises(ValueError, match=r"^encoder\.model = .*: a bert model is no encoder"):
        load_encoder(tiny_encoder, Encoder(model="x"), cosine=True)


def test_special_tokens_are_found_where_a_letter_is_no_token():
    words = {word: number for number, word in enumerate(("[CLS]", "[SEP]", "[PAD]", "[MASK]", "x"))}
    made = Tokenizer(models.BPE(words, []))  # nothing stands for what it doesn't know
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 0), ("[SEP]", 1)])  # pyright: ignore
    special = {f"{kind}_token": f"[{kind.upper()}]" for kind in ("pad", "cls", "sep", "mask")}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    assert special_tokens(tokenizer) == ([0], [1])


def saved_with(tmp_path: Path, tiny_encoder: Path, said: dict[str, Any]) -> Path:
    """The tiny encoder with more options of its first module."""
    load_encoder(tiny_encoder, Encoder(model="x"), cosine=True).save(tmp_path / "model")
    config = tmp_path / "model" / "sentence_bert_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | said))
    return tmp_path / "model"


def test_what_is_saved_cuts_long_texts_as_it_does_here(tmp_path: Path, tiny_encoder: Path):
    library = pytest.importorskip("sentence_transformers")
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoder, folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"truncation_side": "left"}))
    loaded = load_encoder(folder, Encoder(model="x", max_length=8), cosine=True)
    loaded.save(tmp_path / "saved")
    long = ["the ship and the tide and the judge of the court and the coast"]
    saved = library.SentenceTransformer(str(tmp_path / "saved"), device="cpu")
    saved.max_seq_length = 8
    np.testing.assert_allclose(TextEncoder(loaded).vectors(long).numpy(), saved.encode(long), atol=1e-6)


def gap_in(folder: Path, tiny_encoder: Path, numbers: int) -> Path:
    """The tiny encoder with so many numbers of its vocabulary, before those of most words, that are no token's."""
    said = json.loads((tiny_encoder / "tokenizer.json").read_text())
    vocabulary = {token: number + numbers * (number > 6) for token, number in said["model"]["vocab"].items()}
    backbone_in(folder, tiny_encoder, "bert")
    config = transformers.BertConfig(vocab_size=max(vocabulary.values()) + 1, pad_token_id=0, **SHAPE)
    transformers.BertModel(config).save_pretrained(folder)
    said["model"]["vocab"] = vocabulary
    (folder / "tokenizer.json").write_text(json.dumps(said))
    return folder


@pytest.mark.parametrize("case", ["mirror_bert", "declutr"])
def test_numbers_of_a_vocabulary_that_are_no_tokens_are_passed_over(case: str, tmp_path: Path, tiny_encoder: Path):
    folder = gap_in(tmp_path / "model", tiny_encoder, numbers=300)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.get_vocab_size() < 2**8 < vocabulary_of(tokenizer)
    assert token_type(vocabulary_of(tokenizer)) == "uint16"
    run = Run(folder, annotated(tmp_path / "source", folder), case=case)
    assert np.isfinite(run.losses(2)).all()


def with_special(folder: Path, tiny_encoder: Path, **special: str) -> Path:
    """The tiny encoder whose tokenizer has got tokens that the weights have no vectors of."""
    shutil.copytree(tiny_encoder, folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens(special)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_token_of_every_text_has_a_vector(tmp_path: Path, tiny_encoder: Path):
    folder = with_special(tmp_path / "model", tiny_encoder, pad_token="<pad>")
    with pytest.raises(ValueError, match=r"^encoder\.model = 'x': its tokenizer gives texts the token '<pad>' of the"):
        load_encoder(folder, Encoder(model="x"), cosine=True)


@pytest.mark.parametrize(
    ("case", "named"), [("mirror_bert", "train.method = mirror_bert"), ("declutr", "declutr.mask")]
)
def test_a_mask_without_a_vector_is_none(case: str, named: str, tmp_path: Path, tiny_encoder: Path):
    folder = with_special(tmp_path / "model", tiny_encoder, mask_token="<mask>")
    with pytest.raises(ValueError, match=f"^{re.escape(named)}: the encoder has no mask token with a vector"):
        method_for(case, EncoderSpec.of(load_encoder(folder, Encoder(model="x"), cosine=True)))


def test_a_backbone_whose_embeddings_are_a_module_of_its_own_is_loaded(tmp_path: Path, tiny_encoder: Path):
    folder = backbone_in(tmp_path, tiny_encoder, "ibert")
    assert load_encoder(folder, Encoder(model="x"), cosine=True).dimension == SHAPE["hidden_size"]


def test_dropout_that_is_no_layer_is_dropout(tmp_path: Path, tiny_encoder: Path):
    more = {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "dropout": 0.0, "attention_dropout": 0.25}
    folder = backbone_in(tmp_path / "model", tiny_encoder, "xlm", **more)
    encoder = load_encoder(folder, Encoder(model="x"), cosine=True)
    drawn = torch.get_rng_state()
    assert EncoderSpec.of(encoder).can_drop
    assert torch.equal(torch.get_rng_state(), drawn)
    assert not encoder.training
    assert (encoder.backbone.dropout, encoder.backbone.attentions[0].dropout) == (0.0, 0.25), "as they were"
    run = Run(folder, annotated(tmp_path / "source", tiny_encoder), case="simcse")
    assert np.isfinite(run.losses(2)).all()
    assert (run.encoder.backbone.dropout, run.encoder.backbone.attentions[0].dropout) == (0.1, 0.1)
