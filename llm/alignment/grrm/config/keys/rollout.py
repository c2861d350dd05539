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
    dropout_warmup_steps: int = key(0, "steps until dropout is whole", by=_DROPOUT)
    virtual_pp_degree: int = key(
        1,
        "pieces of a pipeline stage",
        by=refused("only data and sharding parallelism are supported; remove the key"),
    )
    use_fused_head_and_loss_fn: bool = key(
        False, "output layer and loss in one", by=switch("always so where the logits would be many", off=(True, False))
    )
    offload_level: str = key("", "what leaves the GPU between phases", by=switch("nothing is offloaded"))
    autotuner_benchmark: bool = key(
        False, "end after a few steps, for a tuner", by=refused("this trainer does not do that; remove the key")
    )


class RolloutConfig(Section):
    """Sampling, and the lengths of prompts and responses."""

    title: ClassVar[str] = "Rollouts"

    rollout_n: int = key(1, "samples of a prompt", unit="samples", ge=1, aliases=("num_return_sequences",))
    max_prompt_len: int = key(4096, "longer prompts are left out and counted", unit="tokens", ge=1, le=10**7)
    max_dec_len: int = key(512, "longest response", unit="tokens", ge=1, le=10**7)
    min_dec_len: int = key(1, "shortest response", unit="tokens", ge=0, le=10**7)
    max_length: int = key(
        None,
        "longest packed row, at least a prompt and a response",
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
    temperature: float = key(1.0, "of sampling, and of the log-probabilities in the loss", gt=0, le=100)
    top_p: float = key(1.0, "below 1, sample from the likeliest tokens; needs allow_biased_sampling", gt=0, le=1)
    repetition_penalty: float = key(1.0, "above 1, avoid tokens seen before; needs allow_biased_sampling", gt=0, le=100)
    allow_biased_sampling: bool = key(
        False, "accept top_p below 1 or a repetition penalty, which the policy ratio does not account for"
    )
    eos_token: str = key("", "one more token that ends a response")
    rollout_seed: int = key(None, "seed of prompts' order and samples", means="seed", ge=0, le=2**63 - 1)
    rollout_max_num_seqs: int = key(
        8, "rows a rank, or tensor ranks that sample together, decode at the same time", unit="rows", ge=1, le=10**6
    )
    rollout_memory_fraction: float = key(
        0.7,
        "share of the memory free when a rollout or a judge here begins, for keys and values; fewer rows run if short",
        gt=0,
        le=1,
    )
    rollout_quant_type: Literal["", "weight_only_int8"] = key(
        "", "number format of what rollouts multiply, on a CPU; training is not touched", aliases=("quant_type",)
    )
    rollout_ahead: int = key(
        0,
        "1 samples a rollout before the update ahead of it, beside which it is then judged",
        unit="steps",
        ge=0,
        le=1,
    )
    rollout_tensor_parallel_degree: int = key(
        -1,
        "1 or -1: each tensor rank samples with whole weights; tensor_parallel_degree: all together, with parts",
        unit="ranks",
        ge=-1,
        le=1024,
    )
    use_fusemt: bool = key(True, "fused decoding", by=switch("the rollout engine has its own kernels", off=(False,)))
    per_device_rollout_batch_size: int = key(
        -1, "rows sampled at a time", by=switch("the engine keeps rollout_max_num_seqs rows in flight")
    )
    eval_samples: int = key(1, "sampled translations of a held-out prompt", unit="samples", ge=0, le=10**4)
    eval_temperature: float = key(1.0, "temperature of these samples", gt=0, le=100)
    eval_top_p: float = key(1.0, "below 1, draw them from the likeliest tokens", gt=0, le=1)
    eval_greedy: bool = key(True, "translate it greedily as well, which the alarm of reward hacking needs")
    eval_on_start: bool = key(False, "an evaluation before the first step, which the alarm then compares with")
    eval_mode: Literal["single", "tensor_parallel"] | None = key(
        None, "where evaluation runs", by=switch("evaluation samples from the policy that is being trained")
    )


class RolloutServersConfig(Section):
    """Rollouts on serving engines."""

    title: ClassVar[str] = "Rollout servers"

    rollout_backend: Literal["paddle", "fastdeploy", "vllm"] = key(
        "paddle", "the engine: ours on the policy's own weights, or servers of this kind"
    )
    rollout_servers: list[str] | None = key(None, "their addresses")
    rollout_model_name: str | None = key(None, "the policy's name there", means="the first they have")
    rollout_token_file: str | None = key(None, "file with their bearer token", names="file")
    rollout_weights_dir: str | None = key(
        None, "folder that servers see too, for the weights they take over", means="rollout_weights in output_dir"
    )
    rollout_max_staleness: int = key(
        0, "updates of its weights that a server may have missed", unit="updates", ge=0, le=1000
    )
    rollout_deadline_s: float = key(
        1800.0, "for a rollout on servers, and for an update of their weights", unit="s", gt=0, le=10**6
    )


class BatchConfig(Section):
    """From prompts to rollouts, optimizer steps and micro-batches; see batch_plan.py."""

    title: ClassVar[str] = "Batches"

    global_batch_size: int = key(8, "prompts of a rollout, over all ranks", unit="prompts", ge=1)
    global_mini_batch_size: int = key(
        -1, "prompts of an optimizer step", means="-1: global_batch_size", unit="prompts", aliases=("mini_batch_size",)
    )
    update_iters: int = key(1, "times that a rollout is gone through", unit="passes", ge=1)
    dynamic_sampling: bool = key(False, "replace groups without a difference in reward by sampling further prompts")
    global_gen_batch_size: int = key(
        -1, "prompts of a generation pass of dynamic_sampling", means="-1: global_batch_size", unit="prompts"
    )
    max_gen_batches: int = key(32, "generation passes that a rollout may take", unit="passes", ge=1, le=10**6)
    max_tokens_per_micro_batch: int = key(
        0,
        "tokens of a micro-batch, padding included, in place of per_device_train_batch_size rows",
        means="0: count rows",
        unit="tokens",
        ge=0,
        le=10**8,
    )
    balance_batch: bool = key(False, "give all ranks about as many tokens")
    per_device_logprob_batch_size: int = key(
        -1,
        "rows of a pass that only scores",
        means="-1: per_device_train_batch_size",
        unit="rows",
        ge=1,
        le=10**6,
        also=(-1,),
    )
    per_device_value_batch_size: int = key(-1, "rows the critic scores at a time", by=switch("there is no critic"))
    per_device_prompt_batch_size: int = key(
        16, "prompts of a step", by=switch("global_batch_size decides how many prompts a rollout draws", off=())
    )
    use_remove_padding: bool = key(
        False,
        "leave padding out of batches",
        by=switch("packed rows, the default, have little", off=(True, False)),
    )
