"""What a corpus is tokenised with."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Sequence
from typing import NamedTuple

from tokenizers import Tokenizer, models

from infocse_ray.corpus.tokens import Tokens


class CorpusTokenizer(NamedTuple):
    """An encoder's tokenizer, and what its prompts ask for (`encoder/prompts.py`)."""

    content: str
    """`tokenizers` JSON."""
    before: str = ""
    """Put before each sentence; as text, for a normalizer would put it behind each added token inside one, too."""
    prompt: str | None = None
    """Put before each counterpart, so that its tokens are among the text's; None: counterparts are as sentences."""

    @property
    def named(self) -> tuple[str, ...]:
        """What names a result that depends on it."""
        return (self.content, *((self.before,) if self.before else ()), *self._prompted)

    @property
    def of_sentences(self) -> tuple[str, str]:
        """What two have in common that give sentences the same tokens."""
        return self.content, self.before

    @property
    def _prompted(self) -> tuple[str, ...]:
        return () if self.prompt is None else ("prompt", self.prompt)

    def ready(self) -> ReadyTokenizer:
        """To tokenise with."""
        return _ready(self)

    def like_sentences(self, counterparts: Tokens) -> Tokens:
        """Token ids of counterparts as sentences of the same texts have them."""
        if self.prompt is None:
            return counterparts
        ready, bounds = self.ready(), itertools.pairwise(counterparts.offsets)
        rows = [counterparts.values[begin:end].tolist() for begin, end in bounds]
        texts = ready.tokenizer.decode_batch(rows, skip_special_tokens=False)  # unknown ones are special, too
        ids = ready.sentences([ready.without_prompt(text) for text in texts])
        return Tokens.of(ids, counterparts.values.dtype)


class ReadyTokenizer:
    """A corpus' tokenizer, loaded.

    Attributes:
        tokenizer: which decodes, too.
    """

    def __init__(self, content: CorpusTokenizer) -> None:
        """Load it."""
        self.tokenizer = Tokenizer.from_str(content.content)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self._content = content.content
        self._before_sentences = content.before
        self._before_counterparts = content.before if content.prompt is None else content.prompt
        # Decoding brings back what the normalizer left of it: small letters, say, and a space for a line's end.
        prompt = self.tokenizer.encode(content.prompt or "", add_special_tokens=False)
        self._prompt_decoded = self.tokenizer.decode(prompt.ids, skip_special_tokens=False)

    @functools.cached_property
    def unknown(self) -> int | None:
        """The token that it makes of what it doesn't know; None: it has none."""
        model = self.tokenizer.model
        if isinstance(model, models.Unigram):
            return json.loads(self._content)["model"].get("unk_id")
        name = getattr(model, "unk_token", None)
        return None if name is None else self.tokenizer.token_to_id(name)

    def sentences(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each text, without special tokens."""
        return self._behind(self._before_sentences, texts)

    def counterparts(self, texts: Sequence[str]) -> list[list[int]]:
        """Token ids of each, without special tokens, and with the prompt's where they are among them."""
        return self._behind(self._before_counterparts, texts)

    def without_prompt(self, counterpart: str) -> str:
        """A counterpart's text, of the text that its tokens are decoded to."""
        return counterpart.removeprefix(self._prompt_decoded)

    def _behind(self, before: str, texts: Sequence[str]) -> list[list[int]]:
        behind = [before + text for text in texts]
        return [one.ids for one in self.tokenizer.encode_batch_fast(behind, add_special_tokens=False)]


_ready = functools.lru_cache(maxsize=4)(ReadyTokenizer)
"""Read once: that takes longer than a search."""
