"""A run's folder `model` is replaced by what it exports now; what a user put or wrote there stays."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.reading import ReadAs
from infocse_ray.loop.exported import export
from infocse_ray.loop.its_run import how_read
from infocse_ray.loop.manifest import Manifest
from infocse_ray.storage.folder import Storage
from tests.unit.indexes import tiny

READ = ReadAs(reading="whole", max_length=12, similarity="dot", language="de")


@pytest.fixture
def run(tmp_path: Path) -> Storage:
    return Storage.open(str(tmp_path / "runs")) / "news"


@pytest.fixture
def encoder(tmp_path: Path, tiny_encoder: Path) -> EncoderFolder:
    return EncoderFolder.save(tiny(tiny_encoder), Storage.open(str(tmp_path / "saved")))


def finished(run: Storage, encoder: EncoderFolder, card: str, identity: str = "i") -> Manifest:
    """As the end of a run does it."""
    manifest = Manifest(run)
    manifest.begin("pretrain", {}, {"corpus": identity})
    names = export(encoder, run, card, READ, manifest.exported)
    (run / "metrics.json").write_json({})
    manifest.finish(identity, names)
    return manifest


def test_a_card_that_was_written_into_is_no_damage(run: Storage, encoder: EncoderFolder, capsys):
    assert finished(run, encoder, "---\n---\n# News").finished("i")
    (run / "model" / "README.md").write_bytes(b"---\nlicense: mit\n---\n# News")
    (run / "model" / "mine.txt").write_bytes(b"mine")
    assert Manifest(run).finished("i")
    assert capsys.readouterr().out == ""
    (run / "model" / "config.json").write_bytes(b"{}")
    assert not Manifest(run).finished("i")
    assert "config.json is damaged" in capsys.readouterr().out
    (run / "model" / "config.json").delete()
    (run / "model" / "README.md").delete()
    assert not Manifest(run).finished("i")


def test_a_copy_of_the_model_knows_how_documents_are_read(run: Storage, encoder: EncoderFolder, tmp_path: Path):
    manifest = finished(run, encoder, "# News")
    assert "model/infocse.json" in manifest.exported
    shutil.copytree((run / "model").path, copied := tmp_path / "copied")
    assert how_read(str(copied)) == READ
    (run / "model" / "infocse.json").delete()
    assert not Manifest(run).finished("i"), "the same command writes it again"


def test_what_a_user_put_there_stays_whatever_takes_the_place_of_the_rest(run: Storage, encoder: EncoderFolder, capsys):
    finished(run, encoder, "# First")
    (run / "model" / "mine" / "notes.txt").write_bytes(b"mine")
    (run / "model" / "README.md").write_bytes(b"# First, with a licence")
    # A driver that was killed before it exported has begun the manifest anew.
    Manifest(run).begin("pretrain", {}, {"corpus": "other"})
    manifest = finished(run, encoder, "# Second", "other")
    assert (run / "model" / "mine" / "notes.txt").read_bytes() == b"mine"
    assert (run / "model" / "README.md").read_bytes() == b"# Second"
    assert (run / "model" / "README.before.md").read_bytes() == b"# First, with a licence"
    assert "what it was is in README.before.md" in capsys.readouterr().out
    (run / "model" / "mine" / "notes.txt").write_bytes(b"changed")
    assert manifest.finished("other"), "what is a user's own isn't looked at"
    finished(run, encoder, "# Third", "third")
    assert (run / "model" / "mine" / "notes.txt").read_bytes() == b"changed"
    assert (run / "model" / "README.before.md").read_bytes() == b"# First, with a licence", "as a user's own by now"
    assert "written into" not in capsys.readouterr().out


def test_an_end_that_was_cut_off_wrote_nothing_by_hand(run: Storage, encoder: EncoderFolder, capsys):
    finished(run, encoder, "# First")
    manifest = Manifest(run)
    manifest.begin("pretrain", {}, {"corpus": "other"})
    export(encoder, run, "# Second", READ, manifest.exported)  # and killed before the manifest says so
    finished(run, encoder, "# Second", "other")
    assert not (run / "model" / "README.before.md").exists()
    assert "written into" not in capsys.readouterr().out


def test_of_an_export_that_is_gone_nothing_stays(run: Storage, encoder: EncoderFolder, tmp_path: Path):
    (other := tmp_path / "other" / "2_Whitening" / "old.bin").parent.mkdir(parents=True)
    other.write_bytes(b"x")
    finished(run, encoder, "# First")
    manifest = Manifest(run)
    manifest._content["files"]["model/2_Whitening/old.bin"] = "d"
    (run / "model" / "2_Whitening" / "old.bin").write_bytes(b"x")
    names = export(encoder, run, "# Second", READ, manifest.exported)
    assert "2_Whitening/old.bin" not in names
    assert not (run / "model" / "2_Whitening" / "old.bin").exists()


def test_of_an_export_that_nothing_tells_of_nothing_stays(run: Storage, encoder: EncoderFolder):
    (run / "model" / "old.bin").write_bytes(b"of a version that kept no digests")
    export(encoder, run, "# News", READ, {})
    assert not (run / "model" / "old.bin").exists()
