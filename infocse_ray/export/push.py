"""Put an encoder's folder into a repository of the hub: the work of `infocse push`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch

from infocse_ray.encoder.embed import embed
from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.prompts import ROLES
from infocse_ray.encoder.resolve import as_it_is_now, check_no_output
from infocse_ray.encoder.tokenizer import load_tokenizer
from infocse_ray.export.check import texts_of
from infocse_ray.export.contents import Part, parts_of
from infocse_ray.export.folder import read_export
from infocse_ray.export.formats import FORMATS, check_packages
from infocse_ray.export.questions import MAX_LENGTH
from infocse_ray.loop.contents import bytes_of
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Encoder
from infocse_ray.settings.push import Push
from infocse_ray.storage.folder import Storage
from infocse_ray.storage.redact import redacted

TOKEN = "HF_TOKEN"
_ANY_LENGTH = 2**20
"""Tokens: as long as the encoder takes."""


def push(settings: Push) -> str | None:
    """Check the folder, list its files, upload them.

    Returns:
        Where it can be looked at; None of a dry run.

    Raises:
        ValueError: the folder is no encoder's or has what must not be shared, its card isn't valid, there is no token,
            or the hub refuses.
    """
    _check_name(settings.repo)
    if not settings.dry_run and not os.environ.get(TOKEN):
        raise ValueError(f"{TOKEN} isn't set: put a token that may write to {settings.repo} into that variable")
    folder = _folder(settings.model)
    parts = parts_of(folder)
    _check_credentials(folder)
    for line in check_card(folder / "README.md"):
        say(f"warning: {line}")
    _check_loads(folder, settings.model)
    for part in parts:
        say(f"{bytes_of(part.size):>8}  {part.name}")
    total = bytes_of(sum(part.size for part in parts))
    where = f"{settings.repo}{'' if settings.revision is None else f', branch {settings.revision}'}"
    if settings.dry_run:
        say(f"dry run: {len(parts)} files, {total}, would go to {where}; nothing was sent")
        return None
    url = _upload(settings, folder, parts)
    say(f"{len(parts)} files, {total}, are in {where}: {url}")
    return url


def check_card(card: Path) -> list[str]:
    """Refuse a card that the hub would refuse; what it lacks that people look for.

    Raises:
        ValueError: its front matter can't be read, or has values that the hub doesn't take.
    """
    import yaml
    from huggingface_hub import ModelCard

    try:
        data = ModelCard(card.read_text(encoding="utf-8")).data.to_dict()
    except (ValueError, TypeError, AttributeError, yaml.YAMLError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"model: the front matter of {card} isn't valid: {reason}") from error
    if not data:
        raise ValueError(f"model: {card} has no front matter, which tells the hub what the folder is")
    for name, kinds in _CARD_TYPES.items():
        if not isinstance(data.get(name, ""), kinds):
            raise ValueError(f"model: the front matter of {card} isn't valid: {name} is {data[name]!r}")
    if data.get("library_name") != "sentence-transformers":
        raise ValueError(
            f"model: the front matter of {card} says library_name: {data.get('library_name')!r}; it must be "
            "sentence-transformers, or nobody is told how to load the encoder"
        )
    lacking = [f"the card has no {name}: {why}" for name, why in _WANTED.items() if not data.get(name)]
    if data.get("license") == "other" and not data.get("license_name"):
        lacking.append("the card says license: other, and no license_name")
    return lacking


_CARD_TYPES: dict[str, Any] = {
    "license": str,
    "license_name": str,
    "license_link": str,
    "pipeline_tag": str,
    "library_name": str,
    "base_model": (str, list),
    "tags": (str, list),
    "datasets": (str, list),
    "language": (str, list),
}
_WANTED = {
    "license": "the base model's isn't known; add `license:` to the card's front matter",
    "base_model": "add `base_model:` to the card's front matter if it has a name on the hub",
}


def _check_name(repo: str) -> None:
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise ValueError(f"repo = {repo!r}: {' '.join(str(error).split())}") from error
    if "/" not in repo:
        raise ValueError(f"repo = {repo!r}: name its owner too, as user/{repo}")


def _folder(model: str) -> Path:
    storage = Storage.open(model)
    files = storage.files()
    if not files:
        raise ValueError(f"model = {str(storage)!r}: no such folder")
    check_no_output(f"model = {str(storage)!r}", str(storage), files.__contains__)
    return as_it_is_now(storage, files)


def _check_credentials(folder: Path) -> None:
    """Refuse to share a credential that came into a text.

    Raises:
        ValueError: there is one.
    """
    for file in [*folder.glob("*.md"), *folder.glob("*config*.json")]:
        text = file.read_text(encoding="utf-8", errors="replace")
        if redacted(text) != text:
            raise ValueError(f"model: {file} holds a credential; take it out before you share the folder")


def _check_loads(folder: Path, model: str) -> None:
    """Load what would be uploaded and embed something.

    Raises:
        ValueError: it can't be loaded, or its vectors aren't finite.
    """
    exports = (read_export(folder) or {}).get("exports", {}).values()
    graphs = [one for one in exports if one["format"] in FORMATS]
    if (folder / "model.safetensors").exists() or list(folder.glob("model-*.safetensors")):
        cosine = read_layout(folder, setting="model").normalize
        shape = Encoder(model=model, max_length=_ANY_LENGTH)
        encoder = load_encoder(folder, shape, cosine=cosine, setting="model", cut_to_positions=True)
        # Short texts are enough, whatever prompt comes before them.
        encoder.max_length = min(encoder.max_length, MAX_LENGTH + max(map(encoder.prompt_length, ROLES)))
        if not torch.isfinite(embed(encoder, texts_of(None, encoder)).vectors).all():
            raise ValueError(f"model = {model!r}: its vectors aren't finite")
    elif not graphs:
        raise ValueError(f"model = {model!r}: has neither weights (model.safetensors) nor a graph of `infocse export`")
    for one in graphs:
        check_packages(one["format"], setting="model")
        tokens = load_tokenizer(folder, model, "model")(["a text"], return_tensors="np")
        try:
            session = FORMATS[one["format"]].Session(folder / one["file"])
            finite = bool(abs(session(tokens["input_ids"], tokens["attention_mask"])).max() < float("inf"))
        except Exception as error:  # each runtime raises its own kinds
            reason = " ".join(str(error).split())[:300]
            raise ValueError(f"model = {model!r}: {one['file']} can't be loaded: {reason}") from error
        if not finite:
            raise ValueError(f"model = {model!r}: the vectors of {one['file']} aren't finite")


def _upload(settings: Push, folder: Path, parts: list[Part]) -> str:
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    api = huggingface_hub.HfApi(token=os.environ[TOKEN], library_name="infocse_ray")
    try:
        api.create_repo(settings.repo, private=settings.private, exist_ok=True)
        if settings.private and not api.repo_info(settings.repo).private:
            raise ValueError(f"private = true: {settings.repo} is there already and public; make it private first")
        if settings.revision is not None:
            api.create_branch(settings.repo, branch=settings.revision, exist_ok=True)
        api.upload_folder(
            repo_id=settings.repo,
            folder_path=folder,
            revision=settings.revision,
            commit_message=settings.message,
            allow_patterns=[part.name for part in parts],
        )
    except HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        hint = f"; does {TOKEN} belong to somebody who may write there?" if status in (401, 403, 404) else ""
        raise ValueError(f"repo = {settings.repo!r}: the hub refuses: {_first_line(error)}{hint}") from error
    except OfflineModeIsEnabled as error:
        raise ValueError("HF_HUB_OFFLINE is set, so nothing can be pushed: unset it, or give --dry_run") from error
    except ValueError:
        raise
    except Exception as error:  # the hub's client raises a dozen unrelated kinds
        raise ValueError(f"repo = {settings.repo!r}: the hub can't be reached: {_first_line(error)}") from error
    return f"{api.endpoint}/{settings.repo}" + (f"/tree/{settings.revision}" if settings.revision else "")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
