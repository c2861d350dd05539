"""The bare ChatML template the released checkpoints were tuned with: one user turn, no system message."""

from __future__ import annotations

CHAT_TEMPLATES = ("chatml", "checkpoint", "none")  # this one, the one stored with a model, the text as it is
EOS_TEXT = "<|im_end|>"
USER_START = "<|im_start|>user\n"
ASSISTANT_START = "<|im_start|>assistant\n"
# Any of these inside a text would end the turn it stands in.
CONTROL_TOKENS = ("<|im_start|>", EOS_TEXT, "<|endoftext|>")


def render_chatml(user_prompt: str) -> str:
    """The complete text a model continues. Qwen's stock template would add a system message; this one must not."""
    return f"{USER_START}{user_prompt}{EOS_TEXT}\n{ASSISTANT_START}"
