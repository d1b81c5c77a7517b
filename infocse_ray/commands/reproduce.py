"""The paper's tables on your own corpora: every method in one harness, with one budget of training.

For each corpus, method and seed it trains an encoder (a cell), and makes of their test scores tables with mean and
standard deviation, every encoder plain and whitened, a plot of each, and what each method adds to the encoder as it is,
whitened, by a paired bootstrap over the test documents. The learning rate of a method is the one of `learning_rates`
that validation likes best with the first seed. All are in <storage>/<name>/: tables.md, which begins with the answer,
tables.json and the plots, written anew after each cell. Needs the `report` extra.

--config is a file like infocse_ray/configs/tables.yaml: what is nested there (settings, corpora, methods) is best given
there; --name, --storage, --seeds, --tokens, --encoder and the like override it on the command line. Settings inside
are those of `infocse pretrain`, and all cells' are checked before the first runs.

--only_rows and --only_corpora run some of the cells; the tables show all, the others as they were or as `to do`.

A cell that fails leaves its reason in the tables and doesn't stop the others. The same command goes on after Ctrl-C
or a crash, tries failed cells again, and leaves finished ones alone; status 1 says that some failed.

Examples:
  infocse reproduce --config tables --encoder path/to/encoder --only plan
  infocse reproduce --config tables --encoder path/to/encoder --tables '[zero_shot]'
"""

from __future__ import annotations

from collections.abc import Sequence

from infocse_ray.commands.job import run_job
from infocse_ray.report.config import Tables

_ESSENTIALS = ("encoder", "name", "corpora", "tokens", "tables", "only")


def main(argv: Sequence[str] | None = None, prog: str = "infocse reproduce") -> int:
    """Run it; the exit status, 1 where something failed."""
    return 1 if run_job(Tables, argv, prog, __doc__ or "", _work, _ESSENTIALS) else 0


def _work(settings: Tables) -> int:
    from infocse_ray.report.runner import reproduce

    return reproduce(settings)
