"""RL and SFT argument files: what is read, derived and refused before paddle is touched."""

from __future__ import annotations

import pytest
from config.conftest import refusal

from grrm.config import Launch, SFTConfig
from grrm.config.load import switches_without_effect


def test_defaults_and_derived_values(run):
    values = run().config
    assert (values.advantage_rule, values.policy_loss, values.loss_agg_mode) == (
        "grpo",
        "token_clip",
        "token-mean",
    )
    assert (values.kl_coeff, values.kl_loss_coeff) == (0.0, 0.001)
    assert (values.clip_range_ratio_low, values.clip_range_ratio_high) == (0.2, 0.2)
    assert values.max_length == 96
    assert values.rollout_seed == values.seed == 42
    assert values.per_device_logprob_batch_size == 4
    assert values.gradient_accumulation_steps == 8
    assert values.device == "cpu"
    assert values.report_to == ["visualdl"]


@pytest.mark.parametrize(
    ("changes", "rule", "loss", "aggregation"),
    [
        ({"norm_adv_by_std": False}, "grpo_no_std", "token_clip", "token-mean"),
        ({"rl_algorithm": "gspo"}, "grpo", "gspo", "seq-mean-token-mean"),
        ({"policy_loss": "gspo", "norm_adv_by_std": False}, "grpo_no_std", "gspo", "seq-mean-token-mean"),
        ({"rl_algorithm": "dr_grpo"}, "dr_grpo", "token_clip", "seq-mean-token-sum-norm"),
        ({"rl_algorithm": "rloo", "loss_agg_mode": "seq-mean-token-mean"}, "rloo", "token_clip", "seq-mean-token-mean"),
        ({"rl_algorithm": "reinforce_plus_plus"}, "reinforce_plus_plus", "token_clip", "token-mean"),
    ],
)
def test_algorithms_stand_for_rule_loss_and_aggregation(run, changes, rule, loss, aggregation):
    values = run(changes).config
    assert (values.advantage_rule, values.policy_loss, values.loss_agg_mode) == (rule, loss, aggregation)


@pytest.mark.parametrize(
    "changes",
    [{"rl_algorithm": name} for name in ("dr_grpo", "rloo", "reinforce_plus_plus")]
    + [{"advantage_rule": "grpo_no_std"}],
)
def test_asking_for_no_division_by_the_deviation_is_accepted_where_the_rule_has_none(run, changes):
    assert run({**changes, "norm_adv_by_std": False}).config.norm_adv_by_std is False


def test_only_rules_that_compare_with_the_group_contrast_a_lone_translation_with_none(run):
    assert run({}).config.failure_policy == {"single_candidate": "contrast"}
    assert run({"failure_policy": {"single_candidate": "mask"}}).config.failure_policy == {"single_candidate": "mask"}
    assert run({"rl_algorithm": "reinforce_plus_plus"}).config.failure_policy == {}


@pytest.mark.parametrize(
    ("changes", "coeffs"),
    [
        ({}, (0.0, 0.001)),
        ({"rl_algorithm": "reinforce_plus_plus"}, (0.02, 0.0)),
        ({"rl_algorithm": "reinforce_plus_plus", "use_kl_in_reward": False}, (0.0, 0.001)),
        ({"use_kl_in_reward": True}, (0.02, 0.0)),
        ({"use_kl_in_reward": True, "kl_coeff": 0.1, "kl_loss_coeff": 0.2}, (0.1, 0.2)),
    ],
)
def test_kl_is_a_loss_or_in_the_reward_as_the_rule_or_the_file_says(run, changes, coeffs):
    values = run(changes).config
    assert (values.kl_coeff, values.kl_loss_coeff) == coeffs


@pytest.mark.parametrize(
    ("changes", "notice"),
    [
        ({"kl_coeff": 0.1}, "kl_coeff has no effect with advantage_rule grpo"),
        (
            {"policy_loss": "sapo", "clip_range_ratio_high": 0.3},
            "clip_range_ratio_high has no effect with policy_loss sapo",
        ),
        ({"policy_loss": "sapo", "clip_range_ratio": 0.3}, "clip_range_ratio has no effect with policy_loss sapo"),
        (
            {"policy_loss": "cispo", "clip_range_ratio_low": 0.3},
            "clip_range_ratio_low has no effect with policy_loss cispo",
        ),
        ({"warmup_steps": 21}, "warmup_steps 21 is above max_steps 20: the run ends before the learning rate reaches"),
        ({"sapo_tau_pos": 2.0}, "sapo_tau_pos has no effect with policy_loss token_clip"),
        ({"rollout_is_mode": "mask"}, "rollout_is_mode has no effect with rollout_is auto"),
        ({"gae_lambda": 0}, "gae_lambda has no effect with advantage_rule grpo, which has no critic"),
        ({"reward_protocol": "paddlenlp"}, "reward_protocol has no effect without use_rm_server"),
        (
            {
                "use_rm_server": True,
                "reward_server": "http://h:1",
                "reward_protocol": "paddlenlp",
                "reward_groups_per_request": 4,
            },
            "reward_groups_per_request has no effect with reward_protocol paddlenlp",
        ),
    ],
)
def test_what_has_no_effect_is_said(run, changes, notice):
    assert [one.startswith(notice) for one in run(changes).config.notices] == [True]


def test_an_upper_clip_range_alone_may_be_above_one(run):
    assert run({"policy_loss": "cispo", "clip_range_ratio": 4.0}).config.clip_range_ratio_high == 4.0


def test_old_names_of_paddlenlp_still_work(run):
    values = run({"num_return_sequences": 4, "mini_batch_size": 4, "label_key": "ref"}, drop=["rollout_n"]).config
    assert (values.rollout_n, values.global_mini_batch_size, values.response_key) == (4, 4, "ref")


def test_old_and_new_name_with_different_values_is_refused(run):
    message = refusal(run, {"num_return_sequences": 8})
    assert "num_return_sequences and rollout_n are two names of one setting, given as 8 and 4" in message


def test_overrides_win_over_the_file(run):
    values = run(
        {"learning_rate": "5e-7"},
        ["--max-steps=30", "--rollout_n", "2", "--dynamic_sampling", "--failure_policy", '{"judge_timeout": "abort"}'],
    ).config
    assert (values.max_steps, values.rollout_n, values.dynamic_sampling) == (30, 2, True)
    assert values.learning_rate == 5e-7
    assert values.failure_policy == {"judge_timeout": "abort", "single_candidate": "contrast"}


def test_a_bare_key_is_true_and_no_name_or_number(run):
    assert run(overrides=["--recompute", "--balance_batch"]).config.balance_batch
    assert "output_dir is True; give text" in refusal(run, overrides=["--output_dir", "--max_steps", "3"])
    assert "report_to is True; give a list" in refusal(run, overrides=["--report_to"])


def test_a_null_that_is_the_default_is_the_key_left_out(run):
    assert run({"rule_reward": None, "rollout_servers": None, "reward_prompt_type": None, "lora_alpha": None}).config
    servers = {"rollout_backend": "vllm", "rollout_servers": "http://127.0.0.1:8000"}
    undone = ["--rollout_backend", "paddle", "--rollout_servers", "null"]
    assert run(servers, undone).config.rollout_servers is None


def test_unknown_key_names_the_nearest_known_one(run):
    assert "Unknown key 'lerning_rate'; did you mean 'learning_rate'?" in refusal(run, {"lerning_rate": 1})
    assert "did you mean 'rollout_n'" in refusal(run, overrides=["--rolout_n", "3"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_steps": 2.5}, "max_steps is 2.5; give a whole number"),
        ({"max_steps": True}, "max_steps is True; give a whole number"),
        ({"temperature": "nan"}, "temperature is 'nan'; give a number"),
        ({"dynamic_sampling": 2}, "dynamic_sampling is 2; give true or false"),
        ({"kl_type": "k9"}, "kl_type is 'k9'; give one of k1, abs, k2"),
        ({"failure_policy": ["mask"]}, "failure_policy is ['mask']; give a mapping"),
        ({"output_dir": {}}, "output_dir is {}; give text"),
        ({"failure_policy": {"judge_timeout": "ignore"}}, "unknown failure_policy action 'ignore'"),
        ({"score_scale_factor": 0}, "score_scale_factor is 0; it must be above 0"),
        ({"dual_clip_ratio": 0.5}, "dual_clip_ratio is 0.5; it must be above 1"),
        ({"logging_steps": 0}, "logging_steps is 0; it must be at least 1"),
        ({"seed": -1}, "seed is -1; it must be at least 0"),
        ({"rollout_n": 1e308}, "it must be at least 1 and at most 1000000"),
        ({"num_train_epochs": 1e308}, "num_train_epochs is 1e+308; it must be at least 0 and at most 1000000, or -1"),
        ({"seed": 2**32}, "seed is 4294967296; it must be at least 0 and at most 4294967295"),
        ({"learning_rate": 10**400}, "0; give a number"),
        ({"max_steps": 0}, "max_steps is 0; it must be at least 1 and at most 1000000000, or -1"),
        ({"save_steps": 0}, "save_steps is 0; it must be at least 1"),
        ({"adam_beta1": 1}, "adam_beta1 is 1; it must be at least 0 and below 1"),
        ({"critic_weight_decay": -5}, "critic_weight_decay is -5; it must be at least 0"),
        ({"sharding_parallel_degree": 0}, "sharding_parallel_degree is 0; it must be at least 1, or -1"),
        ({"lr_end": -1}, "lr_end is -1; it must be at least 0"),
        ({"max_unscored_fraction": 1.5}, "max_unscored_fraction is 1.5; it must be at least 0 and at most 1"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_one_sentence(run, changes, message):
    assert message in refusal(run, changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rl_algorithm": "ppo", "critic_decay_steps": 5}, "schedules span the whole run; remove the key"),
        ({"rl_algorithm": "ppo", "critic_tokenizer_alpha": 2.0}, "the critic reads the policy's tokens; remove the"),
        ({"rl_algorithm": "ppo", "use_tgt_len_value": True}, "a value follows from prompt and response alone"),
        ({"rl_algorithm": "ppo", "critic_min_learning_rate": 1e-9}, "critic_min_learning_rate is not supported with"),
        ({"virtual_pp_degree": 2}, "virtual_pp_degree 2 takes pipeline_parallel_degree 3 or more in Paddle"),
        ({"no_cuda": True}, "set device: cpu"),
        ({"ordered_save_group_size": 1}, "PaddleNLP fails at its first save"),
        ({"output_signal_dir": "runs/other"}, "PaddleNLP would delete old checkpoints of that folder too"),
        ({"rollout_backend": "fastdeploy", "min_dec_len": 0}, "rollout_backend fastdeploy needs rollout_servers; give"),
        ({"rollout_backend": "fastdeploy", "rollout_servers": "http://h:1"}, "set min_dec_len: 0"),
        ({"rollout_backend": "vllm", "rollout_servers": "http://h:1", "temperature": 0.8}, "set temperature: 1"),
        ({"rollout_backend": "vllm", "rollout_servers": "h:1"}, "rollout_servers URL 'h:1' is not of the form"),
        (
            {"rollout_backend": "vllm", "rollout_servers": "http://h:1", "rollout_quant_type": "weight_only_int8"},
            "rollout_quant_type has no effect with rollout_backend vllm",
        ),
        (
            {"rollout_max_staleness": 2},
            "rollout_max_staleness has no effect without rollout_backend fastdeploy or vllm",
        ),
        (
            {
                "rollout_backend": "vllm",
                "rollout_servers": "http://h:1",
                "rollout_servers_sleep": True,
                "rollout_ahead": 1,
            },
            "rollout_ahead 1 uses servers while the policy trains",
        ),
        ({"top_p": 0.9}, "allow_biased_sampling"),
        ({"repetition_penalty": 1.1}, "allow_biased_sampling"),
        (
            {"top_p": 0.9, "allow_biased_sampling": True, "rollout_is": "sequence"},
            "top_p 0.9 cannot be combined with rollout_is sequence",
        ),
        ({"rollout_is_cap": 0.5}, "rollout_is_cap is 0.5; it must be at least 1"),
        ({"max_length": 80}, "max_length 80 is less than max_prompt_len 64 + max_dec_len 32; use at least 96"),
        ({"enable_overlong_reward_buffer": True}, "overlong_reward_buffer 256 is longer"),
        ({"use_rm_server": True, "reward_server": "localhost:8731"}, "is not of the form http"),
        ({"use_rm_server": True, "reward_server": "http://me:secret@h:1"}, "holds a user name, password or query"),
        ({"reward_server": "http://127.0.0.1:8731"}, "use_rm_server is false"),
        (
            {
                "use_rm_server": True,
                "reward_server": "http://h:1",
                "reward_protocol": "paddlenlp",
                "default_reward": -1,
            },
            "default_reward has no effect with reward_protocol paddlenlp",
        ),
        (
            {"use_rm_server": True, "reward_server": "http://h:1", "reward_deadline_s": 1},
            "reward_deadline_s is shorter than reward_connect_timeout_s",
        ),
        ({"rollout_n": 1}, "rollout_n 1 leaves advantage_rule grpo without other samples"),
        (
            {"rollout_n": 1, "rl_algorithm": "reinforce_plus_plus", "length_neutral_rewards": True},
            "length_neutral_rewards has no effect with rollout_n 1, since it compares the samples of a prompt",
        ),
        ({"gamma": 0.9}, "gamma 0.9 is not supported with advantage_rule grpo"),
        ({"rl_algorithm": "rloo", "norm_adv_by_std": True}, "norm_adv_by_std contradicts advantage_rule rloo"),
        (
            {"rl_algorithm": "reinforce_plus_plus", "norm_adv_by_std": True},
            "norm_adv_by_std contradicts advantage_rule reinforce_plus_plus",
        ),
        ({"rl_algorithm": "gspo", "policy_loss": "token_clip"}, "rl_algorithm gspo contradicts policy_loss token_clip"),
        ({"rl_algorithm": "gspo", "dual_clip_ratio": 3}, "dual_clip_ratio has no meaning for the gspo loss"),
        ({"sharding": "stage9"}, "sharding is 'stage9'"),
        ({"sharding": "stage3", "device": "cpu"}, "sharding stage3 is not supported"),
        ({"sharding": "stage2"}, "sharding stage2 needs GPUs"),
        ({"tensor_parallel_config": "enable_mp_async_allreduce"}, "async options overlap kernels of GPUs"),
        ({"do_train": False}, "training scripts always train"),
        ({"tensor_parallel_degree": 2}, "tensor_parallel_degree 2 x sharding degree 1 does not divide the 1 process"),
        ({"rollout_tensor_parallel_degree": 2}, "must be tensor_parallel_degree 1, whose ranks then sample with their"),
        (
            {"sharding_parallel_degree": 2, "sharding": "stage1"},
            "does not divide the 1 process(es); start a multiple of 2",
        ),
        ({"sharding_parallel_config": "split_param"}, "split_param needs amp_master_grad"),
        ({"device": "gpu"}, "device is gpu, but PaddlePaddle sees none"),
        ({"gradient_accumulation_steps": 3}, "gradient_accumulation_steps 3 contradicts the batch sizes, which need 8"),
        (
            {"update_iters": 4, "save_steps": 10},
            "save_steps 10 would save in the middle of a rollout of 4 optimizer steps, from which no run can resume; "
            "use 8 or 12",
        ),
        (
            {"lr_scheduler_type": "polynomial", "learning_rate": 1e-7},
            "lr_end 1e-07 must be below learning_rate 1e-07; lower it",
        ),
        ({"eval_on_start": True}, "eval_on_start needs held-out rows to evaluate; set eval_datasets or held_out"),
        ({"held_out": 9, "use_rule_reward": True}, "held_out knows sources of translation tasks"),
        ({"early_stopping": True}, "early_stopping needs evaluations"),
        ({"save_strategy": "epoch"}, "save_strategy epoch is not supported, an RL run counts optimizer steps"),
        (
            {"load_best_model_at_end": True, "evaluation_strategy": "steps", "eval_datasets": "e.jsonl"},
            "metric_for_best_model is None, but evaluations give eval_reward,",
        ),
        ({"use_async_save": True}, "use_async_save: True is not supported"),
        ({"unified_checkpoint_config": "async_save"}, "unified_checkpoint_config async_save is not supported"),
        ({"unified_checkpoint_config": "ignore_merge_optimizer"}, "remove it, or set unified_checkpoint: false"),
        ({"save_sharding_stage1_model_include_freeze_params": True}, "is not supported: PaddleNLP does not read it"),
        ({"ignore_data_skip": True}, "a rollout's prompts follow from its number; remove the key"),
        ({"ignore_load_lr_and_optim": True}, "ignore_load_lr_and_optim: True is not supported"),
    ],
)
def test_what_cannot_take_effect_is_refused_with_the_reason(run, changes, message):
    assert message in refusal(run, changes)


@pytest.mark.parametrize("key", ["output_dir", "train_datasets", "actor_model_name_or_path"])
def test_a_missing_required_key_is_named(run, key):
    assert f"{key} is missing" in refusal(run, drop=[key])


def test_performance_switches_without_effect_are_reported_once(run):
    switches = {"use_flash_attention": True, "use_fused_rope": True, "use_fused_linear": True}
    config = run(switches).config
    on_cpu, on_gpu = (
        switches_without_effect(config.model_copy(update={"device": device})) or "" for device in ("cpu", "gpu")
    )
    for notice in (on_cpu, on_gpu):
        assert "use_fused_linear (Qwen2's and Llama's layers have none)" in notice
    assert "use_flash_attention (attention runs in kernels for CPUs, which keep none either)" in on_cpu
    assert "use_fused_rope (rotation runs in kernels for CPUs)" in on_cpu
    assert "use_flash_attention" not in on_gpu
    assert "use_fused_rope" not in on_gpu
    assert switches_without_effect(run().config) is None


def test_data_ranks_come_from_the_launch(run):
    plan = run({"sharding_parallel_degree": 2, "sharding": "stage1"}, launch=Launch("gpu", 4)).plan
    assert plan.data_ranks == 4


def test_several_reward_servers_are_a_pool(run):
    pool = run({"use_rm_server": True, "reward_server": "http://a:1, http://b:2"}).config.reward_server
    assert pool == ["http://a:1", "http://b:2"]


def test_missing_files_are_named_before_anything_is_loaded(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "train_datasets names the file 'rl.jsonl', which does not exist" in refusal(run, check_machine=True)
    (tmp_path / "rl.jsonl").write_text("{}\n")
    assert run(check_machine=True).config.train_datasets == "rl.jsonl"  # the model is a hub name
    missing = {"actor_model_name_or_path": "runs/sft/checkpoint"}
    assert "'runs/sft/checkpoint', which does not exist" in refusal(run, missing, check_machine=True)
    (tmp_path / "Qwen").mkdir()
    assert "'Qwen/Qwen2.5-0.5B', which does not exist" in refusal(run, check_machine=True)


def test_a_word_for_no_or_every_tracker_stands_alone(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rl.jsonl").write_text("{}\n")
    for word in ("none", "all"):
        assert run({"report_to": word}, check_machine=True).config.report_to == [word]
        message = refusal(run, {"report_to": f"{word}, visualdl"}, check_machine=True)
        assert f"report_to names {word} beside other trackers; leave it out, or the others" in message


def test_best_model_is_chosen_by_a_metric_of_the_evaluation(run):
    evaluated = {"evaluation_strategy": "steps", "eval_datasets": "e.jsonl", "load_best_model_at_end": True}
    for metric in ("reward", "eval_reward_greedy"):
        assert run({**evaluated, "metric_for_best_model": metric}).config.load_best_model_at_end


def test_sft_files(run):
    assert "gradient_accumulation_steps is 0" in refusal(run, {"gradient_accumulation_steps": 0}, stage=SFTConfig)
    values = run(stage=SFTConfig).config
    assert (values.max_length, values.prompt_key, values.gradient_accumulation_steps) == (2048, "src", 1)
    assert "give either model_name_or_path" in refusal(run, {"init_from_config": "c.json"}, stage=SFTConfig)
    scratch = {"model_name_or_path": None, "init_from_config": "c.json"}
    assert "init_from_config needs tokenizer_name_or_path" in refusal(run, scratch, stage=SFTConfig)
    assert "Unknown key 'rollout_n'" in refusal(run, {"rollout_n": 4}, stage=SFTConfig)
    assert "eval_datasets needs evaluations" in refusal(run, {"eval_datasets": "e.jsonl"}, stage=SFTConfig)
    held_out = {"evaluation_strategy": "steps", "val_size": 0.1, "metric_for_best_model": "loss"}
    assert run(held_out, stage=SFTConfig).config.val_size == 0.1
    assert "eval_datasets and val_size exclude" in refusal(run, {**held_out, "eval_datasets": "e"}, stage=SFTConfig)
    sharded, gpu = {**held_out, "sharding": "stage3"}, Launch("gpu", 1)
    assert "stage3 leaves no whole weights" in refusal(run, sharded, stage=SFTConfig, launch=gpu)
    assert "max_evaluate_steps: 3 is not supported" in refusal(run, {"max_evaluate_steps": 3}, stage=SFTConfig)
    skipped = {"skip_data_intervals": [[5, 2]]}
    assert "every stage lays out its batches" in refusal(run, skipped, stage=SFTConfig)
