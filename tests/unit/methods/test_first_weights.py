"""A head's first weights add no direction of their own, which on unit vectors would be as long as the vectors."""

import pytest
import torch

from tests.unit.trainees import SPEC, method_for


def unit_vectors(count):
    drawn = torch.randn(count, SPEC.dimension, generator=torch.Generator().manual_seed(5))
    return torch.nn.functional.normalize(drawn, dim=-1)


@pytest.mark.parametrize("case", ["simcse", "ict"])
def test_unlike_vectors_stay_unlike_behind_a_new_head(case):
    torch.manual_seed(1)
    head = method_for(case).head()
    projected = torch.nn.functional.normalize(head(unit_vectors(400)), dim=-1)
    # Means over 79,800 pairs of independent directions: 0 but for chance; a bias as long as the vectors makes it 1/2.
    cosines = projected @ projected.T
    assert abs((cosines.sum() - 400) / (400 * 399)) < 0.02


def test_a_new_gru_makes_of_unlike_contexts_unlike_states():
    torch.manual_seed(1)
    states, _ = method_for("cpc").head().gru(unit_vectors(600).view(200, 3, -1))
    projected = torch.nn.functional.normalize(states[:, -1], dim=-1)
    assert abs(((projected @ projected.T).sum() - 200) / (200 * 199)) < 0.05


def test_new_layers_start_with_berts_weights():
    torch.manual_seed(1)
    spec = SPEC._replace(dimension=512, hidden=512, word=512)
    layers = {case: method_for(case, spec).head()[0] for case in ("simcse", "ict")}
    for case, layer in (layers | {"declutr": method_for("declutr", spec).head().dense}).items():
        assert abs(float(layer.weight.detach().std()) - 0.02) < 0.001, case
        assert not layer.bias.any(), case


def test_a_new_language_model_prefers_no_token_by_itself():
    torch.manual_seed(1)
    words = torch.randn(SPEC.vocabulary, SPEC.word)
    assert not method_for("declutr").head().scores(torch.zeros(1, SPEC.hidden), words).any()
