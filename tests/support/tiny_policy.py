"""A randomly initialised policy, and with it the tokenizer and the corpus it belongs to."""

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
