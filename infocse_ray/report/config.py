"""What `infocse reproduce` is told: the corpora, the methods' settings, the budget, which tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from infocse_ray.report.studies import METHODS, STUDY_NAMES, LabelSize, methods_with, row_keys
from infocse_ray.settings import Section, Settings, plain_name, run_name
from infocse_ray.settings.explain import not_a

Like = Literal["news", "web_document", "web_browsing"]


class TableCorpus(Section):
    """A corpus of the tables."""

    name: str = Field(description="Name of the corpus in the tables: letters, digits, dot, dash, underscore.")
    like: Like | None = Field(default=None, description="Column of the paper's tables to show as a reference.")
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of the runs on this corpus, as `infocse pretrain` takes them: a `corpus` section.",
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        return plain_name(value)


class Tables(Section):
    """The tables to make."""

    trees: ClassVar = {"settings": Settings}

    name: str = Field(description="Name of the tables: letters, digits, dot, dash, underscore.")
    storage: str = Field(
        default="runs",
        min_length=1,
        description="Folder or URI that every node reaches; the tables are in <storage>/<name>, each run in "
        "<storage>/<name>-<corpus>-<method>-<seed>.",
    )
    seeds: list[int] = Field(
        default=[1, 2, 3],
        description="Seeds; each method is trained once per seed, and tables show mean and standard deviation.",
    )
    tokens: int = Field(
        default=3_000_000, ge=1, description="Tokens that every trained row encodes in training, over all its stages."
    )
    learning_rates: list[Annotated[float, Field(gt=0.0, lt=1.0)]] = Field(
        default=[1e-5, 2e-5, 5e-5],
        description="Values of train.learning_rate to choose from. Each method is trained with each of them on "
        "each corpus, with the first of `seeds`; the one with the best validation score (validate.metric; never the "
        "test) is shown and used for the other seeds. Variants of a row (of `clustering` and the like) and rows "
        "with labels take over the row's choice. A method with a train.learning_rate in `methods` keeps it. A "
        "single value: no choice.",
    )
    validations: int = Field(default=6, ge=1, description="Validations in a training stage, evenly spaced in tokens.")
    iterations: int = Field(
        default=2,
        ge=1,
        description="InfoCSE's iterations; `tokens` is split equally over the initialisation and the iterations.",
    )
    label_sizes: list[LabelSize] = Field(
        default=[1000, 2000, 5000],
        description="Numbers of labelled examples to fine-tune on; each makes a table of `few_shot`. `plusplus` "
        "uses the first of them and all.",
    )
    rounds: int = Field(default=2, ge=1, description="Most rounds of InfoCSE++.")
    encoder: str | None = Field(
        default=None, description="Encoder that all methods start from; the same as --settings.encoder.model."
    )
    first_encoder: str | None = Field(
        default=None,
        description="Encoder (such as an SBERT) that annotates the first iteration of one row of the table "
        "`annotator`; without it that row is skipped.",
    )
    adapt: str | None = Field(
        default=None,
        description="A configuration of pretrain, shipped (`adapt`) or a file, that makes a row of its own. Its "
        "pairs, loss and choice of the returned weights are used where `settings` don't say otherwise; corpus, "
        "encoder, budget and learning rates are the tables'. Without it that row is skipped.",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="Settings of every run, as `infocse pretrain` takes them; on the command line by dotted name, "
        "such as --settings.train.batch_size 64.",
    )
    corpora: list[TableCorpus] = Field(
        description="Corpora, each with `name`, `settings` (with a `corpus` section) and optionally `like`."
    )
    methods: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Settings of one method's cells: `infocse` holds for all rows of InfoCSE, `ict` for all of ICT, "
        "and before those of one row alone. InfoCSE's initialisation takes over the section of its method's own name "
        "(of `conpono`, what is under `conpono: conpono:`), not that method's other settings, such as `train`. "
        f"Methods: {', '.join(METHODS)}; fine-tuned, `simcse_1000`, `infocse_plusplus_all` and the like, for which "
        "what the method without labels has holds first.",
    )
    tables: list[str] = Field(
        default=list(STUDY_NAMES),
        description="Which to make; tables.md and tables.json have these alone, until the next command with all. "
        f"Tables: {', '.join(STUDY_NAMES)}.",
    )
    only_rows: list[str] | None = Field(
        default=None,
        description="Run only the cells of these rows, and those that choose their learning rate; the tables still "
        "show all rows, those not run as `to do`. "
        f"Rows: {', '.join(row_keys(STUDY_NAMES, ['all']))}; "
        "of few-shot tables with the number of labelled examples in place of `all`.",
    )
    only_corpora: list[str] | None = Field(
        default=None, description="Run only these corpora; the tables still show all, and need all files."
    )
    only: Literal["plan"] | None = Field(
        default=None,
        description="`plan`: print all runs (cells of the tables), their state and their budget, and run nothing.",
    )

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        return run_name(value)

    @field_validator("label_sizes")
    @classmethod
    def _sizes(cls, sizes: list[LabelSize]) -> list[LabelSize]:
        if not all(size == "all" or size >= 2 for size in sizes):
            raise ValueError("a number of labelled examples is 2 or more, or all")
        return sizes

    @field_validator("seeds", "learning_rates", "label_sizes", "tables", "only_rows", "only_corpora", "corpora")
    @classmethod
    def _each_once(cls, values: list[Any] | None) -> list[Any] | None:
        if values is None:
            return None
        if not values or any(value in values[:i] for i, value in enumerate(values)):
            raise ValueError("name at least one, and each once")
        return values

    @field_validator("seeds")
    @classmethod
    def _seeds(cls, seeds: list[int]) -> list[int]:
        if not all(0 <= seed < 2**31 for seed in seeds):
            raise ValueError("a seed is from 0 to 2147483647")
        return seeds

    @field_validator("tables")
    @classmethod
    def _known_tables(cls, tables: list[str]) -> list[str]:
        for key in tables:
            _known(key, STUDY_NAMES, "table")
        return tables

    @field_validator("corpora")
    @classmethod
    def _distinct_names(cls, corpora: list[TableCorpus]) -> list[TableCorpus]:
        names = [corpus.name for corpus in corpora]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two corpora are named {name}; give each a name of its own")
        return corpora

    @model_validator(mode="after")
    def _something_to_run(self) -> Tables:
        known = methods_with(self.label_sizes)
        for key in self.methods:
            _known(key, known, "method")
        every, shown = (row_keys(names, self.label_sizes) for names in (STUDY_NAMES, self.tables))
        for key in self.only_rows or []:
            _known(key, every, "row")
            if key not in shown:
                raise ValueError(f"only_rows: {key} is in none of the tables {', '.join(self.tables)}; add its table")
        for name in self.only_corpora or []:
            if name not in (names := [corpus.name for corpus in self.corpora]):
                raise ValueError(f"only_corpora: {name} is not a corpus of the tables, which are {', '.join(names)}")
        return self


def _known(key: str, known: Iterable[str], kind: str) -> None:
    if key not in known:
        raise ValueError(not_a(kind, key, known, "; --help all lists them"))
