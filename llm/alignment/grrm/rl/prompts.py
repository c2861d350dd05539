"""Reads training and held-out prompts, and makes the policy's training record (`grrm.json`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from grrm.config import RLConfig
from grrm.config.rollout_checks import held_out_rows
from grrm.data.dataset import PromptItem, read_prompt_items
from grrm.data.held_out import comparable, held_out_split
from grrm.data.row_tasks import any_task_of, mixed_of, ranking_of
from grrm.models.chat_templates import messages_renderer
from grrm.models.hub import checkpoint_folder
from grrm.models.tokenizer import encoder
from grrm.models.trained_with import (
    TrainedWith,
    TrainingFile,
    check_same_prompts,
    read_trained_with,
    trained_with_prompts,
)
from grrm.rewards.rule_rewards import rule_of_row
from grrm.rl.reward_sources import check_routed


def read_rows(config: RLConfig, tokenizer: Any) -> tuple[Sequence[PromptItem], Sequence[PromptItem]]:
    """(training, held-out) prompts: of `eval_datasets`, or of the training file.

    Of the latter no source is on both sides, and whatever the seed the same rows are held out, so that runs compare.
    """
    prompts: Sequence[PromptItem] = read_prompts(config, config.train_datasets, tokenizer)
    if config.eval_datasets:
        return prompts, read_prompts(config, config.eval_datasets, tokenizer)
    n_rows = held_out_rows(config, len(prompts))
    if not n_rows:
        return prompts, ()
    return held_out_split(prompts, lambda item: comparable(item.task.source), n_rows, seed=0)


def read_prompts(config: RLConfig, path: str, tokenizer: Any) -> list[PromptItem]:
    """The prompts of a `src`/`tgt` file, tokenised; over-long ones are skipped and counted."""
    read = partial(
        read_prompt_items,
        Path(path),
        encoder(tokenizer),
        config.max_prompt_len,
        config.prompt_key,
        config.response_key,
        context_segments=config.context_segments,
        render=messages_renderer(tokenizer, checkpoint_folder(config.actor_model_name_or_path)),
    )
    if config.reward_routes is not None:
        return read(task_of=mixed_of, check=check_routed(config))
    if config.use_rule_reward:
        # Every rule reads the ground truth before it looks at the response.
        return read(
            task_of=ranking_of,
            check=lambda task: rule_of_row(task.data_source, config.rule_reward)("", task.reference or ""),
        )
    if config.use_rm_server and config.reward_protocol == "paddlenlp":
        return read(task_of=any_task_of)  # the server knows what labels are
    return read()


def record_training(config: RLConfig, prompts: Sequence[PromptItem], file: TrainingFile) -> TrainedWith:
    """The training record of the policy. Raises UserError for prompts of another type than it learned."""
    base = read_trained_with(config.actor_model_name_or_path)
    own = trained_with_prompts((item.prompt_text, item.is_chat) for item in prompts)
    check_same_prompts(config.actor_model_name_or_path, base, config.train_datasets, own)
    if own.prompt_type is not None:
        is_last_line = own.prompt_type == "Tower" and config.extractor_type == "line"
        prompt_type = "Tower.lastl" if is_last_line else own.prompt_type
        own = own.model_copy(update={"extractor_type": config.extractor_type, "prompt_type": prompt_type})
    return own.model_copy(update={"data": (file,)}).after(base)
