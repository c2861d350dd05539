"""Checks of the keys that shape rewards: the rule reward, and the penalty on overlong responses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from grrm.errors import UserError


def check_rule_reward(values: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Raises UserError for a rule beside a reward server, and for keys that the chosen source of rewards ignores."""
    if not values["use_rule_reward"]:
        if "rule_reward" in given:
            raise UserError("rule_reward has no effect without use_rule_reward; set it to true or remove the key.")
        return
    if values["use_rm_server"]:
        raise UserError("use_rule_reward and use_rm_server are two sources of one reward; set one of them to false.")
    for key in ("extractor_type", "max_unscored_fraction"):
        if key in given:
            raise UserError(
                f"{key} has no effect with use_rule_reward, which reads the whole response and has no judge that "
                "could fail; remove the key."
            )


def check_overlong(values: Mapping[str, Any]) -> None:
    """Raises UserError for lengths that do not fit each other and for a cap that cannot matter; off is always right."""
    if not values["enable_overlong_reward_buffer"]:
        return
    longest, limit = values["max_dec_len"], values["overlong_max_resp_len"]
    if limit > longest:
        raise UserError(
            f"overlong_max_resp_len {limit} is longer than a response of max_dec_len {longest}; use at most {longest}."
        )
    if values["overlong_reward_buffer"] > limit:
        name = "max_dec_len" if limit == longest else "overlong_max_resp_len"
        raise UserError(
            f"overlong_reward_buffer {values['overlong_reward_buffer']} is longer than a response of {name} {limit}; "
            f"use at most {limit}."
        )
    if not values["overlong_penalty_capped"] and limit == longest:
        raise UserError(
            f"overlong_penalty_capped false has no effect while no response can pass the {limit} tokens at which the "
            "penalty is whole; set overlong_max_resp_len below max_dec_len, or remove the key."
        )
