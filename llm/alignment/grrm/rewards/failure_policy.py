"""The trainer's actions for candidates without a score, and the limit of failures at which it stops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from grrm.errors import UserError, require_known
from grrm.gqm.grammar import RejectReason
from grrm.gqm.groups import Status, Verdict

SHOWN_CHARS = 120  # of a response in a message


class RewardFailure(Exception):
    """Training must stop because rewards are missing; the message is one sentence for the user."""


class FailureAction(str, Enum):
    """The six things that can happen to an unscored candidate."""

    PENALTY = "penalty"  # the fixed `default_reward`: unscaled, without length penalty
    LOWEST = "lowest"  # the lowest scored candidate of the group sets the reward; in a group without any as mask
    CONTRAST = "contrast"  # the reward of the middle score, where that beats another candidate's penalty; else as mask
    MASK = "mask"  # no reward: the row leaves baseline and loss
    DROP_GROUP = "drop_group"  # the whole group leaves the batch
    ABORT = "abort"  # the run stops


# What a gate keeps from being judged.
GATE_FAILURES = frozenset(
    {
        Status.WRONG_LANGUAGE,
        Status.WRONG_LENGTH,
        Status.SOURCE_COPY,
        Status.REPETITION,
        Status.MISSING_TERM,
        Status.WRONG_PLACEHOLDERS,
        Status.OVER_LIMIT,
        Status.WRONG_FORMALITY,
    }
)
POLICY_FAILURES = GATE_FAILURES | {Status.UNPARSABLE_CANDIDATE}

# Only output of the policy that cannot be used is penalised. The rest is masked: failures and limits of the judge are
# not the policy's fault, a text that the judge cannot be shown may be faithful to its source, and a group with a single
# distinct translation may be unanimous because it is right, which a penalty would teach away under a baseline that
# spans the batch.
DEFAULT_ACTIONS: Mapping[Status, FailureAction] = {
    status: FailureAction.PENALTY if status in POLICY_FAILURES else FailureAction.MASK
    for status in Status
    if not status.is_scored
}

# Statuses that point to the judge or the set-up, not to the policy. Early in training most candidates may be unparsable
# and late in training most groups unanimous; neither is a reason to stop.
JUDGE_FAILURES = DEFAULT_ACTIONS.keys() - {*POLICY_FAILURES, Status.UNSAFE_CANDIDATE, Status.SINGLE_CANDIDATE}

# The cause of each, for a message about samples that have it, and what to do about it.
REMEDIES: Mapping[Status, str] = {
    Status.UNPARSABLE_CANDIDATE: "no translation, score or answer could be read; look at the responses",
    Status.UNSAFE_CANDIDATE: "they would deceive the judge; look at the responses",
    Status.UNSAFE_SOURCE: "they would deceive the judge; leave such rows out of the data",
    Status.WRONG_LANGUAGE: "they fail the gate language; look at the responses",
    Status.WRONG_LENGTH: "they fail the gate length; look at the responses",
    Status.SOURCE_COPY: "they fail the gate copy; look at the responses",
    Status.REPETITION: "they fail the gate repetition; look at the responses, and at min_dec_len",
    Status.MISSING_TERM: "they fail the gate terms; look at the responses, and at the column terms",
    Status.WRONG_PLACEHOLDERS: "they fail the gate placeholders; look at the responses",
    Status.OVER_LIMIT: "they fail the gate limit; look at the responses",
    Status.WRONG_FORMALITY: "they fail the gate formality; look at the responses",
    Status.SINGLE_CANDIDATE: "all samples of a prompt are alike, so there is nothing to compare; raise temperature",
    Status.TOO_LONG: "the judge's prompt has no room; raise prompt_length of the judge, or lower max_dec_len",
    Status.TOO_MANY_CANDIDATES: "more than max_candidates of the judge; lower rollout_n",
    Status.MISSING_REFERENCE: "the judge compares with references and the rows have none; host another judge",
    Status.UNSEEN_LANGUAGES: "the reward model was not trained on these languages; train it on them",
    Status.JUDGE_UNPARSABLE: "the judge's replies cannot be read; look at them in the rollouts",
    Status.JUDGE_TIMEOUT: "the judge is too slow; raise judge_deadline_s of its server",
    Status.JUDGE_UNREACHABLE: "the judge's model cannot be reached; look at the log of the reward server",
}


@dataclass(frozen=True, slots=True)
class FailurePolicy:
    """One action for every status that carries no score; statuses not given take `DEFAULT_ACTIONS`."""

    actions: Mapping[Status, FailureAction] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "actions", {**DEFAULT_ACTIONS, **self.actions})

    def action(self, status: Status) -> FailureAction:
        """The action for `status`. Raises KeyError for a status that carries a score."""
        return self.actions[status]

    @classmethod
    def from_mapping(cls, options: Mapping[str, str]) -> FailurePolicy:
        """Read {status name: action name}. Raises UserError that names the nearest known name."""
        for status, action in options.items():
            require_known("failure_policy status", status, [option.value for option in DEFAULT_ACTIONS])
            require_known("failure_policy action", action, [option.value for option in FailureAction])
            if action == FailureAction.CONTRAST.value and status != Status.SINGLE_CANDIDATE.value:
                raise UserError(
                    f"failure_policy {status}: {action} is for {Status.SINGLE_CANDIDATE.value} only; "
                    "choose another action"
                )
        return cls({Status(status): FailureAction(action) for status, action in options.items()})


def check_failures(verdicts: Sequence[Verdict], max_fraction: float | None) -> None:
    """Raises RewardFailure where JUDGE_FAILURES are more than a fraction of the candidates of a generation batch.

    None is no limit. It says what most replies were rejected for. With the verdicts of all ranks, every rank raises
    together.
    """
    counts = Counter(status for verdict in verdicts for status in verdict.statuses)
    failed = {status.value: counts[status] for status in JUDGE_FAILURES}
    n_failed, n_total = sum(failed.values()), counts.total()
    if max_fraction is None or n_failed <= max_fraction * n_total:
        return
    detail = ", ".join(f"{name} {n}" for name, n in sorted(failed.items()) if n)
    remedy = "mend the judge"
    for reason, n in Counter(reason for verdict in verdicts for reason in verdict.rejections).most_common(1):
        detail += f"; {n} replies rejected: {reason}"
        remedy = "raise the judge's max_new_tokens" if reason == RejectReason.TRUNCATED else remedy
    raise RewardFailure(
        f"The judge left {n_failed} of {n_total} candidates of a generation batch without a score ({detail}), more "
        f"than the allowed fraction of {max_fraction:g}; {remedy} and resume."
    )


@dataclass(slots=True)
class FirstScores:
    """Stops a run whose first `limit` rollouts have no scored response at all (None = no limit).

    `reader` is what gives responses their scores. Rewards that come without verdicts count as scores. `n_unscored`
    rollouts have had none so far; it is None once one had.
    """

    limit: int | None = 3
    reader: str = "the judge"
    n_unscored: int | None = 0

    def watch(self, statuses: Mapping[Status, int], response: str) -> None:
        """Add one rollout's statuses and a response, the same on every rank: all raise RewardFailure together."""
        if self.n_unscored is None or any(status.is_scored for status in statuses):
            self.n_unscored = None
            return
        self.n_unscored += 1
        if self.limit is None or self.n_unscored < self.limit:
            return
        by_number = Counter(statuses).most_common()
        causes = ", ".join(f"{n} {status.value}" for status, n in by_number)
        most = by_number[0][0]
        remedy = f": {REMEDIES[most]},"
        if most is Status.UNPARSABLE_CANDIDATE:
            remedy = f", which {self.reader} does not accept: correct it, teach the policy another form first,"
        raise RewardFailure(
            f"no response of the first {self.n_unscored} rollouts has a score (the last: {causes}), so there is "
            f"nothing to learn from; one ends in {response[-SHOWN_CHARS:]!r}{remedy} or set max_rollouts_unscored: null"
        )
