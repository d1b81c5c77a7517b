"""Encoders and documents out of nothing, for machines without files and network: random weights, random words."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3Model,
)

from infocse_ray.corpus.store import Documents
from infocse_ray.corpus.tokens import Tokens, offsets_of
from infocse_ray.encoder.checkpoint import EncoderFolder
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.storage.folder import Storage

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = 30_000
MAX_LENGTH = 32
"""Tokens of the longest sentences, special ones included, as in the paper."""

_IDS: dict[str, Any] = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
_MINI: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1_536}
_QWEN: dict[str, Any] = {
    "hidden_size": 1_024,
    "num_hidden_layers": 28,
    "intermediate_size": 3_072,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "use_cache": False,
}
_TINY: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "num_attention_heads": 2}


def backbone(name: str, small: bool) -> Any:
    """A transformers encoder with random weights, of the shape of `name`; `small`: of a few thousand of them."""
    torch.manual_seed(0)
    vocabulary = WORDS + len(SPECIAL)
    if name == "ModernBERT-base":
        return ModernBertModel(ModernBertConfig(vocab_size=vocabulary, **_IDS, **(_TINY if small else {})))
    if name == "Qwen3-0.6B":
        tiny = {**_QWEN, **_TINY, "num_key_value_heads": 1, "head_dim": 16}
        return Qwen3Model(Qwen3Config(vocab_size=vocabulary, pad_token_id=0, **(tiny if small else _QWEN)))
    shape = _TINY if small else _MINI if name == "MiniLM-L6" else {}
    return BertModel(BertConfig(vocab_size=vocabulary, pad_token_id=0, **shape))


def save_encoder(model: Any, folder: Path) -> EncoderFolder:
    """Save it with a tokenizer of which every word is a token."""
    words = {word: i for i, word in enumerate([*SPECIAL, *(f"w{i}" for i in range(WORDS))])}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {f"{token[1:-1].lower()}_token": token for token in SPECIAL}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)
    encoder = SentenceEncoder(model, fast, "mean", True, MAX_LENGTH, max_seq_length=MAX_LENGTH)
    return EncoderFolder.save(encoder.eval(), Storage.open(str(folder)))


def documents(sentences: int) -> Documents:
    """About so many sentences in documents of 2 to 40, of 6 to 30 words each."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(2, 41, max(1, sentences // 21))
    lengths = draw.integers(6, MAX_LENGTH - 1, int(sizes.sum()))
    tokens = Tokens((draw.integers(0, WORDS, int(lengths.sum())) + len(SPECIAL)).astype(np.uint16), offsets_of(lengths))
    keys = np.arange(len(sizes))
    return Documents(pa.array(keys.astype(str)), keys, offsets_of(sizes), tokens)


def texts(sentences: Tokens) -> list[str]:
    """What the tokenizer makes these tokens of."""
    bounds = sentences.offsets.tolist()
    words = [f"w{i - len(SPECIAL)}" for i in sentences.values.tolist()]
    return [" ".join(words[a:b]) for a, b in itertools.pairwise(bounds)]
