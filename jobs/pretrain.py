"""Adapt a sentence encoder to a corpus without labels (InfoCSE).

The encoder embeds every sentence of the corpus, clusters the sentences inside each document, trains on pairs of
sentences of one cluster, and starts over with what it became, until validation stops growing. The result is
<storage>/<name>/model, a folder for SentenceTransformer(...); figures are in metrics.json beside it.

Runs on a Ray it starts itself, on one that `ray start` started, or under `ray job submit`. The same command goes
on after a crash, and does nothing once the run is finished.

Example:
  python jobs/pretrain.py --config adapt --name news --encoder.model path/to/encoder
      --corpus.source 'news/*.parquet' --corpus.text body
"""

from __future__ import annotations

from infocse_ray.loop.infocse import pretrain
from infocse_ray.runtime.job import run_job
from infocse_ray.settings import Settings

if __name__ == "__main__":
    run_job(Settings, None, "pretrain.py", __doc__ or "", pretrain)
