"""Examples counted shard by shard; methods by name; what names a method's results."""

import json
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
import pytest

from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.registry import method_of, pooling_of
from infocse_ray.sampling.examples import _count
from infocse_ray.settings import MethodName, Settings, fingerprint
from infocse_ray.storage.folder import Storage
from tests.unit.stores import SPEC, Written, write_annotations
from tests.unit.trainees import method_for, settings_for

NAMES = get_args(MethodName)
METHODS = [name for name in NAMES if name not in ("idc", "none")]


def test_counts_of_shards(tmp_path):
    draw = np.random.default_rng(0)
    documents = [
        Written(
            f"d{n}",
            [[5] * 8 + [20 + text] for text in range(size)],
            [int(c) for c in np.arange(size) // 2],
            split=split,
        )
        for n, (size, split) in enumerate(zip(draw.integers(2, 12, 40), ["train", "test"] * 20, strict=True))
    ]
    packs = pa.table({"shards": pa.array([[0, 1], [2, 3]], pa.list_(pa.int64()))})
    for splits in (["train"], ["test"], ["train", "test"], ["valid"]):
        # A row group holds documents of one split.
        folder = Storage.open(str(tmp_path)) / "-".join(splits)
        source = write_annotations(folder, documents, 2, 4, group=1, splits=splits)
        mine = [d for d in documents if d.split in splits]
        by_hand = {
            "simcse": [len(d.sentences) for d in mine],
            "cpc": [max(1, len(d.sentences) - 5) for d in mine],
            "idc": [len(d.sentences) // 2 for d in mine],
            "declutr": [1 for _ in mine],
        }
        short = {
            "simcse": 0,
            "cpc": sum(len(d.sentences) < 6 for d in mine),
            "idc": 0,
            "declutr": sum(9 * len(d.sentences) < 2 * 2 * 4 for d in mine),
        }
        for case, expected in by_hand.items():
            rows = [json.loads(r) for r in _count(packs, source, method_for(case))["counts"].to_pylist()]
            assert [number for row in rows for number, _ in row["shards"]] == [0, 1, 2, 3]
            for row in rows:
                [(shard, examples)] = row["shards"]
                of_shard = {d.doc_id for d in documents[shard::4]}
                assert examples == sum(e for e, d in zip(expected, mine, strict=True) if d.doc_id in of_shard)
                assert row.get("examples", 0) == examples
            total = {name: sum(row.get(name, 0) for row in rows) for name in ("documents", "none", "short")}
            assert total == {"documents": len(mine), "none": 0, "short": short[case]}


def test_documents_without_examples_are_counted(tmp_path):
    documents = [Written("alone", [[5], [6]], [0, 1]), Written("pair", [[5], [6]], [0, 0])]
    source = write_annotations(Storage.open(str(tmp_path)), documents, 1, 1)
    found = _count(pa.table({"shards": [[0]]}), source, method_for("idc"))["counts"].to_pylist()
    assert json.loads(found[0]) == {"shards": [[0, 1]], "examples": 1, "documents": 1, "none": 1, "short": 0}


def test_every_name_has_a_strategy(tiny_encoder):
    settings = settings_for("idc", tiny_encoder)
    spec = EncoderSpec.of(load_encoder(tiny_encoder, settings.encoder, False))
    for name in NAMES:
        method = method_of(name, settings, spec)
        assert (method is None) == (name == "none")
        if method is not None:
            assert method.identity()[0] == name
            assert method.annotated == (name == "idc")
            assert method.longest <= 62
            assert pooling_of(name) == cast(Any, method).pooling
    assert {name for name in NAMES if pooling_of(name) == "cls"} == {"simcse", "ict", "conpono", "tsdae"}


def test_the_lexicon_of_an_encoder(tiny_encoder):
    encoder = load_encoder(tiny_encoder, settings_for("idc", tiny_encoder).encoder, False)
    found = EncoderSpec.of(encoder)
    size = len(encoder.tokenizer)
    expected = (14, 14, 62, 32, 32, 32, 32, "bert", True, True, True, True, (1, 1), size, (0, 1, 2, 3, 4), 4)
    assert found[:-2] == expected
    assert found.behind_a_space is None
    assert found.characters.shape == (size,)


def base(name: str) -> dict[str, Any]:
    return {"name": "run", "corpus": {"source": "a"}, "encoder": {"model": "m"}, "train": {"method": name}}


def identity(name, content) -> str:
    method = method_of(name, Settings.model_validate(content), SPEC)
    assert method is not None
    return fingerprint(*method.identity())


def other_than(value, field) -> Any:
    """Another allowed value of a setting."""
    if isinstance(value, bool):
        return not value
    if choices := get_args(field.annotation):
        named = [choice for choice in choices if isinstance(choice, str) and choice != value]
        if named:
            return named[0]
    if value is None:
        return 3 if int in get_args(field.annotation) else 0.7
    return {int: lambda: value + 1, float: lambda: value / 2}[type(value)]()


SECTIONS = [(name, setting) for name in METHODS for setting in type(getattr(settings_for("idc"), name)).model_fields]


@pytest.mark.parametrize(("name", "setting"), SECTIONS)
def test_a_setting_names_its_strategys_results_and_no_others(name, setting):
    section = getattr(settings_for("idc"), name)
    value = other_than(getattr(section, setting), type(section).model_fields[setting])
    for method in [*METHODS, "idc"]:
        content = base(method)
        changed = identity(method, content | {name: {setting: value}}) != identity(method, content)
        assert changed == (method == name), method


READ = {
    "temperature": (0.3, {"idc", "cpc", "conpono"}),
    "similarity": ("dot", {"idc", "ict"}),
    "batch_size": (7, set()),
    "learning_rate": (0.5, set()),
}


@pytest.mark.parametrize("setting", READ)
def test_settings_of_training_that_strategies_read(setting):
    value, readers = READ[setting]
    for name in [*METHODS, "idc"]:
        content, changed = base(name), base(name)
        changed["train"][setting] = value
        assert (identity(name, content) != identity(name, changed)) == (name in readers), name


def test_a_temperature_of_its_own_hides_the_runs():
    for name in ("ict", "cpc", "conpono"):
        # ICT's projected vectors have a length of their own, so that the run's temperature would not suit them.
        section = {"projection": 0} if name == "ict" else {}
        content = base(name) | {name: section | {"temperature": 0.2}}
        other = content | {"train": {"method": name, "temperature": 0.9}}
        assert identity(name, content) == identity(name, other)
        method: Any = method_of(name, Settings.model_validate(other), SPEC)
        assert method.temperature == 0.2
        inherited: Any = method_of(name, Settings.model_validate(other | {name: section}), SPEC)
        assert inherited.temperature == 0.9
    projected: Any = method_of("ict", Settings.model_validate(other | {"ict": {"projection": 8}}), SPEC)
    assert projected.temperature == 1.0
