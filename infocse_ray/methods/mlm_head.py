"""The head of masked-language models: it predicts masked tokens from the encoder's token vectors, in training only.

Linear, GELU, layer norm, then inner products with the word embeddings, and a bias a token (BERT, Devlin et al. 2019;
RoBERTa, MPNet, DistilBERT and ModernBERT have the same under other names). Encoders tuned for sentences come without
one, checkpoints of masked-language models with theirs, which saving the backbone alone would lose: it is read once,
where the run starts, and goes to the workers with the method.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForMaskedLM

from infocse_ray.methods.first_weights import linear

_TOKENS_TRIED = 16


class HeadWeights(NamedTuple):
    """The weights of a trained head, as data."""

    weights: dict[str, np.ndarray]
    """float32, by their names in `MaskedLanguageModel`."""
    epsilon: float
    """Of the layer norm."""

    def fingerprint(self) -> str:
        """Names them."""
        digest = hashlib.blake2b(repr(self.epsilon).encode(), digest_size=16)
        for name, array in sorted(self.weights.items()):
            digest.update(f"{name} {array.shape}".encode())
            digest.update(array.tobytes())
        return digest.hexdigest()


class MaskedLanguageModel(nn.Module):
    """BERT's head for guessing tokens, on the encoder's own word embeddings."""

    def __init__(self, dimension: int, embedding: int, vocabulary: int, trained: HeadWeights | None = None) -> None:
        """Make it.

        Args:
            dimension: of the encoder's token vectors.
            embedding: of its word embeddings.
            vocabulary: tokens that can be guessed.
            trained: its weights; None: untrained, as BERT's began.
        """
        super().__init__()
        self.dense = linear(dimension, embedding)
        self.norm = nn.LayerNorm(embedding, eps=trained.epsilon if trained else 1e-5)
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        if trained is not None:
            self.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in trained.weights.items()})

    def scores(self, states: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Logits [m, vocabulary] of states [m, d], by word embeddings [at least vocabulary, e]."""
        hidden = self.norm(nn.functional.gelu(self.dense(states)))
        # Encoders often have more rows than there are tokens, a multiple of 64.
        return nn.functional.linear(hidden, embeddings[: len(self.bias)], self.bias)

    def token_loss(
        self, states: torch.Tensor, inputs: dict[str, torch.Tensor], embeddings: torch.Tensor
    ) -> torch.Tensor:
        """`mlm_loss` of the tokens to be guessed: those of `mlm_labels`, int64 [b, length], that are not -100."""
        tokens = inputs["mlm_labels"]
        return self.mlm_loss(states, tokens[tokens >= 0], embeddings)

    def mlm_loss(self, states: torch.Tensor, tokens: torch.Tensor, embeddings: torch.Tensor) -> torch.Tensor:
        """Sum of the cross entropies of the masked tokens.

        Args:
            states: float [m, d], the encoder's vectors where a token was masked.
            tokens: int64 [m], what it is.
            embeddings: float [vocabulary, e], the encoder's word embeddings.
        """
        return nn.functional.cross_entropy(self.scores(states, embeddings).float(), tokens, reduction="sum")


def trained_head(folder: Path, vocabulary: int) -> HeadWeights | None:
    """The head that a checkpoint has for its own encoder.

    Args:
        folder: with an encoder that `load_encoder` loads; safetensors alone are read, and no code is run.
        vocabulary: tokens that are to be guessed.

    Returns:
        None if it has none, or one of another form: what is returned gives the logits of the checkpoint's own model.
    """
    try:
        model, loading = AutoModelForMaskedLM.from_pretrained(
            folder, use_safetensors=True, trust_remote_code=False, dtype=torch.float32, output_loading_info=True
        )
    except (RuntimeError, ValueError):  # shapes that don't fit each other, of the head; or there is no such model
        return None
    model = model.eval()
    inside, decoder = set(model.base_model.modules()), model.get_output_embeddings()
    outside = [module for module in model.modules() if module not in inside and module is not decoder]
    dense = [module for module in outside if isinstance(module, nn.Linear)]
    norm = [module for module in outside if isinstance(module, nn.LayerNorm)]
    missing = [name for name in loading["missing_keys"] if not name.startswith(f"{model.base_model_prefix}.")]
    if missing or len(dense) != 1 or len(norm) != 1 or decoder is None:
        return None
    words = model.get_input_embeddings().weight
    weights = {
        "dense.weight": dense[0].weight,
        "dense.bias": _or_zeros(dense[0].bias, dense[0].out_features),
        "norm.weight": norm[0].weight,
        "norm.bias": _or_zeros(norm[0].bias, len(norm[0].weight)),
        "bias": _or_zeros(decoder.bias, len(words))[:vocabulary],
    }
    if len(weights["bias"]) < vocabulary or weights["dense.weight"].shape[0] != words.shape[1]:
        return None
    head = HeadWeights({name: w.detach().numpy().copy() for name, w in weights.items()}, norm[0].eps)
    own = MaskedLanguageModel(dense[0].in_features, words.shape[1], vocabulary, head)
    ids = torch.arange(min(_TOKENS_TRIED, vocabulary))[None]
    with torch.inference_mode():
        states = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        expected = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[..., :vocabulary]
        same = torch.allclose(own.scores(states, words), expected, rtol=1e-3, atol=1e-3)
    return head if same else None


def _or_zeros(bias: torch.Tensor | None, size: int) -> torch.Tensor:
    return torch.zeros(size) if bias is None else bias
