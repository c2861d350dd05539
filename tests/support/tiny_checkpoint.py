"""A Qwen2 or Llama checkpoint folder of a few kilobytes with random weights and a byte-level tokenizer."""

from __future__ import annotations

from pathlib import Path

from grrm.data.bpe import train_bpe


def write_tiny_checkpoint(
    folder: Path, *, max_positions: int = 1024, tie: bool = True, architecture: str = "qwen2"
) -> Path:
    """Write the checkpoint and return its folder; the same numbers every time."""
    import paddle
    from paddlenlp.transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

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
