"""The card of an exported folder: the original's, with what the folder has, how it is loaded and what it lost."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from infocse_ray.encoder.layout import read_prompts
from infocse_ray.encoder.origin import front_matter, origin_of
from infocse_ray.loop import card_metadata

_TAGS = {"onnx": "onnx", "openvino": "openvino"}
_FOLDER = '"path/to/this/folder"'
"""What cards call the folder that they are in."""


def exported_card(source: Path, model: str, name: str, content: dict[str, Any]) -> str:
    """The folder's README.md.

    Args:
        source: folder of the original, whose card goes on below, where it has one.
        model: what named it.
        name: of the encoder, where its card has none.
        content: of the folder's `export.json`.
    """
    exports: dict[str, dict[str, Any]] = content["exports"]
    written = front_matter(source / "README.md")
    body = _body(source / "README.md") or f"# {name}\n"
    results = [result for label, one in exports.items() for result in _results(label, one)]
    tags = sorted({_TAGS[one["format"]] for one in exports.values() if one["format"] in _TAGS})
    if written:
        index = {} if not results else ModelCardData(model_name=_name(written, name), eval_results=results).to_dict()
        # What the original scored isn't what these score.
        kept = {key: value for key, value in written.items() if key != "model-index"}
        tagged = kept.get("tags") or []
        given = tagged if isinstance(tagged, list) else [tagged]  # one may stand alone
        # Whatever library the original's card names: this folder is of one.
        kept |= {"library_name": "sentence-transformers"}
        head = card_metadata.fenced(kept | {"tags": list(dict.fromkeys([*given, *tags]))} | index)
    else:
        head = card_metadata.front_matter(name, origin_of(source, model), results, tags)
    title, _, rest = body.lstrip().partition("\n") if body.lstrip().startswith("# ") else (f"# {name}", "", body)
    told = _section(content, prompted=bool(read_prompts(source, "model")))
    return f"{head}\n{title}\n\n{told}\n{_loading(rest.lstrip(), exports)}"


def _loading(body: str, exports: dict[str, dict[str, Any]]) -> str:
    """The original's card, with lines of Python that load what is here: there may be no weights for torch."""
    if not exports or any(one["format"] == "torch" for one in exports.values()):
        return body
    return body.replace(f"SentenceTransformer({_FOLDER})", _call(min(exports.values(), key=lambda one: one["int8"])))


def _section(content: dict[str, Any], prompted: bool) -> str:
    exports: dict[str, dict[str, Any]] = content["exports"]
    dimensions = content["dimensions"]
    rows = "\n".join(_row(label, one) for label, one in exports.items())
    cut = content["dimensions_of_original"]
    fewer = f", of the original's {cut} the leading components, scaled to length 1" if dimensions < cut else ""
    alike = ", cut alike," if dimensions < cut else ""
    how = "\n\n".join(_how(one) for one in exports.values()) + (_PROMPTED if prompted else "")
    return f"""## What is exported here

Sentence vectors have {dimensions} dimensions{fewer}.

| form | size | lost | score | largest difference of a component | smallest cosine |
| --- | --- | --- | --- | --- | --- |
{rows}

Lost: the original's score less the export's, on the same validation questions, with the 95 % interval of a paired
bootstrap over documents. Differences are between the original's vectors{alike} and the export's of the same texts.

{how}

What follows is the card of the original.
"""


_PROMPTED = """

Texts want the prompts before them that `config_sentence_transformers.json` has: sentence-transformers puts one there
where it is named (`encode(texts, prompt_name="query")`), without it they are part of the texts that become tokens."""


def _row(label: str, one: dict[str, Any]) -> str:
    lost, score = "not measured", ""
    if (found := one["check"]) is not None:
        # The loss is the negative of the lead, so the ends of its interval change places.
        low, high = -found["high"] + 0.0, -found["low"] + 0.0
        lost = f"{-found['difference'] + 0.0:+.4f} ({low:+.4f} to {high:+.4f}) of {found['questions']:,} questions"
        metric = found["metric"]
        score = f"{metric} {found['before'][metric]:.4f} to {found['after'][metric]:.4f}"
    apart = [_figure(one["vectors"][name], digits) for name, digits in (("difference", 2), ("cosine", 6))]
    return f"| {' | '.join([label, megabytes(one['bytes']), lost, score, *apart])} |"


def megabytes(size: int) -> str:
    """A size for people, which can be compared with others."""
    return f"{size / 1e6:.1f} MB"


def _figure(value: float | None, digits: int) -> str:
    if value is None or math.isnan(value):
        return "other dimensions"
    return f"{value:.{digits}g}" if digits < 4 else f"{value:.{digits}f}"


def _how(one: dict[str, Any]) -> str:
    if one["format"] == "torch":
        return f"Load it with `{_call(one)}`."
    return f"""With sentence-transformers:

```python
model = {_call(one)}
```

Without it, `{one["file"]}` takes `input_ids` and `attention_mask` (int64, texts by tokens) and gives
`sentence_embedding`: pooling, whitening and scaling are inside."""


def _call(one: dict[str, Any]) -> str:
    """What loads a form with sentence-transformers."""
    backend = "" if one["format"] == "torch" else f', backend="{one["format"]}"'
    file = f', model_kwargs={{"file_name": "{one["file"].partition("/")[2]}"}}' if one["int8"] else ""
    return f"SentenceTransformer({_FOLDER}{backend}{file})"


def _results(label: str, one: dict[str, Any]) -> list[EvalResult]:
    found = one["check"]
    return [] if found is None else card_metadata.retrieval_results(found["after"], found["on"], "validation", label)


def _body(card: Path) -> str:
    """Of a card, what comes after the front matter."""
    try:
        text = card.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    return re.sub(r"\A\s*---[ \t]*\r?\n.*?\r?\n---[ \t]*(\r?\n|$)", "", text, flags=re.DOTALL)


def _name(written: dict[str, Any], name: str) -> str:
    index = written.get("model-index")
    return str(index[0].get("name", name)) if isinstance(index, list) and index and isinstance(index[0], dict) else name
