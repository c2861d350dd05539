"""Length penalties: of the recipe, capped, and of PaddleNLP and DAPO, which add what ours subtracts."""

from grrm.rewards.shaping import OverlongConfig, overlong_penalty


def recipe_ramp(options):
    """The overlong buffer of the recipe's YAML, which is off unless it is enabled and complete."""
    enabled, *numbers = ((options or {}).get(name) for name in ("enable", "max_resp_len", "len", "penalty_factor"))
    return OverlongConfig(*numbers) if enabled and all(number and number > 0 for number in numbers) else None


def penalty(row):
    return overlong_penalty(row["length"], recipe_ramp(row["cfg"]))


def uncapped(limit, buffer):
    return lambda row: (
        -overlong_penalty(row["length"], OverlongConfig(row[limit], row[buffer], row["penalty_factor"], capped=False))
    )


FIXED = {
    "rm_lib.overlong_penalty": penalty,
    "paddlenlp.apply_overlong_penalty": uncapped("max_dec_len", "overlong_buffer_len"),
    "dapo.overlong_reward": uncapped("max_resp_len", "buffer_len"),
}
