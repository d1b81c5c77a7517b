"""No credential is shown or stored, whichever way a URI holds it; what is opened or read back stays as it is."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from infocse_ray.commands.job import run_job
from infocse_ray.corpus.labels import LabelWriter
from infocse_ray.corpus.source import find_source
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Corpus, Section
from infocse_ray.storage import redact
from infocse_ray.storage.folder import Storage, open_filesystem
from infocse_ray.storage.redact import learn, redacted, redacted_json, without_credentials
from tests.conftest import make_documents, write_jsonl

KEY, SECRET = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(redact, "_learnt", set())
    hook = sys.excepthook
    yield
    sys.excepthook = hook


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        (f"s3://{KEY}:{SECRET}@bucket/runs", "s3://***@bucket/runs"),
        (f"s3://{KEY}:wJalr%2FX@bucket/runs?region=eu", "s3://***@bucket/runs?region=eu"),
        ("https://user:pass@host:9000/a", "https://***@host:9000/a"),
        ("https://hf_0123456789@host/a", "https://***@host/a"),
        (
            f"s3://bucket/a?region=eu&access_key={KEY}&secret_key={SECRET}&session_token=abc&scheme=http",
            "s3://bucket/a?region=eu&access_key=***&secret_key=***&session_token=***&scheme=http",
        ),
        (
            "https://host/a?X-Amz-Credential=AKIA%2F2026&X-Amz-Signature=0f0f&X-Amz-Expires=60",
            "https://host/a?X-Amz-Credential=***&X-Amz-Signature=***&X-Amz-Expires=60",
        ),
        ("https://account.blob/a?sv=2024&sig=abc%3D", "https://account.blob/a?sv=2024&sig=***"),
        ("sftp://host/a?password=x", "sftp://host/a?password=***"),
    ],
)
def test_credentials_in_a_uri_are_hidden_and_the_rest_is_not(uri: str, shown: str) -> None:
    assert redacted(uri) == redacted(shown) == shown
    assert redacted(f"['{uri}', \"{uri}\"] and ({uri} ") == f"['{shown}', \"{shown}\"] and ({shown} "


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket/runs?region=eu&endpoint_override=127.0.0.1:9000",
        "abfs://container@account.dfs.core.windows.net/a",
        "http://127.0.0.1:9000/bucket",
        "/home/me@work/runs:2/a?key",
        "s3://bucket/a@b:c/d",
        "loss 0.5, mail me@example.org: 3 of 4",
    ],
)
def test_what_is_no_credential_stays(text: str) -> None:
    assert redacted(text) == text


def test_a_secret_of_an_opened_uri_is_hidden_wherever_it_turns_up() -> None:
    said = f"the key id {KEY} and the signature of {SECRET} do not match"
    assert redacted(said) == said
    learn(f"s3://{KEY}:{SECRET.replace('/', '%2F').replace('+', '%2B')}@bucket/runs")
    assert redacted(said) == "the key id *** and the signature of *** do not match"
    assert SECRET.replace("/", "%2F").replace("+", "%2B") not in redacted(f"path {SECRET.replace('/', '%2F')}")


def test_opening_a_uri_is_enough_to_learn_it() -> None:
    open_filesystem("s3://someone:long-password@bucket/runs?region=eu-west-1")
    assert redacted("denied: long-password of someone") == "denied: *** of someone"


def test_secrets_of_the_environment_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert redacted(f"bad signature {SECRET}.") == "bad signature ***."


def test_short_secrets_are_hidden_by_their_place_only() -> None:
    learn("s3://user:run@bucket")
    assert redacted("s3://user:run@bucket/run: a run") == "s3://***@bucket/run: a run"


def test_json_is_redacted_all_through() -> None:
    uri, shown = f"s3://a:{SECRET}@b/c", "s3://***@b/c"
    value = {"settings": {"storage": uri, "corpus": {"source": [uri, "d"]}}, uri: 1, "n": [1, None, True, 0.5]}
    assert redacted_json(value) == {
        "settings": {"storage": shown, "corpus": {"source": [shown, "d"]}},
        shown: 1,
        "n": [1, None, True, 0.5],
    }


def test_what_stays_of_a_uri_when_credentials_change() -> None:
    assert without_credentials(f"s3://{KEY}:{SECRET}@bucket/a") == "s3://bucket/a"
    assert without_credentials("abfs://container@account/a") == "abfs://container@account/a"


def test_storage_is_shown_without_credentials_and_opened_with_them(tmp_path: Path) -> None:
    uri = f"s3://{KEY}:short@bucket/runs?region=eu-west-1"
    folder = Storage.open(uri) / "a"
    assert str(folder) == "s3://***@bucket/runs/a?region=eu-west-1"
    assert repr(folder) == f"Storage('{folder}')"
    assert folder.uri == f"s3://{KEY}:short@bucket/runs/a?region=eu-west-1"
    assert pickle.loads(pickle.dumps(folder)).uri == folder.uri
    (Storage.open(str(tmp_path)) / "a.json").write_json({"storage": uri})
    assert json.loads((tmp_path / "a.json").read_text()) == {"storage": "s3://***@bucket/runs?region=eu-west-1"}


def test_what_is_said_is_redacted(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"reading s3://{KEY}:{SECRET}@bucket/a")
    assert capsys.readouterr().out == "reading s3://***@bucket/a\n"


@pytest.mark.parametrize(
    "open_it",
    [
        lambda uri: find_source(Corpus(source=uri)),
        lambda uri: Storage.for_runs(uri),
        lambda uri: resolve_encoder(uri),
        lambda uri: open_filesystem(uri),
    ],
)
@pytest.mark.parametrize("uri", [f"s3://{KEY}:{SECRET}@bucket/a", "nowhere://me:passphrase@host/a?token=abcd"])
def test_refusals_of_a_uri_do_not_tell_its_credentials(open_it, uri: str) -> None:
    with pytest.raises(ValueError, match=r"\*\*\*") as refused:
        open_it(uri)
    for part in (KEY, SECRET, "passphrase", "abcd"):
        assert part not in str(refused.value)


class Anything(Section):
    uri: str = ""


@pytest.mark.parametrize("kind", [ValueError, OSError])
def test_a_job_ends_without_telling_them(kind: type[Exception], capsys: pytest.CaptureFixture[str]) -> None:
    uri = f"s3://{KEY}:{SECRET}@bucket/a"

    def work(settings: Anything) -> None:
        raise kind(f"{settings.uri}: no")

    with pytest.raises((SystemExit, OSError)) as ended:
        run_job(Anything, ["--uri", uri], "job.py", "", work)
    if kind is OSError:  # Python itself prints it
        sys.excepthook(ended.type, ended.value, ended.tb)
    said = capsys.readouterr().err
    assert "s3://***@bucket/a: no" in said
    assert SECRET not in said


def test_a_refused_setting_does_not_tell_them(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run_job(Anything, ["--ury", f"s3://{KEY}:{SECRET}@bucket/a"], "job.py", "", lambda _: None)
    said = capsys.readouterr().err
    assert "ury is not a setting" in said
    assert SECRET not in said


def test_rows_set_aside_name_their_file_without_credentials() -> None:
    found = LabelWriter()
    found.line("a", f"s3://{KEY}:{SECRET}@bucket/labels.jsonl", 0, "label without a text")
    assert found.labels().lines["file"].to_pylist() == ["s3://***@bucket/labels.jsonl"]


def test_a_corpus_is_the_same_whatever_the_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its fingerprint and the names of its text files' documents."""
    import infocse_ray.corpus.source as module

    for bucket in ("one", "two"):
        (tmp_path / bucket).mkdir()
        write_jsonl(tmp_path / bucket / "a.jsonl", make_documents(2))

    def local(uri: str):
        return open_filesystem(str(tmp_path / without_credentials(uri).removeprefix("s3://")))

    monkeypatch.setattr(module, "open_filesystem", local)
    monkeypatch.setattr("infocse_ray.corpus.streams.open_filesystem", local)
    found = [
        find_source(Corpus(source=[f"s3://{user}one/a.jsonl", f"s3://{user}two/a.jsonl"]))
        for user in ("", f"{KEY}:old@", f"{KEY}:new@")
    ]
    assert [piece.name for piece in found[1].pieces] == ["one/a.jsonl", "two/a.jsonl"]
    assert len({source.fingerprint for source in found}) == 1
