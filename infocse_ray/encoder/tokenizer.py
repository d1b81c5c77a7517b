"""The tokenizer of an encoder's folder."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, normalizers
from transformers import AutoTokenizer

from infocse_ray.encoder.folder_config import transformer_options

_TRIED = 300
"""Tokens that are tried as a text, where a letter is none."""
_CAPITALS = "A Capital IN Every WORD"


def load_tokenizer(folder: Path, name: str, setting: str = "encoder.model") -> Any:
    """The fast tokenizer in a folder.

    It makes letters small where the folder says that sentence-transformers does so before it (`do_lower_case`), and
    cuts and pads texts at their ends whatever it says, as is done everywhere here.

    Args:
        folder: of the encoder.
        name: what error messages call the encoder.
        setting: what they call what named it.

    Raises:
        ValueError: there is none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{setting} = {name!r}: its tokenizer can't be loaded: {first_line(error)}") from error
    if not tokenizer.is_fast:
        raise ValueError(f"{setting} = {name!r}: it has no fast tokenizer (tokenizer.json); convert it first")
    tokenizer.truncation_side = tokenizer.padding_side = "right"  # some count a text's positions from its padding
    if tokenizer.pad_token is None and tokenizer.eos_token is not None:  # as those of language models often are
        tokenizer.pad_token = tokenizer.eos_token  # no vector depends on it, but who reads the export pads by it
    backend = tokenizer.backend_tokenizer
    own = backend.normalizer
    keeps = own is None or own.normalize_str(_CAPITALS) != own.normalize_str(_CAPITALS.lower())
    if keeps and transformer_options(folder, setting).lower_case:
        parts = [normalizers.Lowercase(), *([own] if own else [])]
        backend.normalizer = normalizers.Sequence(parts)  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


def tokenizer_json(tokenizer: Any) -> str:
    """The tokenizer as `tokenizers` JSON, without padding and truncation, which are not the tokenizer's to choose."""
    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    return plain.to_str()


def knows_words(tokenizer: Any) -> bool:
    """Whether some text is more than unknown tokens: transformers makes an empty tokenizer where a folder has none."""
    added = {*tokenizer.all_special_ids, *tokenizer.get_added_vocab().values()}
    words = sorted(id for id in tokenizer.get_vocab().values() if id not in added)
    # From all over, as the first may stand for nothing.
    texts = (tokenizer.decode([id]).strip() for id in words[:: -(-len(words) // _TRIED) or 1])
    try:
        return any(set(tokenizer(text, add_special_tokens=False)["input_ids"]) - added for text in texts if text)
    except Exception as error:  # of no other kind: `tokenizers` raises it where there is no token for what is unknown
        if type(error) is not Exception:
            raise
        return False


def special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a sentence."""
    # A tokenizer without a token for what it doesn't know may have none for this letter, but has its own tokens.
    others = (id for id in range(_TRIED) if id not in tokenizer.all_special_ids)
    texts = itertools.chain("a", (tokenizer.decode([id]) for id in others))
    bodies = ((text, tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts)
    text, body = next(((text, ids) for text, ids in bodies if ids), ("", []))
    whole = tokenizer(text)["input_ids"]
    for start in range(len(whole) - len(body) + 1):
        if whole[start : start + len(body)] == body:
            return whole[:start], whole[start + len(body) :]
    raise ValueError("encoder.model: its tokenizer changes a sentence when it adds special tokens")


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its kind where it says nothing."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
