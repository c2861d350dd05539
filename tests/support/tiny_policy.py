"""Policies and reward models with random weights in their folders, with a tokenizer and, where asked for, a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def random_policy(model_type: str = "qwen2", **changes: Any) -> Any:
    """A policy with the same random weights every time; arguments change its shape."""
    import paddle
    from support.rl_processes import MODEL

    from grrm.models.policy import policy_class

    paddle.seed(3)
    cls = policy_class(model_type)
    settings = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")} | changes
    return cls(cls.config_class(**settings))


def write_policy(folder: Path, **changes: Any) -> None:
    """Save a policy beside the tokenizer of a folder; further arguments change its shape."""
    from grrm.models.tokenizer import load_tokenizer

    model = random_policy(**changes, vocab_size=len(load_tokenizer(str(folder))))
    model.save_pretrained(str(folder), safe_serialization=True)


def tiny_policy(folder: Path, **changes: Any) -> tuple[Path, Path]:
    """(checkpoint folder, folder of train.parquet and heldout.parquet) of a policy that has learned nothing."""
    from grrm.data.bpe import corpus_texts, prompt_frames, train_bpe
    from grrm.data.corpora.phrases import build_phrases

    corpus, policy = folder / "corpus", folder / "policy"
    build_phrases(corpus, 60, 12, ["en", "de"], seed=1)
    train_bpe(corpus_texts(corpus / "train.parquet"), policy, 400, prompt_frames("Tower"))
    write_policy(policy, **changes)
    return policy, corpus


def write_tiny_checkpoint(
    folder: Path, *, max_positions: int = 1024, tie: bool = True, architecture: str = "qwen2"
) -> Path:
    """Write a Qwen2 or Llama of a few kilobytes with a byte-level tokenizer, the same every time; return its folder."""
    import paddle
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    from grrm.data.bpe import train_bpe

    train_bpe(["user\nTranslate Guten Morgen\nassistant\nGood morning"], folder, 300)
    classes = {"qwen2": (Qwen2Config, Qwen2ForCausalLM), "llama": (LlamaConfig, LlamaForCausalLM)}
    config_class, model_class = classes[architecture]
    config = config_class(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=320,
        max_position_embeddings=max_positions,
        tie_word_embeddings=tie,
    )
    paddle.seed(5)
    model = model_class(config)
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


def write_tiny_reward_model(folder: Path, kind: str, **settings: object) -> Path:
    """A tiny checkpoint under a new head, saved with its tokenizer; returns the folder.

    `settings` are those of `with_new_head`, and `max_positions`.
    """
    from grrm.models.policy import load_policy
    from grrm.models.reward_models import save_reward_model, with_new_head

    limits = {"max_positions": settings.pop("max_positions")} if "max_positions" in settings else {}
    model = with_new_head(kind, load_policy(write_tiny_checkpoint(folder, **limits)), **settings)
    save_reward_model(model, folder)
    return folder
