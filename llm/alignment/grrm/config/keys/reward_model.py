"""Keys of a reward model with a value head, and of the groups and pairs that it learns from."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.config.key import Section, key
from grrm.gqm.mt_prompts import MTPromptType


class ValueHeadConfig(Section):
    """What the reward model is built from."""

    title: ClassVar[str] = "Reward model"

    reward_model: Literal["ranker", "pairwise"] = key(
        "ranker", "new blocks over the tokens of a group's candidates, or a value of the last token"
    )
    model_name_or_path: str = key(
        None,
        "folder of the Qwen2 or Llama model to start from",
        names="model",
        required="give the folder of the model to start from",
    )
    tokenizer_name_or_path: str | None = key(None, "folder of the tokenizer", means="model_name_or_path", names="model")
    compare: Literal["none", "group"] = key(
        "none", "what the tokens of a candidate see in a ranker's blocks: their own candidate, or the whole group"
    )
    blocks: int = key(2, "transformer blocks that a ranker adds", unit="blocks", ge=1, le=100)
    width: int | None = key(None, "hidden size of these blocks", means="that of the model", ge=1, le=10**6)
    backbone_learning_rate: float | None = key(
        None,
        "learning rate of the weights that were there before; 0 leaves them as they are",
        means="learning_rate",
        ge=0,
        le=10,
    )
    squared_weight: float | None = key(
        None,
        "weight of the squared error of differences from the group's mean, beside Bradley-Terry",
        means="0.2 for a ranker on groups, else 0",
        ge=0,
        le=10**6,
    )


class PairConfig(Section):
    """Rows of preference pairs: a prompt, a chosen and a rejected response."""

    title: ClassVar[str] = "Preference pairs"

    max_length: int = key(
        2048,
        "longest prompt with one of its candidates; rows with a longer one are left out and counted",
        unit="tokens",
        ge=2,
        le=10**7,
    )
    chat_template: Literal["chatml", "checkpoint", "none"] = key(
        "chatml", "template around prompts: ChatML, that of the tokenizer, or none"
    )


class GroupConfig(PairConfig):
    """How rows become groups. A row is a preference pair or a source with scored translations."""

    title: ClassVar[str] = "Groups"

    gold_scale: float = key(
        10.0, "what is one unit of the loss: 10 for gold scores from 0 to 100, 1 for those from 0 to 10", gt=0, le=10**6
    )
    prompt_type: MTPromptType = key("Tower", "the prompt that a group's source is put into; a pair brings its own")
    mt_key: str = key("mt_texts", "key of a group's translations")
    score_key: str = key("scores", "key of their gold scores")
