"""Settings that a command takes and doesn't read: whoever gives them is told, and nobody else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from infocse_ray.api import calls
from infocse_ray.commands import finetune, plusplus, pretrain
from infocse_ray.settings import Settings

Main = Callable[[Sequence[str]], int]


def warnings(main: Main, capsys: pytest.CaptureFixture[str], *argv: str) -> list[str]:
    """What is warned of before the corpus isn't found."""
    with pytest.raises(SystemExit) as ended:
        main(["--name=x", "--encoder.model=m", "--corpus.source=/nowhere", *argv])
    assert ended.value.code == 2
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")]


@pytest.mark.parametrize(
    ("main", "argv", "said"),
    [
        (
            finetune.main,
            ["--train.learning_rate=0.5"],
            "train.learning_rate = 0.5: `infocse finetune` doesn't read it; finetune.learning_rate is its own",
        ),
        (
            finetune.main,
            ["--train.max_steps=9", "--train.max_tokens=9"],
            "train.max_steps = 9, train.max_tokens = 9: `infocse finetune` doesn't read them; finetune.epochs ends it",
        ),
        (
            finetune.main,
            ["--plusplus.max_rounds=1"],
            "plusplus.max_rounds = 1: `infocse finetune` doesn't read it; `infocse plusplus` does",
        ),
        (
            pretrain.main,
            ["--finetune.epochs=3", "--labels.train_size=9"],
            "labels.train_size = 9, finetune.epochs = 3: `infocse pretrain` doesn't read them; `infocse plusplus` does",
        ),
        (
            finetune.main,
            [
                "--annotate.k=2",
                "--annotate.first_encoder=f",
                "--annotate.engine=torch",
                "--loop.max_iterations=3",
                "--simcse.dropout=0.3",
            ],
            "annotate.k = 2, annotate.first_encoder = f, annotate.engine = torch, loop.max_iterations = 3, "
            "simcse.dropout = 0.3: `infocse finetune` doesn't read them; `infocse pretrain` does",
        ),
        (
            finetune.main,
            ["--train.method=simcse", "--train.distillation=0.25"],
            "train.method = simcse, train.distillation = 0.25: `infocse finetune` doesn't read them; "
            "`infocse pretrain` does",
        ),
        (
            pretrain.main,
            ["--simcse.dropout=0.3"],
            "simcse.dropout = 0.3: `infocse pretrain` doesn't read it; train.method is idc",
        ),
        (
            plusplus.main,
            ["--train.method=simcse", "--annotate.k=2", "--train.distillation=0.4", "--simcse.dropout=0.3"],
            "annotate.k = 2, train.distillation = 0.4: `infocse plusplus` doesn't read them; train.method is simcse",
        ),
        (
            pretrain.main,
            ["--annotate.clustering=kmeans", "--annotate.kmeans_clusters=9", "--annotate.k=2"],
            "annotate.k = 2: `infocse pretrain` doesn't read it; annotate.clustering is kmeans",
        ),
        (
            pretrain.main,
            ["--loop.initialization_steps=9"],
            "loop.initialization_steps = 9: `infocse pretrain` doesn't read it; loop.initialization is none",
        ),
        *(
            (
                pretrain.main,
                [f"--train.method={method}", "--train.temperature=0.5"],
                f"train.temperature = 0.5: `infocse pretrain` doesn't read it; train.method {method} has its own, or "
                "none",
            )
            for method in ("simcse", "consert", "mirror_bert", "ict", "declutr", "tsdae", "none")
        ),
        (
            pretrain.main,
            ["--conpono.margin=5"],
            "conpono.margin = 5.0: `infocse pretrain` doesn't read it; train.method is idc",
        ),
        (
            pretrain.main,
            ["--train.head_learning_rate=0.5"],
            "train.head_learning_rate = 0.5: `infocse pretrain` doesn't read it; nothing that is trained has a head "
            "that begins untrained",
        ),
        (
            plusplus.main,
            ["--train.method=conpono", "--conpono.margin=5"],
            "conpono.margin = 5.0: `infocse plusplus` doesn't read it; conpono.form is softmax",
        ),
        (
            pretrain.main,
            ["--loop.pilot_steps=9"],
            "loop.pilot_steps = 9: `infocse pretrain` doesn't read it; recipe isn't auto",
        ),
    ],
)
def test_what_is_given_and_not_read_is_warned_of_in_a_line(
    main: Main, argv: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert warnings(main, capsys, *argv) == [f"warning: {said}"]


@pytest.mark.parametrize(
    ("main", "argv"),
    [
        (finetune.main, ["--config=paper"]),
        (finetune.main, ["--train.batch_size=128", "--finetune.epochs=3", "--train.weight_decay=0.1"]),
        (pretrain.main, ["--config=adapt", "--train.batch_size=64"]),
        (pretrain.main, ["--config=paper", "--train.method=simcse", "--train.distillation=0"]),
        (pretrain.main, ["--recipe=auto", "--loop.pilot_steps=9", "--simcse.dropout=0.3"]),
        (pretrain.main, ["--loop.initialization=cpc", "--cpc.ahead=2", "--loop.initialization_steps=9"]),
        (pretrain.main, ["--train.method=simcse", "--simcse.dropout=0.3"]),
        (plusplus.main, ["--train.batch_size=64", "--plusplus.max_rounds=1"]),
        (plusplus.main, ["--train.method=simcse", "--train.temperature=0.5"]),
        (pretrain.main, ["--train.temperature=0.5"]),
        (pretrain.main, ["--train.method=simcse", "--loop.initialization=cpc", "--train.temperature=0.5"]),
        (pretrain.main, ["--train.method=cpc", "--train.temperature=0.5", "--train.head_learning_rate=0.5"]),
        (pretrain.main, ["--train.method=ict", "--ict.projection=0", "--train.temperature=0.5"]),
        (pretrain.main, ["--recipe=auto", "--train.temperature=0.5", "--train.head_learning_rate=0.5"]),
        (pretrain.main, ["--train.method=conpono", "--conpono.form=margin", "--conpono.margin=5"]),
    ],
)
def test_what_is_read_or_a_default_or_of_a_shipped_configuration_is_not_warned_of(
    main: Main, argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert warnings(main, capsys, *argv) == []


def test_a_file_of_ones_own_is_as_its_options(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("train: {batch_size: 16}\n")
    assert len(warnings(finetune.main, capsys, "--config", str(file))) == 1


def test_what_python_gives_for_nothing_is_told_as_a_command_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = {"name": "x", "storage": str(tmp_path), "encoder": {"model": "m"}, "corpus": {"source": "/nowhere"}}
    few = Settings.model_validate(settings | {"labels": {"train_size": 9}, "plusplus": {"max_rounds": 3}})
    own = Settings.model_validate(settings | {"train": {"max_steps": 9}})
    for job, given in ((calls.pretrain, few), (calls.finetune, own), (calls.pretrain, own)):
        with pytest.raises(ValueError, match="/nowhere"):
            job(given)
    assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("warning: ")] == [
        "warning: labels.train_size = 9: `infocse pretrain` doesn't read it; `infocse plusplus` does",
        "warning: train.max_steps = 9: `infocse finetune` doesn't read it; finetune.epochs ends it",
    ], "rounds are as many as by default"
