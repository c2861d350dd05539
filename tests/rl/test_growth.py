"""A judge grown from a policy, and the labels inside prompts that it learns from."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.rl_processes import MODEL

from grrm.data.dataset import SftItem
from grrm.rl.growth import grow
from grrm.rl.policy import policy_class
from grrm.rl.sft_trainer import SftCollator, SftTrainer

N_OLD, N_WORDS = MODEL["num_hidden_layers"], 64


@pytest.fixture(scope="module")
def policy():
    paddle.seed(5)
    cls = policy_class("qwen2")
    sizes = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    return cls(cls.config_class(**sizes, vocab_size=N_WORDS))


def test_judge_keeps_the_layers_and_words_of_its_policy(policy):
    judge = grow(policy, 2, N_WORDS + 2, {N_WORDS: [3], N_WORDS + 1: [4, 6]}, seed=1)
    assert judge.config.num_hidden_layers == N_OLD + 2
    assert policy.config.num_hidden_layers == N_OLD
    old, new = policy.state_dict(), judge.state_dict()
    for name, weights in old.items():
        kept = new[name].numpy()[:N_WORDS] if "embed" in name or "lm_head" in name else new[name].numpy()
        assert np.array_equal(kept, weights.numpy()), name
    words = new["qwen2.embed_tokens.weight"].numpy()
    noise = words[N_WORDS:] - [words[3], words[[4, 6]].mean(0)]
    assert 0 < np.abs(noise).max() < 0.2 * 5 * judge.config.initializer_range


def test_first_new_layer_attends_to_the_token_before_wherever_it_stands(policy):
    judge = grow(policy, 1, N_WORDS, {}, seed=1)
    size = MODEL["hidden_size"] // MODEL["num_attention_heads"]
    state = judge.state_dict()
    query, key = (
        state[f"qwen2.layers.{N_OLD}.self_attn.{part}_proj.bias"].numpy().reshape([-1, size])[0] for part in "qk"
    )
    frequencies = judge.config.rope_theta ** (-2.0 * np.arange(size // 2) / size)

    def turned(vector: np.ndarray, position: int) -> np.ndarray:
        """Rotary embedding (RoFormer, section 3.2.2), first half of the dimensions paired with the second."""
        both = vector[: size // 2] + 1j * vector[size // 2 :]
        return both * np.exp(1j * position * frequencies)

    for position in (1, 7, 60):
        logits = [
            (turned(query, position) * turned(key, at).conj()).real.sum() / size**0.5 for at in range(position + 1)
        ]
        weights = np.exp(logits - np.max(logits))
        assert weights.argmax() == position - 1
        assert weights[position - 1] / weights.sum() > 0.8


def item(prompt: list[int], response: list[int], labels: tuple[tuple[int, int], ...]) -> SftItem:
    return SftItem(0, prompt + response, [], len(prompt), "", "", labels)


def test_labels_inside_prompts_weigh_what_they_are_told_to(policy):
    items = [item([5, 6, 7], [8, 9], ((1, 11), (2, 12))), item([6, 5, 4, 3], [2], ((0, 13),)), item([3], [4], ())]
    wanted, weights = [], []
    for one in items:
        ids = paddle.to_tensor([one.input_ids])
        logprobs = paddle.nn.functional.log_softmax(policy(ids)[0][0], axis=-1).numpy()
        for at in range(one.prompt_len, len(one.input_ids)):
            wanted.append(logprobs[at - 1, one.input_ids[at]])
            weights.append(1.0)
        for at, label in one.prompt_labels:
            wanted.append(logprobs[at, label])
            weights.append(0.25)
    inputs = SftCollator(0, 0, 0.25)(items)
    loss = SftTrainer.compute_loss(None, policy, inputs)
    assert float(loss) == pytest.approx(-np.average(wanted, weights=weights), rel=1e-5)
    assert "weights_N" not in SftCollator(0)(items)
