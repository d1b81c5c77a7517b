"""The command line of a command: YAML files and dotted overrides in, refusals in one line."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError

from infocse_ray.settings.explain import explain
from infocse_ray.settings.fields import defaults_of, settings_of
from infocse_ray.settings.help import full_help, short_help
from infocse_ray.settings.nested import flat, merged, nested
from infocse_ray.settings.options import given
from infocse_ray.storage.redact import redacted

Model = TypeVar("Model", bound=BaseModel)


def parse(
    model: type[Model],
    argv: Sequence[str] | None,
    prog: str,
    description: str,
    essentials: Sequence[str] = (),
    unnamed: str | None = None,
) -> Model:
    """Read `--config FILE` and dotted overrides (`--train.batch_size 512`) into a settings model; what is later wins.

    Args:
        model: the settings.
        argv: the arguments, without the program's name; None for those of the process.
        prog: the program's name.
        description: for the help.
        essentials: the settings that the short help has, by dotted name.
        unnamed: the setting that an argument without a name is (several, of a list); None: each needs one.

    Exits with status 2 and one line that names the setting, the value and the fix when they don't fit;
    `--help`, `--help all` and `--print_config` print and exit with status 0.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    for flag in ("-h", "--help"):
        if flag in argv:
            everything = argv[argv.index(flag) + 1 :][:1] == ["all"]
            text = (
                full_help(model, prog, description) if everything else short_help(model, prog, description, essentials)
            )
            print(text)
            raise SystemExit(0)
    try:
        show = "--print_config" in argv
        values = given(model, [argument for argument in argv if argument != "--print_config"], unnamed)
        if show:
            everything = merged(nested(defaults_of(model)), _as_numbers(model, values))
            print(yaml.safe_dump(everything, sort_keys=False, allow_unicode=True), end="")
            raise SystemExit(0)
        return model.model_validate(values)
    except ValidationError as error:
        message = explain(error, model)
    except (ValueError, OSError) as error:
        message = str(error)
    print(f"{prog}: error: {redacted(message)} (see --help)", file=sys.stderr)
    raise SystemExit(2)


def _as_numbers(model: type[BaseModel], values: dict[Any, Any]) -> dict[Any, Any]:
    """What options give as the settings take it, `10` as a number say; what they wouldn't take stays as it is."""
    written = dict(flat(values))
    for name, field in settings_of(model):
        if field.annotation is not None and isinstance(written.get(name), (str, list)):
            with suppress(ValidationError):
                values = merged(values, nested({name: TypeAdapter(field.annotation).validate_python(written[name])}))
    return values


def given_by_user(model: type[BaseModel], argv: Sequence[str] | None) -> dict[str, Any]:
    """What options and files of the user's own give, by dotted name; a shipped configuration is for several commands.

    Args:
        model: the settings.
        argv: arguments that `parse` takes.
    """
    return dict(flat(given(model, list(sys.argv[1:] if argv is None else argv), shipped=False)))
