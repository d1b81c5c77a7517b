"""f(.): token ids -> backbone -> pooling -> (Dense, ...) -> (normalise) -> (whitening) -> sentence vector.

Saving gives a folder that `SentenceTransformer` loads, with the same vectors; `AutoModel` loads its backbone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from infocse_ray.corpus.tokenizer import CorpusTokenizer
from infocse_ray.corpus.tokens import Tokens
from infocse_ray.encoder.kernels import without_a_look
from infocse_ray.encoder.layout import Pooling, write_layout
from infocse_ray.encoder.modules import Dense
from infocse_ray.encoder.packing import Kernel, Packed, packed_hidden
from infocse_ray.encoder.positions import first_position
from infocse_ray.encoder.prompts import ROLES, Prompts, PromptTokens, Role
from infocse_ray.encoder.spaced import ids_behind_a_space
from infocse_ray.encoder.tokenizer import special_tokens, tokenizer_json
from infocse_ray.encoder.whitening import Whitening


class SentenceEncoder(nn.Module):
    """An encoder backbone with pooling and what comes after it.

    Attributes:
        backbone: a model of transformers whose output has `last_hidden_state` [b, length, d].
        pooling: mean over the real tokens, the first token, or the last real one.
        after: Dense and Normalize modules after pooling; trained with the backbone.
        base_normalize: whether vectors have length 1 before whitening.
        whitening: what comes last; may be assigned, None: nothing. It has no parameters.
        max_length: tokens a text is cut to here, special tokens and the prompt included.
        max_seq_length: tokens a text is cut to by those who load what `save` writes; None: not said.
        prompts: what is put before texts.
        include_prompt: whether a prompt's tokens are pooled.
        kernel: attends to sentences that lie one after another (see `packing.py`); None: they are padded.
    """

    whitening: Whitening | None

    def __init__(
        self,
        backbone: Any,
        tokenizer: Any,
        pooling: Pooling,
        normalize: bool,
        max_length: int,
        after: Iterable[nn.Module] = (),
        whitening: Whitening | None = None,
        max_seq_length: int | None = None,
        prompts: Prompts = Prompts({}),  # noqa: B008
        prompt_tokens: PromptTokens | None = None,
        include_prompt: bool = True,
        lower_case: bool = False,
    ) -> None:
        """Put the parts together; each module reads the dimension that the one before it gives.

        Raises:
            ValueError: a prompt leaves no room for a text.
        """
        super().__init__()
        self.backbone = backbone
        self.tokenizer = tokenizer
        self.pooling: Pooling = pooling
        self.after = nn.ModuleList(after)
        self.base_normalize = normalize
        self.whitening = whitening
        self.max_length = max_length
        self.max_seq_length = max_seq_length
        self.kernel: Kernel | None = None
        self.prompts = prompts
        self.include_prompt = include_prompt
        self.lower_case = lower_case
        self.prefix, self.suffix = special_tokens(tokenizer)
        self.pad_id: int = tokenizer.pad_token_id or 0
        self._with_prompts = prompt_tokens
        tokens = prompt_tokens or PromptTokens((), (), CorpusTokenizer(""))
        self._prompt_ids: dict[Role, tuple[int, ...]] = {"document": tokens.document, "query": tokens.query}
        self._prompts_alone: dict[Role, int] = {"document": tokens.alone[0], "query": tokens.alone[1]}
        for role in ROLES:
            count = self.prompt_length(role)
            least = len(self.prefix) + len(self.suffix) + count + _LEAST_ROOM
            if count and max_length < least:
                raise ValueError(
                    f"encoder.max_length = {max_length}: the {role} prompt {prompts.of(role)!r} takes {count} "
                    f"tokens; set it to {least} or more"
                )

    @property
    def dimension(self) -> int:
        """d, the length of a sentence vector."""
        return self.base_dimension if self.whitening is None else self.whitening.dimension

    @property
    def base_dimension(self) -> int:
        """Length of a sentence vector before whitening."""
        dense = [module.linear.out_features for module in self.after if isinstance(module, Dense)]
        return dense[-1] if dense else self.backbone.config.hidden_size

    @property
    def normalize(self) -> bool:
        """Whether vectors have length 1, so that inner products are cosines."""
        return self.base_normalize or self.whitening is not None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.backbone.parameters()).device

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pooled: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Sentence vectors.

        Args:
            input_ids: int64 [b, length], padded on the right.
            attention_mask: int64 [b, length], 1 on real tokens.
            pooled: int64 [b, length], 1 on the tokens that are pooled; None: on all that are real. See `pooled`.

        Returns:
            float32 [b, d], whatever the precision of the backbone.
        """
        return self.pool(self.hidden(input_ids, attention_mask), attention_mask if pooled is None else pooled)

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
            places["position_ids"] = position_ids + first_position(self.backbone.config)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask, **places}
        with without_a_look(self.backbone.config, input_ids.device):
            return self.backbone(**inputs).last_hidden_state.float()

    def hidden_packed(self, packed: Packed) -> torch.Tensor:
        """The same of sentences without padding, float32 [b, longest, d]; needs `kernel`."""
        assert self.kernel is not None
        return packed_hidden(self.backbone, packed, first_position(self.backbone.config), self.kernel).float()

    def pool(self, hidden: torch.Tensor, pooled: torch.Tensor, whitened: bool = True) -> torch.Tensor:
        """Sentence vectors of token vectors.

        Args:
            hidden: float32 [b, length, hidden].
            pooled: int64 [b, length], 1 on the tokens that are pooled.
            whitened: with the whitening, if there is one; else as they are before it.

        Returns:
            float32 [b, d].
        """
        # Autocast would sum in bf16, 8 bits of each term, and multiply by what comes after in it.
        with torch.autocast(hidden.device.type, enabled=False):
            if self.pooling == "cls":
                first = pooled.argmax(1)[:, None, None].expand(-1, 1, hidden.shape[2])
                vectors = hidden[:, 0] if self.include_prompt else hidden.gather(1, first)[:, 0]
            elif self.pooling == "lasttoken":
                place = torch.arange(pooled.shape[1], device=pooled.device)
                last = (pooled * place).argmax(1)[:, None, None].expand(-1, 1, hidden.shape[2])
                # As sentence-transformers has it of a text of which nothing is pooled: zeros.
                vectors = hidden.gather(1, last)[:, 0] * (pooled.sum(1, keepdim=True) > 0)
            elif self.pooling == "max":
                left_out = (pooled == 0)[:, :, None]
                vectors = hidden.masked_fill(left_out, -torch.inf).amax(1)
                vectors = vectors.masked_fill(left_out.all(1), 0.0)
            else:
                weight = pooled.to(hidden.dtype)
                if self.pooling == "weightedmean":
                    weight = weight * torch.arange(1, weight.shape[1] + 1, device=weight.device)
                whole = weight.sum(1, keepdim=True).clamp_min(1.0)
                whole = whole.sqrt() if self.pooling == "mean_sqrt_len_tokens" else whole
                vectors = torch.einsum("bld,bl->bd", hidden, weight) / whole
            for module in self.after:
                vectors = module(vectors)
            if self.base_normalize:
                vectors = nn.functional.normalize(vectors, dim=-1)
            return self.whitening(vectors) if whitened and self.whitening is not None else vectors

    def around(self, role: Role = "document") -> tuple[list[int], list[int]]:
        """Token ids before and after a text's own: special tokens and the role's prompt."""
        return [*self.prefix, *self._prompt_ids[role]], list(self.suffix)

    def extra(self, role: Role = "document") -> int:
        """Tokens besides a text's own."""
        return sum(map(len, self.around(role)))

    def room(self, role: Role = "document") -> int:
        """Tokens of its own that a text is cut to."""
        return self.max_length - self.extra(role)

    def prompt_length(self, role: Role = "document") -> int:
        """Tokens of the role's prompt, whether they are put before a text's or are among them."""
        return len(self._prompt_ids[role]) or self._prompts_alone[role]

    @property
    def one_prompt(self) -> bool:
        """Whether texts of both roles have the same prompt, or none."""
        if self._with_prompts is not None and self._with_prompts.tokenizer.prompt is not None:
            return False
        return self._prompt_ids["document"] == self._prompt_ids["query"]

    def lengths(self, tokens: Tokens, longest: int | None = None, role: Role = "document") -> np.ndarray:
        """int64 [n]: tokens each row takes once cut to `longest` (default: `max_length`), `extra` ones included."""
        extra = self.extra(role)
        return np.minimum(tokens.lengths, (longest or self.max_length) - extra) + extra

    def pooled(self, attention_mask: torch.Tensor, role: Role = "document") -> torch.Tensor | None:
        """What `forward` needs to know of texts that `pad` made: None, or int64 [b, length], 0 on prompts too."""
        if self.include_prompt or not self._prompts_alone[role]:
            return None
        pooled = attention_mask.clone()
        # The special tokens before it count as the prompt's, as in sentence-transformers.
        pooled[:, : len(self.prefix) + self._prompts_alone[role]] = 0
        return pooled

    def pad(
        self, tokens: Tokens, longest: int | None = None, role: Role = "document"
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of token ids as `input_ids` and `attention_mask`.

        They are cut, get special tokens and the role's prompt, and are padded on the right.

        Args:
            tokens: b rows.
            longest: tokens a row is cut to, special tokens and prompt included; `max_length` by default.
            role: of the texts.

        Returns:
            Two int64 [b, length of the longest row, at least 1], on the CPU.
        """
        longest = longest or self.max_length
        lengths = self.lengths(tokens, longest, role)
        first, last = self.around(role)
        before, after = len(first), len(last)
        width = int(lengths.max(initial=1))  # also where no text has a token: backbones take no sequence of none
        column = np.arange(width)
        body = lengths - before - after
        inside = (column >= before) & (column < (before + body)[:, None])
        ids = np.full((len(tokens), width), self.pad_id, dtype=np.int64)
        ids[:, :before] = first
        ids[inside] = tokens.cut(longest - before - after).values
        row = np.arange(len(tokens))[:, None]
        ids[row, (before + body)[:, None] + np.arange(after)] = last
        return torch.from_numpy(ids), torch.from_numpy((column < lengths[:, None]).astype(np.int64))

    def save(self, folder: Path) -> None:
        """Write the sentence-transformers layout, weights as safetensors in fp32."""
        folder.mkdir(parents=True, exist_ok=True)
        self.backbone.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        dimension = self.backbone.config.hidden_size
        write_layout(
            folder,
            dimension,
            self.pooling,
            self.base_normalize,
            self.max_seq_length,
            self.after,
            self.whitening,
            self.prompts,
            self.include_prompt,
            self.lower_case,
        )

    def corpus_tokenizer(self) -> CorpusTokenizer:
        """What the corpus is tokenised with: the encoder's tokenizer, but for what prompts ask (see `prompts.py`)."""
        return self._own_tokenizer if self._with_prompts is None else self._with_prompts.tokenizer

    @cached_property
    def _own_tokenizer(self) -> CorpusTokenizer:
        return CorpusTokenizer(tokenizer_json(self.tokenizer))

    @cached_property
    def ids_behind_a_space(self) -> np.ndarray | None:
        """What each token is behind a space, as `spaced.py` has it."""
        tokenizer = self.corpus_tokenizer()
        return None if tokenizer.before else ids_behind_a_space(tokenizer.content)

    def fingerprint(self) -> str:
        """Names the function the encoder computes, in training too: weights, configuration, tokenizer, pooling, ..."""
        digest = hashlib.blake2b(digest_size=16)
        # The backbone's weights by their own names, and nothing of parts that aren't there: what an encoder without
        # them was called before there were such parts.
        for part in (self.backbone, self.after, self.whitening):
            for name, tensor in sorted(part.state_dict().items() if part is not None else ()):
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
                digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        config = {k: v for k, v in self.backbone.config.to_diff_dict().items() if k not in _NOT_WHAT_IT_COMPUTES}
        digest.update(json.dumps(config, sort_keys=True, default=str).encode())
        rest = (tokenizer_json(self.tokenizer), self.pooling, self.base_normalize, self.max_length)
        digest.update(repr(rest).encode())
        if self.after:
            digest.update(repr(self.after).encode())
        if self.whitening is not None:
            digest.update(f"whitening {self.whitening.power!r}".encode())
        if self.max_seq_length != self.max_length:
            digest.update(f"max_seq_length {self.max_seq_length}".encode())
        if self.prompts:
            said = json.dumps([self.prompts.config(), self.include_prompt], sort_keys=True)
            digest.update(f"prompts {said}".encode())
        return digest.hexdigest()


_LEAST_ROOM = 2
"""Tokens of its own that a text must have room for behind a prompt."""

_NOT_WHAT_IT_COMPUTES = {"_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version"}
"""Of a configuration."""
