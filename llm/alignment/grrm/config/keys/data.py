"""Keys of the training rows and the model, which several stages have."""

from __future__ import annotations

from typing import ClassVar

from grrm.config.key import Section, key


class DataConfig(Section):
    """Sources of rows."""

    title: ClassVar[str] = "Data"

    train_datasets: str = key(
        None,
        "file of training rows: JSON lines, for DPO and reward models also parquet",
        names="file",
        required="give the file of training rows",
    )
    dataloader_shuffle: bool = key(True, "reshuffle the rows in each epoch")


class RowKeysConfig(Section):
    """Names of the parts of a row of the training file."""

    title: ClassVar[str] = "Keys of a row"

    prompt_key: str = key(
        "src", "key of a row's prompt; a row without it has messages, under the tokenizer's own template"
    )
    response_key: str = key("tgt", "key of its response, or in RL of its translation task", aliases=("label_key",))


class FreezingConfig(Section):
    """Choice of the weights that are trained."""

    title: ClassVar[str] = "Trained weights"

    frozen_layers: int = key(
        0, "number of lowest layers to freeze, together with the input embeddings", unit="layers", ge=0, le=10**4
    )
