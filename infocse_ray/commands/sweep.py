"""Try settings of `infocse pretrain` side by side, with Ray Tune: K, the batch size, and any other by its dotted name.

Every trial is a run of pretrain in one storage, <storage>/<name>-<its values>. Trials share what they have in common:
one tokenised corpus, and one first annotation for each K (of a corpus of more than 4,000 documents those that train
much more annotate more of it; settings.annotate.share 1 has all annotate all). <storage>/<name>/ gets sweep.md (a
row for each trial: its values, the score after each iteration, pairs, seconds), sweep.json, sweep.png and best.yaml,
which `infocse pretrain --config` accepts; all are rewritten whenever a trial makes progress.

--config is a file like infocse_ray/configs/sweep.yaml, whose corpus stands for yours (--settings.corpus.source). On
the command line --settings.train.max_steps 500 sets a value for all trials, and --parameters.train.batch_size '{grid:
[32, 64]}' the values to try. The settings of all trials are checked before the first one runs.

To run trials side by side, say how much of the cluster each takes (settings: annotate.num_workers, train.num_workers),
or how many run at a time (max_concurrent); each then gets its share. By default they run one by one, on all of it.

A trial that fails leaves its reason in the table and doesn't stop the others. After Ctrl-C or a crash the same command
resumes: it tries failed trials again and leaves finished ones alone. Exit status 1 means that some failed.

Examples:
  infocse sweep --config sweep --settings.encoder.model path/to/encoder --only plan
  infocse sweep --config sweep --settings.encoder.model path/to/encoder --max_concurrent 2
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.tuning.config import Sweep

_ESSENTIALS = ("name", "settings", "parameters", "samples", "max_concurrent", "only")


def main(argv: Sequence[str] | None = None, prog: str = "infocse sweep") -> int:
    """Run it; the exit status, 1 where something failed."""
    return 1 if run_job(Sweep, argv, prog, __doc__ or "", _work, _ESSENTIALS) else 0


def _work(settings: Sweep) -> int:
    from infocse_ray.tuning.run import sweep

    return sweep(settings)
