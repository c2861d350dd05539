"""Opening the judges of a mixture, in a trainer's process or in a reward server's."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from grrm.engine.open import open_servers
from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.building import REWARD_MODEL_JUDGES, build_from_options, build_judge, needs_no_model, options_of
from grrm.judges.gated import GatedJudge
from grrm.judges.interface import Judge
from grrm.judges.learned_metric import open_learned_metric
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.mixture import MixtureJudge, Part
from grrm.judges.options import LearnedMetricOptions, RewardModelOptions, read_options
from grrm.judges.sources import DEADLINE_S, SERVER, JudgeSource
from grrm.rewards.bearer import token_from_file
from grrm.rewards.client import RewardClient
from grrm.rewards.gates import Gates, read_gates

OWN_SHARE = 0.95  # of a deadline: a client's own ends first, so that what has been answered by then counts


class ServerJudge:
    """A reward server as a judge."""

    def __init__(self, client: RewardClient, name: str = "reward server") -> None:
        self.client, self.name = client, name

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group. Raises RewardServerError when no server answers within attempts and deadline."""
        return self.client.score(groups)


def open_mixture(sources: Sequence[JudgeSource], *, own_process: bool = True) -> MixtureJudge:
    """The sources' judges as one. Raises UserError for a model, a server's address or an option that cannot be used.

    `own_process` as for `open_reward_judge`.
    """
    parts = [_part(source, own_process) for source in sources]
    if len(parts) == 1:
        parts[0].required = True  # no other judge is there to leave a group to
    return MixtureJudge(parts)


def _part(source: JudgeSource, own_process: bool, gates: Gates | None = None) -> Part:
    gates = read_gates(source.gates) if gates is None else gates
    judge = open_judge(source, own_process=own_process)
    return Part(
        GatedJudge(judge, gates) if gates.gates else judge,
        source.title,
        source.weight,
        source.normalise,
        source.seconds,
        source.on_failure == "unscored",
        None if source.fallback is None else _part(source.fallback, own_process, gates),
    )


def open_judge(source: JudgeSource, *, own_process: bool = True) -> Judge:
    """The judge of one source. Raises UserError as `open_mixture` does."""
    if needs_no_model(source.judge):
        return build_judge(source.judge, source.options)
    if source.judge in REWARD_MODEL_JUDGES:
        return open_reward_judge(
            str(source.model),
            source.judge,
            read_options(RewardModelOptions, source.options),
            chat_template=source.chat_template,
            own_process=own_process,
        )
    seconds = OWN_SHARE * (source.seconds or DEADLINE_S)
    if source.judge in METRIC_KINDS:
        options = read_options(LearnedMetricOptions, source.options)
        return open_learned_metric(source.judge, options, source.model, seconds)
    token = None if source.token_file is None else token_from_file(source.token_file, f"token_file of {source.title}")
    if source.judge == SERVER:
        return ServerJudge(RewardClient(source.urls, token=token, read_timeout_s=seconds, deadline_s=seconds))
    return _generative(source, token, seconds)


def _generative(source: JudgeSource, token: str | None, seconds: float) -> Judge:
    opened = open_servers(
        source.urls,
        source.model,
        source.chat_template,
        tokenizer_path=source.tokenizer,
        quiet=True,
        token=token,
        deadline_s=seconds,
        read_timeout_s=seconds,
        unanswered="mark",
    )
    if "prompt_length" in source.options and not opened.counts_tokens:
        raise UserError(
            f"option prompt_length of {source.title} counts tokens, which needs the folder of the tokenizer: set "
            "tokenizer, or leave the option out"
        )
    options = options_of(source.judge, source.options, opened.max_prompt_tokens or sys.maxsize)
    return build_from_options(opened.generator, options, render=opened.render, special_tokens=opened.special_tokens)
