"""The documents of drawn labels, apart from the corpus: who trains on them again and again doesn't read all of it.

Where the drawn labels are more than a tenth as many as documents, a copy would save little and be a second corpus.
"""

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

_FEW = 10
"""Documents to train on for each drawn label from which on they are copied."""


def drawn_examples(run: Run, sample: LabelSample) -> Examples | None:
    """The drawn labelled examples, in a copy of their documents, or where these are many in the corpus itself.

    Args:
        run: under way.
        sample: which labels were drawn.

    Returns:
        None where they are many and nobody but fine-tuning, which counts them itself, asks for them.
    """
    settings, stages, store = run.settings, run.iteration_stages, run.store
    asked = settings.labels.train_size
    copied = asked != "all" and _FEW * asked <= store.summary["documents"]["train"]
    if not copied and not settings.plusplus.label_share:
        return None
    title = "finding labelled documents"
    corpus = stages.labelled()._replace(splits=["train"])

    def work(stage: Stage) -> dict[str, Any]:
        if not copied:
            return count_examples(corpus, Labelled(sample, 1.0, False, EncoderSpec.of(run.inputs.encoder)), title)
        return copy_labelled(store, sample, stage.folder, title)

    identity = labelled_documents_identity(store.fingerprint, sample, copied)
    stage = run_stage(stages.root, run.folder / "labelled_documents", "labelled documents", identity, work)
    run.manifest.add("labelled_documents", stage)
    source = labelled_documents(store, stage.folder, stage.fingerprint) if copied else corpus
    return Examples.of(stage, source)
