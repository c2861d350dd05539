"""Assembling a supervised run from its configuration; `run_sft.py` is a thin shell around `train`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle

from grrm.config import SFTConfig
from grrm.config.model_shape import check_divides, shape_of_config
from grrm.data.dataset import SftItem, read_sft_items
from grrm.errors import UserError
from grrm.models.chat_templates import messages_renderer
from grrm.models.checkpoint import check_settings, rotary_overrides, share_rotary_tables
from grrm.models.hub import checkpoint_folder
from grrm.models.policy import policy_class
from grrm.models.tokenizer import encoder, token_spans
from grrm.paddlenlp_api.training import TrainingArguments
from grrm.parallel.tensor_ranks import TensorRanks
from grrm.sft.trainer import SftCollator, SftTrainer
from grrm.training.model_setup import check_fit, divide, load_part
from grrm.training.supervised_run import SupervisedRun, prepare_policy, read_split


def train(config: SFTConfig) -> None:
    """Run the SFT stage that `config` describes, resuming at the last complete checkpoint in its `output_dir`.

    The trained model and its tokenizer are left in `output_dir` itself.
    """
    run = SupervisedRun(config)
    dataset, held_out = read_data(config, run.tokenizer)
    check_form_weight(config, dataset)
    if not run.resume("sft", len(dataset)):
        return
    model = build_model(config, run.args, len(run.tokenizer))
    check_fit(run.tokenizer, model.config, config.max_length)
    prepare_policy(model, config)
    trainer = SftTrainer(
        model=run.trainable(model),
        train_dataset=dataset,
        held_out=held_out,
        shuffle=config.dataloader_shuffle,
        data_collator=SftCollator(
            run.tokenizer.pad_token_id, config.max_length if model.reads_ranges else 0, config.form_weight
        ),
        **run.trainer_arguments("sft"),
    )
    trainer.trained_with = run.trained_with((item.prompt_text, item.is_chat) for item in dataset)
    run.train(trainer)


def read_data(config: SFTConfig, tokenizer: Any) -> tuple[Sequence[SftItem], Sequence[SftItem]]:
    """(training, held-out) rows. Raises UserError as `read_sft_items`, and for a split with nothing to train on."""
    return read_split(config, lambda path: read_rows(config, tokenizer, path), lambda item: item.prompt_text)


def read_rows(config: SFTConfig, tokenizer: Any, path: str) -> list[SftItem]:
    """The rows of a file, tokenised; over-long ones are left out and counted."""
    folder = checkpoint_folder(config.tokenizer_name_or_path or config.model_name_or_path or "")
    return read_sft_items(
        Path(path),
        encoder(tokenizer),
        tokenizer.eos_token_id,
        config.max_length,
        prompt_key=config.prompt_key,
        response_key=config.response_key,
        train_on_prompt=config.train_on_prompt,
        spans_of=token_spans(tokenizer),
        render=messages_renderer(tokenizer, folder),
    )


def check_form_weight(config: SFTConfig, items: Sequence[SftItem]) -> None:
    """Raises UserError for a `form_weight` below 1 that no row makes use of, or that leaves a row without a weight."""
    if config.form_weight < 1 and all(item.decisive is None for item in items):
        raise UserError(
            f"form_weight is {config.form_weight:g}, but no row of train_datasets says which characters are decisive: "
            "make the rows with `grrm data sft-gqm` or `sft-sqm`, or leave the key out"
        )
    if config.form_weight == 0 and any(item.decisive == () for item in items):
        raise UserError("form_weight is 0, and a row of train_datasets has no decisive token: give a number above 0")


def build_model(config: SFTConfig, args: TrainingArguments, vocab_size: int) -> Any:
    """The checkpoint in `model_name_or_path`, or a fresh model of `init_from_config`, initialised from `seed`.

    Of either, this process's part where tensor ranks or stages divide it.
    """
    if not config.init_from_config:
        return load_part(config.model_name_or_path or "", args)
    model = fresh_model(config.init_from_config, config.seed, vocab_size)
    ranks = TensorRanks.of(args)
    check_divides(config.init_from_config, model.config.to_dict(), ranks.size)
    return divide(model, args)


def fresh_model(config_path: str, seed: int, vocab_size: int) -> Any:
    """An untrained float32 model of the JSON file `config_path`, initialised from `seed`.

    Raises UserError for a file that describes no model, or one that could not be opened once it is trained.
    """
    path = Path(config_path)
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"init_from_config '{path}' is not a readable JSON file ({error}): give a model config"
        ) from None
    if not isinstance(settings, dict):
        raise UserError(f"init_from_config '{path}' is not a JSON object: give a model config")
    cls, settings["vocab_size"] = policy_class(settings.get("model_type", "")), vocab_size
    check_settings(settings, f"the model of init_from_config '{path}'", f"init_from_config '{path}'")
    settings["num_key_value_heads"] = shape_of_config(settings, f"init_from_config '{path}'").key_heads
    settings |= {"dtype": "float32", **rotary_overrides(path, settings)}
    paddle.seed(seed)
    model = cls(cls.config_class(**{name: value for name, value in settings.items() if name != "model_type"}))
    share_rotary_tables(model)
    return model
