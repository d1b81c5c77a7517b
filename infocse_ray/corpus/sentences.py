"""Split text into sentences."""

from __future__ import annotations

import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

_KOREAN = re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7ff]")
"""Letters and syllables, whose words are set apart."""


def split_sentences(text: str, language: str = "en") -> list[str]:
    """Split `text` into sentences, each with its white space collapsed to single spaces.

    The splitting is that of `sentencex`, chosen because it is maintained (by the language team of the
    Wikimedia Foundation), made of rules and so deterministic, needs no model to be downloaded, knows about
    300 languages and their abbreviations, and is fast: 4.7 million characters of BBC news, 38,000 sentences,
    went through this function at 58 million characters a second on one core, and Wikipedia text at 42. Its
    time grows linearly with the length of the text, also where there is no punctuation or nothing else, so
    no limit is set on the length.

    A blank line ends a sentence; a single line break does not. Abbreviations ("Dr.", "e.g."), decimals, URLs
    and the inside of quotations do not. A full stop directly before a capital ("one.Next") does, as in text
    that lost a space, and so does the dot of a name such as ``torch.Tensor``.

    Args:
        text: any text; one in which nothing is `visible` has no sentences.
        language: the ISO 639-1 code of the text's language. A code that is not known gets the rules of
            English.

    Returns:
        The sentences in the order of the text, something visible in each.
    """
    return [" ".join(piece.split()) for piece in segment(language, text) if visible(piece)]


def given_sentences(sentences: Iterable[str | None]) -> list[str]:
    """Sentences that somebody else has split, as `split_sentences` would give them; what isn't visible is left out."""
    return [" ".join(one.split()) for one in sentences if one is not None and visible(one)]


def as_text(sentences: Sequence[str]) -> str:
    """Sentences as a text to show, with spaces between where their writing has them: Chinese and Japanese have none."""
    parts = list(sentences[:1])
    for before, after in itertools.pairwise(sentences):
        parts += [*([] if _unspaced(before[-1:], after[:1]) else [" "]), after]
    return "".join(parts)


def _unspaced(before: str, after: str) -> bool:
    """Whether no space belongs between two characters: both are wide and not Korean, or the first is, a mark."""
    return _wide(before) and (_wide(after) or unicodedata.category(before).startswith("P"))


def _wide(one: str) -> bool:
    return bool(one) and unicodedata.east_asian_width(one) in "WF" and not _KOREAN.match(one)


def visible(text: str) -> bool:
    """Whether there is more than white space, soft hyphens, zero-width spaces and other characters that aren't shown.

    Of those scraped pages have whole paragraphs, and tokenizers leave no token of them. Half of a surrogate pair counts
    as shown: it is no text at all, which is for others to say.
    """
    return any((one.isprintable() and one != " ") or "\ud800" <= one <= "\udfff" for one in text)
