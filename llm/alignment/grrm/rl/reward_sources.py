"""Where rewards come from: a server of the group protocol or a stock PaddleNLP one, a judge in process, or a rule."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from grrm.config.keys.reward import RewardConfig
from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.building import build_judge
from grrm.judges.interface import Judge
from grrm.judges.options import RewardModelOptions
from grrm.parallel.collective import run_together
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.bearer import token_from_file
from grrm.rewards.client import RewardClient, RewardServerError
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.rule_rewards import rule_reward_function
from grrm.rewards.shaping import ShapingConfig
from grrm.rl.reward_stage import Rewarder, RewardStage, RowRewardStage, RuleRewardStage

logger = logging.getLogger(__name__)
STARTUP_S = 15.0


@dataclass(slots=True)
class ServerJudge:
    """A reward server as a judge."""

    client: RewardClient
    name: str = "reward server"

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group. Raises RewardServerError when no server answers within attempts and deadline."""
        return self.client.score(groups)


def build_rewarder(config: RewardConfig, shaping: ShapingConfig, policy: FailurePolicy, eos_text: str) -> Rewarder:
    """The reward stage that the argument file asks for."""
    if config.use_rule_reward:
        return RuleRewardStage(rule_reward_function(config.rule_reward), shaping, policy)
    if not config.use_rm_server:
        return RewardStage(_judge_inside(config), shaping, policy)
    client = reward_client(config)
    if config.reward_protocol == "paddlenlp":
        return RowRewardStage(client, shaping, eos_text)
    return RewardStage(ServerJudge(client), shaping, policy)


def _judge_inside(config: RewardConfig) -> Judge:
    """The judge in this process. Raises UserError for a reward model that cannot be used."""
    if config.reward_model_name_or_path is None:
        return build_judge(config.reward_judge)
    options = RewardModelOptions(prompt_type=config.reward_prompt_type)
    return open_reward_judge(config.reward_model_name_or_path, options=options, own_process=False)


def reward_client(config: RewardConfig) -> RewardClient:
    """The client of the servers that the argument file names. Raises UserError when its settings cannot work."""
    return RewardClient(
        config.reward_server or [],
        protocol=config.reward_protocol,
        token=_token(config.reward_token_file),
        connect_timeout_s=config.reward_connect_timeout_s,
        read_timeout_s=config.reward_read_timeout_s,
        deadline_s=config.reward_deadline_s,
        attempts=config.reward_attempts,
        groups_per_request=config.reward_groups_per_request,
    )


def await_reward_server(config: RewardConfig, ranks: DataRanks) -> None:
    """Return once every reward server is ready, before anything slow is done for a run that could not go on.

    A wrong address is told after STARTUP_S at most. Raises CollectiveFailure on every rank together.
    """
    if not config.use_rm_server:
        return

    def wait() -> None:
        with reward_client(config) as client:
            _wait_until_ready(client, min(STARTUP_S, config.reward_deadline_s))

    run_together("looking for the reward server", wait, ranks, (UserError,))


def _wait_until_ready(client: RewardClient, timeout_s: float) -> None:
    at_once_s = min(1.0, timeout_s)
    try:
        client.wait_until_ready(at_once_s)
    except RewardServerError as error:
        logger.warning("reward server %s is not ready (%s); waiting up to %g s", error.server, error.cause, timeout_s)
    else:
        return
    try:
        client.wait_until_ready(max(timeout_s - at_once_s, at_once_s))
    except RewardServerError as error:
        raise UserError(
            f"reward server {error.server} was not ready within {timeout_s:g} s ({error.cause}): start it, or correct "
            "reward_server"
        ) from error


def _token(path: str | None) -> str | None:
    return None if path is None else token_from_file(path, f"reward_token_file '{path}'")
