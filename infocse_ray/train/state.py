"""The state of a training: the encoder as training calls it, the method's head, and the optimiser of both.

A head that starts untrained learns at a rate of its own: at the encoder's, which is chosen not to harm what is trained
already, it would stay what it was drawn as, and bend the encoder to that.

The head sees vectors, after DDP's encoder, so that gradient caching serves heads that look at many texts at once; its
gradients are averaged here, as DDP averages the encoder's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.parallel import DistributedDataParallel

from infocse_ray.distributed.collectives import all_reduce_sum, exchanged, workers
from infocse_ray.encoder.dropout import set_dropout
from infocse_ray.encoder.embed import filled, for_inference, inference_dtype, length_buckets
from infocse_ray.encoder.kernels import leave_out_cudnn_attention
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.on_device import sent_up
from infocse_ray.encoder.pack_trial import training_kernel
from infocse_ray.encoder.packing import SHORT, Kernel, Packed, packed_hidden
from infocse_ray.encoder.positions import first_position
from infocse_ray.encoder.prompts import Role
from infocse_ray.methods.chance import mix
from infocse_ray.methods.method import Method
from infocse_ray.sampling.stream import Batch
from infocse_ray.settings import Settings
from infocse_ray.train.cached import Chunk
from infocse_ray.train.memory import ChunkMemory
from infocse_ray.train.precision import check_precision
from infocse_ray.train.start_vectors import StartVectors

ENOUGH_TO_PACK = 16_384
"""Tokens of a batch that a GPU works on for longer than its host takes to ask for them. With fewer it waits for the
host, for whom padding is less work than kernels that are launched from Python."""


class _Cut:
    """What an embedding layer's hook multiplies by; apart from the module, so that a copy of the encoder holds no other
    copy of it, in a cycle that memory would wait for.
    """

    keep: torch.Tensor | None = None

    def __call__(self, _: Any, __: Any, embedded: torch.Tensor) -> torch.Tensor:
        return embedded if self.keep is None else embedded * self.keep


class _InTraining(torch.nn.Module):
    """The encoder with what a method may change inside it."""

    def __init__(self, encoder: SentenceEncoder, whitened: bool, kernel: Kernel | None) -> None:
        super().__init__()
        self.encoder, self._whitened, self._kernel = encoder, whitened, kernel
        self._cut = _Cut()
        if (layer := getattr(encoder.backbone, "embeddings", None)) is not None:
            layer.register_forward_hook(self._cut)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        position_ids: torch.Tensor | None = None,
        keep: torch.Tensor | None = None,
        mlm_labels: torch.Tensor | None = None,
        pooled: torch.Tensor | None = None,
        decoded: torch.Tensor | None = None,
        bounds: torch.Tensor | None = None,
        back: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Vectors [b, d], and what tokens are guessed from; see `Method.inputs`.

        These are the token vectors [m, hidden] where tokens were masked, or where texts are to be written anew their
        vectors before whitening [b, d]. With `bounds` and `back` the texts are `Packed`.
        """
        if bounds is not None:
            assert self._kernel is not None
            assert position_ids is not None
            assert back is not None
            packed = Packed(input_ids, position_ids, bounds, back.shape[1], back, attention_mask)
            backbone = self.encoder.backbone
            hidden = packed_hidden(backbone, packed, first_position(backbone.config), self._kernel).float()
        else:
            self._cut.keep = keep
            try:
                hidden = self.encoder.hidden(input_ids, attention_mask, position_ids)
            finally:
                self._cut.keep = None
        pooled = attention_mask if pooled is None else pooled
        vectors = self.encoder.pool(hidden, pooled, whitened=self._whitened)
        if decoded is not None:
            return vectors, self.encoder.pool(hidden, pooled, whitened=False) if self._whitened else vectors
        return vectors, hidden[mlm_labels >= 0] if mlm_labels is not None else hidden[:0, 0]


class Prepared(NamedTuple):
    """A worker's part of a global batch, ready for the encoder; on the CPU, pinned for a GPU."""

    batch: Batch
    chunks: list[Chunk]
    columns: torch.Tensor
    """int64 [4, texts]: each text's document, example, label and text."""
    encoded: torch.Tensor | None
    """int64 [n], the texts that are encoded, among which the chunks number theirs; None: all are."""
    tokens: int
    """Of these, padding not counted."""
    guessed: int
    """Tokens that are to be guessed."""
    chunk_tokens: int
    """That a chunk might have when the chunks were made."""

    @property
    def padded(self) -> int:
        """Tokens, padding included."""
        return sum(chunk.padded for chunk in self.chunks)

    @property
    def texts(self) -> int:
        """How many are encoded."""
        return len(self.batch.texts) if self.encoded is None else len(self.encoded)

    def placed(self, vectors: torch.Tensor) -> torch.Tensor:
        """Vectors [n, d] of what is encoded as those of all texts, [texts, d]; 0 where a text serves as an id alone."""
        if self.encoded is None:
            return vectors
        every = vectors.new_zeros(len(self.batch.texts), vectors.shape[1])
        return every.index_copy(0, self.encoded.to(vectors.device, non_blocking=True), vectors)


class Agreed(NamedTuple):
    """What all workers know of a global batch."""

    tokens: int
    """Padding not counted."""
    padded: int
    texts: int
    guessed: int
    all_kept: bool
    """Every worker's chunks fit into its memory at once."""
    stop: bool
    """Some worker was asked to stop."""


def _pinned(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    return tensor.pin_memory() if device.type == "cuda" else tensor


class TrainState:
    """An encoder in training.

    Attributes:
        start: what its distillation holds on to; None: there is none.
    """

    def __init__(self, encoder: SentenceEncoder, method: Method, settings: Settings, seed: int) -> None:
        """Prepare for training.

        Args:
            encoder: on its device; every worker has the same.
            method: whose head, dropout and augmentation it gets.
            settings: of the run.
            seed: of the head's first weights.
        """
        leave_out_cudnn_attention(encoder.device)
        check_precision(encoder, settings)
        self.encoder, self.method, self.settings = encoder, method, settings
        self.memory = ChunkMemory(settings.train.chunk_tokens, encoder.device)
        self.start = None
        if method.distillation:
            self.start = StartVectors(for_inference(encoder, settings.encoder.precision, encoder.device))
        freeze_unused(encoder)
        if method.dropout is not None:
            set_dropout(encoder, method.dropout)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(mix(seed, 4) >> 1)
            self.head: Any = method.head(encoder).to(encoder.device)
        # Of sentences one after another, without padding; None: they are padded.
        self._kernel = None
        if not method.changes_inputs:
            dtype = inference_dtype(settings.encoder.precision, encoder.device)
            self._kernel = training_kernel(encoder, encoder.device, dtype)
        self.model: torch.nn.Module = _InTraining(encoder, settings.train.whitened, self._kernel)
        if workers() > 1:
            # Several chunks may go forward before one backward: buffers, which never change, must not be sent between.
            devices = [encoder.device] if encoder.device.type == "cuda" else None
            self.model = DistributedDataParallel(self.model, device_ids=devices, broadcast_buffers=False)
        train = settings.train
        self.optimizer: torch.optim.Optimizer = torch.optim.AdamW(  # Adam, where there is no decay
            self._groups(),
            lr=train.learning_rate,
            betas=(train.adam_beta1, train.adam_beta2),
            eps=train.adam_epsilon,
            fused=True,  # on CPUs an eighth of the default's time, which for small batches is a good part of a step
        )
        # Where it is 1 the optimiser leaves all as it is; the device knows, and nobody waits for it to say.
        self.broken = torch.zeros((), device=encoder.device)
        self.optimizer.found_inf = self.broken  # pyright: ignore[reportAttributeAccessIssue]

    def _groups(self) -> list[dict[str, Any]]:
        """Parameters by learning rate (`full_lr`, after warm-up) and weight decay."""
        train = self.settings.train
        trained = list(self.method.trained_parameters(self.head))
        new = [p for p in self.head.parameters() if not any(p is one for one in trained)]
        rates = (train.learning_rate, train.learning_rate, train.head_learning_rate)
        groups = []
        for parameters, rate in zip(([*self.encoder.parameters()], trained, new), rates, strict=True):
            # What is no matrix is a bias or a layer norm's weight.
            for matrices, decay in ((True, train.weight_decay), (False, 0.0)):
                mine = [p for p in parameters if p.requires_grad and (p.ndim > 1) == matrices]
                groups.append({"params": mine, "full_lr": rate, "weight_decay": decay})
        return [group for group in groups if group["params"]]

    def parameters(self) -> list[torch.nn.Parameter]:
        """All that is trained."""
        return [p for p in [*self.encoder.parameters(), *self.head.parameters()] if p.requires_grad]

    def gradient_norm(self) -> torch.Tensor:
        """The L2 norm of all gradients, a scalar: the same on all workers once they are averaged."""
        return torch.nn.utils.get_total_norm([p.grad for p in self.parameters() if p.grad is not None])

    def update(self, step: int, norm: torch.Tensor) -> None:
        """Clip the gradients, if that is asked for, and change the weights, unless the state is `broken`.

        Args:
            step: from 1; the learning rates follow from it alone, so that a resumed run has those of a whole one.
            norm: of the gradients.
        """
        train = self.settings.train
        if train.max_gradient_norm is not None:
            torch.nn.utils.clip_grads_with_norm_(self.parameters(), train.max_gradient_norm, norm)
        share = min(1.0, step / train.warmup_steps) if train.warmup_steps else 1.0
        for group in self.optimizer.param_groups:
            group["lr"] = share * group["full_lr"]
        self.optimizer.step()

    def prepare(self, batch: Batch, chunk_tokens: int | None = None) -> Prepared:
        """Pad a batch; reads nothing that a step changes, so that it can be done ahead, in another thread.

        Args:
            batch: this worker's part.
            chunk_tokens: of a chunk, the same on all workers: these prepare batches anew where it has changed, and
                must do so together. None: as it is now, which another thread can't know.
        """
        chunk_tokens = self.memory.tokens if chunk_tokens is None else chunk_tokens
        chunks = self.chunks(batch, chunk_tokens)
        columns = _pinned(
            torch.from_numpy(np.stack([batch.keys[batch.owner], batch.owner, batch.labels, batch.text_ids])),
            self.encoder.device,
        )
        guessed = sum(_guessed(chunk) for chunk in chunks)
        encoded = None
        if not (read := self._read(batch)).all():
            encoded = _pinned(torch.from_numpy(np.flatnonzero(read)), self.encoder.device)
        return Prepared(batch, chunks, columns, encoded, int(self.tokens(batch).sum()), guessed, chunk_tokens)

    def _read(self, batch: Batch) -> np.ndarray:
        """Bool [texts]: which are encoded."""
        if not self.method.only_ids:
            return np.ones(len(batch.labels), dtype=bool)
        return ~np.isin(batch.labels, sorted(self.method.only_ids))

    def agree(self, prepared: Prepared, stop: bool = False) -> Agreed:
        """What the workers must know of each other's part of a batch, in one exchange.

        Args:
            prepared: this worker's.
            stop: it was asked to stop.
        """
        fits = len(prepared.chunks) <= 1 or prepared.padded <= self.memory.kept
        here = [prepared.tokens, prepared.padded, prepared.texts, prepared.guessed, not fits, stop]
        tokens, padded, texts, guessed, too_many, stops = map(sum, zip(*exchanged([*map(int, here)]), strict=True))
        return Agreed(tokens, padded, texts, guessed, not too_many, stops > 0)

    def chunks(self, batch: Batch, tokens: int) -> list[Chunk]:
        """A batch's texts, sorted by length, in chunks of at most `tokens` tokens with padding, on the CPU.

        The texts of a chunk have one prompt. For a GPU they are pinned; where it can, short ones aren't padded.
        """
        encoder, device = self.encoder, self.encoder.device
        number = np.cumsum(self._read(batch)) - 1
        chunks = []
        for role, texts in self._by_role(batch).items():
            longest = self.longest(role)
            lengths = encoder.lengths(batch.texts.take(texts), longest, role)
            for rows, packs in self._cut(lengths, tokens):
                rows = texts[rows]
                input_ids, attention_mask = encoder.pad(batch.texts.take(rows), longest, role)
                inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
                if packs:
                    inputs = _packed(input_ids, attention_mask)
                else:
                    inputs |= self.method.inputs(input_ids, attention_mask, batch.labels[rows], batch.seeds[rows])
                if (pooled := encoder.pooled(inputs["attention_mask"], role)) is not None:
                    inputs["pooled"] = pooled
                ready = {name: _pinned(tensor, device) for name, tensor in inputs.items()}
                chunks.append(Chunk(_pinned(torch.from_numpy(number[rows]), device), ready))
        return chunks

    def _cut(self, lengths: np.ndarray, tokens: int) -> Iterator[tuple[np.ndarray, bool]]:
        """Rows of chunks, and whether these are without padding."""
        short = (lengths <= SHORT) & (self._kernel is not None)
        if lengths[short].sum() < ENOUGH_TO_PACK:
            short[:] = False
        padded, packed = np.flatnonzero(~short), np.flatnonzero(short)
        for rows in length_buckets(lengths[padded], tokens, self.memory.enough(tokens)):
            yield padded[rows], False
        for rows in filled(lengths[packed], tokens):
            yield packed[rows], True

    def reference(self, batch: Batch) -> torch.Tensor | None:
        """What the encoder made of a batch's texts when training began, whitened if it was: float32 [texts, d].

        None where the method doesn't hold on to it; zeros for texts that nothing holds on to (`unreferred`).

        Raises:
            OutOfMemory: a single text doesn't fit.
        """
        if self.start is None:
            return None
        unread = np.isin(batch.labels, sorted(self.method.unreferred))
        # Copied, for what comes out of inference can't be part of a loss.
        vectors = torch.zeros(len(batch.texts), self.start.dimension, device=self.start.device)
        for role, texts in self._by_role(batch).items():
            texts = texts[~unread[texts]]
            found = self.start.of(batch.texts.take(texts), batch.text_ids[texts], role)
            vectors[sent_up(texts, self.start.device)] = found
        return vectors

    def longest(self, role: Role = "document") -> int:
        """Tokens of the longest text, special tokens and prompt included."""
        return self.method.longest + self.encoder.extra(role)

    def tokens(self, batch: Batch) -> np.ndarray:
        """int64 [n]: tokens of each text of a batch as encoded; 0 of those that aren't."""
        lengths = np.zeros(len(batch.texts), np.int64)
        for role, texts in self._by_role(batch).items():
            lengths[texts] = self.encoder.lengths(batch.texts.take(texts), self.longest(role), role)
        return lengths

    def _by_role(self, batch: Batch) -> dict[Role, np.ndarray]:
        """Which texts (int64), of those that are encoded, have which prompt."""
        read = self._read(batch)
        if self.encoder.one_prompt:
            return {"document": np.flatnonzero(read)}
        queries = np.isin(batch.labels, sorted(self.method.query_labels))
        return {"document": np.flatnonzero(read & ~queries), "query": np.flatnonzero(read & queries)}

    def average_head(self) -> None:
        """Average the head's gradients over workers, as DDP does the encoder's."""
        there = list(self.head.parameters())
        for parameter in there:
            # Where no worker used it, too: Adam skips what has no gradient, with one worker as with many.
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        if workers() == 1 or not there:
            return
        gradients = [p.grad for p in there if p.grad is not None]
        together = all_reduce_sum(torch.cat([g.flatten() for g in gradients])) / workers()
        for parameter, part in zip(there, together.split([p.numel() for p in there]), strict=True):
            parameter.grad = part.view_as(parameter).clone()


def _packed(input_ids: torch.Tensor, attention_mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """What `Packed` has, of a padded batch."""
    lengths = attention_mask.sum(1)
    bounds = torch.zeros(len(lengths) + 1, dtype=torch.int32)
    bounds[1:] = lengths.cumsum(0)
    column, there = torch.arange(input_ids.shape[1]), attention_mask.bool()
    return {
        "input_ids": input_ids[there][None],
        "position_ids": column.expand_as(input_ids)[there][None],
        "bounds": bounds,
        "back": bounds[:-1, None] + torch.minimum(column, lengths[:, None] - 1),
        "attention_mask": attention_mask,
    }


def _guessed(chunk: Chunk) -> int:
    """Tokens of a chunk that are to be guessed; of a text that is to be written, all but the first."""
    if (labels := chunk.inputs.get("mlm_labels")) is None:
        labels = chunk.inputs["decoded"][:, 1:] if "decoded" in chunk.inputs else None
    return 0 if labels is None else int((labels >= 0).sum())


def freeze_unused(encoder: SentenceEncoder) -> None:
    """Freeze parameters that don't reach the sentence vector (such as BERT's pooler), for which DDP would wait."""
    encoder.eval()
    ids, mask = torch.full((1, 4), encoder.pad_id), torch.ones(1, 4, dtype=torch.int64)
    encoder(ids.to(encoder.device), mask.to(encoder.device)).sum().backward()
    for parameter in encoder.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None
