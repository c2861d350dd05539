"""Which options go with which back end, whoever asks: Python, a command, the reward server."""

from __future__ import annotations

import pytest

from grrm.cli.options import NAMES as FLAGS
from grrm.engine import options
from grrm.engine.open import _ARGUMENTS
from grrm.engine.options import (
    BACKENDS,
    FASTDEPLOY,
    NO_EFFECT,
    PADDLE,
    SERVERS,
    OptionNames,
    check_reward_model_options,
    choose_back_end,
)
from grrm.errors import UserError
from grrm_reward_server.model import _NAMES as SETTINGS

FRONT_ENDS = {"arguments": _ARGUMENTS, "flags": FLAGS, "settings": SETTINGS}
GO_WITH = {
    SERVERS: {"model", "urls", "chat_template", "deadline", "tokenizer", "token", "attempts"},
    PADDLE: {
        "model",
        "chat_template",
        "backend",
        "dtype",
        "max_num_seqs",
        "max_batched_tokens",
        "memory_fraction",
        "seed",
    },
    FASTDEPLOY: {"model", "chat_template", "backend", "fastdeploy_options", "deadline", "max_num_seqs", "seed"},
}


def opening(back_end: str) -> tuple[set[str], str]:
    """What is given to choose this back end, and the value of `backend`."""
    return ({"urls"}, PADDLE) if back_end == SERVERS else ({"model"}, back_end)


@pytest.mark.parametrize("names", FRONT_ENDS.values(), ids=FRONT_ENDS)
@pytest.mark.parametrize("back_end", GO_WITH)
def test_every_option_has_an_effect_or_is_refused_by_its_name(back_end, names):
    given, backend = opening(back_end)
    for option in {*NO_EFFECT, "attempts"} - {"model", "urls"}:
        if option in GO_WITH[back_end]:
            assert choose_back_end([*given, option], names, backend) == back_end
            continue
        with pytest.raises(UserError) as caught:
            choose_back_end([*given, option], names, backend)
        assert str(caught.value).startswith(f"{names.noun}{names[option]} has no effect, as ")
        assert ": leave it out or " in str(caught.value)


@pytest.mark.parametrize("names", FRONT_ENDS.values(), ids=FRONT_ENDS)
def test_a_reward_model_is_a_folder_and_takes_no_option_of_an_engine(names):
    read = {"model", "chat_template", "dtype"}
    check_reward_model_options(read, names)
    for option in {*NO_EFFECT, "attempts"} - read:
        with pytest.raises(UserError) as caught:
            check_reward_model_options(["model", option], names)
        assert str(caught.value) == (
            f"{names.noun}{names[option]} has no effect, as a reward model runs in this process and generates nothing: "
            "leave it out or use a judge that generates text"
        )
    with pytest.raises(UserError, match="no model is named: give the folder of a checkpoint with"):
        check_reward_model_options([], names)


@pytest.mark.parametrize("names", FRONT_ENDS.values(), ids=FRONT_ENDS)
def test_every_name_is_of_an_option_in_the_table(names):
    assert set(names.names) <= set(NO_EFFECT)


@pytest.mark.parametrize(
    ("option", "back_end", "remedy"),
    [
        ("dtype", SERVERS, "leave it out or set it there"),
        ("dtype", FASTDEPLOY, "leave it out or set backend to paddle"),
        ("deadline", PADDLE, "leave it out or set backend to fastdeploy or name servers with urls"),
        ("tokenizer", FASTDEPLOY, "leave it out or name servers with urls"),
    ],
)
def test_the_remedy_is_a_back_end_that_takes_the_option(option, back_end, remedy):
    given, backend = opening(back_end)
    with pytest.raises(UserError) as caught:
        choose_back_end([*given, option], OptionNames({}), backend)
    assert str(caught.value).endswith(f": {remedy}")


def test_a_back_end_that_does_not_exist_and_no_model_are_refused(monkeypatch):
    with pytest.raises(UserError, match="unknown backend 'padle': did you mean 'paddle'"):
        choose_back_end(["model"], OptionNames({}), "padle")
    with pytest.raises(UserError, match="no model is named: give the folder of a checkpoint with --model"):
        choose_back_end([], FLAGS)
    monkeypatch.setattr(options, "find_spec", lambda name: None)
    assert choose_back_end(["urls"], FLAGS) == SERVERS
    with pytest.raises(UserError, match=r"needs Paddle: `pip install 'paddle-grrm\[cpu\]'`.*, or .* with --url"):
        choose_back_end(["model"], FLAGS, BACKENDS[0])
