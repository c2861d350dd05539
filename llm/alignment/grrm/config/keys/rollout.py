"""Keys of the policy, its samples, and the batches made of them."""

from __future__ import annotations

from typing import ClassVar, Literal

from grrm.config.key import Section, key, refused, switch

_DROPOUT = refused("dropout makes the policy that is trained differ from the one that is sampled; set 0")


class PolicyConfig(Section):
    """The models of an RL run."""

    title: ClassVar[str] = "Models"

    actor_model_name_or_path: str = key(
        None,
        "folder or name of the policy, and of the reference policy where one is needed",
        names="model",
        required="give the folder or name of the policy's model",
    )
    actor_tokenizer_alpha: float | None = key(
        None, "factor of the tokenizer", by=refused("Qwen2.5 tokenizers have no such factor; remove the key", 0.0)
    )
    reward_tokenizer_alpha: float | None = key(
        None,
        "factor of the reward model's tokenizer",
        by=refused("the reward model has a tokenizer of its own; remove the key", 0.0),
    )
    chat_template: str = key(
        "none",
        "template around prompts",
        by=refused("prompts are written with their chat template by `grrm data`; remove the key", ""),
    )
    stage: str = key(
        "PPO", "kind of training", by=refused("this script only does RL; use run_sft.py for the supervised stage", "RL")
    )
    hidden_dropout_prob: float = key(0.0, "dropout of layers", by=_DROPOUT)
    attention_probs_dropout_prob: float = key(0.0, "dropout of attention", by=_DROPOUT)
    dropout_warmup_steps: int = key(0, "warm-up steps of dropout", by=_DROPOUT)
    use_fused_head_and_loss_fn: bool = key(
        False, "fused output layer and loss", by=switch("always so where the logits would be many", off=(True, False))
    )
    offload_level: str = key("", "what is offloaded between phases", by=switch("nothing is offloaded"))
    autotuner_benchmark: bool = key(
        False, "stop after a few steps, for auto-tuning", by=refused("this trainer does not do that; remove the key")
    )


class RolloutConfig(Section):
    """Sampling, and the lengths of prompts and responses."""

    title: ClassVar[str] = "Rollouts"

    rollout_n: int = key(1, "samples per prompt", unit="samples", ge=1, le=10**6, aliases=("num_return_sequences",))
    max_prompt_len: int = key(
        4096, "maximum prompt length; longer prompts are skipped and counted", unit="tokens", ge=1, le=10**7
    )
    max_dec_len: int = key(512, "maximum response length", unit="tokens", ge=1, le=10**7)
    min_dec_len: int = key(1, "minimum response length", unit="tokens", ge=0, le=10**7)
    max_length: int = key(
        None,
        "maximum length of a packed row, at least a prompt and a response",
        means="max_prompt_len + max_dec_len",
        unit="tokens",
        ge=1,
        le=10**7,
    )
    max_src_len: int | None = key(
        None,
        "older name of max_prompt_len",
        by=refused("PaddleNLP overwrites it with max_prompt_len; set max_prompt_len"),
    )
    share_prompt: bool = key(
        True, "pack a group's responses behind one copy of their prompt, up to max_length tokens a row"
    )
    temperature: float = key(1.0, "temperature of sampling and of the log-probs in the loss", gt=0, le=100)
    top_p: float = key(1.0, "nucleus sampling; below 1 needs allow_biased_sampling", gt=0, le=1)
    repetition_penalty: float = key(
        1.0, "penalty on repeated tokens; above 1 needs allow_biased_sampling", gt=0, le=100
    )
    allow_biased_sampling: bool = key(
        False, "accept top_p below 1 or a repetition penalty, which the policy ratio does not account for"
    )
    eos_token: str = key("", "additional end-of-sequence token")
    rollout_seed: int = key(None, "seed of prompt order and sampling", means="seed", ge=0, le=2**63 - 1)
    rollout_max_num_seqs: int = key(
        8,
        "sequences that a rank, or tensor ranks that sample together, decode concurrently",
        unit="rows",
        ge=1,
        le=10**6,
    )
    rollout_memory_fraction: float = key(
        0.7,
        "share of the free memory for the KV cache of a rollout or a local judge; bounds concurrency",
        gt=0,
        le=1,
    )
    rollout_quant_type: Literal["", "weight_only_int8"] = key(
        "", "quantization of rollouts, on a CPU; training is not affected", aliases=("quant_type",)
    )
    rollout_ahead: int = key(
        0,
        "1: sample the next rollout before the current update and judge it during that update (off-policy)",
        unit="steps",
        ge=0,
        le=1,
    )
    rollout_tensor_parallel_degree: int = key(
        -1,
        "1 or -1: each tensor rank samples with full weights; tensor_parallel_degree: together, with shards",
        unit="ranks",
        ge=-1,
        le=1024,
    )
    use_fusemt: bool = key(True, "fused decoding", by=switch("the rollout engine has its own kernels", off=(False,)))
    per_device_rollout_batch_size: int = key(
        -1, "rows sampled per batch", by=switch("the engine keeps rollout_max_num_seqs rows in flight")
    )
    eval_samples: int = key(1, "sampled translations per held-out prompt", unit="samples", ge=0, le=10**4)
    eval_temperature: float = key(1.0, "temperature of these samples", gt=0, le=100)
    eval_top_p: float = key(1.0, "nucleus sampling of these samples", gt=0, le=1)
    eval_greedy: bool = key(True, "also translate greedily; needed by the reward hacking alarm")
    eval_on_start: bool = key(
        None,
        "evaluate before the first step, as the baseline of the verdict and of the reward hacking alarm",
        means="where there are held-out rows",
    )
    held_out: int = key(
        0,
        "without eval_datasets: training rows to hold out instead, at most a tenth of them, sharing no source",
        unit="rows",
        ge=0,
        le=10**6,
    )
    eval_mode: Literal["single", "tensor_parallel"] | None = key(
        None, "where evaluation runs", by=switch("evaluation samples from the policy that is being trained")
    )

    @property
    def pack_tokens(self) -> int:
        """The longest packed row in tokens: `max_length`, or 0 with `share_prompt` off."""
        return self.max_length if self.share_prompt else 0


class RolloutServersConfig(Section):
    """Rollouts on serving engines."""

    title: ClassVar[str] = "Rollout servers"

    rollout_backend: Literal["paddle", "fastdeploy", "vllm"] = key(
        "paddle", "rollout engine: the built-in one, or servers of this kind"
    )
    rollout_servers: list[str] | None = key(None, "addresses of the servers")
    rollout_model_name: str | None = key(None, "model name of the policy on the servers", means="the first they have")
    rollout_token_file: str | None = key(None, "file with their bearer token", names="file")
    rollout_weights_dir: str | None = key(
        None, "shared folder for weight updates; FastDeploy's --model", means="rollout_weights in output_dir"
    )
    rollout_max_staleness: int = key(0, "weight updates that a server may have missed", unit="updates", ge=0, le=1000)
    rollout_servers_sleep: bool = key(
        False, "servers give up weights and KV cache while the policy trains, on devices that they share with it"
    )
    rollout_check_limit: float = key(
        None,
        "stop when, after a weight update, a server's log-probs differ from the trainer's by more on average; 0: off",
        means="0.01; 0.05 with bf16, fp16 or FastDeploy",
        unit="nats per token",
        ge=0,
        le=10**6,
    )
    rollout_deadline_s: float = key(
        1800.0, "time limit of a rollout on servers, and of a weight update", unit="s", gt=0, le=10**6
    )


class BatchConfig(Section):
    """From prompts to rollouts, optimizer steps and micro-batches; see batch_plan.py."""

    title: ClassVar[str] = "Batches"

    global_batch_size: int = key(8, "prompts per rollout, over all ranks", unit="prompts", ge=1)
    global_mini_batch_size: int = key(
        -1, "prompts per optimizer step", means="-1: global_batch_size", unit="prompts", aliases=("mini_batch_size",)
    )
    update_iters: int = key(1, "passes over each rollout", unit="passes", ge=1)
    dynamic_sampling: bool = key(
        False, "replace groups with equal rewards (for rules of error spans: and none) by sampling further prompts"
    )
    global_gen_batch_size: int = key(
        -1, "prompts per generation pass of dynamic_sampling", means="-1: global_batch_size", unit="prompts"
    )
    max_gen_batches: int = key(32, "maximum generation passes per rollout", unit="passes", ge=1, le=10**6)
    max_tokens_per_micro_batch: int = key(
        0,
        "maximum tokens per micro-batch, padding included, instead of per_device_train_batch_size",
        means="0: count rows",
        unit="tokens",
        ge=0,
        le=10**8,
    )
    balance_batch: bool = key(False, "balance the number of tokens over ranks")
    per_device_logprob_batch_size: int = key(
        -1,
        "rows per forward pass for log-probs",
        means="-1: per_device_train_batch_size",
        unit="rows",
        ge=1,
        le=10**6,
        also=(-1,),
    )
    per_device_value_batch_size: int = key(
        -1,
        "rows per forward pass for the critic's values",
        means="-1: per_device_train_batch_size",
        unit="rows",
        ge=1,
        le=10**6,
        also=(-1,),
    )
    per_device_prompt_batch_size: int = key(
        16, "prompts per step", by=switch("global_batch_size sets the prompts per rollout", off=())
    )
    use_remove_padding: bool = key(
        False,
        "remove padding from batches",
        by=switch("packed rows, the default, have little", off=(True, False)),
    )
