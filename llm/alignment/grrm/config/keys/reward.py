"""Keys of the source of rewards, their shaping, and the records of a run."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from grrm.config.key import Section, key, switch
from grrm.gqm.context import MAX_CONTEXT_SEGMENTS
from grrm.gqm.mt_prompts import MTPromptType
from grrm.rewards.rule_rewards import RULE_REWARDS


class RewardConfig(Section):
    """Source of rewards: a reward server, a rule, a mixture of judges, or without any a judge inside the trainer."""

    title: ClassVar[str] = "Source of rewards"

    use_rm_server: bool = key(False, "take rewards from reward_server")
    reward_server: list[str] | None = key(None, "one URL, or several for a pool")
    reward_protocol: Literal["grrm", "paddlenlp"] = key("grrm", "paddlenlp for a stock server")
    reward_token_file: str | None = key(None, "file with the reward server's token", names="file")
    reward_connect_timeout_s: float = key(5.0, "connection timeout", unit="s", gt=0, le=10**6)
    reward_read_timeout_s: float = key(120.0, "read timeout", unit="s", gt=0, le=10**6)
    reward_deadline_s: float = key(
        600.0,
        "limit for a rank's generation batch, with reward_streaming for groups sent together, and for servers to load",
        unit="s, all retries included",
        gt=0,
        le=10**7,
    )
    reward_attempts: int = key(
        5,
        "failed attempts per request, over all servers of the pool; busy and unreachable servers do not count",
        unit="attempts",
        ge=1,
        le=10**4,
    )
    reward_groups_per_request: int = key(16, "groups per request", unit="groups", ge=1, le=10**6)
    reward_streaming: bool = key(
        False, "send each group to the judge as soon as it is complete; for judges on separate machines"
    )
    reward_judge: str = key(
        "chrf",
        "judge inside the trainer: chrf, chrf++ or bleu, consensus (chrF to the other samples), or module:function",
    )
    reward_sources: list[dict[str, Any]] | None = key(
        None, "judges whose scores are combined", means="none; see [mixing.md](mixing.md)"
    )
    reward_routes: dict[str, str] | None = key(
        None,
        "train on several kinds of rows; patterns from data source to kind, tried before the built-in ones",
        means="none; see [answers.md](answers.md#several-kinds-of-rows-in-one-run)",
    )
    reward_gates: dict[str, Any] = key(
        {},
        "checks before a translation is judged, by name with their options",
        means="none; see [mixing.md](mixing.md#gates)",
    )
    reward_model_name_or_path: str | None = key(
        None, "folder of a ranker or pairwise reward model, used as the judge inside the trainer", names="model"
    )
    reward_prompt_type: MTPromptType | None = key(
        None, "translation prompt that this reward model was trained with", means="as its folder records, else Tower"
    )
    context_segments: int = key(
        0,
        "preceding segments of its document, with their references, that each source brings to the judges",
        unit="segments",
        ge=0,
        le=MAX_CONTEXT_SEGMENTS,
    )
    use_rule_reward: bool = key(
        False, "reward responses by a rule against ground truth, to train a judge or on questions with answers"
    )
    rule_reward: str | None = key(
        None,
        "the rule of use_rule_reward",
        means="the one that each row names, as `grrm data` writes it, else ranking_score",
        choices=RULE_REWARDS,
    )
    per_device_reward_batch_size: int = key(
        -1, "rows judged per batch", by=switch("rewards are asked for reward_groups_per_request groups at a time")
    )


class RewardShapingConfig(Section):
    """From verdicts to rewards."""

    title: ClassVar[str] = "Shaping of rewards"

    score_scale_factor: float = key(0.1, "factor from score to reward", gt=0, le=10**6)
    default_reward: float = key(0.0, "fixed reward of the action penalty")
    extractor_type: Literal["line", "oneline", "codeblock", "none"] = key(
        "line", "how the translation is extracted from a response"
    )
    failure_policy: dict[str, str] = key(
        {},
        "action for each status of an unscored candidate: penalty, lowest, mask, contrast, drop_group or abort",
        means="see [reward_protocols.md](reward_protocols.md)",
    )
    max_unscored_fraction: float | None = key(
        0.5, "maximum share of candidates without a score; none for no limit", ge=0, le=1
    )
    max_rollouts_unscored: int | None = key(
        3, "rollouts without any scored response after which a new run stops; none for no limit", ge=1, le=10**6
    )
    enable_overlong_reward_buffer: bool = key(False, "penalise long responses")
    overlong_reward_buffer: int = key(
        256, "tokens below overlong_max_resp_len at which the penalty starts", unit="tokens", ge=1, le=10**7
    )
    overlong_penalty_factor: float = key(1.0, "maximum penalty", unit="reward", ge=0, le=10**6)
    overlong_max_resp_len: int = key(
        None, "length at which the penalty reaches its maximum", means="max_dec_len", unit="tokens", ge=1, le=10**7
    )
    overlong_penalty_capped: bool = key(True, "false lets the penalty grow beyond that")


class RecordConfig(Section):
    """Seeing the run."""

    title: ClassVar[str] = "Records of a run"

    dump_rollouts: bool = key(True, "write every group to output_dir/rollouts")
    dump_format: Literal["jsonl", "parquet"] = key("jsonl", "format of these files")
    console_groups: int = key(1, "sample groups printed periodically; 0 for none", unit="groups", ge=0, le=10**4)
