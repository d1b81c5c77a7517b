"""Make the paper's tables on your own corpora: every method in one harness, with the same training budget.

Each corpus, method and seed gives one run, called a cell of the tables: an encoder that is trained and tested. The
tables show the mean and standard deviation of the test scores, of every encoder plain and whitened. They also say, by a
paired bootstrap over the test documents, what each method adds to the whitened encoder without training. The learning
rate of a method is the one of `learning_rates` with the best validation score on the first seed. <storage>/<name>/
gets tables.md, which begins with the answer, tables.json and a plot of each table, rewritten after each cell.

--config is a file like infocse_ray/configs/tables.yaml. Nested settings (settings, corpora, methods) are best given in
the file; --name, --storage, --seeds, --tokens, --encoder and the like override it on the command line. The settings
inside are those of `infocse pretrain`; those of all cells are checked before the first one runs.

--only_rows and --only_corpora run some of the cells; the tables show all, the others as they were or as `to do`,
and name a corpus of which there is nothing yet.

A cell that fails leaves its reason in the tables and doesn't stop the others. After Ctrl-C or a crash the same command
resumes: it tries failed cells again and leaves finished ones alone. Exit status 1 means that some failed.

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
