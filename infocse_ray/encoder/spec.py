"""What making training views needs to know of an encoder, without the encoder: small, and sent to every worker."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from tokenizers import decoders, models, pre_tokenizers

from infocse_ray.corpus.schema import vocabulary_of
from infocse_ray.encoder.decoder import can_decode
from infocse_ray.encoder.dropout import can_drop
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.positions import position_room


class EncoderSpec(NamedTuple):
    """An encoder's vocabulary and shape."""

    sentence_tokens: int
    """Tokens a sentence of a document is cut to, without special tokens and prompt."""
    query_tokens: int
    """The same of a counterpart, which has another prompt."""
    longest: int
    """Tokens the longest text of a document can have, without special tokens and prompt, for its positions."""
    dimension: int
    """d, the length of a sentence vector."""
    hidden: int
    """Length of a token vector, what the backbone puts out."""
    embedding: int
    """Length of what the embedding layer puts out for a token."""
    word: int
    """Length of a word embedding, which that layer may make longer."""
    kind: str
    """Of the backbone, such as bert."""
    can_cut: bool
    """Whether it has an embedding layer whose output can be cut off: one tensor."""
    can_shuffle: bool
    """Whether tokens' positions can be given."""
    can_drop: bool
    """Whether dropout changes its vectors."""
    can_decode: bool
    """Whether there is a decoder of its kind, which writes a text from a vector."""
    around: tuple[int, int]
    """Special and prompt tokens before a document's text, and after it."""
    vocabulary: int
    """Ids of tokens that have an embedding are below it; numbers may be left out among them."""
    special: tuple[int, ...]
    """Ids of special tokens."""
    mask: int | None
    """Id of the mask token; None where there is none, or none that has an embedding."""
    characters: np.ndarray
    """int16 [vocabulary]: characters of each token as text, the space before a word included."""
    behind_a_space: np.ndarray | None
    """uint32 [vocabulary]: what each token is behind a space; None where a space changes none."""

    @classmethod
    def of(cls, encoder: SentenceEncoder) -> EncoderSpec:
        """The lexicon of an encoder."""
        tokenizer = encoder.tokenizer
        embeddings = encoder.backbone.get_input_embeddings().weight
        before, after = map(len, encoder.around())
        width, mask = _embedding_width(encoder), tokenizer.mask_token_id
        return cls(
            sentence_tokens=encoder.room("document"),
            query_tokens=encoder.room("query"),
            longest=(position_room(encoder.backbone.config) or 2**15) - encoder.extra("document"),
            dimension=encoder.dimension,
            hidden=encoder.backbone.config.hidden_size,
            embedding=width or embeddings.shape[1],
            word=embeddings.shape[1],
            kind=encoder.backbone.config.model_type,
            can_cut=width is not None,
            can_shuffle=_takes_positions(encoder),
            can_drop=can_drop(encoder),
            can_decode=can_decode(encoder.backbone.config),
            around=(before, after),
            vocabulary=min(vocabulary_of(tokenizer.backend_tokenizer), len(embeddings)),
            special=tuple(sorted(tokenizer.all_special_ids)),
            mask=mask if mask is not None and mask < len(embeddings) else None,
            characters=_characters(tokenizer),
            behind_a_space=encoder.ids_behind_a_space,
        )


def own_tokens(there: np.ndarray, around: tuple[int, int]) -> np.ndarray:
    """Which tokens are a text's own, neither special ones nor its prompt's.

    Args:
        there: [b, length], the attention mask of texts of documents, padded on the right.
        around: as `EncoderSpec` has it.

    Returns:
        bool [b, length].
    """
    place = np.arange(there.shape[1])
    return (place >= around[0]) & (place < there.sum(1, keepdims=True) - around[1])


def _embedding_width(encoder: SentenceEncoder) -> int | None:
    """Length of what the layer `embeddings` puts out; None where there is none, or it puts out more than one thing."""
    if (layer := getattr(encoder.backbone, "embeddings", None)) is None:
        return None
    widths: list[int | None] = []
    # I-BERT's puts out a scale, too.
    hook = layer.register_forward_hook(
        lambda _, __, out: widths.append(out.shape[-1] if isinstance(out, torch.Tensor) else None)
    )
    ids = torch.zeros((1, 1), dtype=torch.int64, device=encoder.device)
    with torch.inference_mode(), hook:
        encoder.eval().hidden(ids, torch.ones_like(ids))
    return widths[0]


def _takes_positions(encoder: SentenceEncoder) -> bool:
    """Whether other positions give other vectors: some encoders take no positions, and some ignore them."""
    ids = torch.arange(4, device=encoder.device)[None] + 5
    try:
        with torch.inference_mode():
            as_they_stand, turned = (
                encoder.eval().hidden(ids, torch.ones_like(ids), positions)
                for positions in (torch.arange(4, device=encoder.device)[None], ids.flip(1) - 5)
            )
    except TypeError:
        return False
    return not torch.allclose(as_they_stand, turned)


def _characters(tokenizer: Any) -> np.ndarray:
    backend = tokenizer.backend_tokenizer
    tokens = [backend.id_to_token(number) or "" for number in range(vocabulary_of(backend))]
    if isinstance(backend.model, models.WordPiece):
        # A token begins a word unless it is marked. The mark alone doesn't tell: RoBERTa has tokens such as ####.
        mark = backend.model.continuing_subword_prefix
        lengths = [len(t) - len(mark) if t.startswith(mark) else len(t) + 1 for t in tokens]
    elif isinstance(backend.decoder, decoders.ByteLevel):
        # A letter a byte, the space among them; in UTF-8 a character has one byte that doesn't follow on another.
        bytes_of = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str
        following = {bytes_of(chr(byte))[0][0][1] for byte in range(0x80, 0xC0)}
        lengths = [sum(letter not in following for letter in t) for t in tokens]
    else:  # others mark the space itself, as a letter of the token
        lengths = [len(t) for t in tokens]
    return np.minimum(lengths, np.iinfo(np.int16).max).astype(np.int16)
