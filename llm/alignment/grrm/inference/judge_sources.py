"""Opening the judges of a mixture, in a trainer's process or in a reward server's."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from grrm.engine.open import OpenedGenerator, open_model, open_servers
from grrm.engine.options import AUTO_DTYPE
from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict
from grrm.http_client.bearer import token_from_file
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.building import REWARD_MODEL_JUDGES, build_from_options, build_judge, needs_no_model, options_of
from grrm.judges.gated import GatedJudge
from grrm.judges.interface import Judge, TextGenerator
from grrm.judges.learned_metric import open_learned_metric
from grrm.judges.metric_worker import METRIC_KINDS
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.mixture import MixtureJudge, Part
from grrm.judges.options import GenerativeOptions, LearnedMetricOptions, RewardModelOptions, read_options
from grrm.judges.sources import DEADLINE_S, SERVER, JudgeSource
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


class Sleeper(Protocol):
    """What takes memory from `wake` to `sleep`."""

    def wake(self) -> None:
        """Take it."""
        ...

    def sleep(self) -> None:
        """Let go of it."""
        ...


class PhasedJudge:
    """A judge over an engine of this process, which is awake while groups are judged and asleep in between."""

    def __init__(self, judge: Judge, engine: Sleeper, model: str) -> None:
        self._judge, self._engine, self._model = judge, engine, model
        self.name = judge.name

    def judge(self, groups: Sequence[Group]) -> list[Verdict]:
        """One verdict per group, order kept. Raises UserError where the model's logits are no numbers."""
        self._engine.wake()
        try:
            return self._judge.judge(groups)
        except FloatingPointError as error:
            raise UserError(
                f"judge {self.name} over '{self._model}' failed ({error}): its weights are damaged, or too large for "
                "16 bits; get them again, or use a checkpoint in float32"
            ) from error
        finally:
            self._engine.sleep()


@dataclass(frozen=True, slots=True)
class Process:
    """The process that judges are opened in.

    One of their own needs setting up, a trainer has seen to that itself. `memory_fraction` is the part of the memory
    free when a judge begins to write that its keys and values may take; None for the engine's fixed size. `dtype` is
    that of `open_model`.
    """

    is_own: bool = True
    memory_fraction: float | None = None
    dtype: str = AUTO_DTYPE


OWN_PROCESS = Process()


def open_mixture(sources: Sequence[JudgeSource], process: Process = OWN_PROCESS) -> MixtureJudge:
    """The sources' judges as one. Raises UserError for a model, a server's address or an option that cannot be used."""
    parts = [_part(source, process) for source in sources]
    if len(parts) == 1:
        parts[0].required = True  # no other judge is there to leave a group to
    return MixtureJudge(parts)


def _part(source: JudgeSource, process: Process, gates: Gates | None = None) -> Part:
    gates = read_gates(source.gates) if gates is None else gates
    judge = open_judge(source, process)
    return Part(
        GatedJudge(judge, gates) if gates.gates else judge,
        source.title,
        source.weight,
        source.normalise,
        source.seconds,
        source.on_failure == "unscored",
        None if source.fallback is None else _part(source.fallback, process, gates),
    )


def open_judge(source: JudgeSource, process: Process = OWN_PROCESS) -> Judge:
    """The judge of one source. Raises UserError as `open_mixture` does."""
    if needs_no_model(source.judge):
        return build_judge(source.judge, source.options)
    if source.judge in REWARD_MODEL_JUDGES:
        return open_reward_judge(
            str(source.model),
            source.judge,
            read_options(RewardModelOptions, source.options),
            chat_template=source.chat_template if "chat_template" in source.model_fields_set else None,
            own_process=process.is_own,
            dtype=process.dtype,
        )
    if source.writes_here:
        return _writing_here(source, process)
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
    return judge_over(opened, source.judge, source.options, place=f"option {{}} of {source.title}")


def _writing_here(source: JudgeSource, process: Process) -> Judge:
    model = open_model(
        str(source.model),
        chat_template=source.chat_template,
        dtype=process.dtype,
        free_memory_fraction=process.memory_fraction,
        quiet=process.is_own,
    )
    judge = judge_over(model.alone(), source.judge, source.options, place=f"option {{}} of {source.title}")
    if process.is_own:
        return PhasedJudge(judge, model.engine, str(source.model))
    from grrm.engine.paddle.parked import ParkedWeights  # here the policy has the device in between

    return PhasedJudge(judge, ParkedWeights(model.engine), str(source.model))


def judge_over(
    opened: OpenedGenerator,
    name: str,
    values: Mapping[str, object],
    *,
    place: str,
    generator: TextGenerator | None = None,
    metrics: JudgeMetrics | None = None,
) -> Judge:
    """The generative judge called `name` with these options over an opened model, wherever that is.

    `generator` stands in for the opened one; `place` says in a message what the option {} is called. Raises UserError
    for a wrong option, and for a limit on prompts where their tokens cannot be counted.
    """
    if "prompt_length" in values and not opened.counts_tokens:
        raise UserError(
            f"{place.format('prompt_length')} counts tokens, which needs the folder of the tokenizer: set tokenizer, "
            "or leave the option out"
        )
    return build_from_options(
        generator or opened.generator,
        options_over(opened, name, values),
        render=opened.render,
        special_tokens=opened.special_tokens,
        metrics=metrics,
    )


def options_over(opened: OpenedGenerator, name: str, values: Mapping[str, object]) -> GenerativeOptions:
    """The options of the judge called `name`, prompts being no longer than the opened model takes."""
    return options_of(name, values, opened.max_prompt_tokens or sys.maxsize)
