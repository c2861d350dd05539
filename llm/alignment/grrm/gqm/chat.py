"""The bare ChatML template the released checkpoints were tuned with: one user turn, no system message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

CHAT_TEMPLATES = ("chatml", "checkpoint", "none")  # this one, the one stored with a model, the text as it is
SERVER_TEMPLATE = "server"  # the chat endpoint of servers, with the template of their model
EOS_TEXT = "<|im_end|>"
USER_START = "<|im_start|>user\n"
ASSISTANT_START = "<|im_start|>assistant\n"
# Any of these inside a text would end the turn it stands in.
CONTROL_TOKENS = ("<|im_start|>", EOS_TEXT, "<|endoftext|>")


def render_chatml_turns(turns: Sequence[Mapping[str, str]]) -> str:
    """The same template over several turns, each with a role and a content; the assistant's comes next."""
    said = "".join(f"<|im_start|>{turn['role']}\n{turn['content']}{EOS_TEXT}\n" for turn in turns)
    return f"{said}{ASSISTANT_START}"


def render_chatml(user_prompt: str) -> str:
    """The complete text a model continues. Qwen's stock template would add a system message; this one must not."""
    return f"{USER_START}{user_prompt}{EOS_TEXT}\n{ASSISTANT_START}"


def user_turn(prompt: str) -> str:
    """The input of `render_chatml` for `prompt`; a text that it did not make is returned as it is."""
    end = f"{EOS_TEXT}\n{ASSISTANT_START}"
    if prompt.startswith(USER_START) and prompt.endswith(end):
        return prompt[len(USER_START) : -len(end)]
    return prompt
