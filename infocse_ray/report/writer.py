"""Write the tables of what is kept of the cells, after each cell: what hasn't changed isn't computed or drawn again."""

from __future__ import annotations

from infocse_ray.report.cells import CellPlan
from infocse_ray.report.choice import Records
from infocse_ray.report.config import Tables
from infocse_ray.report.leads import Leads
from infocse_ray.report.markdown import render
from infocse_ray.report.plots import plot
from infocse_ray.report.tables import summarise
from infocse_ray.settings import fingerprint
from infocse_ray.storage.folder import Storage


class Writer:
    """Of one command's tables."""

    def __init__(self, folder: Storage, config: Tables, plan: CellPlan) -> None:
        self._folder, self._config, self._plan = folder, config, plan
        self._leads = Leads(Storage.open(config.storage))
        self._drawn: dict[str, str] = {}

    def write(self, records: Records) -> None:
        """Write tables.json, tables.md and the plots, each whole."""
        tables = summarise(self._config, self._plan, records, self._leads)
        (self._folder / "tables.json").write_json(tables)
        for study in self._plan.studies:
            shown = fingerprint([corpus["tables"][study.name] for corpus in tables["corpora"].values()])
            if self._drawn.get(study.name) != shown:
                (self._folder / f"{study.name}.png").write_bytes(plot(study, tables))
                self._drawn[study.name] = shown
        (self._folder / "tables.md").write_bytes(render(self._plan.studies, tables).encode())
