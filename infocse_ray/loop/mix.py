"""Labelled examples among InfoCSE's pairs, so many of them that they are a given share: `plusplus.label_share`."""

from __future__ import annotations

from typing import Any, NamedTuple

from infocse_ray.annotate.share import share_of_iteration
from infocse_ray.corpus.store import TokenStore
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.checks import training_splits, validation_of
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.method import Method
from infocse_ray.methods.mixed import Mixed
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings


class Mix(NamedTuple):
    """Labels to mix in."""

    drawn: LabelSample
    size: int
    """How many were drawn."""
    share: float
    """About which they are of all examples, over 0 and under 1."""
    spec: EncoderSpec

    def among(self, pairs: Method, annotated: dict[str, Any]) -> Mixed:
        """A method's examples with the labels among them.

        Args:
            pairs: the method, `Idc`.
            annotated: summary of the stage that clustered its documents.
        """
        assert isinstance(pairs, Idc)
        counted, _ = pairs.annotated_count
        there = annotated[counted]
        repeats = max(1, round(self.share / (1.0 - self.share) * there / self.size))
        say(f"  among its {there:,} pairs each of {self.size:,} labelled examples stands {repeats:,} times")
        # One softmax has both, so that both have one temperature.
        return Mixed(pairs, Labelled(self.drawn, pairs.temperature, pairs.cosine, self.spec), repeats)


def check_mix(settings: Settings) -> None:
    """Refuse what has no pairs to mix labels with.

    Raises:
        ValueError: one line that names the setting and the fix.
    """
    share, method = settings.plusplus.label_share, settings.train.method
    if share and method != "idc":
        raise ValueError(
            f"plusplus.label_share = {share:g}: labels are mixed with InfoCSE's pairs, and train.method is {method}; "
            "set it to 0, or train.method to idc"
        )


def check_all_annotated(settings: Settings, store: TokenStore) -> None:
    """Refuse to mix in labels of documents of which an iteration annotates but a share.

    Raises:
        ValueError: one line that names the setting and the fix.
    """
    splits = training_splits(settings, validation_of(settings, store))
    share = share_of_iteration(settings, store, splits, 1) if settings.plusplus.label_share else None
    if share is not None:
        raise ValueError(
            f"plusplus.label_share = {settings.plusplus.label_share:g}: an iteration annotates "
            f"{share.of_all(store):.1%} of this corpus (annotate.share = {settings.annotate.share}), and would find "
            "only that share of the labels there; set annotate.share to 1, or plusplus.label_share to 0"
        )
