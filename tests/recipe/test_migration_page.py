"""docs/migration.md: every key of the recipe's tools is there, and every key and option it names on our side exists."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
import yaml
from support.argument_files import typed_values

from grrm.cli import grrm
from grrm.config import RewardModelConfig, RLConfig, SFTConfig
from grrm.config.key import keys_of
from grrm.config.model_shape import MODEL_TYPES
from grrm.engine.options import FASTDEPLOY_OPTIONS
from grrm.errors import UserError
from grrm.judges.gqm import GQMOptions
from grrm.judges.sources import JudgeSource
from grrm.judges.verified import RuleRubricOptions
from grrm.models.checkpoint import check_checkpoint
from grrm_reward_server.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs/migration.md").read_text(encoding="utf-8")
CODE = re.compile(r"`([^`]+)`")
TRAINING_KEYS = {name for config in (RLConfig, SFTConfig, RewardModelConfig) for name in keys_of(config)}
OTHER_NAMES = {"grrm.rank", "grrm.translate", "run_sft.py", "run_rl.py", "A B", "model_type", "qwen2_moe"}
OTHER_NAMES |= {"paddle.distributed.launch --gpus", "paddle.distributed.launch", "--nnodes", "append_attention"}
OTHER_NAMES |= {"python reward_server/reward_server.py", "dataset_info.json", "run_reward.py", "run_dpo.py"}
OTHER_NAMES |= {"val_kwargs", "ray job submit", "--master", "ROLLOUT_CALC_LOG_PROBS", "--language en"}

# Options of programs that set up a machine: pip, hf, nvidia-smi.
OF_TOOLS = {"--no-build-isolation", "--repo-type", "--local-dir", "--query-gpu", "--format"}
GRRM_FLAGS = (
    "mt_key score_key analysis_key response_key prompt_type add_example subgroup_augment shuffle_augment testset"
)
EAX = """data_path output_path model_path max_new_tokens sampling_n chat_template part_id device_num force_overwrite
src_text_key src_lang_key trg_lang_key out_key temperature top_p text_key bleurt_path ref_key mt_key inplace
mt_texts_key min_margin valid_score_range limit_for_each_lang_pair use_sampling_num min_winner_score trg_text_key
ref_text_key ref_lang_key to_percentile tokenizer_path max_len chosen_text_key rejected_text_key diverse_prompt
src_key trg_key"""
LLAMA_FACTORY = """model_name_or_path flash_attn stage do_train finetuning_type deepspeed dataset template cutoff_len
overwrite_cache preprocessing_num_workers dataloader_num_workers output_dir logging_steps save_steps plot_loss
overwrite_output_dir report_to per_device_train_batch_size gradient_accumulation_steps learning_rate num_train_epochs
lr_scheduler_type warmup_ratio bf16 ddp_timeout resume_from_checkpoint val_size eval_strategy eval_steps
per_device_eval_batch_size FORCE_TORCHRUN NNODES NODE_RANK MASTER_ADDR MASTER_PORT"""
VERL = """TRAIN_FILES VAL_FILES TRAIN_BATCH_SIZE VAL_BATCH_SIZE MAX_PROMPT_LENGTH MAX_RESPONSE_LENGTH ACTOR_MODEL_PATH
ACTOR_OPT_LR ACTOR_LR_SCHEDULER_TYPE ACTOR_MIN_LR_RATIO ACTOR_WARMUP_STEPS ACTOR_PPO_MINI_BSZ
ACTOR_PPO_MICRO_BSZ_PER_GPU ACTOR_LOSS_MODE ACTOR_LOSS_AGG_MODE ACTOR_CLIP_RATIO_LOW ACTOR_CLIP_RATIO_HIGH
ACTOR_STRATEGY ACTOR_MODEL_DTYPE ACTOR_ULYSSES_SP_SIZE ACTOR_SFT_COEF ROLLOUT_NAME ROLLOUT_MODE ROLLOUT_CALC_LOG_PROBS
ROLLOUT_LOG_PROB_MB_PER_GPU ROLLOUT_TENSOR_MP_SIZE ROLLOUT_GPU_MEM_UTIL ROLLOUT_N ROLLOUT_TEMPERATURE ROLLOUT_TOP_P
ROLLOUT_TOP_K VAL_TEMPERATURE VAL_TOP_P VAL_TOP_K VAL_DO_SAMPLE ADV_ESTIMATOR KL_COEF NORM_ADV_BY_STD_IN_GRPO
ACTOR_USE_KL_LOSS REWARD_MODEL_PATH REWARD_RESPONSE_LENGTH REWARD_PROMPT_LENGTH REWARD_MAX_NUM_BATCHED_TOKENS
REWARD_ROLLOUT_NAME REWARD_ROLLOUT_MODE REWARD_GPU_MEM_UTIL REWARD_TENSOR_MP_SIZE REWARD_TEMPERATURE REWARD_TOP_P
REWARD_TOP_K REWARD_SCORE_SCALE REWARD_MANAGER REWARD_ENABLE REWARD_STRATEGY REWARD_FREE_CACHE_ENGINE
REWARD_CUSTOM_PROCESSOR_PATH REWARD_CUSTOM_PROCESSOR_NAME CUSTOM_REWARD_FN_PATH CUSTOM_REWARD_FN_NAME REWARD_KEEP_GROUP
RESPONSE_EXTRACTOR_TYPE OVERLONG_BUFFER_ENABLE OVERLONG_BUFFER_LEN OVERLONG_BUFFER_PENALTY_FACTOR DEFAULT_REWARD
REWARD_OVERLONG_BUFFER_ENABLE REWARD_OVERLONG_BUFFER_LEN REWARD_OVERLONG_BUFFER_PENALTY_FACTOR
REWARD_OVERLONG_BUFFER_LOG REWARD_MAX_RESP_LEN PROJECT_NAME EXPERIMENT_NAME N_GPUS_PER_NODE VAL_BEFORE_TRAIN NNODES
SAVE_FREQ TEST_FREQ RESUME_MODE TOTAL_EPOCHS DEFAULT_LOCAL_DIR data.filter_overlong_prompts data.shuffle
data.truncation actor_rollout_ref.actor.shuffle actor_rollout_ref.model.use_remove_padding
actor_rollout_ref.actor.use_dynamic_bsz actor_rollout_ref.ref.log_prob_use_dynamic_bsz actor_rollout_ref.ref.strategy
actor_rollout_ref.actor.kl_loss_type actor_rollout_ref.model.enable_gradient_checkpointing
actor_rollout_ref.actor.fsdp_config.param_offload critic.optim.lr critic.model.path critic.ppo_micro_batch_size_per_gpu
algorithm.use_kl_in_reward trainer.logger actor_rollout_ref.rollout.log_prob_use_dynamic_bsz
actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu actor_rollout_ref.ref.ulysses_sequence_parallel_size
actor_rollout_ref.rollout.calculate_log_probs"""
RRM = """BASE_MODEL MAX_EPOCHS DATASET NO_ENTROPY_LOSS_AND_KL VERIFIER_MODEL VERIFIER_SETUP VERIFIER_WEIGHT MAX_RETRIES
ROLLOUT_BATCH_SIZE ROLLOUT_N_SAMPLE PPO_MINI_BATCH_SIZE MAX_PROMPT_LEN MAX_RESPONSE_LEN PPO_MAX_TOKEN_LEN_PER_GPU
MAX_NUM_BATCHED_TOKENS RUN_NAME SAVED_DIR GPUS_PER_NODE data.train_files data.val_files actor_rollout_ref.actor.optim.lr
actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.kl_loss_coef algorithm.kl_ctrl.kl_coef
actor_rollout_ref.actor.fsdp_config.optimizer_offload actor_rollout_ref.rollout.gpu_memory_utilization
critic.model.use_remove_padding critic.ppo_max_token_len_per_gpu critic.forward_max_token_len_per_gpu
trainer.critic_warmup trainer.rollout_data_dir trainer.validation_data_dir trainer.nnodes trainer.save_freq
trainer.test_freq trainer.resume_mode reward_model.reward_manager reward_model.tinyv_setup reward_model.tinyv_weight"""
PADDLENLP = """FLAGS_set_to_1d=False NVIDIA_TF32_OVERRIDE=0 FLAGS_dataloader_use_file_descriptor=False
HF_DATASETS_DOWNLOAD_TIMEOUT=1 FLAGS_gemm_use_half_precision_compute_type=False
FLAGS_force_cublaslt_no_reduced_precision_reduction=True FLAGS_mla_use_tensorcore=0
FLAGS_cascade_attention_max_partition_size=2048 paddlenlp_ops fused_ln fast_ln PYTHONPATH"""


def rows(section: str) -> list[tuple[str, str]]:
    """(there, here) of the tables below a heading."""
    _, found, rest = PAGE.partition(f"\n## {section}\n")
    assert found, section
    lines = rest.partition("\n## ")[0].splitlines()
    cells = [line.strip("|").split("|") for line in lines if line.startswith("| ")]
    return [(there.strip(), here.strip()) for there, here in cells if there.strip() not in ("there", "flag", "key")]


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ("GRRM's scripts", GRRM_FLAGS),
        ("EAX's scripts", EAX),
        ("LLaMA-Factory (cold starts)", LLAMA_FACTORY),
        ("verl's gen_rm branch (RLVR and RL)", VERL),
        ("RRM's run_rubric.sh", RRM),
        ("PaddleNLP's RL", PADDLENLP),
    ],
)
def test_every_key_of_theirs_has_a_place_here_or_a_reason(section: str, names: str) -> None:
    told = [name for there, _ in rows(section) for name in CODE.findall(there)]
    assert set(names.split()) - set(told) == set()
    assert len(told) == len(set(told))
    for _, here in rows(section):
        assert here, section


def published(prefix: str) -> list[list[str]]:
    lines = (Path(__file__).parent / "published_names.txt").read_text(encoding="utf-8").splitlines()
    return [line.split() for line in lines if re.match(prefix, line)]


def test_every_flag_variable_and_key_of_the_published_commands_is_on_the_page() -> None:
    told = {word.partition("=")[0] for code in CODE.findall(PAGE) for word in code.split()}
    for (name,) in published(r"--"):
        if name not in OF_TOOLS:
            assert told & {name, name.removeprefix("--")}, name
    for (name,) in published(r"[A-Z]"):
        assert name in told, name
    for key, *variables in published(r"[a-z]"):
        families = [".".join([*key.split(".")[:n], "*"]) for n in range(1, key.count(".") + 1)]
        assert key in told or (told.intersection(families) and told.intersection(variables)), key


def options(command: click.Command) -> set[str]:
    own = {name for parameter in command.params for name in parameter.opts if name.startswith("--")}
    below = command.commands.values() if isinstance(command, click.Group) else ()
    return own.union(*map(options, below))


def test_every_key_and_option_on_our_side_exists() -> None:
    known = TRAINING_KEYS | {*Settings.model_fields, *FASTDEPLOY_OPTIONS, *OTHER_NAMES, *options(grrm)}
    known |= {name for of in (GQMOptions, RuleRubricOptions) for name in of.model_fields}
    known |= {*JudgeSource.model_fields}
    for section in re.findall(r"^## (.+)$", PAGE, re.MULTILINE):
        for there, here in rows(section):
            for code in CODE.findall(there if here == "the same" else here):
                if code.startswith("grrm "):
                    check_command(code)
                elif ": " in code:
                    for config in (RLConfig, SFTConfig):
                        if set(yaml.safe_load(code)) <= set(keys_of(config)):
                            typed_values(config, yaml.safe_load(code))
                            break
                    else:
                        pytest.fail(code)
                else:
                    assert code in known, code


def check_command(line: str) -> None:
    command: click.Command = grrm
    _, *words = line.split()
    while isinstance(command, click.Group) and words:
        command = command.commands[words.pop(0)]
    assert {word for word in words if word.startswith("--")} <= options(command), line


def test_models_are_accepted_and_refused_as_the_page_says(tmp_path: Path) -> None:
    assert {"qwen2", "qwen3", "qwen2_moe", "llama"} == set(MODEL_TYPES)
    (tmp_path / "config.json").write_text('{"model_type": "qwen3_moe"}')
    with pytest.raises(UserError, match="architecture 'qwen3_moe', which cannot be opened here"):
        check_checkpoint(tmp_path)
