"""The records that a group of samples becomes on its way to the loss: Rolled, Judged, Scored, and a Row per sample.

Each is made once, by one owner, and never changed: by `RolloutWorker`, a `Rewarder`, `ExperienceMaker` and
`training_rows`. They are plain data, so they can be sent between ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from grrm.data.dataset import PromptItem
from grrm.gqm.groups import Group, Verdict
from grrm.rewards.shaping import ShapedRewards


@dataclass(frozen=True, slots=True)
class Rolled:
    """All samples of one prompt, which is number `position` of its generation batch.

    Per sample i: the tokens `token_ids[i]`, their log-probs `engine_logprobs[i]` from the engine, and why it ended.
    `weight_versions` are the versions of the weights that generated the samples, if the engine reports them.
    """

    position: int
    item: PromptItem
    group: Group
    token_ids: list[list[int]]
    engine_logprobs: list[NDArray[Any]]
    finish_reasons: list[str]
    weight_versions: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Judged:
    """A group with what its judge said.

    `row_rewards` are those of a server of PaddleNLP's row protocol, which gives no verdict. `measures` are values per
    sample (None if undefined) whose means are logged. `severities` are, per sample and token, the weights of the error
    spans of the verdict, None where the advantage rule does not read them.
    """

    rolled: Rolled
    verdict: Verdict | None = None
    row_rewards: tuple[float, ...] | None = None
    measures: Mapping[str, Sequence[float | None]] = field(default_factory=dict)
    severities: list[NDArray[Any]] | None = None


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """Numbers per sample and token from the models of the trainer: None where the algorithm does not need them.

    Log-probs under the policy before the update and under the reference, and the critic's values.
    """

    policy_logprobs: list[NDArray[Any]] | None = None
    ref_logprobs: list[NDArray[Any]] | None = None
    values: list[NDArray[Any]] | None = None


@dataclass(frozen=True, slots=True)
class Scored:
    """A judged group with its rewards and with its tokens' log-probs and values: all inputs of the advantages."""

    judged: Judged
    shaped: ShapedRewards
    outputs: ModelOutputs = field(default_factory=ModelOutputs)

    @property
    def rolled(self) -> Rolled:
        """The samples."""
        return self.judged.rolled


@dataclass(frozen=True, slots=True)
class Row:
    """One sample ready for the loss; arrays are indexed by response token (T).

    `values_T` are those of the critic and `returns_T` their targets, None without a critic.
    """

    prompt_ids: list[int]
    token_ids: list[int]
    advantages_T: NDArray[Any]
    mask_T: NDArray[Any]
    engine_logprobs_T: NDArray[Any]
    old_logprobs_T: NDArray[Any] | None
    ref_logprobs_T: NDArray[Any] | None
    values_T: NDArray[Any] | None = None
    returns_T: NDArray[Any] | None = None

    @property
    def length(self) -> int:
        """Prompt and response tokens."""
        return len(self.prompt_ids) + len(self.token_ids)
