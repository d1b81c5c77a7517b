"""Into the hub: what is checked and refused before anything is sent, and what a stand-in for the hub gets."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from pyarrow.fs import FileInfo
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from infocse_ray.commands.push import main
from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.layout import write_layout
from infocse_ray.encoder.prompts import Prompts
from infocse_ray.export import push
from infocse_ray.export.contents import parts_of
from infocse_ray.loop.contents import bytes_of
from infocse_ray.storage.folder import Storage
from tests.unit.encoder.test_encoder import copy_of, load
from tests.unit.encoder.test_encoder_modules import some_whitening
from tests.unit.export.hub import TOKEN, Hub, serving

CARD = "---\nlibrary_name: sentence-transformers\nlicense: mit\ntags:\n- infocse\n---\n\n# news\n"


@pytest.fixture
def model(tiny_encoder: Path, tmp_path: Path) -> Path:
    encoder = load(tiny_encoder, True)
    encoder.whitening = some_whitening(out=8)
    encoder.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text(CARD)
    return tmp_path / "model"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as hub:
        # Read from the environment, HF_ENDPOINT and HF_HUB_OFFLINE, when the library is imported.
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.hf_api, "ENDPOINT", hub.url, raising=False)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        yield hub


def refused(*argv: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    captured = capsys.readouterr()
    assert TOKEN not in captured.out + captured.err
    lines = [line for line in captured.err.splitlines() if "loading torch" not in line]
    assert len(lines) == 1
    return lines[0]


def test_a_dry_run_lists_and_sends_nothing(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    (model / ".gitattributes").write_text("x")
    assert main(["--model", str(model), "--repo", "me/news", "--dry_run"]) == 0
    said = capsys.readouterr().out
    for name in ("model.safetensors", "3_Whitening/whitening.safetensors"):
        assert f"{bytes_of((model / name).stat().st_size):>8}  {name}" in said
    assert " kB" in said  # not 0.0 MB
    assert ".gitattributes" not in said
    assert "warning: the card has no base_model" in said
    assert "would go to me/news; nothing was sent" in said


def test_a_language_models_chat_template_is_part_of_its_tokenizer(tiny_encoder: Path, tmp_path: Path) -> None:
    encoder = load(tiny_encoder, True)
    encoder.tokenizer.chat_template = {"default": "{{ messages }}", "tools": "{{ tools }}"}
    encoder.save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text(CARD)
    names = {part.name for part in parts_of(tmp_path / "model")}
    assert {"chat_template.jinja", "additional_chat_templates/tools.jinja"} <= names


def test_an_encoder_whose_prompt_is_long_is_loaded_all_the_same(
    tiny_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = copy_of(tiny_encoder, tmp_path)
    (model / "README.md").write_text(CARD)
    lengths: list[int] = []

    def noted(encoder: Any, texts: Any) -> Any:
        lengths.append(int(texts.lengths.max()))
        return embed(encoder, texts)

    monkeypatch.setattr(push, "embed", noted)
    for prompt in ("the ship " * 15, ""):
        write_layout(model, 32, "mean", True, 60, prompts=Prompts({"query": prompt}))
        assert main(["--model", str(model), "--repo", "me/news", "--dry_run"]) == 0
    assert lengths == [60, 30], "short texts do, behind the prompt"


def test_the_hub_gets_every_file_as_it_is(model: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", str(model), "--repo", "me/news", "--private", "--revision", "v2"]) == 0
    assert hub.private
    sent = hub.files["v2"]
    assert sent == {part.name: (model / part.name).read_bytes() for part in parts_of(model)}
    assert {"README.md", "model.safetensors", "modules.json", "3_Whitening/whitening.safetensors"} <= set(sent)
    captured = capsys.readouterr()
    assert f"are in me/news, branch v2: {hub.url}/me/news/tree/v2" in captured.out
    assert TOKEN not in captured.out + captured.err


def test_what_was_replaced_in_a_storage_without_times_is_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = Storage.files

    def files(self: Storage) -> dict[str, FileInfo]:
        return {name: FileInfo(info.path, info.type, size=info.size) for name, info in listed(self).items()}

    monkeypatch.setattr(Storage, "files", files)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    remote = Storage.open(f"memory://{uuid.uuid4().hex}/model")
    for content in (b"old", b"new"):
        (remote / "config.json").write_bytes(content)
        assert (push._folder(str(remote)) / "config.json").read_bytes() == content


def test_the_hubs_refusals_are_one_line(
    model: Path, hub: Hub, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    argv = ("--model", str(model), "--repo", "me/news")
    hub.public_already = True
    assert "me/news is there already and public" in refused(*argv, "--private", capsys=capsys)
    assert not hub.files
    monkeypatch.setenv("HF_TOKEN", "hf_of-somebody-else")
    assert "does HF_TOKEN belong to somebody who may write there?" in refused(*argv, capsys=capsys)
    monkeypatch.delenv("HF_TOKEN")
    assert "HF_TOKEN isn't set" in refused(*argv, capsys=capsys)
    assert not hub.files


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("optimizer.pt", "a checkpoint or pickled weights"),
        ("pytorch_model.bin", "a checkpoint or pickled weights"),
        ("optimizer.safetensors", "a state of training"),
        ("checkpoint-5/model.safetensors", "a checkpoint"),
        ("ranks/part-00000.parquet", "data, perhaps the corpus's text"),
        ("corpus.jsonl.gz", "data, perhaps"),
        ("1_Pooling/sentences.txt", "data, perhaps"),
        ("metrics.json", "a run's record"),
        ("notes.docx", "an unknown file"),
        ("texts/all.model", "an unknown file"),
    ],
)
def test_what_is_no_part_of_an_encoder_is_refused(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(CARD)
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("x")
    with pytest.raises(ValueError, match=kind) as refusal:
        parts_of(tmp_path)
    assert name in str(refusal.value)


def test_a_link_to_elsewhere_is_no_part_of_an_encoder(tmp_path: Path) -> None:
    (tmp_path / "secrets").write_text("x")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "README.md").write_text(CARD)
    (folder / "vocab.txt").symlink_to(tmp_path / "secrets")
    with pytest.raises(
        ValueError, match=r"^model: 'vocab\.txt' in .* is a link to elsewhere; put the file itself there"
    ):
        parts_of(folder)
    (folder / "vocab.txt").unlink()
    (folder / "vocab.txt").symlink_to(folder / "README.md")
    assert [part.name for part in parts_of(folder)] == ["README.md", "vocab.txt"]


def test_neither_a_credential_in_a_configuration_nor_vectors_that_are_not_finite_are_shared(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--model", str(model), "--repo", "me/news", "--dry_run")
    config = model / "config_sentence_transformers.json"
    said = json.loads(config.read_text())
    config.write_text(json.dumps(said | {"from": "s3://me:a-password@there/x"}))
    assert f"{config} holds a credential" in refused(*argv, capsys=capsys)
    config.write_text(json.dumps(said))
    assert main(argv) == 0
    capsys.readouterr()
    for file, part in (("3_Whitening/whitening.safetensors", "matrix"), ("model.safetensors", "word_embeddings")):
        content = (model / file).read_bytes()
        broken = {n: w * float("nan") if part in n else w for n, w in load_file(model / file).items()}
        with safe_open(model / file, "pt") as opened:  # pyright: ignore[reportPrivateImportUsage]
            save_file(broken, model / file, opened.metadata())
        assert f"model = '{model}': its vectors aren't finite" in refused(*argv, capsys=capsys)
        (model / file).write_bytes(content)


def test_other_mistakes_are_one_line(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*argv: str, repo: str = "me/news") -> str:
        return refused("--repo", repo, "--dry_run", *(argv or ("--model", str(model))), capsys=capsys)

    assert "no such folder" in said("--model", str(tmp_path / "none"))
    assert "model = ''" in said("--model", ""), "it isn't the working directory"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    assert "the folder of a run that has no result yet" in said("--model", str(tmp_path / "run"))
    assert "repo = 'me/ne ws'" in said(repo="me/ne ws")
    assert "repo = 'news': name its owner too, as user/news" in said(repo="news")
    for card, message in (
        ("---\ntags: [a\n---\n", "the front matter of"),
        ("---\nlibrary_name: sentence-transformers\nmodel-index: {a: 1}\n---\n", "isn't valid"),
        ("---\nlibrary_name: sentence-transformers\nlicense: [mit]\n---\n", "license is ['mit']"),
        ("---\nlibrary_name: keras\n---\n", "it must be sentence-transformers"),
        ("# news\n", "has no front matter"),
        (CARD + "s3://me:a-password@there/x\n", "holds a credential"),
    ):
        (model / "README.md").write_text(card)
        assert message in said()
    (model / "README.md").write_text(CARD)
    shutil.copy(model / "config.json", model / "model.safetensors")
    assert f"model = '{model}'" in said()
    (model / "model.safetensors").unlink()
    assert "has neither weights (model.safetensors) nor a graph" in said()
    (model / "README.md").unlink()
    assert "has no card (README.md)" in said()
