"""The encoder that annotates the first iteration, where it isn't the one that is trained."""

from __future__ import annotations

from typing import NamedTuple

from infocse_ray.corpus.prepare import prepare
from infocse_ray.corpus.source import Source
from infocse_ray.corpus.store import TokenStore
from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.load import load_encoder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.resolve import resolve_encoder
from infocse_ray.settings import Encoder, Settings, fingerprint
from infocse_ray.stages.stage import Stage, run_stage
from infocse_ray.storage.folder import Storage

_SETTING = "annotate.first_encoder"


class FirstEncoder(NamedTuple):
    """The annotator of the first iteration: an encoder and, if it has its own tokenizer, the corpus in its tokens."""

    encoder: EncoderFolder
    store: TokenStore | None
    prompted: bool
    """Whether it puts a prompt before a document's sentences."""


def load_first_encoder(settings: Settings) -> SentenceEncoder | None:
    """Load `annotate.first_encoder`, if one is named, on this machine.

    It pools as its folder says and cuts sentences like the encoder that is trained, or at as many tokens as it has
    positions.

    Raises:
        ValueError: one line that names the setting, its value and the fix.
    """
    model = settings.annotate.first_encoder
    if model is None:
        return None
    return load_encoder(
        resolve_encoder(model, _SETTING),
        Encoder(model=model, max_length=settings.encoder.max_length),
        cosine=settings.train.similarity == "cosine",
        setting=_SETTING,
        cut_to_positions=True,
    )


def save_first_encoder(root: Storage, run: Storage, encoder: SentenceEncoder) -> Stage:
    """Save it in the run's storage, where actors on other nodes find it."""
    return run_stage(
        root,
        run / "first_encoder",
        "first encoder",
        fingerprint("encoder", encoder.fingerprint()),
        lambda stage: {"max_length": EncoderFolder.save(encoder, stage.folder / "model").max_length},
    )


def first_encoder(
    saved: Stage,
    encoder: SentenceEncoder,
    root: Storage,
    settings: Settings,
    source: Source,
    tokenizer: CorpusTokenizer,
) -> FirstEncoder:
    """The saved encoder with the token store it reads.

    Args:
        saved: as `save_first_encoder` returns it.
        encoder: the same, loaded.
        root: the storage that runs share.
        settings: of the run.
        source: the run's corpus.
        tokenizer: of the encoder that is trained; where the first encoder has the same for sentences, the run's own
            store serves.
    """
    own = encoder.corpus_tokenizer()
    store = None if own.of_sentences == tokenizer.of_sentences else prepare(root, settings.corpus, source, own)
    folder = EncoderFolder(saved.folder / "model", encoder.fingerprint(), encoder.max_length)
    return FirstEncoder(folder, store, encoder.prompt_length() > 0)
