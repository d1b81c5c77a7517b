"""How vectors are cut, rounded and laid out in columns, and read back as fp32."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch

from infocse_ray.settings.embed import Stored

_TYPES: dict[Stored, pa.DataType] = {"fp32": pa.float32(), "fp16": pa.float16(), "int8": pa.int8()}


def truncated(vectors: torch.Tensor, dimensions: int | None, normalize: bool) -> torch.Tensor:
    """The first numbers of each vector, as sentence-transformers' `truncate_dim` has them.

    Args:
        vectors: float32 [n, d].
        dimensions: how many to keep; None: all, and the vectors as they are.
        normalize: whether to scale what is kept to length 1.

    Returns:
        float32 [n, dimensions].
    """
    if dimensions is None:
        return vectors
    cut = vectors[:, :dimensions]
    return torch.nn.functional.normalize(cut, dim=-1) if normalize else cut


def to_int8(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Symmetric absmax quantisation, each vector by itself (Dettmers et al. 2022, LLM.int8(), section 2).

    A vector's largest magnitude becomes 127, so nothing has to be known of other vectors, and shards are written one by
    one. bitsandbytes has the same as vector-wise quantisation.

    Args:
        vectors: float32 [n, d].

    Returns:
        int8 [n, d] and float32 [n]; their product is the vectors, to half a step of `scale`.
    """
    scale = np.abs(vectors).max(axis=1, initial=0.0).astype(np.float32) / 127
    steps = vectors / np.where(scale > 0, scale, 1)[:, None]
    return np.rint(steps).astype(np.int8), scale


def vector_columns(vectors: np.ndarray, precision: Stored) -> dict[str, pa.Array]:
    """Columns of a table: `vector`, fixed-size lists, and of int8 also `scale`, float32.

    Args:
        vectors: float32 [n, d].
        precision: of the numbers that are stored.
    """
    if precision == "int8":
        whole, scale = to_int8(vectors)
        return {"vector": _lists(whole, pa.int8()), "scale": pa.array(scale)}
    return {"vector": _lists(vectors.astype(_TYPES[precision].to_pandas_dtype()), _TYPES[precision])}


def vector_fields(dimension: int, precision: Stored) -> list[pa.Field]:
    """The fields of the columns that `vector_columns` makes."""
    vector = pa.field("vector", pa.list_(_TYPES[precision], dimension), nullable=False)
    return [vector, pa.field("scale", pa.float32(), nullable=False)] if precision == "int8" else [vector]


def vectors_of(table: pa.Table) -> np.ndarray:
    """float32 [n, d], of a table with the columns that `vector_columns` made."""
    column = table["vector"].combine_chunks()
    dimension = column.type.list_size
    vectors = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, dimension).astype(np.float32)
    return vectors * table["scale"].to_numpy()[:, None] if "scale" in table.column_names else vectors


def _lists(rows: np.ndarray, kind: pa.DataType) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(rows).ravel(), kind), rows.shape[1])
