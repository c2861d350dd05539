"""Keys of where rewards come from, how they are shaped, and of the records of a run."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from grrm.config.key import Section, key, switch
from grrm.gqm.mt_prompts import MTPromptType

RuleReward = Literal[
    "ranking_score",
    "ranking_score_no_cot",
    "score",
    "ranking",
    "ranking_no_cot",
    "ranking_zero",
    "single_score",
    "grade",
    "exact",
    "normalised",
    "gsm8k",
    "knights_and_knaves",
    "math",
]


class RewardConfig(Section):
    """Source of rewards: a reward server, a rule, a mixture of judges, or without any a judge inside the trainer."""

    title: ClassVar[str] = "Source of rewards"

    use_rm_server: bool = key(False, "take rewards from reward_server")
    reward_server: list[str] | None = key(None, "one URL, or several that are a pool")
    reward_protocol: Literal["grrm", "paddlenlp"] = key("grrm", "paddlenlp for a stock server")
    reward_token_file: str | None = key(None, "file with the reward server's token", names="file")
    reward_connect_timeout_s: float = key(5.0, "longest time to connect", unit="s", gt=0, le=10**6)
    reward_read_timeout_s: float = key(120.0, "longest time without a byte from the server", unit="s", gt=0, le=10**6)
    reward_deadline_s: float = key(
        600.0,
        "for the rewards of a generation batch of a rank, or with reward_streaming of groups sent at a time",
        unit="s, all retries included",
        gt=0,
        le=10**7,
    )
    reward_attempts: int = key(
        5,
        "failed tries per request, over all servers of the pool; busy and unreachable servers cost time only",
        unit="tries",
        ge=1,
        le=10**4,
    )
    reward_groups_per_request: int = key(16, "groups in one request", unit="groups", ge=1, le=10**6)
    reward_streaming: bool = key(
        False, "send a group to be judged as soon as its last sample ends; for judges on machines of their own"
    )
    reward_judge: str = key(
        "chrf",
        "judge inside the trainer: chrf, chrf++ or bleu, consensus (chrF to the other samples), or module:function",
    )
    reward_sources: list[dict[str, Any]] | None = key(
        None, "judges whose scores are mixed", means="none; see [mixing.md](mixing.md)"
    )
    reward_routes: dict[str, str] | None = key(
        None,
        "rows are of several kinds; own rules from data source (* for anything) to kind, before the usual ones",
        means="none; see [answers.md](answers.md#several-kinds-of-rows-in-one-run)",
    )
    reward_gates: dict[str, Any] = key(
        {},
        "what a translation must pass before it is judged: language, length, copy, repetition, each with its options",
        means="none; see [mixing.md](mixing.md#gates)",
    )
    reward_model_name_or_path: str | None = key(
        None, "folder of a ranker or pairwise reward model, the judge inside the trainer", names="model"
    )
    reward_prompt_type: MTPromptType = key("Tower", "translation prompt that this reward model was trained with")
    use_rule_reward: bool = key(
        False, "score responses against ground truths in the data, which trains a judge, or on answers"
    )
    rule_reward: RuleReward = key("ranking_score", "what use_rule_reward asks of a response")
    per_device_reward_batch_size: int = key(
        -1, "rows judged at a time", by=switch("rewards are asked for reward_groups_per_request groups at a time")
    )


class RewardShapingConfig(Section):
    """From verdicts to rewards."""

    title: ClassVar[str] = "Shaping of rewards"

    score_scale_factor: float = key(0.1, "reward per point of score")
    default_reward: float = key(0.0, "the fixed reward of the action penalty")
    extractor_type: Literal["line", "oneline", "codeblock", "none"] = key(
        "line", "how the translation is taken out of a response"
    )
    failure_policy: dict[str, str] = key(
        {},
        "what each status of an unscored candidate leads to: penalty, mask, contrast, drop_group or abort",
        means="see [reward_protocols.md](reward_protocols.md)",
    )
    max_unscored_fraction: float | None = key(
        0.5, "largest share of candidates the judge may leave unscored; none for any", ge=0, le=1
    )
    enable_overlong_reward_buffer: bool = key(False, "long responses pay a penalty")
    overlong_reward_buffer: int = key(
        256, "the penalty begins so many tokens below overlong_max_resp_len", unit="tokens", ge=1, le=10**7
    )
    overlong_penalty_factor: float = key(1.0, "the whole penalty", unit="reward", ge=0, le=10**6)
    overlong_max_resp_len: int = key(
        None, "length at which the penalty is whole", means="max_dec_len", unit="tokens", ge=1, le=10**7
    )
    overlong_penalty_capped: bool = key(True, "false lets the penalty rise on beyond that")


class RecordConfig(Section):
    """Seeing the run."""

    title: ClassVar[str] = "Records of a run"

    dump_rollouts: bool = key(True, "write every group below output_dir/rollouts")
    dump_format: Literal["jsonl", "parquet"] = key("jsonl", "format of these files")
    console_groups: int = key(1, "sample groups printed now and then; 0 for none", unit="groups", ge=0, le=10**4)
