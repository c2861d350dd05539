"""Assembling the training of a reward model from its configuration; `run_reward.py` is a thin shell around `train`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from grrm.config import RewardModelConfig
from grrm.models.hub import checkpoint_folder
from grrm.models.reward_models import cast_weights, save_reward_model, take_over_head, with_new_head
from grrm.models.trained_with import TrainedWith, TrainingFile, read_trained_with
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.reward_model.trainer import RewardModelTrainer
from grrm.training.gold_groups import UNKNOWN_PAIR, GoldGroup, GroupEncoder, read_gold_groups
from grrm.training.model_setup import check_fit, load_part, weights_dtype
from grrm.training.supervised_run import SupervisedRun, read_split


def train(config: RewardModelConfig) -> None:
    """Train the reward model that `config` describes, resuming at the last complete checkpoint in its `output_dir`.

    The trained model and its tokenizer are left in `output_dir` itself.
    """
    run = SupervisedRun(config)
    groups, held_out = read_data(config, run.tokenizer)
    if not run.resume("reward", len(groups)):
        return
    model = build_model(config, run.args)
    check_fit(run.tokenizer, model.backbone.config, config.max_length)
    model.trained_with = trained_with(config, groups, read_trained_with(config.model_name_or_path), run.file)
    head = {"reward_model": model.kind, **model.settings()}
    run.check_same_head(head)
    trainer = RewardModelTrainer(
        model=run.trainable(model, has_head=True),
        head=head,
        config=config,
        groups=groups,
        held_out=held_out,
        **run.trainer_arguments(config.reward_model),
    )
    run.train(trainer, save_reward_model)


def trained_with(
    config: RewardModelConfig, groups: Sequence[GoldGroup], backbone: TrainedWith, own: TrainingFile
) -> TrainedWith:
    """The training record of the model; from that of its backbone, a policy, only the files.

    A reward model that is trained further has its language pairs of before too.
    """
    pairs = sorted({group.language_pair for group in groups})
    record = TrainedWith(
        chat_template="checkpoint" if all(group.is_chat for group in groups) else config.chat_template,
        prompt_type=None if all(group.is_pair for group in groups) else config.prompt_type,  # a pair brings its own
        context_segments=config.context_segments or None,
        language_pairs=None if UNKNOWN_PAIR in pairs else tuple(pairs),
        data=(*backbone.data, own),
    )
    if not any(file.stage == "reward" for file in backbone.data):
        return record
    return record.model_copy(update={"language_pairs": record.after(backbone).language_pairs})


def read_data(config: RewardModelConfig, tokenizer: Any) -> tuple[Sequence[GoldGroup], Sequence[GoldGroup]]:
    """(training, held-out) groups; rows that cannot be used are left out and counted.

    Raises UserError for a file without any that can, and a split that leaves nothing to train on.
    """
    end = [int(tokenizer.eos_token_id)] if config.reward_model == "pairwise" else []
    directory = checkpoint_folder(config.tokenizer_name_or_path or config.model_name_or_path)
    encode = GroupEncoder(config, tokenizer, directory, end)
    return read_split(
        config,
        lambda path: read_gold_groups(Path(path), encode, config),
        lambda group: tuple(group.candidates.prompt_ids),
    )


def build_model(config: RewardModelConfig, args: TrainingArguments) -> Any:
    """A new head on the model in `model_name_or_path`, or that of the reward model there.

    With a `backbone_learning_rate` of 0 what is below the head is frozen. Tensor ranks divide the model among them and
    have a head each, all alike.
    """
    model = with_new_head(
        config.reward_model,
        load_part(config.model_name_or_path, args, dtype="float32", gets_head=True),
        compare=config.compare,
        blocks=config.blocks,
        width=config.width,
        seed=config.seed,
    )
    take_over_head(model, config.model_name_or_path)
    if weights_dtype(args) != "float32":
        cast_weights(model, weights_dtype(args))
    if config.backbone_learning_rate == 0:
        for parameter in model.backbone.parameters():
            parameter.stop_gradient = True
    return model
