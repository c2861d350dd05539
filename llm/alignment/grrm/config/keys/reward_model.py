"""Keys of a reward model with a value head, and of the groups and pairs that it learns from."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.config.key import Section, key
from grrm.gqm.context import MAX_CONTEXT_SEGMENTS
from grrm.gqm.mt_prompts import MTPromptType


class ValueHeadConfig(Section):
    """Parts of the reward model."""

    title: ClassVar[str] = "Reward model"

    reward_model: Literal["ranker", "pairwise"] = key(
        "ranker", "ranker: new transformer blocks over the candidates' tokens; pairwise: value head on the last token"
    )
    model_name_or_path: str = key(
        None,
        "folder of the Qwen2, Qwen3 or Llama model to start from, or of a reward model to train further",
        names="model",
        required="give the folder of the model to start from",
    )
    tokenizer_name_or_path: str | None = key(None, "folder of the tokenizer", means="model_name_or_path", names="model")
    compare: Literal["none", "group"] = key(
        "none", "what a candidate's tokens attend to in a ranker's blocks: their own candidate, or the whole group"
    )
    blocks: int = key(2, "transformer blocks that a ranker adds", unit="blocks", ge=1, le=100)
    width: int | None = key(None, "hidden size of these blocks", means="that of the model", ge=1, le=10**6)
    backbone_learning_rate: float | None = key(
        None,
        "learning rate of the pretrained weights; 0 freezes them",
        means="learning_rate",
        ge=0,
        le=10,
    )
    squared_weight: float | None = key(
        None,
        "weight of the squared error of differences from the group mean, added to Bradley-Terry",
        means="0.2 for a ranker on groups, else 0",
        ge=0,
        le=10**6,
    )


class PairConfig(Section):
    """Rows of preference pairs: a prompt, a chosen and a rejected response."""

    title: ClassVar[str] = "Preference pairs"

    max_length: int = key(
        2048,
        "maximum length of a prompt with one candidate; longer rows are skipped and counted",
        unit="tokens",
        ge=2,
        le=10**7,
    )
    chat_template: Literal["chatml", "checkpoint", "none"] = key(
        "chatml", "chat template of prompts: ChatML, the tokenizer's, or none"
    )


class GroupConfig(PairConfig):
    """Conversion of rows to groups. A row is a preference pair or a source with scored translations."""

    title: ClassVar[str] = "Groups"

    gold_scale: float = key(
        10.0,
        "gold score difference that is one unit of the loss: 10 for scores from 0 to 100, 1 for 0 to 10",
        gt=0,
        le=10**6,
    )
    prompt_type: MTPromptType = key("Tower", "prompt template for a group's source; pairs have their own prompt")
    mt_key: str = key("mt_texts", "key of a group's translations")
    score_key: str = key("scores", "key of their gold scores")
    context_segments: int = key(
        0,
        "preceding segments of the row's document that the prompt shows, with their translations",
        unit="segments",
        ge=0,
        le=MAX_CONTEXT_SEGMENTS,
    )
