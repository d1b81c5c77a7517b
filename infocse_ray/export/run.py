"""Export an encoder, check it against the original, say what is lost: the work of `infocse export`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.graph import traced
from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.export.card import exported_card, megabytes
from infocse_ray.export.check import AnyEncoder, Check, Vectors, answers, apart, check, texts_of
from infocse_ray.export.dimensions import truncated
from infocse_ray.export.folder import NAME, begin, place_of, refuse_export, save_encoder
from infocse_ray.export.formats import FORMATS, GraphEncoder, check_packages
from infocse_ray.export.questions import Asked, corpus_named, max_length_of, questions
from infocse_ray.loop.its_run import RunOf, how_read, judging_metric, run_of
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Encoder
from infocse_ray.settings.export import Export
from infocse_ray.storage.folder import Storage, is_remote
from infocse_ray.storage.redact import redacted


class Exported(NamedTuple):
    """What an export came to."""

    folder: Storage
    file: str
    """Of the graph in it, or `model.safetensors`."""
    size: int
    """Bytes of that and of weights beside it."""
    check: Check | None
    vectors: Vectors


def export(settings: Export) -> Exported:
    """Do it.

    Raises:
        ValueError: a setting doesn't fit the encoder, a package is missing, the folder is taken, or a graph's vectors
            are no numbers.
    """
    if settings.format != "torch":
        check_packages(settings.format)
    run, read = run_of(settings.model), how_read(settings.model)
    folder = resolve_encoder(settings.model, "model")
    refuse_export(folder, settings.model)
    target = place_of(settings.model, settings.output, settings.format, settings.dimensions)
    shape = Encoder(model=settings.model, max_length=max_length_of(settings, read))
    layout = read_layout(folder, setting="model")
    original = load_encoder(folder, shape, cosine=layout.normalize, setting="model", cut_to_positions=True)
    if layout.max_seq_length is not None:  # which a longer length of the check is not to change
        original.max_seq_length = min(layout.max_seq_length, original.max_seq_length or layout.max_seq_length)
    encoder = original if settings.dimensions is None else truncated(original, settings.dimensions)
    corpus_named(settings, run)
    content = begin(target, encoder, original.dimension)
    asked = questions(settings, run, read, encoder) if settings.check else None
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary)
        say(f"writing {label_of(settings)}: this takes a minute or so")
        file = write_form(settings, encoder, made)
        size = size_of(file)
        form = encoder if settings.format == "torch" else opened(settings, encoder, made)
        found, vectors = _checked(settings, run, original, encoder, form, asked)
        content["exports"][label_of(settings)] = _content(
            settings, file.relative_to(made).as_posix(), size, found, vectors
        )
        name = run.settings.name if run is not None else _name(settings.model)
        card = redacted(exported_card(folder, settings.model, name, content))
        (made / "README.md").write_text(card, encoding="utf-8")
        if read is not None:
            read.write(Storage.open(temporary))
        target.upload(made)
    (target / NAME).write_json(content)
    inside = file.relative_to(made).as_posix()
    say(f"exported to {target}: {inside}, {megabytes(size)}; its card: {target / 'README.md'}")
    return Exported(target, inside, size, found, vectors)


def _name(model: str) -> str:
    """What an encoder that is no run's is called: as its folder is, or on the hub."""
    return model.partition("?")[0].rstrip("/").rpartition("/")[2] if is_remote(model) else Storage.open(model).name


def label_of(settings: Export) -> str:
    """The form, for people."""
    return f"{settings.format} int8" if settings.int8 else settings.format


def write_form(settings: Export, encoder: SentenceEncoder, folder: Path) -> Path:
    """Write an encoder's folder in a form; its largest file, or the graph's."""
    save_encoder(encoder, folder, weights=settings.format == "torch")
    if settings.format == "torch":
        return folder / "model.safetensors"
    FORMATS[settings.format].write(traced(encoder), folder, settings.int8)
    return folder / FORMATS[settings.format].file_name(settings.int8)


def size_of(file: Path) -> int:
    """Bytes of a graph and of the weights beside it."""
    return sum(one.stat().st_size for one in file.parent.glob(f"{file.stem}.*"))


def opened(settings: Export, encoder: SentenceEncoder, folder: Path) -> GraphEncoder:
    """The graph of a folder in the encoder's place."""
    assert settings.format != "torch"
    form = FORMATS[settings.format]
    return GraphEncoder(encoder, form.Session(folder / form.file_name(settings.int8)))


def _checked(
    settings: Export,
    run: RunOf | None,
    original: SentenceEncoder,
    encoder: SentenceEncoder,
    form: AnyEncoder,
    asked: Asked | None,
) -> tuple[Check | None, Vectors]:
    texts: Tokens = texts_of(asked, encoder)
    # Where dimensions are cut, a graph is held against the encoder that is cut alike, and scores against the whole one.
    vectors = apart(original if form is encoder else encoder, form, texts)
    if form is not encoder:
        if math.isnan(vectors.difference):
            raise ValueError(
                f"format = {label_of(settings)}: the graph's vectors are no numbers (NaN); give another format"
            )
        say(
            f"vectors of {vectors.texts:,} texts: largest difference of a component {vectors.difference:.2g}, smallest "
            f"cosine {vectors.cosine:.6f}"
        )
    if asked is None:
        say("what is lost is not checked: --check false")
        return None, vectors
    say(f"asking {len(asked.questions.doc_ids):,} validation questions ({asked.on}) of the original and the export")
    metric = judging_metric(settings.metric, run)
    found = check(answers(original, asked), answers(form, asked), asked, metric)
    say(found.line())
    return found, vectors


def _content(settings: Export, file: str, size: int, found: Check | None, vectors: Vectors) -> dict[str, Any]:
    return {
        "format": settings.format,
        "int8": settings.int8,
        "file": file,
        "bytes": size,
        "check": None if found is None else found.content(),
        "vectors": {n: None if v != v else v for n, v in vectors._asdict().items()},
    }
