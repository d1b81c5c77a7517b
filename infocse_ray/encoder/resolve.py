"""Find the encoder a setting names: a folder, a URI, or a name on the Hugging Face hub."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from pyarrow.fs import FileInfo

from infocse_ray.storage.folder import Storage, is_remote, open_filesystem
from infocse_ray.storage.redact import redacted

_FILES = ["README.md", "*.json", "*.safetensors", "*.txt", "*.model", "*/config.json"]


def resolve_encoder(model: str, setting: str = "encoder.model") -> Path:
    """A local folder with the encoder's files, downloaded if need be; never pickled weights, never code.

    Args:
        model: what the setting names.
        setting: what error messages call it.

    Raises:
        ValueError: it is empty, nothing is there, a run is and no encoder, or the hub can't be reached.
    """
    asked = redacted(f"{setting} = {model!r}")
    if not model.strip():  # as a path it would be the working directory
        raise ValueError(f"{asked}: names no encoder; give a folder, a URI or a name on the Hugging Face hub")
    if is_remote(model):
        storage = Storage.open(model)
        if not (files := storage.files()):
            raise ValueError(f"{asked}: nothing is there")
        check_no_output(asked, model, files.__contains__)
        return as_it_is_now(storage, files)
    folder = Path(open_filesystem(model)[1])
    if folder.is_dir():
        check_no_output(asked, model, lambda name: (folder / name).exists())
        return folder
    if folder.exists():
        raise ValueError(f"{asked}: is a file; name the folder that has the encoder")
    if model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ValueError(f"{asked}: no such folder")
    try:
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(model, allow_patterns=_FILES))
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(f"{asked}: no such folder, and not available from the Hugging Face hub: {reason}") from error


def as_it_is_now(storage: Storage, files: Mapping[str, FileInfo]) -> Path:
    """A folder on this machine: itself, or a copy that is made anew once a file is another.

    Args:
        storage: the folder.
        files: that are in it now.
    """
    # With their times: weights that are trained anew have the size of the old ones. Some storages tell none.
    content = [(name, info.size, info.mtime_ns) for name, info in sorted(files.items())]
    known = all(time is not None for _, _, time in content)
    return storage.local_copy(repr(content) if known else uuid.uuid4().hex)


def check_no_output(asked: str, model: str, has: Callable[[str], bool]) -> None:
    """Refuse the folder of a run, or of an index, whose encoder is in a folder inside it.

    Args:
        asked: the setting and its value, for people.
        model: the folder.
        has: whether it has a file of this name.

    Raises:
        ValueError: it is a run's, or an index.
    """
    folder = redacted(model).rstrip("/")
    if has("config.json") or has("modules.json"):
        return
    if has("embedding.json"):
        raise ValueError(
            f"{asked}: is what `infocse embed` wrote; the encoder that embedded it is {folder}/encoder/model"
        )
    if not has("manifest.json"):
        return
    if not has("model/config.json"):
        raise ValueError(f"{asked}: is the folder of a run that has no result yet; the same command goes on with it")
    raise ValueError(f"{asked}: is the folder of a run; its encoder is {folder}/model")
