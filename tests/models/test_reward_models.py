"""Reward models: what no score depends on, and what a folder gives back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from support.rl_processes import MODEL

from grrm.models.cpu_layers import use_cpu_layers
from grrm.models.policy import load_policy, policy_class
from grrm.models.reward_models import (
    CandidateGroup,
    RewardModel,
    load_reward_model,
    new_reward_model,
    save_reward_model,
    score_groups,
)

HEADS = {
    "pairwise": {"kind": "pairwise"},
    "none": {"kind": "ranker"},
    "group": {"kind": "ranker", "compare": "group", "blocks": 1, "width": 16},
}


@pytest.fixture(scope="module", params=["qwen2-tied", "llama-untied"])
def backbone(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    use_cpu_layers()
    paddle.seed(5)
    name, tied = request.param.split("-")
    cls = policy_class(name)
    sizes = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    sizes["tie_word_embeddings"] = tied == "tied"
    folder = tmp_path_factory.mktemp(request.param)
    cls(cls.config_class(**sizes, vocab_size=64)).save_pretrained(str(folder), safe_serialization=True)
    return folder


@pytest.fixture(scope="module", params=HEADS)
def model(request: pytest.FixtureRequest, backbone: Path) -> RewardModel:
    model = new_reward_model(backbone_directory=backbone, seed=3, **HEADS[request.param])
    for name, weight in model.head.named_parameters():  # else nothing would come of candidates seeing each other
        if "own_bias" in name:
            weight.set_value(paddle.linspace(-1.0, 1.0, weight.shape[0]))
    return model


def draw_groups(*sizes: int, seed: int = 0) -> list[CandidateGroup]:
    rng = np.random.default_rng(seed)
    return [
        CandidateGroup(
            rng.integers(1, 64, rng.integers(1, 9)).tolist(),
            [rng.integers(1, 64, rng.integers(1, 7)).tolist() for _ in range(size)],
        )
        for size in sizes
    ]


def scores(model: RewardModel, groups: list[CandidateGroup]) -> list[list[float]]:
    return score_groups(model, groups, max_tokens=10_000)


def compares(model: RewardModel) -> bool:
    return model.settings().get("compare") == "group"


def test_no_score_depends_on_the_order_of_candidates(model: RewardModel):
    for group in draw_groups(5, 8, seed=1):
        order = np.random.default_rng(2).permutation(len(group.responses))
        permuted = CandidateGroup(group.prompt_ids, [group.responses[i] for i in order])
        before, after = scores(model, [group, permuted])
        np.testing.assert_allclose(np.array(before)[order], after, atol=1e-5)
        assert np.std(before) > 1e-3


def test_a_copy_scores_as_its_original(model: RewardModel):
    (group,) = draw_groups(4, seed=3)
    responses = [*group.responses, group.responses[1], group.responses[1]]
    (found,) = scores(model, [CandidateGroup(group.prompt_ids, responses)])
    np.testing.assert_allclose(found[4:], found[1], atol=1e-5)


def test_a_score_depends_on_the_other_candidates_only_where_they_are_compared(model: RewardModel):
    (group,) = draw_groups(4, seed=4)
    (together,) = scores(model, [group])
    alone = [found for (found,) in scores(model, [CandidateGroup(group.prompt_ids, [one]) for one in group.responses])]
    differences = np.abs(np.array(together) - alone)
    assert differences.max() > 1e-3 if compares(model) else differences.max() < 1e-5


def test_a_score_depends_on_each_token_and_on_the_prompt(model: RewardModel):
    group = CandidateGroup([5, 6, 7], [[8, 9, 10]])
    ((base,),) = scores(model, [group])
    others = [CandidateGroup([5, 4, 7], [[8, 9, 10]])]
    others += [CandidateGroup([5, 6, 7], [[*[8, 9, 10][:t], 11, *[8, 9, 10][t + 1 :]]]) for t in range(3)]
    assert all(abs(one - base) > 1e-5 for (one,) in scores(model, others))


def test_batches_of_any_size_give_the_scores_of_single_groups(model: RewardModel):
    groups = draw_groups(3, 1, 5, 2, seed=5)
    alone = [scores(model, [group])[0] for group in groups]
    for max_tokens in (1, 30, 10_000):
        together = score_groups(model, groups, max_tokens=max_tokens)
        assert [len(one) for one in together] == [3, 1, 5, 2]
        np.testing.assert_allclose(sum(together, []), sum(alone, []), atol=1e-5)


def test_gradient_reaches_backbone_and_head(model: RewardModel):
    model.train()
    found = model(**model.collate(draw_groups(3, 2, seed=6)))
    (found * paddle.arange(1, 6, dtype="float32")).sum().backward()
    without = [
        name
        for name, weight in model.named_parameters()
        if not weight.stop_gradient and (weight.grad is None or not np.abs(weight.grad.numpy()).sum())
    ]
    model.clear_gradients()
    # Softmax is the same for keys that are all shifted.
    assert [name for name in without if not name.endswith("key.bias")] == []
    assert found.shape == [5]


def test_the_gradient_is_that_of_finite_differences(model: RewardModel):
    batch = model.collate(draw_groups(3, 2, seed=7))
    weights_R = paddle.to_tensor(np.random.default_rng(0).normal(size=5).astype("float32"))
    (model(**batch) * weights_R).sum().backward()
    for name in ("embed_tokens.weight", "layers.0.self_attn.q_proj.weight", "layers.1.mlp.down_proj.weight"):
        (weight,) = (one for full, one in model.named_parameters() if full.endswith(name) and "backbone" in full)
        direction = weight.grad / weight.grad.norm()
        start, moved = weight.clone().detach(), []
        for sign in (1, -1):
            weight.set_value(start + sign * 1e-3 * direction)
            with paddle.no_grad():
                moved.append(float((model(**batch) * weights_R).sum()))
        weight.set_value(start)
        slope = float((weight.grad * direction).sum())
        # The gap to the likeliest token is an input without gradient.
        assert (moved[0] - moved[1]) / 2e-3 == pytest.approx(slope, rel=0.05 if model.kind == "pairwise" else 0.5)
    model.clear_gradients()


def test_saved_and_loaded_it_gives_the_same_scores(model: RewardModel, tmp_path: Path):
    groups = draw_groups(4, 2, seed=8)
    save_reward_model(model, tmp_path / "saved")
    loaded = load_reward_model(tmp_path / "saved")
    assert (loaded.kind, loaded.settings()) == (model.kind, model.settings())
    np.testing.assert_allclose(sum(scores(loaded, groups), []), sum(scores(model, groups), []), atol=1e-6)
    assert load_policy(tmp_path / "saved").config.hidden_size == model.config.hidden_size  # an ordinary checkpoint too


@pytest.mark.parametrize("broken", [CandidateGroup([], [[1]]), CandidateGroup([1], []), CandidateGroup([1], [[2], []])])
def test_a_group_that_has_nothing_to_score_is_refused(model: RewardModel, broken: CandidateGroup):
    with pytest.raises(ValueError, match="group 1"):
        model.collate([CandidateGroup([1], [[2]]), broken])
