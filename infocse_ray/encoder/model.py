"""f(.): token ids -> backbone -> pooling -> (normalise) -> sentence vector.

Loading takes safetensors only and never runs remote code. Saving gives a folder that `AutoModel` and
`SentenceTransformer` both load, with the same vectors.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.layout import Pooling, read_layout, write_layout
from infocse_ray.redact import redacted
from infocse_ray.settings import Encoder


class SentenceEncoder(nn.Module):
    """An encoder backbone with pooling.

    Attributes:
        backbone: a transformers encoder whose output has `last_hidden_state` [b, length, d].
        pooling: mean over the real tokens, or the first token.
        normalize: whether vectors have length 1, so that inner products are cosines.
        max_length: tokens a sentence is cut to, special tokens included.
    """

    def __init__(self, backbone: Any, tokenizer: Any, pooling: Pooling, normalize: bool, max_length: int) -> None:
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling: Pooling = pooling
        self.normalize = normalize
        self.max_length = max_length
        self.prefix, self.suffix = _special_tokens(tokenizer)
        self.pad_id: int = tokenizer.pad_token_id or 0

    @property
    def dimension(self) -> int:
        """d, the length of a sentence vector."""
        return self.backbone.config.hidden_size

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.parameters()).device

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Sentence vectors.

        Args:
            input_ids: int64 [b, length], padded on the right.
            attention_mask: int64 [b, length], 1 on real tokens.

        Returns:
            float32 [b, d], whatever the precision of the backbone.
        """
        return self.pool(self.hidden(input_ids, attention_mask), attention_mask)

    def hidden(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The backbone's token vectors, float32 [b, length, d].

        Args:
            input_ids: int64 [b, length].
            attention_mask: int64 [b, length].
            position_ids: int64 [b, length], each token's place, from 0; None: as they stand.
        """
        places = {}
        if position_ids is not None:
            places["position_ids"] = position_ids + _first_position(self.backbone.config)
        return self.backbone(input_ids=input_ids, attention_mask=attention_mask, **places).last_hidden_state.float()

    def pool(self, hidden: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Sentence vectors of token vectors: float32 [b, length, d] to [b, d]."""
        if self.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            weight = attention_mask.to(hidden.dtype)
            # Autocast would sum in bf16, 8 bits of each term.
            with torch.autocast(hidden.device.type, enabled=False):
                pooled = torch.einsum("bld,bl->bd", hidden, weight) / weight.sum(1, keepdim=True).clamp_min(1.0)
        return nn.functional.normalize(pooled, dim=-1) if self.normalize else pooled

    def lengths(self, tokens: Tokens, longest: int | None = None) -> np.ndarray:
        """int64 [n]: tokens each row takes once cut to `longest` (default: `max_length`), special tokens included."""
        extra = len(self.prefix) + len(self.suffix)
        return np.minimum(tokens.lengths, (longest or self.max_length) - extra) + extra

    def pad(self, tokens: Tokens, longest: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of token ids as `input_ids` and `attention_mask`, cut, with special tokens, padded on the right.

        Args:
            tokens: b rows.
            longest: tokens a row is cut to, special tokens included; `max_length` by default.

        Returns:
            Two int64 [b, length of the longest row], on the CPU.
        """
        longest = longest or self.max_length
        lengths = self.lengths(tokens, longest)
        before, after = len(self.prefix), len(self.suffix)
        width = int(lengths.max(initial=0))
        column = np.arange(width)
        body = lengths - before - after
        inside = (column >= before) & (column < (before + body)[:, None])
        ids = np.full((len(tokens), width), self.pad_id, dtype=np.int64)
        ids[:, :before] = self.prefix
        ids[inside] = tokens.cut(longest - before - after).values
        row = np.arange(len(tokens))[:, None]
        ids[row, (before + body)[:, None] + np.arange(after)] = self.suffix
        return torch.from_numpy(ids), torch.from_numpy((column < lengths[:, None]).astype(np.int64))

    def save(self, folder: Path) -> None:
        """Write the sentence-transformers layout, weights as safetensors in fp32."""
        folder.mkdir(parents=True, exist_ok=True)
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        write_layout(folder, self.dimension, self.pooling, self.normalize, self.max_length)

    def fingerprint(self) -> str:
        """Names the function the encoder computes, in training too: weights, configuration, tokenizer, pooling, ..."""
        digest = hashlib.blake2b(digest_size=16)
        for name, tensor in sorted(self.backbone.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        config = {k: v for k, v in self.backbone.config.to_diff_dict().items() if k not in _NOT_WHAT_IT_COMPUTES}
        digest.update(json.dumps(config, sort_keys=True, default=str).encode())
        rest = (tokenizer_json(self.tokenizer), self.pooling, self.normalize, self.max_length)
        digest.update(repr(rest).encode())
        return digest.hexdigest()


_NOT_WHAT_IT_COMPUTES = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
"""Of a configuration."""


def load_encoder(
    folder: Path,
    settings: Encoder,
    cosine: bool,
    pooling: Pooling = "mean",
    setting: str = "encoder.model",
    cut_to_positions: bool = False,
) -> SentenceEncoder:
    """Load an encoder from a local folder, in fp32, in evaluation mode, on the CPU.

    Args:
        folder: a Hugging Face or sentence-transformers folder.
        settings: pooling and length; `settings.model` is what error messages name.
        cosine: normalise even if the folder doesn't say so.
        pooling: where neither the settings nor the folder say one.
        setting: what error messages call what named the folder.
        cut_to_positions: cut sentences at the encoder's positions where `settings.max_length` is more, rather than
            refuse.

    Raises:
        ValueError: it is no encoder, has no safetensors, or doesn't fit the settings.
    """
    where = redacted(f"{setting} = {settings.model!r}")
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: no Hugging Face model: {_first_line(error)}") from error
    if (
        type(config) not in MODEL_FOR_MASKED_LM_MAPPING
        or config.is_encoder_decoder
        or getattr(config, "is_decoder", False)
    ):
        raise ValueError(
            f"{where}: a {config.model_type} model is no encoder; use BERT, RoBERTa, MPNet, ModernBERT, ..."
        )
    layout = read_layout(folder, None if settings.pooling == "auto" else settings.pooling, setting)
    pooling = layout.pooling or pooling
    max_length = settings.max_length
    if room := position_room(config):
        if cut_to_positions:
            max_length = min(max_length, room)
        if max_length > room:
            raise ValueError(
                f"encoder.max_length = {settings.max_length}: {redacted(settings.model)} has {room} positions; use at "
                "most that"
            )
    try:
        backbone, found = AutoModel.from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            trust_remote_code=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        raise ValueError(
            f"{where}: its weights can't be loaded as safetensors: {_first_line(error)}; convert them with "
            "AutoModel.from_pretrained(...).save_pretrained(...)"
        ) from error
    missing = sorted(found["missing_keys"])
    if needed := [name for name in missing if not name.startswith("pooler.")]:
        raise ValueError(f"{where}: its weights lack {len(needed)} of the encoder's tensors, such as {needed[0]}")
    for name in missing:  # no sentence vector depends on them; drawn anew, they would give each load a fingerprint
        nn.init.zeros_(backbone.get_parameter(name))
    tokenizer = load_tokenizer(folder, settings.model, setting)
    return SentenceEncoder(backbone, tokenizer, pooling, layout.normalize or cosine, max_length).eval()


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
    return positions - _first_position(config) if positions else None


def _first_position(config: Any) -> int:
    """The position of the first token: RoBERTa and its kin count from pad_token_id + 1."""
    return config.pad_token_id + 1 if config.model_type in _OFFSET_POSITIONS else 0


def load_tokenizer(folder: Path, name: str, setting: str = "encoder.model") -> Any:
    """The fast tokenizer in a folder.

    Args:
        folder: of the encoder.
        name: what error messages call the encoder.
        setting: what they call what named it.

    Raises:
        ValueError: there is none.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"{setting} = {name!r}: its tokenizer can't be loaded: {_first_line(error)}") from error
    if not tokenizer.is_fast:
        raise ValueError(f"{setting} = {name!r}: it has no fast tokenizer (tokenizer.json); convert it first")
    return tokenizer


def tokenizer_json(tokenizer: Any) -> str:
    """The tokenizer as `tokenizers` JSON, without padding and truncation, which are not the tokenizer's to choose."""
    plain = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
    plain.no_padding()
    plain.no_truncation()
    return plain.to_str()


def _special_tokens(tokenizer: Any) -> tuple[list[int], list[int]]:
    """What the tokenizer puts before and after a sentence."""
    body = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    for start in range(len(whole) - len(body) + 1):
        if whole[start : start + len(body)] == body:
            return whole[:start], whole[start + len(body) :]
    raise ValueError("encoder.model: its tokenizer changes a sentence when it adds special tokens")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
