"""How long a text an encoder has positions for, and where they begin."""

from __future__ import annotations

from typing import Any

_OFFSET_POSITIONS = {
    "roberta",
    "xlm-roberta",
    "camembert",
    "mpnet",
    "longformer",
    "data2vec-text",
    "xlm-roberta-xl",
    "roberta-prelayernorm",
    "xmod",
    "ibert",
    "luke",
}


def position_room(config: Any) -> int | None:
    """Tokens, special ones included, that an encoder of this configuration has positions for; None: no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    return positions - first_position(config) if positions and positions > 0 else None


def first_position(config: Any) -> int:
    """The position of the first token: RoBERTa and its kin count from pad_token_id + 1.

    Raises:
        ValueError: such a configuration has no pad_token_id.
    """
    if config.model_type not in _OFFSET_POSITIONS:
        return 0
    if config.pad_token_id is None:
        raise ValueError(
            f"encoder.model: a {config.model_type} counts positions from pad_token_id, which its config.json lacks"
        )
    return config.pad_token_id + 1
