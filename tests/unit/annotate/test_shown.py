"""Pairs as they are printed: whatever a corpus has in it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from infocse_ray.annotate.shown import _text
from infocse_ray.corpus.tokens import Tokens, offsets_of
from tests.unit.encoder.test_encoder_prompts import byte_level


def test_a_terminal_obeys_no_sentence():
    tokenizer = byte_level()  # which has a token for every byte
    ids = tokenizer.encode("a red\x1b[2J\x1b]0;title\x07 line\u202e").ids
    documents: Any = SimpleNamespace(sentences=Tokens(np.array(ids, np.uint16), offsets_of(np.array([len(ids)]))))
    encoder: Any = SimpleNamespace(tokenizer=tokenizer, room=lambda: len(ids) - 1)
    assert "\x1b" in tokenizer.decode(ids)
    assert _text(encoder, documents, 0).isprintable()
    assert _text(encoder, documents, 0).endswith(" ...")
