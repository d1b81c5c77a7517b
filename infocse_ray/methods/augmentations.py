"""Changes to a text at the embedding layer, as ConSERT makes its views by them (Yan et al. 2021, section 3.2).

Feature cutoff: the same int(rate * d) dimensions of all the text's token embeddings become 0, without rescaling. Token
cutoff: int(rate * tokens) tokens' embeddings do. Dropout: single elements do, each with probability `rate`. Shuffle:
the tokens' positions are permuted, which changes the order a transformer sees. Padding keeps its place and embedding.
"""

from __future__ import annotations

import numpy as np
import torch

from infocse_ray.encoder.spec import EncoderSpec
from infocse_ray.methods.chance import mixed, ranks, uniforms
from infocse_ray.settings import ConSERTSettings


def check_augmentations(section: ConSERTSettings, spec: EncoderSpec) -> None:
    """Check that the two views differ and that the encoder can do what makes them differ.

    Raises:
        ValueError: it can't.
    """
    changes = {section.first, section.second}
    where = f"consert.first = {section.first}, consert.second = {section.second}"
    if changes == {"none"}:
        raise ValueError(f"{where}: both views are the sentence unchanged; choose an augmentation for one")
    if not any(_changes_texts(change, section.cutoff, spec.embedding) for change in changes):
        raise ValueError(
            f"consert.cutoff = {section.cutoff}: with {where} both views are the sentence unchanged; raise it"
        )
    if not spec.can_cut and changes - {"shuffle", "none"}:
        raise ValueError(
            f"{where}: a {spec.kind} encoder has no embedding layer that can be cut off; set them to shuffle and none"
        )
    if not spec.can_shuffle and "shuffle" in changes:
        raise ValueError(
            f"{where}: this {spec.kind} encoder takes no positions to shuffle; set it to token_cutoff or dropout"
        )


def _changes_texts(change: str, rate: float, dimension: int) -> bool:
    """Whether an augmentation changes any text: a cutoff of nothing is none."""
    cut = {"feature_cutoff": int(dimension * rate), "token_cutoff": rate, "dropout": rate}
    return change == "shuffle" or cut.get(change, 0) > 0


def augmented(
    changes: np.ndarray,
    rate: float,
    dimension: int,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    seeds: np.ndarray,
) -> dict[str, torch.Tensor]:
    """What `Method.inputs` gives for texts of which each is changed in its way.

    Args:
        changes: str [b], an augmentation's name each.
        rate: share of what a cutoff sets to 0.
        dimension: of the embedding layer.
        input_ids: int64 [b, length].
        attention_mask: int64 [b, length].
        seeds: uint64 [b]: all that chance may come from.
    """
    extra: dict[str, torch.Tensor] = {}
    width, lengths = input_ids.shape[1], attention_mask.numpy().sum(1)
    shuffled = changes == "shuffle"
    if shuffled.any():
        extra["position_ids"] = torch.from_numpy(ranks(uniforms(seeds, width), lengths * shuffled))
    features, tokens, elements = (changes == name for name in ("feature_cutoff", "token_cutoff", "dropout"))
    if (features | tokens | elements).any():
        whole = (tokens | elements).any(), (features | elements).any()
        keep = np.ones((len(changes), width if whole[0] else 1, dimension if whole[1] else 1), dtype=bool)
        if features.any():
            keep[features] &= _features(seeds[features], dimension, rate)
        if tokens.any():
            keep[tokens] &= _tokens(seeds[tokens], lengths[tokens], width, rate)
        if elements.any():
            keep[elements] &= _elements(seeds[elements], lengths[elements], width, dimension, rate)
        extra["keep"] = torch.from_numpy(keep)
    return extra


def _features(seeds: np.ndarray, dimension: int, rate: float) -> np.ndarray:
    """Dimensions of all tokens that stay: bool [n, 1, d]."""
    places = ranks(uniforms(seeds, dimension), np.full(len(seeds), dimension))
    return (places >= int(dimension * rate))[:, None]


def _tokens(seeds: np.ndarray, lengths: np.ndarray, width: int, rate: float) -> np.ndarray:
    """Tokens that stay: bool [n, width, 1]."""
    return (ranks(uniforms(seeds, width), lengths) >= (lengths * rate).astype(np.int64)[:, None])[:, :, None]


def _elements(seeds: np.ndarray, lengths: np.ndarray, width: int, dimension: int, rate: float) -> np.ndarray:
    """Single elements of the real tokens that stay: bool [n, width, d]. 32 random bits of each decide."""
    words = mixed(mixed(seeds, 0)[:, None, None], np.arange(width)[:, None], np.arange((dimension + 1) // 2))
    stays = words.view(np.uint32)[:, :, :dimension] >= int(rate * 2**32)
    return stays | (np.arange(width) >= lengths[:, None])[:, :, None]
