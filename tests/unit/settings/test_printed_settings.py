"""A configuration that was printed says what the options said that it was printed for."""

from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from infocse_ray.settings import Settings
from infocse_ray.settings.command_line import parse
from infocse_ray.settings.embed import Embed
from infocse_ray.settings.evaluate import Evaluate
from infocse_ray.settings.export import Export
from infocse_ray.settings.nested import flat
from infocse_ray.settings.search import Search

CORPUS = ("--corpus.source", "c.jsonl")


@pytest.mark.parametrize(
    ("model", "argv"),
    [
        (Embed, ("--model", "m", "--output", "o", *CORPUS)),
        (Embed, ("--model", "m", "--output", "o", "--corpus.min_sentences", "2", "--corpus.lanes", "8", *CORPUS)),
        (Evaluate, ("--model", "m", *CORPUS)),
        (Export, ("--model", "m")),
        (Search, ("--index", "i", "--query", "oil")),
        (Search, ("--index", "i", "--serve", "true", "--port", "0")),
        (Settings, ("--name", "x", "--encoder.model", "m", *CORPUS)),
    ],
)
def test_it_does(model: type[BaseModel], argv: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(model, [*argv, "--print_config"], "command", "")
    (tmp_path / "printed.yaml").write_text(capsys.readouterr().out)
    again = parse(model, ["--config", str(tmp_path / "printed.yaml")], "command", "")
    assert again == parse(model, argv, "command", "")


def test_numbers_from_options_are_printed_as_numbers_and_what_is_none_as_it_is(capsys: pytest.CaptureFixture[str]):
    options = {"train.max_steps": "10", "train.learning_rate": "5e-5", "name": "2024", "encoder.whiten": "auto"}
    options |= {"train.interpolation": "0.25,0.5", "train.whitened": "yes", "train.batch_size": "many"}
    with pytest.raises(SystemExit):
        parse(
            Settings,
            [word for name, text in options.items() for word in (f"--{name}", text)] + ["--print_config"],
            "",
            "",
        )
    printed = dict(flat(yaml.safe_load(capsys.readouterr().out)))
    assert {name: printed[name] for name in options} == {
        "train.max_steps": 10,
        "train.learning_rate": 5e-5,
        "name": "2024",
        "encoder.whiten": "auto",
        "train.interpolation": [0.25, 0.5],
        "train.whitened": True,
        "train.batch_size": "many",
    }


def test_all_documents_are_embedded_unless_it_is_said_otherwise():
    corpus = Embed.model_validate({"model": "m", "output": "o", "corpus": {"source": "c.jsonl"}}).corpus
    assert (corpus.min_sentences, corpus.lanes) == (1, "auto")


def test_what_is_of_the_page_is_refused_without_it():
    with pytest.raises(ValueError, match=r"port = 0: is of the page; add --serve"):
        Search.model_validate({"index": "i", "query": "oil", "port": 0})


def test_a_query_may_stand_behind_a_switch():
    given = {"behind": ["--exact", "oil prices"], "before": ["oil prices", "--exact"], "told": ["--exact", "no", "oil"]}
    asked = {name: parse(Search, ["--index", "i", *argv], "", "", unnamed="query") for name, argv in given.items()}
    assert {name: (one.exact, one.query) for name, one in asked.items()} == {
        "behind": (True, "oil prices"),
        "before": (True, "oil prices"),
        "told": (False, "oil"),
    }


def test_a_query_of_several_words_is_asked_for_in_quotes(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(Search, ["--index", "i", "oil", "prices"], "infocse search", "", unnamed="query")
    assert "'prices' is one word too many: put a query of several words into quotes" in capsys.readouterr().err
