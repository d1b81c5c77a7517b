"""Inputs of a run, located and checked on this machine before any work starts."""

from __future__ import annotations

from typing import NamedTuple

from infocse_ray.corpus.source import Source, find_source
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.encoder.layout import read_layout
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.origin import Origin, origin_of
from infocse_ray.encoder.prompts import Role
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.loop.first_encoder import load_first_encoder
from infocse_ray.loop.identity import run_identity
from infocse_ray.loop.whitening import trained_dimension, whitening_plan
from infocse_ray.methods.method import Method
from infocse_ray.methods.registry import Use, method_of, pooling_of
from infocse_ray.retrieval.sts import StsPairs, read_sts
from infocse_ray.runtime.progress import say
from infocse_ray.settings import Settings, fingerprint


class Inputs(NamedTuple):
    """Inputs of a run."""

    source: Source
    encoder: SentenceEncoder
    tokenizer: CorpusTokenizer
    fingerprint: str
    """Of the encoder."""
    annotator: SentenceEncoder | None
    """The annotator of the first iteration, if not the encoder."""
    initialization: Method | None
    """What the encoder is initialised with."""
    method: Method | None
    """What it is trained with."""
    sts: StsPairs | None
    """What shows its general ability."""
    origin: Origin
    """Where the encoder comes from."""

    def named(self) -> dict[str, str | None]:
        """Fingerprints of what the paths in the settings lead to."""
        return {
            "corpus": self.source.fingerprint,
            "encoder": self.fingerprint,
            "tokenizer": fingerprint(*self.tokenizer.named),
            "first_encoder": self.annotator.fingerprint() if self.annotator else None,
            "sts": self.sts.fingerprint if self.sts else None,
        }

    def identity(self, settings: Settings) -> str:
        """Of the run without labels that starts from these."""
        named = self.named()
        # A head that came with the encoder is named by the method alone: the encoder's fingerprint has it not.
        methods = [one.identity() for one in (self.initialization, self.method) if one is not None]
        return run_identity(
            settings,
            self.source.fingerprint,
            self.fingerprint,
            self.tokenizer.named,
            named["first_encoder"],
            named["sts"],
            methods,
        )


def spec_of(settings: Settings, encoder: SentenceEncoder) -> EncoderSpec:
    """The encoder's, as methods train it."""
    return EncoderSpec.of(encoder)._replace(dimension=trained_dimension(settings, encoder))


def crowded(encoder: SentenceEncoder, asked: bool) -> list[str]:
    """A line for each prompt that leaves a text less of `encoder.max_length` than it takes itself.

    Args:
        encoder: with its prompts.
        asked: whether there are counterparts, before which the queries' stands.
    """
    of: dict[Role, tuple[str, str]] = {"document": ("document_prompt", "sentence")}
    if asked:
        of["query"] = "query_prompt", "counterpart"
    lines = []
    for role, (name, text) in of.items():
        prompt = encoder.prompt_length(role)
        if prompt > (room := encoder.max_length - len(encoder.prefix) - len(encoder.suffix) - prompt):
            lines.append(
                f"encoder.max_length = {encoder.max_length}: encoder.{name} takes {prompt} of these tokens, so that a "
                f"{text} is cut at {room}; raise encoder.max_length by {prompt}"
            )
    return lines


def check(settings: Settings) -> Inputs:
    """Find the corpus and load the encoder on this machine.

    Raises:
        ValueError: one line that names the setting, the value and the fix.
    """
    source = find_source(settings.corpus)
    folder = resolve_encoder(settings.encoder.model)
    encoder = load_encoder(
        folder,
        settings.encoder,
        cosine=settings.train.similarity == "cosine",
        pooling=pooling_of(settings.train.method),
    )
    if settings.train.method == "idc" and settings.encoder.pooling == "auto" and read_layout(folder).pooling is None:
        say(
            f"encoder.model = {settings.encoder.model!r}: names no pooling, so it may be a language model and no "
            "sentence encoder; `--config paper-plus` has the settings for these"
        )
    for line in crowded(encoder, source.has("counterpart")):
        say(f"warning: {line}")
    whitening_plan(settings, encoder, [])  # what it refuses, before Ray starts
    spec = spec_of(settings, encoder)
    method = method_of(settings.train.method, settings, spec, Use(folder=folder))
    return Inputs(
        source,
        encoder,
        encoder.corpus_tokenizer(),
        encoder.fingerprint(),
        load_first_encoder(settings) if method is not None and method.annotated else None,
        method_of(settings.loop.initialization, settings, spec, Use(True, folder)),
        method,
        read_sts(settings.validate.sts) if settings.validate.sts is not None else None,
        origin_of(folder, settings.encoder.model),
    )
