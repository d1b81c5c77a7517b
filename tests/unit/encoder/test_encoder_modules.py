"""What comes after pooling, Dense modules and whitening: against sentence-transformers, through files, checkpoints."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed, for_inference
from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.prompts import Prompts
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.encoder.whitening import Whitening
from infocse_ray.storage.folder import Storage
from infocse_ray.train.checkpoint import Snapshot, load_checkpoint
from infocse_ray.train.state import freeze_unused
from tests.unit.encoder.test_encoder import SENTENCES, copy_of, load, refused, tokenised
from tests.unit.trainees import Run, annotated

SOME = SENTENCES[:40]


def some_whitening(dimension=32, out=32, power=0.5, seed=0) -> Whitening:
    generator = torch.Generator().manual_seed(seed)
    mean = 0.1 * torch.randn(dimension, generator=generator)
    return Whitening(mean, torch.randn(dimension, out, generator=generator), power)


def vectors_of(encoder, sentences=SOME) -> torch.Tensor:
    return embed(encoder, tokenised(encoder, sentences)).vectors


def theirs(folder, sentences=SOME) -> torch.Tensor:
    """By sentence-transformers, of what it loads."""
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(str(folder), device="cpu")
    return model.encode(sentences, convert_to_tensor=True, show_progress_bar=False).cpu()


def close(found, expected) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def dense_weight(encoder) -> torch.Tensor:
    """Of the first Dense module."""
    return encoder.after.get_parameter("0.linear.weight")


@pytest.fixture(params=["tanh 16", "identity 48, normalised", "tanh 16, normalised, relu 8 without bias"])
def dense_folder(request, tiny_encoder, tmp_path) -> Path:
    """A folder of sentence-transformers with Dense modules."""
    library = pytest.importorskip("sentence_transformers")
    models = pytest.importorskip("sentence_transformers.models")
    torch.manual_seed(3)
    backbone = models.Transformer(str(tiny_encoder), max_seq_length=16)
    modules = [backbone, models.Pooling(32, "mean")]
    if request.param.startswith("tanh"):
        modules.append(models.Dense(32, 16))
    else:
        modules.append(models.Dense(32, 48, activation_function=torch.nn.Identity()))
    if "normalised" in request.param:
        modules.append(models.Normalize())
    if "relu" in request.param:
        modules.append(models.Dense(16, 8, bias=False, activation_function=torch.nn.ReLU()))
    library.SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "theirs"))
    return tmp_path / "theirs"


def test_the_map_of_whitening():
    whitening, vectors = some_whitening(out=8), torch.randn(5, 32)
    unit = vectors.double() / vectors.double().norm(dim=1, keepdim=True)
    mapped = (unit - whitening.mean.double()) @ whitening.matrix.double()
    expected = (mapped / mapped.norm(dim=1, keepdim=True)).float()
    close(whitening(vectors), expected)
    with torch.autocast("cpu", torch.bfloat16):
        found = whitening(vectors.bfloat16())
    assert found.dtype == torch.float32
    close(found, whitening(vectors.bfloat16().float()))
    assert whitening.dimension == 8
    with pytest.raises(ValueError, match=r"mean \[4\] doesn't go with a matrix \[5, 5\]"):
        Whitening(torch.zeros(4), torch.eye(5), 1.0)


@pytest.mark.parametrize("out", [32, 8])
@pytest.mark.parametrize("cosine", [False, True])
def test_an_exported_whitening_is_that_of_other_libraries(tiny_encoder, tmp_path, out, cosine):
    encoder = load(tiny_encoder, cosine)
    before = vectors_of(encoder)
    encoder.whitening = some_whitening(out=out)
    assert (encoder.dimension, encoder.base_dimension, encoder.normalize) == (out, 32, True)
    found = vectors_of(encoder)
    close(found, encoder.whitening(before))
    encoder.save(tmp_path)
    close(theirs(tmp_path), found)
    listed = [module["path"] for module in json.loads((tmp_path / "modules.json").read_text())]
    assert listed == ["", "1_Pooling", "2_Normalize", "3_Whitening", "4_Normalize"]
    # A configuration with keys of ours wouldn't load in every release.
    config = json.loads((tmp_path / "3_Whitening" / "config.json").read_text())
    assert set(config) == {"in_features", "out_features", "bias", "activation_function"}


@pytest.mark.parametrize("cosine", [False, True])
def test_a_whitening_comes_back_to_the_bit(tiny_encoder, tmp_path, cosine):
    encoder = load(tiny_encoder, cosine)
    plain, unwhitened = encoder.fingerprint(), vectors_of(encoder)
    encoder.whitening = some_whitening(out=8, power=0.3)
    saved = EncoderFolder.save(encoder, Storage.open(str(tmp_path)))
    again = saved.load()
    assert again.whitening is not None
    assert torch.equal(again.whitening.mean, encoder.whitening.mean)
    assert torch.equal(again.whitening.matrix, encoder.whitening.matrix)
    assert again.whitening.power == 0.3
    assert again.fingerprint() == saved.fingerprint == encoder.fingerprint()
    assert torch.equal(vectors_of(again), vectors_of(encoder))
    # As it was before: the same training, so the same fingerprint.
    without = saved.without_whitening()
    assert without.fingerprint not in (saved.fingerprint, plain)
    assert without.without_whitening() == without
    loaded = without.load()
    assert loaded.whitening is None
    assert loaded.fingerprint() == plain
    assert torch.equal(vectors_of(loaded), unwhitened)


def test_encoders_have_one_name_before_whitening_if_nothing_else_differs(tiny_encoder, dense_folder, tmp_path):
    def saved(name, source=tiny_encoder, cosine=True, whitening=None, change=None):
        encoder = load(source, cosine)
        encoder.whitening = whitening
        if change is not None:
            change(encoder)
        return EncoderFolder.save(encoder, Storage.open(str(tmp_path / name)))

    def other_weights(encoder):
        with torch.no_grad():
            encoder.backbone.get_input_embeddings().weight[9] += 1e-3

    plain = saved("plain")
    whitened = [saved("one", whitening=some_whitening(out=8)), saved("two", whitening=some_whitening(out=32, seed=1))]
    alike = {folder.before_whitening() for folder in (plain, *whitened, whitened[0].without_whitening())}
    assert alike == {plain.before_whitening()}
    others = [
        saved("weights", whitening=some_whitening(out=8), change=other_weights),
        saved("not normalised", cosine=False, whitening=some_whitening(out=8)),
        saved("dense", dense_folder),
        saved("prompts", change=lambda encoder: setattr(encoder, "prompts", Prompts({"query": "q: "}))),
        plain._replace(max_length=8),
    ]
    assert len(alike | {folder.before_whitening() for folder in others}) == 1 + len(others)
    assert plain.whitening() is whitened[0].without_whitening().whitening() is None
    for folder in whitened:
        loaded, alone = folder.load().whitening, folder.whitening()
        assert alone is not None
        assert loaded is not None
        assert torch.equal(alone.mean, loaded.mean)
        assert torch.equal(alone.matrix, loaded.matrix)
    (tmp_path / "plain" / "checksums.json").unlink()
    assert plain.before_whitening() not in alike


def test_another_whitening_takes_the_place_of_the_last(tiny_encoder, tmp_path):
    encoder = load(tiny_encoder)
    encoder.whitening = some_whitening(out=8)
    encoder.save(tmp_path / "first")
    again = load(tmp_path / "first", cosine=True)
    again.whitening = other = some_whitening(out=16, power=1.0, seed=1)
    again.save(tmp_path / "second")
    close(theirs(tmp_path / "second"), other(vectors_of(load(tiny_encoder))))
    assert read_layout(tmp_path / "second").modules == ()


def test_the_fingerprint_has_whitening_and_dense(tiny_encoder, dense_folder):
    plain = load(tiny_encoder).fingerprint()
    encoder = load(tiny_encoder)
    found = {plain, load(dense_folder).fingerprint()}
    for whitening in (some_whitening(), some_whitening(out=8), some_whitening(power=1.0), some_whitening(seed=1)):
        encoder.whitening = whitening
        found.add(encoder.fingerprint())
    assert len(found) == 6
    encoder.whitening = None
    assert encoder.fingerprint() == plain
    dense = load(dense_folder)
    with torch.no_grad():
        dense_weight(dense)[0, 0] += 1e-6
    assert dense.fingerprint() not in found


def test_dense_modules_come_and_go(dense_folder, tmp_path):
    encoder = load(dense_folder)
    expected = theirs(dense_folder)
    assert encoder.dimension == encoder.base_dimension == expected.shape[1]
    close(vectors_of(encoder), expected)
    encoder.save(tmp_path / "ours")
    close(theirs(tmp_path / "ours"), expected)
    again = load(tmp_path / "ours")
    assert again.fingerprint() == encoder.fingerprint()
    assert torch.equal(vectors_of(again), vectors_of(encoder))
    # Used with cosines, and whitened.
    again = load(tmp_path / "ours", cosine=True)
    close(vectors_of(again), torch.nn.functional.normalize(expected))
    again.whitening = some_whitening(again.dimension, 4)
    again.save(tmp_path / "whitened")
    close(theirs(tmp_path / "whitened"), again.whitening(expected))
    assert torch.equal(vectors_of(load(tmp_path / "whitened")), vectors_of(again))


def test_dense_modules_are_trained_and_stay_in_fp32(dense_folder):
    encoder = load(dense_folder)
    assert EncoderSpec.of(encoder).dimension == encoder.dimension
    assert EncoderSpec.of(encoder).hidden == 32
    freeze_unused(encoder)
    assert dense_weight(encoder).requires_grad
    ready = for_inference(encoder, "bf16", torch.device("cpu"))
    ready.whitening = some_whitening(ready.dimension, 4)
    assert next(ready.backbone.parameters()).dtype == torch.bfloat16
    assert dense_weight(ready).dtype == torch.float32
    assert vectors_of(ready).dtype == torch.float32
    ids, mask = encoder.pad(tokenised(encoder, SOME))
    hidden = encoder.hidden(ids, mask)
    with torch.autocast("cpu", torch.bfloat16):
        found = encoder.pool(hidden, mask)
    assert torch.equal(found, encoder.pool(hidden, mask))


def test_a_checkpoint_has_all_of_the_encoder(dense_folder, tmp_path):
    source = annotated(tmp_path / "source", dense_folder)
    first, second = Run(dense_folder, source), Run(dense_folder, source)
    (folder := tmp_path / "checkpoint").mkdir()
    first.encoder.whitening = some_whitening(first.encoder.dimension, 4, power=0.7)
    with torch.no_grad():
        for parameter in first.encoder.parameters():
            parameter += 0.01
    Snapshot.of(0, first.state, first.stream.state(), {"step": 3}).write(folder)
    for had in (None, some_whitening(second.encoder.dimension, 8)):
        second.encoder.whitening = had
        assert load_checkpoint(folder, second.state, second.stream) == {"step": 3}
        assert second.encoder.fingerprint() == first.encoder.fingerprint()
    first.encoder.whitening = None
    Snapshot.of(0, first.state, first.stream.state(), {"step": 4}).write(folder)
    load_checkpoint(folder, second.state, second.stream)
    assert second.encoder.whitening is None
    assert second.encoder.fingerprint() == first.encoder.fingerprint()


def dense_in(folder, tmp_path, **changed) -> Path:
    """A copy of our own export with a Dense module, with another configuration of it."""
    encoder = load(folder)
    copy = tmp_path / "changed"
    encoder.save(copy)
    path = copy / "2_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return copy


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"activation_function": "my.own.Activation"}, r"my.own.Activation"),
        ({"activation_function": "torch.nn.modules.linear.Linear"}, "Linear"),
        ({"use_residual": True}, "adds its input"),
        ({"module_input_name": "token_embeddings"}, "token vectors"),
        ({"out_features": 7}, "size mismatch"),
    ],
)
def test_dense_modules_it_cannot_compute(dense_folder, tmp_path, changed, named):
    message = refused(dense_in(dense_folder, tmp_path, **changed))
    assert named in message
    assert "2_Dense" in message


def test_dense_weights_are_never_unpickled(dense_folder, tmp_path, monkeypatch):
    folder = dense_in(dense_folder, tmp_path)
    weights = folder / "2_Dense" / "model.safetensors"
    torch.save(load_file(weights), folder / "2_Dense" / "pytorch_model.bin")
    weights.unlink()
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("unpickled"))
    assert "save_pretrained" in refused(folder)
    (folder / "2_Dense" / "config.json").unlink()
    assert "2_Dense/config.json" in refused(folder)


def test_modules_in_an_order_it_cannot_compute(dense_folder, tmp_path):
    folder = copy_of(dense_folder, tmp_path)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1], modules[2] = modules[2], modules[1]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "before pooling" in refused(folder)


def test_a_dense_module_of_another_dimension(dense_folder, tmp_path):
    folder = copy_of(dense_folder, tmp_path)
    modules = json.loads((folder / "modules.json").read_text())
    modules.append(modules[2])
    (folder / "modules.json").write_text(json.dumps(modules))
    assert "reads 32 dimensions" in refused(folder)
