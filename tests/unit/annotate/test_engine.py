"""The engines that annotate: which is taken, what is refused, that all give one encoder's vectors."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from infocse_ray.annotate import engine as module
from infocse_ray.annotate.documents import TrainingDocuments
from infocse_ray.annotate.engine import (
    PAYS_FROM,
    TORCH,
    Engine,
    agreement,
    check_agreement,
    engine_of,
    graph_in,
    make_graph,
)
from infocse_ray.encoder import openvino
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.prompts import ROLES
from infocse_ray.errors import DamagedFile
from infocse_ray.runtime import libraries
from infocse_ray.settings import Annotate, EngineName
from infocse_ray.storage.checksums import read_checked
from infocse_ray.storage.folder import Storage
from tests.unit.encoder.test_encoder import SENTENCES, tokenised
from tests.unit.export.test_export import prompts_not_pooled, whitened
from tests.unit.passes import SPLITS, Passes, small_store, written_clusters

CPU = torch.device("cpu")


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The packages that are found from now on."""
    found = {"openvino", "nncf"}
    monkeypatch.setattr(
        libraries.importlib.util, "find_spec", lambda name: SimpleNamespace(origin=name) if name in found else None
    )
    return found


def test_auto_depends_on_the_corpus_the_device_and_what_is_installed(there: set[str]) -> None:
    assert engine_of("auto", PAYS_FROM, False).name == "openvino"
    assert engine_of("auto", PAYS_FROM - 1, False).name == "torch"
    assert engine_of("auto", PAYS_FROM, True).name == "torch"
    assert engine_of("torch", PAYS_FROM, False).name == "torch"
    assert engine_of("openvino", 2, False).name == "openvino"
    there.clear()
    chosen = engine_of("auto", PAYS_FROM, False)
    assert chosen.name == "torch"
    assert "pip install 'infocse-ray[openvino]'" in chosen.line()


def test_what_is_asked_for_and_cant_be_had_is_refused_in_one_line(there: set[str]) -> None:
    with pytest.raises(ValueError, match=r"^annotate\.engine = openvino: OpenVINO is for CPUs.*use_gpu to false$"):
        engine_of("openvino", 2, True)
    there.remove("nncf")
    assert engine_of("openvino", 2, False).name == "openvino"
    with pytest.raises(ValueError, match=r"^annotate\.engine = openvino_int8: nncf is not installed: pip install "):
        engine_of("openvino_int8", 2, False)
    there.clear()
    with pytest.raises(ValueError, match=r"^annotate\.engine = openvino: openvino is not installed: pip install "):
        engine_of("openvino", 2, False)


def test_edges_that_become_others_are_refused() -> None:
    one = np.arange(100)
    assert agreement(one, one) == 1.0
    assert agreement(one, one[3:]) == 0.97
    assert agreement(one[:0], one[:0]) is None
    for share in (None, 1.0, 0.97):
        check_agreement(share)
    with pytest.raises(ValueError, match=r"^annotate\.engine = openvino_int8: .* 96\.9% of the edges.*to openvino$"):
        check_agreement(0.969)


def needs(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:  # imported here, OpenVINO would report its use
            pytest.skip(f"there is no {package}")


def made(folder: Path, encoder: EncoderFolder, name: EngineName) -> Engine:
    store = small_store(folder / "store")
    make_graph(Storage.open(str(folder)), encoder, name, "fp32", TrainingDocuments(store, SPLITS), 1)
    return Engine(name, graph_in(Storage.open(str(folder))))


@pytest.mark.parametrize("make", [whitened, prompts_not_pooled])
def test_vectors_are_those_of_torch(make: Any, tiny_encoder: Path, tmp_path: Path) -> None:
    needs("openvino")
    encoder = make(tiny_encoder, tmp_path)
    saved = EncoderFolder.save(encoder, Storage.open(str(tmp_path / "saved")))
    engine = made(tmp_path / "graph", saved, "openvino")
    texts = tokenised(encoder, SENTENCES[:30])
    for precision, tolerance in (("fp32", 1e-5), ("bf16", 0.05)):
        theirs = engine.ready(saved.load(), precision, CPU)  # pyright: ignore[reportArgumentType]
        for role in ROLES:
            ours = embed(encoder, texts, 200, role).vectors
            torch.testing.assert_close(embed(theirs, texts, 200, role).vectors, ours, rtol=0, atol=tolerance)
    assert sys.modules["openvino_telemetry"] is None  # nothing is sent


def test_annotations_are_those_of_torch(tmp_path: Path, passes: Passes) -> None:
    needs("openvino")
    store = small_store(tmp_path / "store")
    engine = made(tmp_path / "graph", passes.encoder, "openvino")
    summary = passes.annotate(store, tmp_path / "ours", Annotate(), workers=2, engine=engine)
    assert summary == passes.annotate(store, tmp_path / "torch", Annotate(), engine=TORCH)
    assert written_clusters(store, tmp_path / "ours") == written_clusters(store, tmp_path / "torch")


def test_8_bits_are_tried_on_the_corpus(tmp_path: Path, passes: Passes, monkeypatch: pytest.MonkeyPatch) -> None:
    needs("openvino", "nncf")
    monkeypatch.setattr(module, "_SAMPLE", 60)
    monkeypatch.setattr(module, "LEAST_AGREEMENT", 2.0)
    tried: list[bool] = []
    in_8_bits: list[int] = []
    quantised = openvino.quantised

    def seen(model: Any, batches: Any, only_square: bool) -> Any:
        tried.append(only_square)
        small = quantised(model, batches, only_square)
        in_8_bits.append(sum(op.get_type_name() == "FakeQuantize" for op in small.get_ops()))
        return small

    monkeypatch.setattr(openvino, "quantised", seen)
    engine = made(tmp_path / "graph", passes.encoder, "openvino_int8")
    assert tried == [False, True]
    assert in_8_bits[0] > in_8_bits[1] > 0
    record = read_checked(Storage.open(str(tmp_path / "graph" / "graph.json")))
    assert record["only_square"]
    assert 0.8 < record["agreement"] <= 1.0
    texts = tokenised(passes.encoder.load(), SENTENCES[:30])
    theirs = embed(engine.ready(passes.encoder.load(), "fp32", CPU), texts).vectors
    ours = embed(passes.encoder.load(), texts).vectors
    assert torch.nn.functional.cosine_similarity(theirs, ours).min() > 0.95


def test_a_damaged_graph_is_named(tmp_path: Path, passes: Passes) -> None:
    needs("openvino")
    engine = made(tmp_path / "graph", passes.encoder, "openvino")
    assert engine.graph is not None
    file = Path(engine.graph.path)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DamagedFile, match=r"backbone\.graph is damaged"):
        engine.ready(passes.encoder.load(), "fp32", CPU)


def test_a_machine_without_openvino_says_so(tmp_path: Path, passes: Passes, there: set[str]) -> None:
    there.clear()
    engine = Engine("openvino", Storage.open(str(tmp_path / "graph")))
    with pytest.raises(ValueError, match="openvino is not installed"):
        engine.ready(passes.encoder.load(), "fp32", CPU)
    assert openvino.EXTRA == "openvino"
