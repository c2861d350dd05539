"""A randomly initialised policy with a tokenizer, and the corpus it belongs to."""

from __future__ import annotations

from pathlib import Path


def tiny_policy(folder: Path) -> tuple[Path, Path]:
    """(checkpoint folder, folder of train.parquet and heldout.parquet) of a policy that has learned nothing."""
    import paddle
    from support.rl_processes import MODEL

    from grrm.data.bpe import corpus_texts, prompt_frames, train_bpe
    from grrm.data.corpora.phrases import build_phrases
    from grrm.rl.model_setup import load_tokenizer
    from grrm.rl.policy import policy_class

    corpus, policy = folder / "corpus", folder / "policy"
    build_phrases(corpus, 60, 12, ["en", "de"], seed=1)
    train_bpe(corpus_texts(corpus / "train.parquet"), policy, 400, prompt_frames("Tower"))
    paddle.seed(3)
    cls = policy_class("qwen2")
    settings = {key: value for key, value in MODEL.items() if key not in ("model_type", "architectures")}
    model = cls(cls.config_class(**settings, vocab_size=len(load_tokenizer(str(policy)))))
    model.save_pretrained(str(policy), safe_serialization=True)
    return policy, corpus
