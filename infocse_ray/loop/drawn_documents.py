"""The documents of drawn labels, apart from the corpus: who trains on them again and again doesn't read all of it."""

from __future__ import annotations

from typing import Any

from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.identity import labelled_documents_identity
from infocse_ray.loop.run import Run
from infocse_ray.methods.label_sample import LabelSample
from infocse_ray.methods.labelled import Labelled
from infocse_ray.sampling.examples import Examples, count_examples
from infocse_ray.sampling.labelled_documents import copy_labelled, labelled_documents
from infocse_ray.stages.stage import Stage, run_stage


def drawn_examples(run: Run, sample: LabelSample) -> Examples | None:
    """The drawn labelled examples, in a copy of their documents, or where all are drawn in the corpus itself.

    Args:
        run: under way.
        sample: which labels were drawn.

    Returns:
        None where all are drawn and nobody but fine-tuning, which counts them itself, asks for them.
    """
    settings, stages, store = run.settings, run.iteration_stages, run.store
    if sample.last is None and not settings.plusplus.label_share:
        return None
    title = "finding labelled documents"
    corpus = stages.labelled()._replace(splits=["train"])

    def work(stage: Stage) -> dict[str, Any]:
        if sample.last is None:  # a copy of all would be a second corpus
            return count_examples(corpus, Labelled(sample, 1.0, False, EncoderSpec.of(run.inputs.encoder)), title)
        return copy_labelled(store, sample, stage.folder, title)

    identity = labelled_documents_identity(store.fingerprint, sample)
    stage = run_stage(stages.root, run.folder / "labelled_documents", "labelled documents", identity, work)
    run.manifest.add("labelled_documents", stage)
    copied = labelled_documents(store, stage.folder, stage.fingerprint)
    return Examples.of(stage, corpus if sample.last is None else copied)
