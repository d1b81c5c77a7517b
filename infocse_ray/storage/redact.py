"""Credentials stay out of whatever is shown or stored for people: URIs are shown without them.

1. What is a credential by its place in a URI, `user:password@` and parameters named like secrets, becomes `***`.
2. `learn` remembers the secrets of the URIs that this process opens, as some come back without their URI, in the
   message of a client library: they become `***` wherever they turn up.

Nothing that is read back as a URI is redacted: `Storage.uri` is the real one.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from types import TracebackType
from typing import Any
from urllib.parse import unquote

HIDDEN = "***"

# To the last @, since people forget to encode the slashes of a password.
_PASSWORD = re.compile(r"(?<=://)([^\s/?#@:'\"]*):([^\s'\"]*)@")
# In other schemes what stands alone before the @ may be no credential: abfs://container@account.
_WEB_USER = re.compile(r"(?<=http://|ttps://)[^\s/?#@'\"]+@")
_PARAMETER = re.compile(
    r"([?&;](?:[\w.-]*(?:key|secret|token|passw|pwd|credential|signature)[\w.-]*|sig)=)([^\s&;'\"#]+)", re.IGNORECASE
)
_KEY_ID = re.compile(r"[A-Z0-9]{16,}")
_ENVIRONMENT = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "RAY_AUTH_TOKEN",
    "HF_TOKEN",
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "WANDB_API_KEY",
)
_SHORTEST = 8
"""Characters of a secret that is looked for by itself: a shorter one is part of many a word."""

_learnt: set[str] = set()


def learn(uri: str) -> None:
    """Remember the secrets in `uri`."""
    secrets = [value for _, value in _PARAMETER.findall(uri)]
    for user, password in _PASSWORD.findall(uri):
        # A user's name may be the name of a folder as well; an access key's id is none.
        secrets += [password, user] if _KEY_ID.fullmatch(user) else [password]
    _learnt.update(form for secret in secrets for form in (secret, unquote(secret)) if len(form) >= _SHORTEST)


def redacted(text: str) -> str:
    """The text without credentials."""
    return _without(_secrets(), text)


def _secrets() -> list[str]:
    """Those known by themselves, the longest first: one may be part of another."""
    here = {value for name in _ENVIRONMENT if len(value := os.environ.get(name, "")) >= _SHORTEST}
    return sorted(_learnt | here, key=len, reverse=True)


def _without(secrets: list[str], text: str) -> str:
    text = _PASSWORD.sub(f"{HIDDEN}@", text)
    text = _WEB_USER.sub(f"{HIDDEN}@", text)
    text = _PARAMETER.sub(rf"\1{HIDDEN}", text)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def without_credentials(uri: str) -> str:
    """What stays when credentials change: the URI without what stands before its host."""
    return _WEB_USER.sub("", _PASSWORD.sub("", uri))


def redacted_json(value: Any) -> Any:
    """A JSON-able value with every text in it redacted, keys included."""
    secrets = _secrets()

    def hidden(part: Any) -> Any:
        if isinstance(part, str):
            return _without(secrets, part)
        if isinstance(part, dict):
            return {hidden(key): hidden(item) for key, item in part.items()}
        if isinstance(part, (list, tuple)):
            return [hidden(item) for item in part]
        return part

    return hidden(value)


def redact_tracebacks() -> None:
    """Have Python print what ends this process without credentials."""

    def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        sys.stderr.write(redacted("".join(traceback.format_exception(kind, error, trace))))

    sys.excepthook = show
