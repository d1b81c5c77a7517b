"""InfoCSE++: adapt a sentence encoder to a corpus of which a few documents are labelled.

A round trains without labels as pretrain.py does, then fine-tunes what came of it as finetune.py does; the next round
starts from the fine-tuned encoder. Rounds end when the fine-tuned validation score doesn't grow. The result is the best
fine-tuned encoder, <storage>/<name>/model, a folder for SentenceTransformer(...); every round's zero-shot
and fine-tuned scores are in metrics.json beside it.

Each phase of each round is a stage: the same command goes on after a crash, takes over what pretrain.py did with the
same settings in the same storage, and does nothing once the run is finished.

Example:
  python jobs/plusplus.py --config adapt --name news-plusplus --encoder.model path/to/encoder
      --corpus.source 'news/*.parquet' --corpus.text body --corpus.counterpart headline --labels.train_size 1000
"""

from __future__ import annotations

from infocse_ray.loop.plusplus import plusplus
from infocse_ray.runtime.job import run_job
from infocse_ray.settings import Settings

if __name__ == "__main__":
    run_job(Settings, None, "plusplus.py", __doc__ or "", plusplus)
