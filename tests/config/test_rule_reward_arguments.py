"""Keys of the rule reward, the overlong penalty and the cosine schedule's floor: what is taken and refused."""

from __future__ import annotations

import pytest

from grrm.errors import UserError

RULE = {"use_rule_reward": True}
OVERLONG = {"enable_overlong_reward_buffer": True, "overlong_reward_buffer": 8}
COSINE = {"lr_scheduler_type": "cosine", "learning_rate": 1e-5}


def test_rule_reward_is_taken(prepared):
    assert prepared(**RULE).rule_reward is None
    assert prepared(**RULE, rule_reward="ranking_zero").rule_reward == "ranking_zero"


def test_keys_of_judges_in_the_file_are_told_beside_a_rule_of_the_command_line(prepared):
    values = prepared(**RULE, extractor_type="line", max_unscored_fraction=0.1)
    told = " ".join(values.notices)
    assert "extractor_type has no effect" in told
    assert "max_unscored_fraction has no effect" in told


def test_penalty_is_whole_at_the_longest_response_unless_told_otherwise(prepared):
    values = prepared(**OVERLONG)
    assert (values.overlong_max_resp_len, values.overlong_penalty_capped) == (32, True)
    values = prepared(**OVERLONG, overlong_max_resp_len=16, overlong_penalty_capped=False)
    assert (values.overlong_max_resp_len, values.overlong_penalty_capped) == (16, False)


def test_floor_of_the_cosine_schedule_is_taken(prepared):
    assert prepared(**COSINE, min_learning_rate="2e-6").min_learning_rate == 2e-6


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {**RULE, "rule_reward": "rankin_score"},
            "rule_reward is 'rankin_score'; give one of ranking_score, ranking_score_no_cot, score, "
            "score_ordering, ranking, ranking_no_cot, ranking_zero, single_score, grade, "
            "paddlenlp_knights_and_knaves, exact, normalised, gsm8k, knights_and_knaves, math (did you mean "
            "'ranking_score'?).",
        ),
        (
            {**RULE, "rule_reward": "paddlenlp_knights_and_knaves", "score_scale_factor": 1.0},
            "score_scale_factor has no effect with rule_reward paddlenlp_knights_and_knaves, whose rewards are used as",
        ),
        ({**OVERLONG, "length_neutral_rewards": True}, "length_neutral_rewards takes the penalty of"),
        ({"rule_rewards": "ranking"}, "Unknown key 'rule_rewards'; did you mean 'rule_reward'?"),
        ({"rule_reward": "ranking"}, "rule_reward has no effect without use_rule_reward; set it to true or remove"),
        (
            {**RULE, "use_rm_server": True, "reward_server": "http://h:1"},
            "use_rule_reward and use_rm_server are two sources of one reward; set one of them to false.",
        ),
        ({"reward_prompt_type": "Tower"}, "reward_prompt_type has no effect without reward_model_name_or_path"),
        ({**RULE, "reward_model_name_or_path": "."}, "reward_model_name_or_path is a judge inside the trainer, beside"),
        (
            {"reward_judge": "chrf", "reward_model_name_or_path": "."},
            "reward_judge has no effect with use_rm_server, use_rule_reward, reward_model_name_or_path or",
        ),
        ({"reward_judge": "chfr"}, "unknown judge 'chfr': did you mean 'chrf'"),
        ({"reward_judge": "no_such:judge"}, "there is no module 'no_such'"),
        ({"reward_sources": [{"judge": "chr"}]}, "reward_sources, entry 1: unknown judge 'chr'"),
        ({"reward_sources": "chrf"}, "reward_sources is 'chrf'; give a list (mappings)"),
        ({**RULE, "reward_sources": [{"judge": "chrf"}]}, "reward_sources are judges inside the trainer, beside"),
        ({**RULE, "reward_judge": "consensus"}, "reward_judge has no effect with use_rm_server, use_rule_reward"),
        (
            {**OVERLONG, "overlong_max_resp_len": 64},
            "overlong_max_resp_len 64 is longer than a response of max_dec_len 32; use at most 32.",
        ),
        (
            {**OVERLONG, "overlong_max_resp_len": 6},
            "overlong_reward_buffer 8 is longer than a response of overlong_max_resp_len 6; use at most 6.",
        ),
        (
            {**OVERLONG, "overlong_penalty_capped": False},
            "overlong_penalty_capped false has no effect while no response can pass the 32 tokens at which the penalty "
            "is whole; set overlong_max_resp_len below max_dec_len, or remove the key.",
        ),
        ({**OVERLONG, "overlong_max_resp_len": 0}, "overlong_max_resp_len is 0; it must be at least 1"),
        (
            {**COSINE, "lr_scheduler_type": "linear", "min_learning_rate": 1e-6},
            "min_learning_rate is not supported with lr_scheduler_type linear; use cosine",
        ),
        ({**COSINE, "min_learning_rate": 1e-4}, "min_learning_rate is 0.0001; it must be at least 0 and at most"),
        ({"decay_steps": 100}, "decay_steps: 100 is not supported: schedules span the whole run"),
    ],
)
def test_what_cannot_work_is_one_sentence(prepared, changes, sentence):
    with pytest.raises(UserError) as caught:
        prepared(**changes)
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message


def test_a_value_far_from_every_choice_has_no_nearest_one(prepared):
    with pytest.raises(UserError, match=r"give one of [\w, ]*math\.$"):
        prepared(**RULE, rule_reward="bleurt")
