"""Reward models: their scores are those of the definition, and what no score depends on."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import paddle
import pytest
from support.tiny_models import backbone_folder, draw_groups, flat, reward_model, scores

from grrm.errors import UserError
from grrm.models.policy import load_policy
from grrm.models.reward_models import score_groups, with_new_head
from grrm.models.value_head import CandidateGroup, RewardModel

__all__ = ["backbone_folder", "reward_model"]  # fixtures


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


def test_copies_cost_the_backbone_nothing_and_teach_as_often_as_they_are_there(model: RewardModel):
    (group,) = draw_groups(3, seed=3)
    copies = CandidateGroup(group.prompt_ids, [*group.responses, *group.responses])
    batch, twice = model.collate([group]), model.collate([copies])
    assert twice["input_ids"].tolist() == batch["input_ids"].tolist()
    gradients = []
    for one in (batch, twice):
        model(**one).sum().backward()
        gradients.append(model.head.state_dict()["score.weight" if model.kind == "ranker" else "weight"].grad.numpy())
        model.clear_gradients()
    if not compares(model):
        np.testing.assert_allclose(gradients[1], 2 * gradients[0], rtol=1e-4, atol=1e-6)


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
        np.testing.assert_allclose(flat(together), flat(alone), atol=1e-5)


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
    if model.kind == "ranker":  # the gap to the likeliest token is an input without gradient
        features = model.head.features.weight
        whole = features.clone().detach()
        features.set_value(paddle.concat([whole[:-1], paddle.zeros_like(whole[-1:])]))
    batch = model.collate(draw_groups(3, 2, seed=7))
    weights_R = paddle.to_tensor(np.random.default_rng(0).normal(size=5).astype("float32"))
    (model(**batch) * weights_R).sum().backward()
    trained = [weight for _, weight in model.named_parameters() if weight.grad is not None]
    starts = [weight.clone().detach() for weight in trained]
    length = math.sqrt(sum(float((weight.grad * weight.grad).sum()) for weight in trained))
    moved = []
    for sign in (1, -1):
        for weight, start in zip(trained, starts, strict=True):
            weight.set_value(start + weight.grad * (sign * 1e-3 / length))
        with paddle.no_grad():
            moved.append(float((model(**batch) * weights_R).sum()))
    for weight, start in zip(trained, starts, strict=True):
        weight.set_value(start)
    if model.kind == "ranker":
        features.set_value(whole)
    model.clear_gradients()
    assert (moved[0] - moved[1]) / 2e-3 == pytest.approx(length, rel=0.02)


def unpacked(model: RewardModel, group: CandidateGroup) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Of each candidate: hidden states of its tokens and of those before them, embeddings, logits [T, V]."""
    found, n_prompt = [], len(group.prompt_ids)
    for response in group.responses:
        row = paddle.to_tensor([[*group.prompt_ids, *response]])
        base = getattr(model.backbone, model.backbone.base_model_prefix)
        with paddle.no_grad():
            hidden = base(row)[0][0]
            embedded = base.embed_tokens(row)[0]
            logits = model.backbone.lm_head(hidden)
        own, before = slice(n_prompt, None), slice(n_prompt - 1, -1)
        parts = (hidden[own], hidden[before], embedded[own], logits[before])
        found.append(tuple(part.numpy().astype(np.float64) for part in parts))
    return found


def norm(x: np.ndarray, layer: paddle.nn.Layer) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + layer.variance_epsilon) * layer.weight.numpy()


def linear(x: np.ndarray, layer: paddle.nn.Layer) -> np.ndarray:
    return x @ layer.weight.numpy().astype(np.float64) + (0 if layer.bias is None else layer.bias.numpy())


def rotated(x_TD: np.ndarray, positions_T: np.ndarray) -> np.ndarray:
    half = x_TD.shape[-1] // 2
    angles = positions_T[:, None] / 10000 ** (np.arange(half) / half)
    turned = (x_TD[:, :half] + 1j * x_TD[:, half:]) * np.exp(1j * angles)
    return np.concatenate([turned.real, turned.imag], axis=-1)


def attention_by_heads(
    block: paddle.nn.Layer, x: np.ndarray, positions: np.ndarray, bias_HTT: np.ndarray
) -> np.ndarray:
    normed = norm(x, block.attention_norm)
    parts = [np.split(linear(normed, part), block.n_heads, -1) for part in (block.query, block.key, block.value)]
    mixed = []
    for q, k, v, bias in zip(*parts, bias_HTT, strict=True):
        raised = np.exp(rotated(q, positions) @ rotated(k, positions).T / math.sqrt(q.shape[-1]) + bias)
        mixed.append(raised / raised.sum(-1, keepdims=True) @ v)
    return linear(np.concatenate(mixed, -1), block.out)


def by_definition(model: RewardModel, group: CandidateGroup) -> list[float]:
    """The ranker's scores, a candidate a row, in NumPy."""
    head, found = model.head, unpacked(model, group)
    xs = []
    for response, (own, before, embedded, logits) in zip(group.responses, found, strict=True):
        chosen, lse = logits[np.arange(len(response)), response], np.log(np.exp(logits).sum(-1))
        numbers = np.stack([chosen - lse, logits.max(-1) - chosen], -1) * 0.3
        xs.append(linear(np.concatenate([own, before * embedded * 3, embedded * 5, numbers], -1), head.features))
    x, owner = np.concatenate(xs), np.repeat(np.arange(len(xs)), [len(one) for one in xs])
    positions = np.concatenate([np.arange(len(one)) for one in xs])
    same = owner[:, None] == owner[None, :]
    for block in head.blocks:
        if compares(model):
            bias = same[None] * block.own_bias.numpy()[:, None, None]
        else:
            bias = np.broadcast_to(np.where(same, 0, -np.inf), (block.n_heads, *same.shape))
        x = x + attention_by_heads(block, x, positions, bias)
        normed = norm(x, block.mlp_norm)
        gate = linear(normed, block.mlp.gate_proj)
        x = x + linear(gate / (1 + np.exp(-gate)) * linear(normed, block.mlp.up_proj), block.mlp.down_proj)
    x = norm(x, head.norm)
    return [float(linear(x[owner == one].mean(0), head.score)[0]) for one in range(len(xs))]


def test_scores_are_those_of_the_definition_computed_without_packing(model: RewardModel):
    for group in draw_groups(4, 2, seed=9):
        group.responses.append(group.responses[0])  # a copy is a candidate like others
        if model.kind == "ranker":
            expected = by_definition(model, group)
        else:
            expected = [float(linear(own[-1], model.head)[0]) for own, *_ in unpacked(model, group)]
        np.testing.assert_allclose(scores(model, [group])[0], expected, atol=2e-5)


def test_sixteen_bit_weights_of_the_last_layer_do_not_round_scores(backbone: Path):
    for kind in ("pairwise", "ranker"):
        model = with_new_head(kind, load_policy(backbone), seed=3)
        last = model.head.score if kind == "ranker" else model.head
        last.to(dtype="bfloat16")  # the other layers have no such product on CPUs
        found = paddle.to_tensor(flat(scores(model, draw_groups(8, 8, seed=6))))
        rounded = found.astype("bfloat16").astype("float32")
        assert (found != rounded).sum() > 12, kind


@pytest.mark.parametrize("broken", [CandidateGroup([], [[1]]), CandidateGroup([1], []), CandidateGroup([1], [[2], []])])
def test_a_group_that_has_nothing_to_score_is_refused(model: RewardModel, broken: CandidateGroup):
    with pytest.raises(ValueError, match="group 1"):
        model.collate([CandidateGroup([1], [[2]]), broken])


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"width": 12}, "multiple of 8"), ({"compare": "all"}, "none or group"), ({"blocks": -1}, "0 or")],
)
def test_a_ranker_that_cannot_be_built_is_one_sentence(backbone: Path, settings: dict, said: str):
    with pytest.raises(UserError, match=said):
        with_new_head("ranker", load_policy(backbone), **settings)


def test_an_unknown_kind_names_the_nearest(backbone: Path):
    with pytest.raises(UserError, match="'ranker'"):
        with_new_head("rankr", load_policy(backbone))
