"""Length penalties: of the recipe, capped, and of PaddleNLP and DAPO, which add what ours subtracts."""

from grrm.rewards.shaping import OverlongConfig, overlong_penalty


def penalty(row):
    return overlong_penalty(row["length"], OverlongConfig.from_mapping(row["cfg"]))


def uncapped(limit, buffer):
    return lambda row: (
        -overlong_penalty(row["length"], OverlongConfig(row[limit], row[buffer], row["penalty_factor"], capped=False))
    )


FIXED = {
    "rm_lib.overlong_penalty": penalty,
    "paddlenlp.apply_overlong_penalty": uncapped("max_dec_len", "overlong_buffer_len"),
    "dapo.overlong_reward": uncapped("max_resp_len", "buffer_len"),
}
