"""What should count beside documents' vectors in a search: as it is asked for, or as it is chosen."""

from __future__ import annotations

import math
import numbers
from typing import Any, NamedTuple, get_args

from infocse_ray.embedding.index import Over
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.runtime.progress import say
from infocse_ray.search.weight import Chosen, chosen_weights
from infocse_ray.search.written import Written

MOST_SENTENCES = 5_000_000
"""Up to so many are copied into the engine, or indexed by their documents there, without being asked: 8 GB of 384
dimensions."""


class Asked(NamedTuple):
    """What is searched, and weights from 0 to 1; None: of documents what is best is tried, of sentences it is 0."""

    over: Over
    words: float | None
    best_sentence: float | None

    @classmethod
    def of(cls, over: Any, words: Any, best_sentence: Any) -> Asked:
        """What a user gives.

        Raises:
            ValueError: `over` is none of its values, a weight no number from 0 to 1 and not auto, or best sentences
                are to count in a search of sentences.
        """
        asked = cls(
            over,
            _weight(words, f"words = {words!r}: give a number from 0 (vectors alone) to 1 (words alone), or auto"),
            _weight(
                best_sentence,
                f"best_sentence = {best_sentence!r}: give a number from 0 (whole documents alone) to 1 (their best "
                "sentences alone), or auto",
            ),
        )
        if over not in get_args(Over):
            raise ValueError(f"over = {over!r}: give one of {', '.join(get_args(Over))}")
        if over == "sentences" and asked.best_sentence:
            raise ValueError(f"best_sentence = {best_sentence!r}: is of documents; leave it out, or over sentences")
        return asked

    @property
    def needs_sentences(self) -> bool:
        """Whether an index without them can't be searched so."""
        return self.over == "sentences" or bool(self.best_sentence)

    def bounded(self, written: Written) -> Asked:
        """The same, but that sentences which are too many to be copied unasked don't count, which is said."""
        sentences, copied = written.sentences, written.embedding.format == "parquet"
        if "best sentences" not in self._to_choose(written) or sentences <= MOST_SENTENCES:
            return self
        say(
            f"best sentences don't count: the index has {sentences:,}, which the engine would "
            f"{'copy' if copied else 'index by their documents'}; --best_sentence 0.3, say, lets them"
        )
        return self._replace(best_sentence=0.0)

    def choose(self, written: Written, encoder: SentenceEncoder) -> Chosen:
        """What should count of what is to be chosen, if that can be told; what can't is said."""
        options = self._to_choose(written)
        if not options:
            return Chosen()
        whose = " and ".join(options)
        if written.sampled is None:
            say(
                f"{whose} don't count: an earlier version wrote this index; embed to another folder, or let them with "
                f"{' '.join(options.values())}"
            )
            return Chosen()
        try:
            return chosen_weights(
                written.folder,
                written.fingerprint,
                encoder,
                written.embedding,
                written.sampled,
                "words" in options,
                "best sentences" in options,
            )
        except OSError as error:  # a full disk, say
            say(f"{whose} don't count: how much they should can't be tried ({error})")
            return Chosen()

    def _to_choose(self, written: Written) -> dict[str, str]:
        """What is to be chosen, each with an option that gives it."""
        options: dict[str, str] = {}
        if self.over == "documents" and self.words is None:
            options["words"] = "--words 0.5"
        if self.over == "documents" and self.best_sentence is None and written.embedding.sentences:
            options["best sentences"] = "--best_sentence 0.3"
        return options


def _weight(given: Any, wrong: str) -> float | None:
    """A weight as a number; None: it is to be chosen.

    Raises:
        ValueError: `wrong`; it is no number from 0 to 1.
    """
    if isinstance(given, str) and given == "auto":
        return None
    weight = float(given) if isinstance(given, numbers.Real) and not isinstance(given, bool) else math.nan
    if not 0.0 <= weight <= 1.0:
        raise ValueError(wrong)
    return weight
