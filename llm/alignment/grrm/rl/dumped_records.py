"""Records of a rollout's groups for the dump and the console, whether they were used for training or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from grrm.rewards.group_filter import GroupSignal, classify_group
from grrm.rewards.shaping import ShapedRewards
from grrm.rl.experience import kl_rows, row_advantages
from grrm.rl.experience_maker import Experience
from grrm.rl.records import Judged, Scored
from grrm.rl.reward_stream import Unscored
from grrm.tracking.rollout_dump import GroupUse, group_record


def group_records(experience: Experience, step: int, has_kl: bool = False) -> list[dict[str, Any]]:
    """Records for the dump and the console: groups used for training, then those that dynamic sampling rejected.

    `has_kl` says that a KL penalty is in the reward: its terms are dumped, so that advantages can be recomputed.
    """
    advantages = row_advantages(experience.groups, experience.advantages_RT)
    trained = [
        _record(
            step,
            "trained",
            scored.judged,
            scored.shaped,
            advantages_G,
            kl_GT=kl_rows(scored.outputs) if has_kl else None,
            values_GT=scored.outputs.values,
        )
        for scored, advantages_G in zip(experience.groups, advantages, strict=True)
    ]
    used = {id(scored) for scored in experience.groups}
    unused = [scored for scored in experience.generated if id(scored) not in used]
    return trained + [
        _unused_record(
            scored, step, "surplus" if classify_group(scored.shaped) is GroupSignal.INFORMATIVE else "rejected"
        )
        for scored in unused
    ]


def aborted_records(generated: Sequence[Scored], unscored: Sequence[Unscored], step: int) -> list[dict[str, Any]]:
    """Records of a failed step for the dump: its groups, and those of the batch that failed in their last state."""
    records = [_unused_record(scored, step, "aborted") for scored in generated]
    return records + [_record(step, "aborted", judged, shaped) for judged, shaped in unscored]


def _unused_record(scored: Scored, step: int, use: GroupUse) -> dict[str, Any]:
    return _record(step, use, scored.judged, scored.shaped, values_GT=scored.outputs.values)


def _record(
    step: int,
    use: GroupUse,
    judged: Judged,
    shaped: ShapedRewards | None,
    advantages_G: Sequence[float] | NDArray[Any] | None = None,
    **tokens_GT: list[NDArray[Any]] | None,
) -> dict[str, Any]:
    """No advantage where a row has no reward."""
    none = (None,) * len(judged.rolled.token_ids)
    rewards_G = none if shaped is None else shaped.rewards
    severities = judged.severities
    return group_record(
        step,
        judged.rolled.group,
        judged.verdict,
        rewards_G,
        [
            None if reward is None or advantage is None else float(advantage)
            for reward, advantage in zip(rewards_G, none if advantages_G is None else advantages_G, strict=True)
        ],
        statuses_G=none if shaped is None else shaped.statuses,
        use=use,
        signal=None if shaped is None else classify_group(shaped).value,
        token_ids_GT=judged.rolled.token_ids,
        severities_GT=None if severities is None else [row_T.tolist() for row_T in severities],
        **{name: None if rows is None else [row_T.tolist() for row_T in rows] for name, rows in tokens_GT.items()},
    )
