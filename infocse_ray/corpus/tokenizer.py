"""What a corpus is tokenised with."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from infocse_ray.corpus.tokens import Tokens, offsets_of


class CorpusTokenizer(NamedTuple):
    """For sentences, and for counterparts where an encoder's query prompt asks for another (`encoder/prompts.py`)."""

    sentences: str
    """`tokenizers` JSON."""
    counterparts: str | None = None
    """Likewise, and `prompt` is put before each text, so that its tokens are among the text's; None: as sentences."""
    prompt: str = ""
    before: str = ""
    """Put before each sentence as text: a normalizer would put it behind each added token inside one, too."""

    @property
    def named(self) -> tuple[str, ...]:
        """What names a result that depends on it."""
        asked = () if self.counterparts is None else (self.counterparts, self.prompt)
        return (self.sentences, *asked, *((self.before,) if self.before else ()))

    @property
    def of_sentences(self) -> tuple[str, str]:
        """What two have in common that give sentences the same tokens."""
        return self.sentences, self.before

    def ready(self) -> ReadyTokenizer:
        """To tokenise with."""
        return _ready(self)

    def like_sentences(self, counterparts: Tokens) -> Tokens:
        """Token ids of counterparts as sentences of the same texts have them."""
        if self.counterparts is None:
            return counterparts
        ready, bounds = self.ready(), itertools.pairwise(counterparts.offsets)
        texts = ready.of_counterparts.decode_batch([counterparts.values[begin:end].tolist() for begin, end in bounds])
        ids = ready.sentences([ready.without_prompt(text) for text in texts])
        values = np.fromiter(itertools.chain.from_iterable(ids), counterparts.values.dtype)
        return Tokens(values, offsets_of(np.array([len(row) for row in ids], np.int64)))


class ReadyTokenizer:
    """A corpus' tokenizer, loaded."""

    def __init__(self, content: CorpusTokenizer) -> None:
        """Load it."""
        self.of_sentences = _loaded(content.sentences)
        self.of_counterparts = self.of_sentences if content.counterparts is None else _loaded(content.counterparts)
        own = content.counterparts is not None
        self._before_sentences = content.before
        self._before_counterparts = content.prompt if own else content.before
        prompt = self.of_counterparts.encode(content.prompt, add_special_tokens=False)
        # Decoding brings back what the normalizer left of it: small letters, say, and a space for a line's end.
        self._prompt_decoded = self.of_counterparts.decode(prompt.ids) if own else ""

    def sentences(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        spaced = [self._before_sentences + text for text in texts]
        return [one.ids for one in self.of_sentences.encode_batch_fast(spaced, add_special_tokens=False)]

    def counterparts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each, without special tokens, and with the prompt's where they are among them."""
        prompted = [self._before_counterparts + text for text in texts]
        return [one.ids for one in self.of_counterparts.encode_batch_fast(prompted, add_special_tokens=False)]

    def without_prompt(self, counterpart: str) -> str:
        """A counterpart's text, of the text that its tokens are decoded to."""
        return counterpart.removeprefix(self._prompt_decoded)


def _loaded(content: str) -> Tokenizer:
    tokenizer = Tokenizer.from_str(content)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


_ready = functools.lru_cache(maxsize=4)(ReadyTokenizer)
"""Read once: that takes longer than a search."""
