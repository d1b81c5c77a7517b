"""The lines of Python of a model card: documents and queries as vectors, the way validation has them."""

from __future__ import annotations

import json

from infocse_ray.settings import Reading, Settings

SAID: dict[Reading, str] = {
    "sentences": "the mean of its sentences' vectors",
    "whole": "that of its whole text",
    "both": "the mean of that of its whole text and the mean of its sentences' vectors",
}
"""What a document's vector is, for people."""


def snippet(settings: Settings, unit: bool) -> str:
    """The lines.

    Args:
        settings: of the run.
        unit: whether vectors are compared by the cosine whatever the folder says.
    """
    reading, length = settings.validate.reading, settings.encoder.max_length  # pyright: ignore
    lines = [
        "import numpy as np",
        "from sentence_transformers import SentenceTransformer",
        "from sentencex import segment  # pip install sentencex",
        "",
        'model = SentenceTransformer("path/to/this/folder")',
    ]
    lines += [f"whole_length = {_LONGEST}"] * (reading != "sentences")
    lines += [
        f"model.max_seq_length = {length}  # as in training; without this line longer texts are read, too",
        "",
        "def document_vector(text):",
        f"    sentences = [{_WORDS} for s in segment({json.dumps(settings.corpus.language)}, text) if s.strip()]",
    ]
    if reading != "whole":
        lines.append(f"    mean = model.encode(sentences, {_PROMPT}).mean(0)")
    if reading != "sentences":
        lines += [
            "    model.max_seq_length = whole_length",
            f'    whole = model.encode(" ".join(sentences), {_PROMPT})',
            f"    model.max_seq_length = {length}",
        ]
    if reading == "both":
        lines.append(f"    mean = ({_scaled('mean', unit)} + whole) / 2")
    lines += [
        f"    return {'whole' if reading == 'whole' else _scaled('mean', unit)}",
        "",
        f'document = document_vector("{_ABOUT[reading]}")',
        'query = model.encode("what is searched for", prompt=model.prompts.get("query"))',
    ]
    return "\n".join(lines)


_LONGEST = "model.max_seq_length or 512"
_WORDS = '" ".join(s.split())'
_PROMPT = 'prompt=model.prompts.get("document")'
_ABOUT: dict[Reading, str] = {
    "sentences": "A document's text. Its sentences are encoded one by one.",
    "whole": "A document's text. It is encoded whole.",
    "both": "A document's text. It is encoded whole, and its sentences one by one.",
}


def _scaled(name: str, unit: bool) -> str:
    scaled = f"{name} / np.linalg.norm({name})"
    return scaled if unit else f'({scaled} if model.similarity_fn_name == "cosine" else {name})'
