"""Settings of each training script: the keys that all stages share, and those of one stage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import PrivateAttr

from grrm.config.key import OURS, Section, Support, key, refused
from grrm.config.keys.machine import AdapterConfig, ParallelConfig, PrecisionConfig, SpeedConfig
from grrm.config.keys.objective import CriticConfig, ObjectiveConfig, StoppingConfig
from grrm.config.keys.optimization import EvaluationConfig, LengthConfig, LoaderConfig, OptimizerConfig, ScriptConfig
from grrm.config.keys.output import CheckpointConfig, OutputConfig
from grrm.config.keys.reward import RecordConfig, RewardConfig, RewardShapingConfig
from grrm.config.keys.reward_model import GroupConfig, PairConfig, ValueHeadConfig
from grrm.config.keys.rollout import BatchConfig, PolicyConfig, RolloutConfig, RolloutServersConfig


class StageConfig(
    LengthConfig,
    OptimizerConfig,
    OutputConfig,
    CheckpointConfig,
    PrecisionConfig,
    ParallelConfig,
    SpeedConfig,
    AdapterConfig,
    ScriptConfig,
    LoaderConfig,
):
    """The keys that all stages have. Obtain a stage's configuration from `grrm.config.load_config`."""

    _source: str = PrivateAttr("")
    _notices: tuple[str, ...] = PrivateAttr(())

    @property
    def source(self) -> str:
        """The argument file, for messages; empty for a configuration that was not read from one."""
        return self._source

    @property
    def notices(self) -> tuple[str, ...]:
        """Requests of the file that are not honoured, a sentence each; the run says so and goes on."""
        return self._notices


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


class RLConfig(
    ObjectiveConfig,
    RolloutConfig,
    RolloutServersConfig,
    BatchConfig,
    RewardConfig,
    RewardShapingConfig,
    PolicyConfig,
    DataConfig,
    RowKeysConfig,
    FreezingConfig,
    EvaluationConfig,
    StoppingConfig,
    RecordConfig,
    StageConfig,
    CriticConfig,
):
    """Every setting of an RL run."""

    support: ClassVar[Mapping[str, Support]] = {
        "val_size": refused("held-out prompts come from eval_datasets or held_out; remove the key"),
        "ignore_data_skip": refused("a rollout's prompts follow from its number; remove the key"),
    }


class SupervisedConfig(Section):
    """Model and rows of the cold start."""

    title: ClassVar[str] = "Supervised training"

    model_name_or_path: str | None = key(None, "folder or name of the initial model", names="model")
    init_from_config: str | None = key(None, "JSON file of a model configuration to train from scratch", names="file")
    tokenizer_name_or_path: str | None = key(None, "folder of the tokenizer", means="model_name_or_path", names="model")
    max_length: int = key(
        2048,
        "maximum length of prompt and response; longer rows are skipped and counted",
        unit="tokens",
        ge=1,
        le=10**7,
    )
    train_on_prompt: bool = key(False, "compute the loss on prompt tokens as well")
    form_weight: float = key(
        1.0,
        "weight of the tokens outside the `decisive` characters of a row; decisive ones and other rows have 1",
        ge=0,
        le=1,
    )


class SFTConfig(SupervisedConfig, DataConfig, RowKeysConfig, FreezingConfig, EvaluationConfig, StageConfig):
    """Every setting of a supervised run."""

    support: ClassVar[Mapping[str, Support]] = {"per_device_eval_batch_size": OURS}


_STAGES = "only policies of run_sft.py and run_rl.py are divided into stages; remove the key"


class PreferenceConfig(Section):
    """The policy and the loss of direct preference optimization."""

    title: ClassVar[str] = "Preference optimization"

    model_name_or_path: str = key(
        None,
        "folder of the initial policy, also used as the reference",
        names="model",
        required="give the folder of the policy to go on from",
    )
    tokenizer_name_or_path: str | None = key(None, "folder of the tokenizer", means="model_name_or_path", names="model")
    dpo_loss: Literal["sigmoid", "hinge", "ipo"] = key("sigmoid", "loss function of a pair's log-ratio difference")
    dpo_beta: float = key(0.1, "DPO's beta, strength of the KL constraint to the reference", gt=0, le=10**3)
    dpo_label_smoothing: float = key(0.0, "label smoothing: assumed share of swapped pairs; sigmoid only", ge=0, le=0.5)
    sft_loss_ratio: float = key(
        0.0, "weight of an additional SFT loss on the chosen responses, per token", ge=0, le=10**3
    )


class DPOConfig(PreferenceConfig, PairConfig, DataConfig, FreezingConfig, EvaluationConfig, StageConfig):
    """Every setting of preference optimization."""

    support: ClassVar[Mapping[str, Support]] = {
        "pipeline_parallel_degree": refused(_STAGES, 1),
        "virtual_pp_degree": refused(_STAGES),
        "per_device_eval_batch_size": OURS,
    }


_UNDIVIDED = "a reward model is saved whole; remove the key"


class RewardModelConfig(ValueHeadConfig, GroupConfig, DataConfig, EvaluationConfig, StageConfig):
    """Every setting of the training of a reward model."""

    support: ClassVar[Mapping[str, Support]] = {
        **DPOConfig.support,
        "unified_checkpoint": refused(_UNDIVIDED, None),
        "unified_checkpoint_config": refused(_UNDIVIDED, None),
        "save_sharded_model": refused(_UNDIVIDED),
        "load_sharded_model": refused(_UNDIVIDED),
    }
