"""What is said of a run's encoder: it is read otherwise than its run read it, or asked by what it was trained on."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from infocse_ray.encoder.reading import ReadAs
from infocse_ray.loop import its_run
from infocse_ray.settings import Settings
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.storage.checksums import checked
from infocse_ray.storage.folder import Storage

GIVEN = {"model": "runs/news/model", "output": "o", "corpus": {"source": "a"}}


@pytest.mark.parametrize(
    ("asked", "had", "advice"),
    [
        ({}, {}, None),
        ({}, {"reading": "whole"}, "give --reading whole"),
        ({}, {"max_length": 64, "similarity": "dot"}, "give --max_length 64 --similarity dot"),
        ({"reading": "both"}, {"reading": "whole"}, None),
        ({"max_length": 32}, {"reading": "whole", "max_length": 64}, "give --reading whole"),
    ],
)
def test_what_nobody_asked_for_is_said_in_one_line(
    asked: dict[str, Any],
    had: dict[str, Any],
    advice: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    settings = Embed.model_validate(GIVEN | asked)
    its = {"reading": "both", "max_length": 32, "similarity": "cosine"} | had
    run = SimpleNamespace(
        corpus=SimpleNamespace(language="en"),
        validate=SimpleNamespace(reading=its["reading"]),
        encoder=SimpleNamespace(max_length=its["max_length"]),
        train=SimpleNamespace(similarity=its["similarity"]),
    )
    monkeypatch.setattr(its_run, "run_of", lambda _: SimpleNamespace(settings=run))
    its_run.say_unlike_its_run(settings)
    out = capsys.readouterr().out
    assert out.count("\n") == (advice is not None)
    assert out.strip().endswith(advice or "")
    its_run.say_unlike_its_run(settings, reading=False)
    assert "--reading" not in capsys.readouterr().out
    # As a copy of the model says it.
    monkeypatch.setattr(its_run, "run_of", lambda _: None)
    (folder := tmp_path / "copied").mkdir()
    copied = settings.model_copy(update={"model": str(folder)})
    its_run.say_unlike_its_run(copied)
    assert not capsys.readouterr().out
    ReadAs(**its, language="en").write(Storage.open(str(folder)))  # pyright: ignore
    its_run.say_unlike_its_run(copied)
    assert capsys.readouterr().out == out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "can't be read: "),
        ("[]", "can't be read: it has no object in braces; mend it"),
        (
            '{"reading": "halves", "max_length": 2, "similarity": "dot", "language": "en"}',
            "reading = 'halves': should be",
        ),
        (
            '{"reading": "whole"}',
            "max_length, similarity, language are required; mend it, remove it, or",
        ),
    ],
)
def test_how_documents_are_read_is_refused_where_it_isnt_as_it_was_written(
    content: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "infocse.json").write_text(content)
    with pytest.raises(ValueError, match=said) as refused:
        its_run.how_read(str(tmp_path))
    assert str(refused.value).startswith("model: ")
    assert "infocse.json" in str(refused.value)
    # For a note alone nothing ends.
    its_run.say_unlike_its_run(Embed.model_validate(GIVEN | {"model": str(tmp_path)}))
    assert capsys.readouterr().out == f"warning: {refused.value}\n"
    given = {"reading": "whole", "max_length": 8, "similarity": "dot"}
    its_run.say_unlike_its_run(Embed.model_validate(GIVEN | {"model": str(tmp_path)} | given))
    assert capsys.readouterr().out == ""


def test_of_a_folder_elsewhere_one_file_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(its_run, "resolve_encoder", None)
    monkeypatch.setattr(its_run, "is_remote", lambda _: True)
    monkeypatch.setattr(its_run, "run_of", lambda _: None)
    assert its_run.how_read(str(tmp_path)) is None
    read = ReadAs(reading="whole", max_length=8, similarity="dot", language="de")
    read.write(Storage.open(str(tmp_path)))
    assert its_run.how_read(str(tmp_path)) == read


@pytest.mark.parametrize(
    ("split", "store", "had", "files", "warned"),
    [
        ("all", "other", {}, "a", True),
        ("train", "its", {}, "a", True),
        ("test", "its", {}, "a", True),
        ("valid", "its", {}, "a", False),
        ("valid", "other", {}, "a", True),
        ("valid", "stage", {}, "a", True),
        ("valid", "gone", {}, "a", True),
        ("valid", "its", {"validate": {"on": "counterpart"}}, "a", True),
        ("test", "its", {"corpus": {"source": "c", "unlabelled": "train"}}, "a", False),
        ("all", "other", {"train": {"method": "none"}}, "a", False),
        ("all", "other", {}, "b", False),
    ],
)
def test_documents_that_an_encoder_was_trained_on_are_warned_of(
    split: str,
    store: str,
    had: dict[str, Any],
    files: str,
    warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    its = {"name": "news", "encoder": {"model": "m"}, "corpus": {"source": "c"}} | had
    root = Storage.open(str(tmp_path))
    # A stage is named by what it is made of, what it left by what it holds.
    commit = {"kind": "prepare", "fingerprint": "stage", "summary": {"content": "its"}, "files": {}}
    (root / "corpora" / "its" / "stage.json").write_json(checked(commit))
    corpus = {"fingerprint": "stage", "folder": "corpora/its" if store != "gone" else "corpora/other"}
    manifest = SimpleNamespace(before={"inputs": {"corpus": "a"}, "stages": {"corpus": corpus}}, job="pretrain")
    run = SimpleNamespace(root=root, settings=Settings.model_validate(its), manifest=manifest)
    monkeypatch.setattr(its_run, "run_of", lambda model: run if model == "runs/news/model" else None)
    settings = Evaluate.model_validate(
        {"model": "runs/news/model", "compare": "other", "corpus": {"source": "c"}, "split": split}
    )
    there: Any = SimpleNamespace(fingerprint=store, summary={"labelled": {"valid": 9}})
    if "validate" not in had:
        there.summary["labelled"]["valid"] = 0
    its_run.say_what_it_saw(settings, files, [there])
    out = capsys.readouterr().out
    assert out.startswith("warning: model = 'runs/news/model': the run news trained it on these") == warned
    assert out.count("\n") == warned
    all_trained_on = store == "its" and "validate" in had
    assert out.endswith("; give other documents\n") == (warned and all_trained_on), "no split was held out"
