"""General ability beside the corpus: Spearman's rank correlation of an encoder's cosines with people's scores."""

from __future__ import annotations

from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.embed import Precision, for_inference
from infocse_ray.loop.run import Run
from infocse_ray.retrieval.sts import StsPairs, sts_spearman
from infocse_ray.runtime.cluster import worker_device
from infocse_ray.runtime.tasks import in_one_task
from infocse_ray.settings import fingerprint
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.checksums import checked, read_checked
from infocse_ray.storage.folder import Storage


def sts_of(run: Run, encoders: dict[str, EncoderFolder]) -> dict[str, float]:
    """Spearman's rank correlation of each encoder on the pairs of `validate.sts`, each a stage of the run.

    Args:
        run: with the pairs.
        encoders: by name.
    """
    pairs, precision = run.inputs.sts, run.settings.encoder.precision
    assert pairs is not None
    where = run.iteration_stages.where["train"]
    spearman: dict[str, float] = {}
    for name, encoder in encoders.items():
        identity = fingerprint("sts", pairs.fingerprint, encoder.fingerprint, precision)

        def work(stage: Stage, encoder: EncoderFolder = encoder) -> dict[str, float]:
            in_one_task(_score, encoder, pairs, precision, stage.folder, where=where, title="general ability")
            return {"spearman": read_checked(stage.folder / "sts.json")["spearman"]}

        stage = run_stage(run.iteration_stages.root, run.folder / "sts" / identity, "sts", identity, work)
        run.manifest.add(f"{name}/sts", stage)
        spearman[name] = (stage.summary or {})["spearman"]
    return spearman


def _score(encoder: EncoderFolder, pairs: StsPairs, precision: Precision, folder: Storage) -> None:
    loaded = for_inference(encoder.load(), precision, worker_device())
    (folder / "sts.json").write_json(checked({"spearman": sts_spearman(loaded, pairs)}))
