"""How much of a corpus a tokenizer doesn't know: it makes one and the same token of all that."""

from __future__ import annotations

from infocse_ray.corpus.store import TokenStore
from infocse_ray.runtime.progress import say

_MANY = 0.05
"""Share of a corpus' tokens; text in a language that a tokenizer knows has fewer, with its names, signs and emoji."""


def warn_of_unknown(store: TokenStore, encoder: str) -> None:
    """Say so where much of a corpus is unknown: nothing that is made of it can tell these words from each other.

    Args:
        store: the corpus.
        encoder: whose tokenizer made it, for people.
    """
    tokens = store.summary["tokens"]
    share = store.summary.get("unknown", 0) / max(1, tokens)  # earlier versions didn't count them
    if share >= _MANY:
        say(
            f"warning: {share:.0%} of the corpus' tokens are unknown to the tokenizer of {encoder}, which makes the "
            "same of all of them; take an encoder that knows the language, such as a multilingual one"
        )
