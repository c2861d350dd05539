"""The critic's network: a value head over the hidden states that predict response tokens."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.tiny_policy import random_policy

from grrm.errors import UserError
from grrm.models.packing import lay_out
from grrm.models.reward_models import fill_value_head, load_reward_model, save_reward_model
from grrm.models.value_head import CandidateGroup, PairwiseModel, TokenValueModel

PROMPTS = [[5, 6, 7], [5, 6, 7], [9, 8]]
RESPONSES = [[10, 11], [12, 13, 14], [15]]


def values_of(model: TokenValueModel, pack_tokens: int) -> np.ndarray:
    tokens = lay_out(PROMPTS, RESPONSES, 0, pack_tokens)
    return model(**tokens.model_inputs()).numpy()


@pytest.fixture
def model() -> TokenValueModel:
    model = TokenValueModel(random_policy(vocab_size=32))
    draw = np.random.default_rng(1)
    model.head.weight.set_value(draw.normal(size=(32, 1)).astype(np.float32))
    model.head.bias.set_value(np.array([0.5], dtype=np.float32))
    model.eval()
    return model


def test_a_new_critic_predicts_zero_everywhere_and_its_head_has_gradients():
    model = TokenValueModel(random_policy(vocab_size=32))
    assert not values_of(model, 0).any()
    model(**lay_out(PROMPTS, RESPONSES, 0, 0).model_inputs()).sum().backward()
    assert model.head.weight.grad.abs().sum() > 0
    assert float(model.head.bias.grad) == 6


def test_packed_rows_have_the_values_of_separate_ones(model):
    np.testing.assert_allclose(values_of(model, 64), values_of(model, 0), atol=1e-5)


def test_a_value_is_that_of_the_state_before_its_token(model):
    before = values_of(model, 0)
    tokens = lay_out(PROMPTS, [[10, 31], *RESPONSES[1:]], 0, 0)  # another second token
    np.testing.assert_array_equal(model(**tokens.model_inputs()).numpy(), before)
    tokens = lay_out(PROMPTS, [[30, 11], *RESPONSES[1:]], 0, 0)  # another first one
    after = model(**tokens.model_inputs()).numpy()
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_critic_and_a_pairwise_reward_model_start_from_each_others_folder(model, tmp_path):
    save_reward_model(model, tmp_path / "critic")
    judge = load_reward_model(tmp_path / "critic")
    assert type(judge) is PairwiseModel
    scores = judge(**judge.collate([CandidateGroup([5, 6, 7], [[10, 11]])]))
    hidden = model.backbone(
        input_ids=paddle.to_tensor([[5, 6, 7, 10, 11]]), positions_N=paddle.to_tensor([4])
    ).hidden_NH
    np.testing.assert_allclose(scores.numpy(), model.head(hidden).numpy()[0], rtol=1e-5)

    other = TokenValueModel(model.backbone)
    fill_value_head(other, tmp_path / "critic")
    np.testing.assert_array_equal(values_of(other, 0), values_of(model, 0))


def test_a_folder_without_a_head_leaves_it_and_one_of_another_width_is_refused(model, tmp_path):
    model.backbone.save_pretrained(str(tmp_path / "policy"), safe_serialization=True)
    weight = model.head.weight.numpy()
    fill_value_head(model, tmp_path / "policy")
    np.testing.assert_array_equal(model.head.weight.numpy(), weight)
    save_reward_model(TokenValueModel(random_policy(vocab_size=32, hidden_size=64)), tmp_path / "wide")
    with pytest.raises(UserError, match=r"does not fit its backbone \(v_head.summary.weight is \[1, 64\], not"):
        fill_value_head(model, tmp_path / "wide")
