"""Length penalties: ours, and the uncapped forms of PaddleNLP and DAPO."""

from support.reference_rewards import uncapped_overlong_reward

from grrm.rewards.overlong import OverlongConfig, overlong_penalty


def penalty(row):
    return overlong_penalty(row["length"], OverlongConfig.from_mapping(row["cfg"]))


def paddlenlp(row):
    return uncapped_overlong_reward(
        row["length"], row["max_dec_len"], row["overlong_buffer_len"], row["penalty_factor"]
    )


def dapo(row):
    return uncapped_overlong_reward(row["length"], row["max_resp_len"], row["buffer_len"], row["penalty_factor"])


FIXED = {"rm_lib.overlong_penalty": penalty}
COMPAT = {"paddlenlp.apply_overlong_penalty": paddlenlp, "dapo.overlong_reward": dapo}
