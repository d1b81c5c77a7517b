"""YAML as people write it in settings, where what is there twice is a mistake, and in cards: `no` is Norwegian."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml


class _Loader(yaml.SafeLoader):
    """Has `true` and `false` as truth values.

    By YAML 1.1's others `language: no` is false, and the key `on` is true.
    """

    yaml_implicit_resolvers: ClassVar = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


class _Strict(_Loader):
    """Refuses keys that are there twice, too, of which YAML drops the first."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """As PyYAML's, but a ConstructorError names a key that is there twice, and its place."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            if key.value in seen:
                said = f"{key.value} is there twice; put both together"
                raise yaml.constructor.ConstructorError(problem=said, problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def load_yaml(text: str, strict: bool = True) -> Any:
    """What a text says.

    Args:
        text: YAML.
        strict: refuse a key that is there twice; else the last counts.

    Raises:
        yaml.YAMLError: it is no YAML.
    """
    return yaml.load(text, _Strict if strict else _Loader)
