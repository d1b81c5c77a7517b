"""An encoder from its folder: safetensors only, and no code that isn't ours or transformers' own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from infocse_ray.encoder.backbone import load_backbone
from infocse_ray.encoder.layout import Layout, Pooling, pooling_fix, read_layout, read_whitening
from infocse_ray.encoder.model import SentenceEncoder
from infocse_ray.encoder.modules import Dense, Normalize
from infocse_ray.encoder.positions import position_room
from infocse_ray.encoder.prompts import prompt_tokens
from infocse_ray.encoder.tokenizer import knows_words, load_tokenizer, special_tokens, tokenizer_json
from infocse_ray.runtime.libraries import quiet_libraries
from infocse_ray.settings import Encoder
from infocse_ray.storage.redact import redacted

_NO_LIMIT = 10**9
"""Tokenizers without a limit have one of 10^30."""
_PADDING_CHANGES = 1e-4
"""Of the largest number in token vectors, at most: sums in another order differ by less."""


def load_encoder(
    folder: Path,
    settings: Encoder,
    cosine: bool,
    pooling: Pooling = "mean",
    setting: str = "encoder.model",
    cut_to_positions: bool = False,
    whitening: bool = True,
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
        whitening: with the folder's whitening, if it has one; else as the encoder was before it.

    Raises:
        ValueError: it is no encoder, has no safetensors, or doesn't fit the settings.
    """
    quiet_libraries()  # in workers, too, whose output a Ray of the user's own shows
    where = redacted(f"{setting} = {settings.model!r}")
    layout = read_layout(folder, None if settings.pooling == "auto" else settings.pooling, setting)
    backbone = load_backbone(folder, layout.pooling is not None, where, pooling_fix(setting, "lasttoken or mean"))
    config = backbone.config
    pooling = layout.pooling or pooling
    max_length = settings.max_length
    room = position_room(config)
    if room:
        if cut_to_positions:
            max_length = min(max_length, room)
        if max_length > room:
            raise ValueError(
                f"encoder.max_length = {settings.max_length}: {redacted(settings.model)} has {room} positions; use at "
                "most that"
            )
    tokenizer = load_tokenizer(folder, settings.model, setting)
    _check_fit(tokenizer, backbone, where)
    after = _after_pooling(folder, layout, config.hidden_size, where)
    last = None if layout.whitening is None or not whitening else read_whitening(folder / layout.whitening)
    known = layout.max_seq_length or _longest(tokenizer, room)
    # The source's, though what was trained with more is exported with more.
    max_seq_length = known if known is None else max(min(known, room or known), max_length)
    prompts = layout.prompts.replaced(settings.document_prompt, settings.query_prompt)
    try:
        tokens = prompt_tokens(prompts, tokenizer_json(tokenizer)) if prompts else None
    except ValueError as error:
        fix = 'let encoder.document_prompt end with a space, or set it to ""'
        if setting != "encoder.model":
            fix = "name another encoder"
        raise ValueError(f"{where}: {error}; {fix}") from error
    encoder = SentenceEncoder(
        backbone,
        tokenizer,
        pooling,
        layout.normalize or cosine,
        max_length,
        after,
        last,
        max_seq_length,
        prompts,
        tokens,
        layout.include_prompt,
        layout.lower_case,
    ).eval()
    if layout.truncate_dim is not None and layout.truncate_dim < encoder.dimension:
        raise ValueError(
            f"{where}: its folder has vectors cut to {layout.truncate_dim} of {encoder.dimension} dimensions, which "
            "isn't supported while it is adapted; take truncate_dim out of its config_sentence_transformers.json, and "
            f"cut vectors afterwards: `infocse export` and `infocse embed` have --dimensions {layout.truncate_dim}"
        )
    if not _takes_padding(encoder, where):
        raise ValueError(
            f"{where}: a {config.model_type} encoder makes other vectors of a text where longer ones are beside it; "
            "use BERT, RoBERTa, MPNet, ModernBERT, ..."
        )
    if (width := _width(encoder)) != config.hidden_size:
        raise ValueError(
            f"{where}: a {config.model_type} model whose token vectors have {width} dimensions, not its hidden_size of "
            f"{config.hidden_size}, is not supported"
        )
    if encoder.pooling == "cls" and not _sees_ahead(encoder):
        raise ValueError(
            f"{where}: a {config.model_type} model reads from left to right, so that its first token's vector (pooling "
            f"cls) is the same for every text; {pooling_fix(setting, 'lasttoken or mean')}"
        )
    return encoder


def _check_fit(tokenizer: Any, backbone: Any, where: str) -> None:
    """Refuse a tokenizer that knows no word, or gives every text ids without a vector, or several types of token.

    Raises:
        ValueError: it does.
    """
    if not knows_words(tokenizer):
        raise ValueError(
            f"{where}: its tokenizer knows no word, as where the folder has weights alone; copy the tokenizer's files "
            "(tokenizer.json, or vocab.txt, ...) beside them"
        )
    rows = len(backbone.get_input_embeddings().weight)
    added = tokenizer.get_added_vocab()  # which may stand for nothing that an encoder reads
    if (last := max((id for token, id in tokenizer.get_vocab().items() if token not in added), default=0)) >= rows:
        raise ValueError(
            f"{where}: its tokenizer has ids up to {last:,}, its weights have vectors of {rows:,} tokens; the two are "
            "not of one encoder"
        )
    before, after = special_tokens(tokenizer)
    for number in (*before, *after, tokenizer.pad_token_id or 0):
        if number >= rows:
            raise ValueError(
                f"{where}: its tokenizer gives texts the token {tokenizer.convert_ids_to_tokens(number)!r} of the id "
                f"{number:,}, its weights have vectors of {rows:,} tokens; the two are not of one encoder, or it was "
                "added without model.resize_token_embeddings"
            )
    if any(tokenizer("a", return_token_type_ids=True).get("token_type_ids", ())):
        raise ValueError(f"{where}: its tokenizer gives texts another type of token than 0, which is not supported")


def _takes_padding(encoder: SentenceEncoder, where: str) -> bool:
    """Whether padding changes nothing, as batches, chunks and the export rely on: convolutions, say, see it.

    Raises:
        ValueError: vectors aren't finite, so that nothing can be said of them.
    """
    ids = torch.arange(6)[None] % encoder.backbone.config.vocab_size
    mask = (torch.arange(12) < ids.shape[1]).long()[None]
    try:
        with torch.inference_mode():
            alone = encoder.hidden(ids, torch.ones_like(ids))
            padded = encoder.hidden(torch.nn.functional.pad(ids, (0, 6)), mask)[:, : ids.shape[1]]
    except (RuntimeError, ValueError):  # some can't take a short text at all
        return False
    if not alone.isfinite().all():
        raise ValueError(f"{where}: its vectors aren't finite; copy the encoder's folder anew, or name another encoder")
    return torch.allclose(alone, padded, rtol=0.0, atol=_PADDING_CHANGES * float(alone.abs().max()))


def _width(encoder: SentenceEncoder) -> int:
    """Of the token vectors: some models make others of what `hidden_size` says."""
    ids = torch.zeros(1, 4, dtype=torch.int64)
    with torch.inference_mode():
        return encoder.hidden(ids, torch.ones_like(ids)).shape[-1]


def _sees_ahead(encoder: SentenceEncoder) -> bool:
    """Whether the first token's vector depends on those behind it."""
    first, second = torch.zeros(2, 1, 4, dtype=torch.int64)
    second[0, -1] = 1
    with torch.inference_mode():
        found = [encoder.hidden(ids, torch.ones_like(ids))[:, 0] for ids in (first, second)]
    return not torch.equal(*found)


def _longest(tokenizer: Any, room: int | None) -> int | None:
    """Tokens a text may have by the tokenizer or by the positions; None: any number."""
    said = [room] if room else []
    if tokenizer.model_max_length < _NO_LIMIT:
        said.append(tokenizer.model_max_length)
    return min(said, default=None)


def _after_pooling(folder: Path, layout: Layout, dimension: int, where: str) -> list[nn.Module]:
    """The modules after pooling.

    Raises:
        ValueError: one can't be loaded, or reads vectors of another dimension than come to it.
    """
    modules: list[nn.Module] = []
    for kind, path in layout.modules:
        if kind == "Normalize":
            modules.append(Normalize())
            continue
        dense = Dense.load(folder / path, where)
        if dense.linear.in_features != dimension:
            raise ValueError(
                f"{where}: {path}/ reads {dense.linear.in_features} dimensions, but {dimension} come to it"
            )
        modules.append(dense)
        dimension = dense.linear.out_features
    return modules
