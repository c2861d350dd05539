"""Opening the judges of a mixture, in a trainer's process or in a reward server's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from grrm.engine.open import open_model, open_servers
from grrm.engine.openai_wire import served_model
from grrm.engine.options import AUTO_DTYPE
from grrm.errors import UserError
from grrm.gqm.groups import Group, Verdict
from grrm.http_client.exchange import token_from_file
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.deadline import Deadline
from grrm.judges.gated import GatedJudge
from grrm.judges.interface import Judge, OpenedGenerator
from grrm.judges.mixture import OWN_SHARE, MixtureJudge, Part
from grrm.judges.registry import open_judge
from grrm.judges.sources import DEADLINE_S, JudgeSource
from grrm.judges.spec import Process
from grrm.models.trained_with import checkpoint_template
from grrm.rewards.client import RewardClient
from grrm.rewards.gates import Gates, read_gates

if TYPE_CHECKING:
    from grrm.engine.api import Engine
    from grrm.engine.paddle.policy_engines import ParkedWeights

WHICH_MODEL_S = 15.0  # for a server to say which model it has


class PhasedJudge:
    """A judge over an engine of this process, which is awake while groups are judged and asleep in between."""

    def __init__(self, judge: Judge, engine: Engine | ParkedWeights, model: str) -> None:
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
class Host:
    """The process that judges are opened in.

    One of their own needs setting up, a trainer has seen to that itself. `memory_fraction` is the part of the memory
    free when a judge begins to write that its keys and values may take; None for the engine's fixed size. `dtype` is
    that of `open_model`.
    """

    is_own: bool = True
    memory_fraction: float | None = None
    dtype: str = AUTO_DTYPE


OWN_HOST = Host()


def open_mixture(
    sources: Sequence[JudgeSource], host: Host = OWN_HOST, remaining_s: Callable[[], float] = lambda: math.inf
) -> MixtureJudge:
    """The sources' judges as one, whose calls have `remaining_s()` seconds.

    Raises UserError for a model, a server's address or an option that cannot be used.
    """
    parts = [_part(source, host) for source in sources]
    if len(parts) == 1:
        parts[0].required = True  # no other judge is there to leave a group to
    return MixtureJudge(parts, remaining_s=remaining_s)


def _part(source: JudgeSource, host: Host, gates: Gates | None = None) -> Part:
    gates = read_gates(source.gates) if gates is None else gates
    deadline = Deadline()
    judge = open_source(source, host, deadline.remaining_s)
    return Part(
        GatedJudge(judge, gates) if gates.gates else judge,
        source.title,
        source.weight,
        source.normalise,
        source.seconds,
        source.on_failure == "unscored",
        None if source.fallback is None else _part(source.fallback, host, gates),
        deadline,
    )


def open_source(
    source: JudgeSource, host: Host = OWN_HOST, remaining_s: Callable[[], float] = lambda: math.inf
) -> Judge:
    """The judge of one source; its servers have `remaining_s()` seconds. Raises UserError as `open_mixture`."""
    seconds = OWN_SHARE * (source.seconds or DEADLINE_S)
    process = Process(
        source.judge,
        generator=lambda: _servers(source, seconds, remaining_s) if source.urls else _checkpoint(source, host),
        reward_model=partial(
            open_reward_judge,
            str(source.model),
            chat_template=_explicit_template(source),
            own_process=host.is_own,
            dtype=host.dtype,
        ),
        client=lambda: RewardClient(
            source.urls, token=token_of(source), read_timeout_s=seconds, deadline_s=seconds, remaining_s=remaining_s
        ),
        model=source.model,
        served_model=lambda: (
            served_model(source.urls, min(seconds, WHICH_MODEL_S), token_of(source)) if source.urls else None
        ),
        seconds=seconds,
    )
    return open_judge(source.judge, source.options, process)


def token_of(source: JudgeSource) -> str | None:
    """The bearer token of the source's servers. Raises UserError for a file that has none."""
    return None if source.token_file is None else token_from_file(source.token_file, f"token_file of {source.title}")


def _explicit_template(source: JudgeSource) -> str | None:
    return source.chat_template if "chat_template" in source.model_fields_set else None


def _servers(source: JudgeSource, seconds: float, remaining_s: Callable[[], float]) -> OpenedGenerator:
    return open_servers(
        source.urls,
        source.model,
        source.chat_template,
        tokenizer_path=source.tokenizer,
        quiet=True,
        token=token_of(source),
        deadline_s=seconds,
        read_timeout_s=seconds,
        unanswered="mark",
        remaining_s=remaining_s,
    )


def _checkpoint(source: JudgeSource, host: Host) -> OpenedGenerator:
    model = open_model(
        str(source.model),
        chat_template=checkpoint_template(str(source.model), _explicit_template(source)),
        dtype=host.dtype,
        free_memory_fraction=host.memory_fraction,
        quiet=host.is_own,
    )
    sleeper: Engine | ParkedWeights = model.engine
    if not host.is_own:
        from grrm.engine.paddle.policy_engines import ParkedWeights  # here the policy has the device in between

        sleeper = ParkedWeights(model.engine)
    return replace(model.alone(), around=lambda judge: PhasedJudge(judge, sleeper, str(source.model)))
