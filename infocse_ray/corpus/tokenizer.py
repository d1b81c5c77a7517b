"""What a corpus is tokenised with."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer


class CorpusTokenizer(NamedTuple):
    """For sentences, and for counterparts where an encoder's query prompt asks for another (`encoder/prompts.py`)."""

    sentences: str
    """`tokenizers` JSON."""
    counterparts: str | None = None
    """Likewise, and `prompt` is put before each text, so that its tokens are among the text's; None: as sentences."""
    prompt: str = ""

    @property
    def named(self) -> tuple[str, ...]:
        """What names a result that depends on it."""
        return (self.sentences,) if self.counterparts is None else (self.sentences, self.counterparts, self.prompt)

    def ready(self) -> ReadyTokenizer:
        """To tokenise with."""
        return _ready(self)


class ReadyTokenizer:
    """A corpus' tokenizer, loaded."""

    def __init__(self, content: CorpusTokenizer) -> None:
        """Load it."""
        self.of_sentences = _loaded(content.sentences)
        self.of_counterparts = self.of_sentences if content.counterparts is None else _loaded(content.counterparts)
        self._prompt = content.prompt if content.counterparts is not None else ""

    def sentences(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        return [one.ids for one in self.of_sentences.encode_batch_fast(list(texts), add_special_tokens=False)]

    def counterparts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each, without special tokens, and with the prompt's where they are among them."""
        prompted = [self._prompt + text for text in texts]
        return [one.ids for one in self.of_counterparts.encode_batch_fast(prompted, add_special_tokens=False)]

    def without_prompt(self, counterpart: str) -> str:
        """A counterpart's text, of the text that its tokens are decoded to."""
        return counterpart.removeprefix(self._prompt)


def _loaded(content: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


_ready = functools.lru_cache(maxsize=4)(ReadyTokenizer)
"""Read once: that takes longer than a search."""
