"""A judge grown from a policy: it reads as the policy did, and compares and answers before any training."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from support.rl_processes import MODEL

from grrm.data.dataset import SftItem
from grrm.errors import UserError
from grrm.models.policy import freeze_layers, policy_class
from grrm.rl.growth import JudgeTokens, grow_judge, with_words
from grrm.rl.growth.grow import COMPARING_LAYERS
from grrm.rl.growth.layer import layer_of
from grrm.rl.growth.policy_part import LOUD, SINGLE_SIZE
from grrm.rl.growth.spelling import agreements, mean_codes, spelling_codes
from grrm.rl.growth.stream import Stream
from grrm.sft.trainer import SftCollator, SftTrainer

N_OLD, N_TEXT, N_CANDIDATES = MODEL["num_hidden_layers"], 40, 3
TOKENS = JudgeTokens(
    begin=40, opens=(41, 42, 43), end=44, asks=(45, 46, 47), scores=tuple(range(10)), stop=10
)  # 11 to 39 are text
N_WORDS = 48
SYLLABLES = [first + second for first in "bdfgklmnprst" for second in ("a", "o", "ula")]
TEXTS = [""] * 11 + SYLLABLES[: N_TEXT - 11] + [""] * (N_WORDS - N_TEXT)
SIZES = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}


def policy_of(**settings):
    paddle.seed(5)
    cls = policy_class("qwen2")
    sizes = SIZES | {"hidden_size": 96, "num_attention_heads": 3, "num_key_value_heads": 1, "intermediate_size": 200}
    config = cls.config_class(**{**sizes, "initializer_range": 0.1, "tie_word_embeddings": True, **settings})
    model = cls(config)
    model.eval()
    return model


@pytest.fixture(scope="module")
def policy():
    return policy_of(vocab_size=N_WORDS)


def prompt(rng: np.random.Generator, n_candidates: int) -> tuple[list[int], list[slice]]:
    """A judge's prompt of random text, and where its candidates are."""
    text = lambda: rng.integers(11, N_TEXT, rng.integers(2, 9)).tolist()  # noqa: E731
    ids, places = [TOKENS.begin, *text()], []
    for opens in TOKENS.opens[:n_candidates]:
        candidate = text()
        ids.append(opens)
        places.append(slice(len(ids), len(ids) + len(candidate)))
        ids += candidate
    return [*ids, TOKENS.end], places


@pytest.fixture(scope="module")
def judge(policy):
    rng = np.random.default_rng(0)
    grown = grow_judge(
        policy, TOKENS, [prompt(rng, 3)[0] for _ in range(30)], rank=72, texts=TEXTS, spelling=16, seed=1
    )
    grown.eval()
    return grown


@pytest.fixture(scope="module")
def stream():
    return Stream(96, 72, N_CANDIDATES, 32, 16)


def streams(model, ids: list[int]) -> list[np.ndarray]:
    """What stands in the stream behind each layer, [T, H] each."""
    found: list[np.ndarray] = []
    base = getattr(model, model.base_model_prefix)
    hooks = [
        layer.register_forward_post_hook(
            lambda _, __, out: found.append((out[0] if isinstance(out, (tuple, list)) else out).numpy())
        )
        for layer in base.layers
    ]
    with paddle.no_grad():
        base(paddle.to_tensor([ids]))
    for hook in hooks:
        hook.remove()
    return [values.reshape([len(ids), -1]) for values in found]


def verdict(model, ids: list[int]) -> list[int]:
    """What the model writes greedily."""
    written: list[int] = []
    while len(written) < 12 and (not written or written[-1] != TOKENS.stop):
        with paddle.no_grad():
            logits = model(paddle.to_tensor([ids + written]))
        logits = logits[0] if isinstance(logits, (tuple, list)) else logits
        written.append(int(logits[0, -1].argmax()))
    return written


def test_new_words_start_as_the_words_they_are_like(policy):
    more = with_words(policy, N_WORDS + 2, {N_WORDS: [3], N_WORDS + 1: [4, 6]}, seed=1)
    old, new = policy.state_dict(), more.state_dict()
    for name, weights in old.items():
        kept = new[name].numpy()[:N_WORDS] if "embed" in name or "lm_head" in name else new[name].numpy()
        assert np.array_equal(kept, weights.numpy()), name
    words = new["qwen2.embed_tokens.weight"].numpy()
    noise = words[N_WORDS:] - [words[3], words[[4, 6]].mean(0)]
    assert 0 < np.abs(noise).max() < 0.2 * 5 * policy.config.initializer_range


def test_judge_reads_as_its_policy_does(policy, judge, stream):
    assert judge.config.num_hidden_layers == N_OLD + COMPARING_LAYERS + 1
    assert judge.config.hidden_size == stream.size
    ids, _ = prompt(np.random.default_rng(3), 3)
    wanted, found = streams(policy, ids), streams(judge, ids)
    for number in range(N_OLD):
        error = found[number][:, : stream.policy] - wanted[number]
        assert np.sqrt((error**2).mean() / (wanted[number] ** 2).mean()) < 0.05, number


@pytest.mark.parametrize("n_candidates", [1, 2, 3])
def test_scores_see_what_the_policy_expected_of_their_words_and_of_no_others(policy, judge, stream, n_candidates):
    """The logit of every word, its mean over the candidate whose score is due and over all, and the ending's."""
    rng = np.random.default_rng(n_candidates)
    logits, here = [], []
    found = {name: [] for name in ("mean", "ending", "group_mean")}
    wanted = {name: [] for name in found}
    for _ in range(12):
        ids, places = prompt(rng, n_candidates)
        ids += [token for ask in TOKENS.asks[:n_candidates] for token in (ask, TOKENS.scores[5])]
        with paddle.no_grad():
            answer = policy(paddle.to_tensor([ids]))
        all_logits = (answer[0] if isinstance(answer, (tuple, list)) else answer).numpy().reshape([len(ids), -1])
        read = np.where(np.isin(ids, TOKENS.closes), TOKENS.stop, ids)[1:]
        of_words = np.concatenate([[0.0], all_logits[np.arange(len(ids) - 1), read]])
        layers = streams(judge, ids)
        words = np.concatenate([np.arange(len(ids))[place] for place in places])
        expected = layers[N_OLD][:, stream.expected_here]
        logits += of_words[words].tolist()
        here += expected[words].tolist()
        behind = layers[N_OLD + 1][[ids.index(ask) for ask in TOKENS.asks[:n_candidates]]]
        for name, values in found.items():
            values += behind[:, getattr(stream, name)].tolist()
        wanted["mean"] += [expected[place].mean() for place in places]
        wanted["ending"] += [expected[place.stop] for place in places]
        wanted["group_mean"] += [expected[words].mean()] * n_candidates
    assert np.corrcoef(logits, here)[0, 1] > 0.95
    for name, values in found.items():
        assert np.corrcoef(wanted[name], values)[0, 1] > 0.9, name


def test_agreement_stands_where_a_score_is_due_and_at_no_word_or_score(judge, stream):
    """The mean codes of the candidate and of the group come there, and are multiplied."""
    rng = np.random.default_rng(7)
    codes_VS = spelling_codes(TEXTS, 16, seed=1)
    wanted = {name: [] for name in ("own", "usual", "agreement")}
    found = {name: [] for name in wanted}
    for _ in range(15):
        ids, places = prompt(rng, 3)
        ids += [token for ask in TOKENS.asks for token in (ask, TOKENS.scores[5])]
        behind = streams(judge, ids)[N_OLD + 1]
        at_due = behind[[ids.index(ask) for ask in TOKENS.asks]]
        own_NS, usual_NS = at_due[:, stream.spelled] / SINGLE_SIZE, at_due[:, stream.usual] / LOUD
        means_NS, all_S = mean_codes(codes_VS[ids], places)
        wanted["own"] += means_NS.ravel().tolist()
        wanted["usual"] += all_S.tolist()
        found["own"] += own_NS.ravel().tolist()
        found["usual"] += usual_NS[0].tolist()
        wanted["agreement"] += centred(agreements(own_NS, usual_NS[0]))
        found["agreement"] += centred(at_due[:, stream.agreement])
        shut = [at for at, token in enumerate(ids) if token not in (*TOKENS.opens, *TOKENS.asks)]
        assert np.abs(behind[shut, stream.agreement]).max() < 0.01 * np.abs(at_due[:, stream.agreement]).max()
    for name, least in (("own", 0.98), ("usual", 0.9), ("agreement", 0.98)):
        assert np.corrcoef(wanted[name], found[name])[0, 1] > least, name


def centred(values: np.ndarray) -> list[float]:
    return (values - values.mean()).tolist()


@pytest.mark.parametrize("n_candidates", [1, 2, 3])
def test_untrained_judge_writes_one_score_for_each_candidate_and_stops(judge, n_candidates):
    rng = np.random.default_rng(n_candidates)
    for _ in range(4):
        written = verdict(judge, prompt(rng, n_candidates)[0])
        assert written[::2] == [*TOKENS.asks[:n_candidates], TOKENS.stop]
        assert set(written[1::2]) <= set(TOKENS.scores)


def test_untrained_judge_of_single_translations_writes_a_score_and_stops(policy):
    """What its heads bring to where no score is due once outdid the verdict's frame."""
    tokens = replace(TOKENS, opens=TOKENS.opens[:1], asks=TOKENS.asks[:1])
    rng = np.random.default_rng(0)
    single = grow_judge(policy, tokens, [prompt(rng, 1)[0] for _ in range(20)], rank=72, seed=1)
    single.eval()
    for _ in range(12):
        written = verdict(single, prompt(rng, 1)[0])
        assert written[::2] == [tokens.asks[0], tokens.stop]
        assert written[1] in tokens.scores


def test_heads_that_move_values_look_at_one_distance_wherever_they_stand(judge):
    layer = layer_of(judge.state_dict(), f"qwen2.layers.{N_OLD}.", 32, judge.config.rope_theta)
    query, key = (layer[f"self_attn.{part}_proj.bias"][layer.columns(0)] for part in "qk")

    def turned(vector: np.ndarray, position: int) -> np.ndarray:
        """Rotary embedding (RoFormer, section 3.2.2), first half of the dimensions paired with the second."""
        return (vector[:16] + 1j * vector[16:]) * np.exp(1j * position * layer.frequencies)

    for position in (1, 7, 60, 500):
        logits = [(turned(query, position) * turned(key, at).conj()).real.sum() / 32**0.5 for at in range(position + 1)]
        weights = np.exp(logits - np.max(logits))
        assert weights.argmax() == position - 1
        assert weights[position - 1] / weights.sum() > 0.99


@pytest.mark.parametrize(
    ("settings", "options", "message"),
    [
        ({"intermediate_size": 210}, {"rank": 110}, "needs 110 dimensions and 220 units.*lower the rank"),
        ({"intermediate_size": 96}, {"rank": 72}, "needs 72 dimensions and 144 units.*lower the rank"),
        ({}, {"rank": 96}, "needs 8 attention heads and has 7: choose another rank"),
        ({}, {"rank": 72, "texts": TEXTS, "spelling": 30}, "room for codes of 24 numbers.*not 30: give fewer"),
        ({"num_hidden_layers": 1}, {"rank": 72, "texts": TEXTS, "spelling": 16}, "from a policy of 1 layer"),
        ({}, {"rank": 72, "texts": TEXTS[:-1]}, "has 48 words, but there are texts of 47"),
    ],
)
def test_policy_without_room_for_a_judge_is_refused(settings, options, message):
    model = policy_of(vocab_size=N_WORDS, **settings)
    with pytest.raises(UserError, match=message):
        grow_judge(model, TOKENS, [prompt(np.random.default_rng(0), 3)[0]], **options)


def test_frozen_layers_and_embeddings_get_no_gradient(judge):
    freeze_layers(judge, 0)
    assert all(not parameter.stop_gradient for parameter in judge.parameters())
    freeze_layers(judge, N_OLD)
    kept = {name for name, parameter in judge.named_parameters() if parameter.stop_gradient}
    layers = tuple(f"qwen2.layers.{number}." for number in range(N_OLD))
    assert kept == {n for n, _ in judge.named_parameters() if n.startswith((*layers, "qwen2.embed_tokens."))}
    for parameter in judge.parameters():
        parameter.stop_gradient = False
    with pytest.raises(UserError, match=f"frozen_layers is 9, but the model has {N_OLD + 3} layers"):
        freeze_layers(judge, 9)


def item(prompt_ids: list[int], response: list[int], labels: tuple[tuple[int, int], ...]) -> SftItem:
    return SftItem(0, prompt_ids + response, [], len(prompt_ids), "", "", labels)


@pytest.mark.parametrize("z_loss_weight", [0.0, 0.3])
def test_labels_inside_prompts_and_the_z_loss_weigh_what_they_are_told_to(policy, z_loss_weight):
    items = [item([5, 6, 7], [8, 9], ((1, 11), (2, 12))), item([6, 5, 4, 3], [2], ((0, 13),)), item([3], [4], ())]
    wanted, weights, normalizers = [], [], []
    for one in items:
        logits = policy(paddle.to_tensor([one.input_ids]))
        logits = (logits[0] if isinstance(logits, (tuple, list)) else logits).numpy().reshape([len(one.input_ids), -1])
        normalizer = np.log(np.exp(logits).sum(-1))
        at = [(place - 1, one.input_ids[place], 1.0) for place in range(one.prompt_len, len(one.input_ids))]
        for place, label, weight in [*at, *((place, label, 0.25) for place, label in one.prompt_labels)]:
            wanted.append(logits[place, label] - normalizer[place])
            weights.append(weight)
            normalizers.append(normalizer[place])
    inputs = SftCollator(0, 0, 0.25)(items)
    loss = SftTrainer.compute_loss(SimpleNamespace(model=policy, z_loss_weight=z_loss_weight), policy, inputs)
    expected = -np.average(wanted, weights=weights) + z_loss_weight * np.square(normalizers).mean()
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    assert "weights_N" not in SftCollator(0)(items)
