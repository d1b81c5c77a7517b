"""The paper's tables on your own corpora: every method in one harness, with one budget of training.

For each corpus, method and seed it trains one encoder (a cell), and makes of their test scores tables with mean and
standard deviation, a plot of each, and a paired bootstrap of InfoCSE's lead. They are in <storage>/<name>/: tables.md,
tables.json and the plots, written anew after each cell. Needs the `report` extra.

--config is a file like jobs/configs/tables.yaml: what is nested there (settings, corpora, methods) is best given
there; --name, --storage, --seeds, --tokens, --encoder and the like override it on the command line. Settings inside
are those of pretrain.py, and all cells' are checked before the first runs.

--only_rows and --only_corpora run some of the cells; the tables show all, the others as they were or as `to do`.

A cell that fails leaves its reason in the tables and doesn't stop the others. The same command goes on after Ctrl-C
or a crash, tries failed cells again, and leaves finished ones alone; status 1 says that some failed.

Examples:
  python jobs/reproduce.py --config jobs/configs/tables.yaml --encoder path/to/encoder --only plan
  python jobs/reproduce.py --config jobs/configs/tables.yaml --encoder path/to/encoder --seeds '[1, 2]'
"""

from __future__ import annotations

import sys

from infocse_ray.job import run_job
from infocse_ray.report.config import Tables
from infocse_ray.report.runner import reproduce

if __name__ == "__main__":
    sys.exit(1 if run_job(Tables, None, "reproduce.py", __doc__ or "", reproduce) else 0)
