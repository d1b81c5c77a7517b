"""Labelled examples among InfoCSE's pairs: `plusplus.label_share` of every batch."""

from __future__ import annotations

from typing import NamedTuple

from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.run import Run
from infocse_ray.methods.idc import Idc
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.methods.method import Method
from infocse_ray.methods.mixed import Mixed
from infocse_ray.runtime.progress import say
from infocse_ray.sampling.examples import Examples
from infocse_ray.settings import Settings


class Mix(NamedTuple):
    """Labels to mix in."""

    drawn: LabelSample
    examples: Examples
    """The labelled ones that were drawn."""
    spec: EncoderSpec

    def among(self, pairs: Method, settings: Settings) -> Mixed:
        """A method's pairs with the labels among them.

        Args:
            pairs: the method, `Idc`.
            settings: of its training.
        """
        assert isinstance(pairs, Idc)
        size, documents = settings.train.batch_size, self.examples.summary["documents"]
        wanted = max(1, min(round(settings.plusplus.label_share * size), size - 2))
        quota = min(wanted, documents)
        fewer = "" if quota == wanted else f", as many as there are labelled documents: {wanted:,} were to be"
        say(f"  {quota:,} of a batch's {size:,} examples are labelled ones{fewer}")
        # One softmax has both, so that both have one temperature.
        return Mixed(pairs, Labelled(self.drawn, pairs.temperature, pairs.cosine, self.spec), quota)


def check_mix(settings: Settings) -> None:
    """Refuse what has no pairs to mix labels with.

    Raises:
        ValueError: one line that names the setting and the fix.
    """
    share, method, size = settings.plusplus.label_share, settings.train.method, settings.train.batch_size
    if share and method != "idc":
        raise ValueError(
            f"plusplus.label_share = {share:g}: labels are mixed with InfoCSE's pairs, and train.method is {method}; "
            "set it to 0, or train.method to idc"
        )
    if share and size < 4:
        raise ValueError(
            f"train.batch_size = {size}: plusplus.label_share = {share:g} mixes labels with pairs of several "
            "documents; set it to 4 or more, best to dozens"
        )


def mix_of(run: Run, sample: LabelSample, examples: Examples | None) -> Mix | None:
    """The drawn labels, with their documents, if training on pairs is to have them too.

    Args:
        run: under way.
        sample: which labels were drawn.
        examples: these.
    """
    if not run.settings.plusplus.label_share:
        return None
    assert examples is not None
    return Mix(sample, examples, EncoderSpec.of(run.inputs.encoder))
