"""Log-probs of sampled tokens under the current policy and under the reference."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grrm.models.token_scores import score_responses
from grrm.rl.rollout import RolledGroup


class TokenScorer:
    """Fills `policy_logprobs` and `ref_logprobs` of groups, each only where the algorithm needs it.

    `batch_size` rows per forward pass, in the order of the groups. Groups in the same pass are padded to the same
    width, so the last bits may depend on how groups are distributed over ranks.
    """

    def __init__(
        self,
        policy: Any | None,
        reference: Any | None,
        *,
        pad_id: int,
        batch_size: int,
        temperature: float,
        pack_tokens: int = 0,
    ):
        self.policy, self.reference = policy, reference
        self._options: dict[str, Any] = {
            "pad_id": pad_id,
            "batch_size": batch_size,
            "temperature": temperature,
            "pack_tokens": pack_tokens,
        }

    def __call__(self, groups: Sequence[RolledGroup]) -> None:
        """Compute the log-probs of every response of every group."""
        prompts = [rolled.prompt_ids for rolled in groups for _ in rolled.token_ids]
        responses = [tokens for rolled in groups for tokens in rolled.token_ids]
        for name, model in (("policy_logprobs", self.policy), ("ref_logprobs", self.reference)):
            if model is None:
                continue
            scored = iter(score_responses(model, prompts, responses, **self._options))
            for rolled in groups:
                setattr(rolled, name, [next(scored) for _ in rolled.token_ids])
