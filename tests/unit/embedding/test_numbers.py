"""How vectors are cut, rounded and kept in columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from infocse_ray.embedding.numbers import to_int8, truncated, vector_columns, vector_fields, vectors_of

VECTORS = np.random.default_rng(0).standard_normal((50, 12)).astype(np.float32)


def test_int8_is_the_vector_to_half_a_step():
    whole, scale = to_int8(VECTORS)
    assert np.abs(whole).max(axis=1).tolist() == [127] * 50
    assert (np.abs(whole * scale[:, None] - VECTORS) <= scale[:, None] / 2 + 1e-7).all()


def test_a_vector_of_zeros_stays_one():
    whole, scale = to_int8(np.zeros((1, 4), np.float32))
    assert whole.tolist() == [[0, 0, 0, 0]]
    assert scale.tolist() == [0]


@pytest.mark.parametrize(("precision", "off"), [("fp32", 0.0), ("fp16", 2e-3), ("int8", 2e-2)])
def test_columns_give_the_vectors_back(precision, off):
    table = pa.table(vector_columns(VECTORS, precision))
    assert table.schema.field("vector").type == vector_fields(12, precision)[0].type
    assert [field.name for field in vector_fields(12, precision)] == table.column_names
    assert np.abs(vectors_of(table) - VECTORS).max() <= off
    assert np.array_equal(vectors_of(table.slice(7, 3)), vectors_of(table)[7:10]), "a slice is its own rows"


def test_cut_vectors_have_length_1_where_similarity_is_the_cosine():
    vectors = torch.from_numpy(VECTORS)
    assert truncated(vectors, None, True) is vectors
    assert torch.equal(truncated(vectors, 5, False), vectors[:, :5])
    cut = truncated(vectors, 5, True)
    assert torch.allclose(cut.norm(dim=1), torch.ones(50))
    assert torch.allclose(cut, vectors[:, :5] / vectors[:, :5].norm(dim=1, keepdim=True))
