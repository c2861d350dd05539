import pytest
from support.reference_rewards import (
    ReferenceConfig,
    ReferenceItem,
    reference_group_rewards,
    reference_groups,
    reference_single_prompts,
    reference_single_rewards,
)

RAMP = {"enable": True, "max_resp_len": 60, "len": 20, "penalty_factor": 0.04}
CONFIG = ReferenceConfig(4000, "line", score_scale_factor=0.01, default_reward=-0.04, overlong_buffer=RAMP)


def items(*rows):
    return [ReferenceItem(uid, response, "Hallo", n, "de", "en") for uid, response, n in rows]


def test_unreadable_reply_is_scaled_and_penalised_like_a_score():
    batch = items(("u", "a", 5), ("u", "b", 60))
    groups = reference_groups(CONFIG, batch, len)
    assert reference_group_rewards(CONFIG, groups, [None], 2) == pytest.approx([-0.0004, -0.0404])


def test_copies_pay_for_the_length_of_the_first():
    batch = items(("u", "a", 5), ("v", "z", 5), ("u", "b", 5), ("u", "a", 60))
    groups = reference_groups(CONFIG, batch, len)
    assert [group.prompt is None for group in groups] == [False, True]
    assert reference_group_rewards(CONFIG, groups, [[8, 3]], 4) == pytest.approx([0.08, -0.04, 0.03, 0.08])


def test_too_long_a_prompt_is_not_asked():
    config = ReferenceConfig(100, "line")
    batch = items(("u", "a", 5), ("u", "b", 5))
    assert [group.prompt for group in reference_groups(config, batch, len)] == [None]
    assert reference_single_prompts(config, batch, len) == {}


def test_ukrainian_is_unknown_to_the_reference():
    batch = [ReferenceItem("u", text, "x", 5, lang_pair="uk-en") for text in "ab"]
    with pytest.raises(KeyError, match="uk"):
        reference_groups(CONFIG, batch, len)


def test_single_judge_penalises_the_unscaled_default():
    batch = items(("u", "a", 60), ("u", "", 5), ("u", "b", 5))
    assert list(reference_single_prompts(CONFIG, batch, len)) == [0, 2]
    assert reference_single_rewards(CONFIG, batch, {0: None, 2: 9}) == pytest.approx([-0.08, -0.04, 0.09])
