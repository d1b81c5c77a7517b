"""The backbone of an encoder's folder: which models of transformers give token vectors of a text, and how they load.

1. Encoders, which see a text both ways: those that transformers has a masked-language model of.
2. Language models, which read from left to right (Qwen3-Embedding), or did before they were made to see both ways
   (EmbeddingGemma): where something says how their token vectors become a sentence's, for a language model that nobody
   made an encoder of says nothing.
3. T5 and its kin: the half that reads.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn
from transformers import AutoConfig, AutoModel, MT5EncoderModel, T5EncoderModel, UMT5EncoderModel
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

from infocse_ray.encoder.tokenizer import first_line

_HALVES: dict[str, Any] = {"t5": T5EncoderModel, "mt5": MT5EncoderModel, "umt5": UMT5EncoderModel}
"""Encoders of encoder-decoders, by the kind of the whole."""


def load_backbone(folder: Path, pooling_is_said: bool, where: str, untold: str) -> Any:
    """The backbone in a folder, in fp32, on the CPU; only safetensors are read, and no code of the folder's is run.

    Args:
        folder: of a Hugging Face model.
        pooling_is_said: by the folder or the settings.
        where: what error messages begin with: the setting and its value.
        untold: what to do about a language model of which nothing is said.

    Raises:
        ValueError: it gives no token vectors of a text, or can't be loaded.
    """
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: no Hugging Face model: {first_line(error)}") from error
    loader = _HALVES.get(config.model_type, AutoModel)
    sees_both_ways = type(config) in MODEL_FOR_MASKED_LM_MAPPING or config.model_type in _HALVES
    if getattr(config, "is_decoder", False) or (loader is AutoModel and config.is_encoder_decoder):
        raise ValueError(_no_encoder(where, config))
    if not hasattr(config, "hidden_size"):  # of text and images, say
        raise ValueError(_no_encoder(where, config))
    if config.model_type == "big_bird":  # which turns to this at the first short text, and stays there
        config.attention_type = "original_full"
    if not sees_both_ways:
        if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
            raise ValueError(_no_encoder(where, config))
        if not pooling_is_said:
            raise ValueError(
                f"{where}: a {config.model_type} model is a language model that names no pooling; {untold}"
            )
        config.use_cache = False  # of keys and values, for texts that are written on
    try:
        backbone, loading = loader.from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (ImportError, KeyError, TypeError) as error:  # a package isn't here, or the library knows no such name
        raise ValueError(f"{where}: transformers can't build it: {first_line(error)}") from error
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"{where}: its weights can't be loaded as safetensors: {first_line(error)}; convert them with "
            "AutoModel.from_pretrained(...).save_pretrained(...)"
        ) from error
    missing = sorted(loading["missing_keys"])
    if needed := [name for name in missing if not name.startswith("pooler.")]:
        raise ValueError(f"{where}: its weights lack {len(needed)} of the encoder's tensors, such as {needed[0]}")
    for name in missing:  # no sentence vector depends on them; drawn anew, they would give each load a fingerprint
        nn.init.zeros_(backbone.get_parameter(name))
    return backbone


def _no_encoder(where: str, config: Any) -> str:
    return f"{where}: a {config.model_type} model is no encoder; use BERT, RoBERTa, MPNet, ModernBERT, ..."
