"""Records of a rollout's groups for the dump and the console, whether they were used for training or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from grrm.rewards.group_filter import GroupSignal, classify_group
from grrm.rl.experience import kl_rows, row_advantages
from grrm.rl.experience_maker import Experience
from grrm.rl.rollout import RolledGroup
from grrm.tracking.rollout_dump import GroupUse, group_record


def group_records(experience: Experience, step: int, has_kl: bool = False) -> list[dict[str, Any]]:
    """Records for the dump and the console: groups used for training, then those that dynamic sampling rejected.

    `has_kl` says that a KL penalty is in the reward: its terms are dumped, so that advantages can be recomputed.
    """
    trained = [
        _record(rolled, step, "trained", advantages_G, kl_rows(rolled) if has_kl else None)
        for rolled, advantages_G in zip(
            experience.groups, row_advantages(experience.groups, experience.advantages_RT), strict=True
        )
    ]
    used = {id(rolled) for rolled in experience.groups}
    left_out = [rolled for rolled in experience.generated if id(rolled) not in used]
    return trained + [
        _record(rolled, step, "surplus" if _signal(rolled) is GroupSignal.INFORMATIVE else "rejected")
        for rolled in left_out
    ]


def aborted_records(generated: Sequence[RolledGroup], step: int) -> list[dict[str, Any]]:
    """Records of a failed step for the dump: every group in its last state."""
    return [_record(rolled, step, "aborted") for rolled in generated]


def _record(
    rolled: RolledGroup,
    step: int,
    use: GroupUse,
    advantages_G: Sequence[float] | NDArray[Any] | None = None,
    kl_GT: Sequence[NDArray[Any]] | None = None,
) -> dict[str, Any]:
    """No advantage where a row has no reward."""
    shaped, none = rolled.shaped, (None,) * len(rolled.token_ids)
    rewards_G = none if shaped is None else shaped.rewards
    signal = _signal(rolled)
    return group_record(
        step,
        rolled.group,
        rolled.verdict,
        rewards_G,
        [
            None if reward is None or advantage is None else float(advantage)
            for reward, advantage in zip(rewards_G, none if advantages_G is None else advantages_G, strict=True)
        ],
        statuses_G=none if shaped is None else shaped.statuses,
        use=use,
        signal=None if signal is None else signal.value,
        kl_GT=None if kl_GT is None else [kl_T.tolist() for kl_T in kl_GT],
        token_ids_GT=rolled.token_ids,
        values_GT=None if rolled.values is None else [values_T.tolist() for values_T in rolled.values],
    )


def _signal(rolled: RolledGroup) -> GroupSignal | None:
    return None if rolled.shaped is None else classify_group(rolled.shaped)
