from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.errors import UserError
from grrm.rewards.overlong import OverlongConfig, overlong_penalty

RAMP = OverlongConfig(max_resp_len=60, buffer_len=20, penalty_factor=0.04)


@pytest.mark.parametrize(("n_tokens", "expected"), [(0, 0.0), (40, 0.0), (45, 0.01), (60, 0.04), (1000, 0.04)])
def test_ramp_is_linear_between_threshold_and_limit_and_capped_beyond(n_tokens, expected):
    assert overlong_penalty(n_tokens, RAMP) == pytest.approx(expected)


@pytest.mark.parametrize(
    "config",
    [
        None,
        OverlongConfig(60, 20, 1.0, enable=False),
        OverlongConfig(None, 20, 1.0),
        OverlongConfig(60, 0, 1.0),
        OverlongConfig(60, 20, -1.0),
    ],
)
def test_incomplete_configuration_is_off(config):
    assert overlong_penalty(10_000, config) == 0.0


@given(st.integers(0, 200), st.integers(0, 200))
def test_penalty_never_falls_with_length_and_stays_in_range(shorter, longer):
    shorter, longer = sorted((shorter, longer))
    assert 0.0 <= overlong_penalty(shorter, RAMP) <= overlong_penalty(longer, RAMP) <= 0.04


@given(st.integers(0, 200))
def test_without_the_cap_the_ramp_rises_on_as_in_dapo(n_tokens):
    uncapped = replace(RAMP, capped=False)
    assert overlong_penalty(n_tokens, uncapped) == pytest.approx(0.04 * max(n_tokens - 40, 0) / 20)
    assert overlong_penalty(n_tokens, uncapped) >= overlong_penalty(n_tokens, RAMP)


def test_options_of_the_recipe_are_read():
    options = {"enable": True, "max_resp_len": 4096, "len": 2048, "penalty_factor": 0.04}
    assert OverlongConfig.from_mapping(options) == OverlongConfig(4096, 2048, 0.04)
    assert not OverlongConfig.from_mapping({key: options[key] for key in options if key != "enable"}).is_active
    assert OverlongConfig.from_mapping({}) is None
    assert OverlongConfig.from_mapping(None) is None


@pytest.mark.parametrize("bad", ["20", True, None])
def test_option_that_is_not_a_number_is_named(bad):
    with pytest.raises(UserError, match="'len'"):
        OverlongConfig.from_mapping({"max_resp_len": 60, "len": bad, "penalty_factor": 1.0})
