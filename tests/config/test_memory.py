"""The memory plan: shapes that are the published ones, sizes that follow the formulas, layouts that fit."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grrm.config import Launch, RewardModelConfig, RLConfig, SFTConfig, prepare
from grrm.config.layout import Layout, smallest_layout
from grrm.config.memory import GIB, largest_shard, memory_of
from grrm.config.memory_rows import fits, parse_memory
from grrm.config.model_shape import model_shape
from grrm.config.passes import Formats, activations, layer_backward, update_phases
from grrm.config.plan import Machine, fewest_devices, plan_of_file, show_plan
from grrm.config.workload import Workload
from grrm.errors import UserError, UserErrors

FOLDER = Path(__file__).parents[2] / "llm" / "config" / "qwen"
GRPO = str(FOLDER / "grpo_grrm_argument.yaml")
GPU = Formats("gpu", 2, 2, 4, 12)
PUBLISHED = {
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B-Instruct": 1_543_714_304,
    "runs/qwen2.5-3b/sft": 3_085_938_688,
    "Qwen/Qwen2.5-7B-Instruct-1M": 7_615_616_512,
    "Qwen/Qwen2.5-Coder-14B": 14_770_033_664,
    "Qwen2.5-32B": 32_763_876_352,
    "qwen25_72b": 72_706_203_648,
}


def values(name: str, machine: Machine, *overrides: str) -> dict[str, str]:
    return {row[0].strip(): row[1] for row in plan_of_file(str(FOLDER / name), machine, overrides)}


def in_gib(text: str) -> float:
    return float(re.sub(r"[ ,GiB]", "", text))


@pytest.mark.parametrize(("name", "numbers"), PUBLISHED.items())
def test_shapes_of_qwen25_have_the_published_number_of_weights(name, numbers):
    assert model_shape(name).numbers() == numbers


def test_a_supervised_plan_has_the_pass_of_an_evaluation():
    words = ["--per_device_train_batch_size", "1", "--per_device_eval_batch_size", "64", "--max_length", "12000"]
    assert "while scoring" not in values("sft_argument.yaml", Machine(8), *words)
    evaluated = values("sft_argument.yaml", Machine(8), *words, "--evaluation_strategy", "steps", "--val_size", "0.1")
    assert in_gib(evaluated["while scoring"]) > in_gib(evaluated["while updating"])


@pytest.mark.parametrize(("name", "rows"), [("ppo_grrm_argument.yaml", 64), ("grpo_grrm_argument.yaml", 8)])
def test_scoring_is_planned_for_the_values_of_a_critic_too(name, rows):
    words = ["--per_device_value_batch_size", "64"]
    (note,) = (note for part, _, note in plan_of_file(str(FOLDER / name), Machine(8), words) if part == "  scoring")
    assert note == f"{rows * 5_376:,} tokens"


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_moments_of_sixteen_bits_are_those_of_weights_of_sixteen_bits(level):
    """Beside these a float32 copy; PaddleNLP's optimizer has float32 moments for float32 weights."""
    words = ["--optim", "adamw_16bit_moment", "--fp16_opt_level", level]
    (states,) = (note for name, _, note in plan_of_file(GRPO, Machine(8), words) if name.strip() == "optimizer states")
    assert states.startswith("8 bytes")


def test_adapters_of_lora_have_the_published_number_of_weights_and_are_all_that_is_trained():
    config = prepare(RLConfig, GRPO, ["--lora", "true"], Launch("cpu", 8), check_machine=False).config
    shape, work = model_shape("Qwen2.5-7B"), Workload.of(config, 1)
    assert sum(weight.numbers for weight in work.trained(shape.weights(), shape.hidden)) == 20_185_088
    memory = memory_of(config, shape, Layout(), work)
    held = {part.name: part.size for part in memory.held}
    assert held["gradients"] < held["weights"] / 100
    assert "weights without adapters" in {part.name for part in memory.rollout}


def test_a_shape_is_read_from_a_folder_or_file(tmp_path):
    sizes = json.loads((FOLDER / "tiny_model_config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**sizes, "model_type": "llama"}))
    qwen, llama = model_shape(str(FOLDER / "tiny_model_config.json")), model_shape(str(tmp_path))
    assert (qwen.hidden, qwen.layers, qwen.key_heads, qwen.tied, qwen.bias) == (192, 3, 2, True, True)
    assert qwen.numbers() - llama.numbers() == 3 * (192 + 2 * 96), "biases of queries, keys and values"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"model_type": "bert"}', "model_type 'bert' is not supported"),
        ('{"model_type": "qwen2", "num_attention_heads": 0}', "num_attention_heads is 0; it must be a positive"),
        ('{"model_type": "qwen2", "num_attention_heads": 3, "hidden_size": 8}', "3 does not divide hidden_size 8"),
        ("[]", "is not a model configuration"),
        ("{", "is not a readable model configuration"),
    ],
)
def test_a_damaged_shape_is_one_sentence(tmp_path, content, message):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=re.escape(message)):
        model_shape(str(tmp_path))


@pytest.mark.parametrize("name", ["my-policy", "Qwen/Qwen2.5-4B", "Qwen/Qwen2.5-7Beta"])
def test_a_name_without_a_known_shape_asks_for_one(name):
    with pytest.raises(UserError, match=r"give its config\.json with --model"):
        model_shape(name)


def test_tensor_ranks_share_all_but_norms_and_say_what_they_cannot_share():
    shape = model_shape("Qwen2.5-7B")
    norms = sum(weight.numbers for weight in shape.weights() if "norm" in weight.name)
    assert shape.numbers(4) == (shape.numbers() - norms) // 4 + norms
    shape.check_divides(4)
    with pytest.raises(UserErrors, match=r"X\.yaml: 2 mistakes") as caught:
        shape.check_divides(8, "X.yaml")
    assert caught.value.sentences == (
        "tensor_parallel_degree 8 does not divide the 28 attention heads of Qwen2.5-7B; use 1 or 2 or 4.",
        "tensor_parallel_degree 8 does not divide the 4 key and value heads of Qwen2.5-7B; use 1 or 2 or 4.",
    )


@given(st.integers(1, 16), st.booleans())
def test_a_shard_is_at_least_its_share_and_at_most_one_tensor_more(ranks, is_even):
    weights = list(model_shape("Qwen2.5-0.5B").weights())
    total, largest = sum(one.numbers for one in weights), max(one.numbers for one in weights)
    shard = largest_shard(weights, Layout(sharding=ranks, stage=1), is_even)
    assert total / ranks <= shard <= total / ranks + (1 if is_even else largest)
    assert is_even or shard >= largest, "Paddle keeps a tensor whole"


def test_activations_of_one_layer_are_counted_number_by_number():
    shape = replace(model_shape("Qwen2.5-7B"), layers=1)
    fused = Layout(flash=True, fused_rotary=True)
    kept = 4 * 3584 + 2 * 3584 + 2 * 512 + 3 * 18944 + 2 * 4 * 3584
    backward = 3 * 18944 + 2 * 3584
    assert activations(shape, fused, 10, 10, GPU) == 10 * kept * 2
    assert layer_backward(shape, fused, 10, 10, GPU) == 10 * backward * 2
    recomputing = replace(fused, recompute="full")
    assert activations(shape, recomputing, 10, 10, GPU) == 10 * 3584 * 2
    assert layer_backward(shape, recomputing, 10, 10, GPU) == 10 * (kept + backward) * 2


def test_an_update_takes_what_its_largest_phase_takes():
    config = prepare(RLConfig, GRPO, (), Launch(None, 8), check_machine=False).config
    shape, work = model_shape("Qwen2.5-7B"), Workload.of(config, 4)
    memory = memory_of(config, shape, Layout(recompute="full"), work)
    _, head, layer, embedding = update_phases(shape, Layout(), "full", work, Formats.of(config))
    assert head[0] == layer[0], "all activations are there"
    assert embedding[0].size == 152_064 * 3584 * 4
    assert sum(part.size for part in memory.update) == max(sum(p.size for p in phase) for phase in (head, layer))


def test_the_head_of_a_ranker_is_trained_and_has_activations():
    file = str(FOLDER / "ranker_argument.yaml")
    config = prepare(RewardModelConfig, file, (), Launch(None, 8), check_machine=False).config
    work, shape = Workload.of(config, 1), model_shape("Qwen2.5-0.5B")
    assert sum(weight.numbers for weight in work.head(shape)) == (3 * 896 + 2) * 896 + 2 * 12 * 896**2
    with_head, without = (memory_of(config, shape, Layout(), replace(work, ranker_blocks=blocks)) for blocks in (2, 0))
    assert all(with_head.held[i].size > without.held[i].size for i in range(3))
    assert sum(part.size for part in with_head.update) > sum(part.size for part in without.update)


def test_what_saves_memory_does():
    shape = model_shape("Qwen2.5-7B")
    whole = Layout()

    def of(**changes) -> int:
        return activations(shape, replace(whole, **changes), 4096, 4096, GPU)

    plain = of()
    savings = ({"recompute": "full"}, {"recompute": "full_attn"}, {"recompute": "core_attn"}, {"flash": True})
    assert all(of(**change) < plain for change in (*savings, {"tensor": 2}))
    assert of(recompute="full") < of(recompute="full_attn") < of(recompute="core_attn")
    assert of(tensor=2, sequence=True) < of(tensor=2)


def test_stages_of_sharding_divide_states_gradients_and_weights():
    shape = model_shape("Qwen2.5-7B")
    config = prepare(RLConfig, GRPO, (), Launch(None, 8), check_machine=False).config
    work = Workload.of(config, 1)
    sizes = [
        {part.name: part.size for part in memory_of(config, shape, Layout(sharding=8, stage=stage), work).held}
        for stage in range(4)
    ]
    for stage, name in ((1, "optimizer states"), (2, "gradients"), (3, "weights")):
        assert sizes[stage][name] * 7 < sizes[stage - 1][name]
    assert sizes[0]["weights"] == 2 * shape.numbers()
    assert sizes[0]["gradients"] == 4 * shape.numbers(), "amp_master_grad"
    assert sizes[0]["optimizer states"] == 12 * shape.numbers(), "float32 weights and two moments"


def test_the_suggested_layout_fits_and_every_smaller_one_does_not():
    shape = model_shape("Qwen2.5-14B")
    config = prepare(RLConfig, GRPO, (), Launch(None, 8), check_machine=False).config

    def fitting(layout: Layout) -> bool:
        return fits(memory_of(config, shape, layout, Workload.of(config, layout.rows)), 80 * GIB)

    found = smallest_layout(config, shape, 8, fitting)
    assert found is not None
    assert fitting(found)
    assert found.tensor * found.sharding == 8
    assert not any(
        fitting(replace(found, tensor=found.tensor // 2, sharding=2 * found.sharding, rows=rows, recompute=recompute))
        for rows in (1, 2, 4)
        for recompute in ("", "full")
    )


def test_a_tensor_rank_samples_from_whole_weights_or_from_its_part():
    shape = model_shape("Qwen2.5-0.5B")
    file = FOLDER / "grpo_grrm_tiny_argument.yaml"
    config = prepare(RLConfig, file, (), Launch("cpu", 2), check_machine=False).config
    packed = 4 * shape.numbers()  # in the layout of the BLAS

    def copied(layout: Layout) -> int:
        memory = memory_of(config, shape, layout, Workload.of(config, layout.rows))
        copies = ("packed weights", "weights for rollouts")
        return sum(part.size for part in (*memory.held, *memory.rollout) if part.name in copies)

    assert copied(Layout()) == packed
    assert copied(Layout(tensor=2)) == packed + 4 * shape.numbers()
    assert copied(Layout(tensor=2, together=True)) == 0


ON_CPU = {"device": "cpu", "use_flash_attention": "false", "use_fused_rope": "false"}


@pytest.mark.parametrize(
    ("settings", "refused"),
    [
        ({"lora": "true"}, "tensor_parallel_degree"),
        ({"max_tokens_per_micro_batch": "6144"}, "sequence_parallel: true"),
        ({"rollout_backend": "vllm", "rollout_servers": '["http://127.0.0.1:8000"]'}, "rollout_tensor_parallel_degree"),
        ({**ON_CPU, "bf16": "false", "rollout_quant_type": "weight_only_int8"}, "rollout_tensor_parallel_degree"),
        (ON_CPU, "rollout_tensor_parallel_degree"),
    ],
)
def test_no_layout_is_suggested_that_a_run_would_refuse(settings, refused):
    overrides = [word for key, value in settings.items() for word in (f"--{key}", value)]
    found = values("grpo_grrm_argument.yaml", Machine(8, 80 * GIB, model="Qwen2.5-32B"), *overrides)
    assert refused not in found["smallest layout that fits"]


def test_plan_of_an_rl_file_tells_phases_cache_and_verdict():
    found = values("grpo_grrm_argument.yaml", Machine(8, 80 * GIB, 20_000.0))
    assert found["model"] == "Qwen2.5-7B"
    assert in_gib(found["weights"]) == pytest.approx(7_615_616_512 * 2 / GIB, abs=0.01)
    held = sum(in_gib(found[name]) for name in ("weights", "gradients", "optimizer states", "rotary tables"))
    assert in_gib(found["while updating"]) == pytest.approx(
        held + in_gib(found["activations"]) + in_gib(found["output layer"]), abs=0.05
    )
    assert found["hours per 1,000 rows, at most"] == f"{1000 * 4 * 5376 / 20_000 / 3600:.2f}"
    assert (found["fits as written"], found["smallest layout that fits"]) == ("yes", "as written")
    assert int(found["sequences of full length at once"]) <= 64
    on_small = values("grpo_grrm_argument.yaml", Machine(8, 40 * GIB))
    assert on_small["smallest layout that fits"].startswith("tensor_parallel_degree: 2, sequence_parallel: true")


def test_a_plan_says_where_nothing_fits_the_devices_and_that_the_run_does_not_fit(tmp_path):
    rows = {name: (value, note) for name, value, note in plan_of_file(GRPO, Machine(8, 24 * GIB))}
    value, note = rows["smallest layout that fits"]
    assert value == "none on 8 device(s)"
    assert note.startswith("with 16 devices, --devices 16: tensor_parallel_degree: 4")
    assert not show_plan(GRPO, Machine(8, 24 * GIB), out=io.StringIO())
    assert show_plan(GRPO, Machine(8, 80 * GIB), out=io.StringIO())


def test_a_plan_takes_as_many_devices_as_the_degrees_of_its_file_need():
    assert fewest_devices(str(FOLDER / "dpo_argument.yaml")) == 2
    assert fewest_devices(GRPO) == 1


def test_a_judge_on_the_device_is_counted_with_its_weights_and_its_longest_reply(tmp_path):
    sizes = json.loads((FOLDER / "tiny_model_config.json").read_text()) | {"hidden_size": 2048, "num_hidden_layers": 32}
    sizes |= {"num_attention_heads": 32, "num_key_value_heads": 32, "max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(sizes))
    options = {"prompt_length": 1000, "max_new_tokens": 24}
    sources = [{"judge": "gqm", "model": str(tmp_path), "options": options}, {"judge": "ranker", "model": "nowhere"}]
    inside = ["--use_rm_server", "false", "--reward_server", "null", "--reward_sources", json.dumps(sources)]
    found = values("grpo_grrm_argument.yaml", Machine(8, 80 * GIB), *inside)
    alone = values("grpo_grrm_argument.yaml", Machine(8, 80 * GIB))
    weights = 2 * model_shape(str(tmp_path)).numbers() / GIB
    assert in_gib(found["judge gqm"]) >= round(weights, 2)
    for phase in ("while updating", "while scoring", "while sampling, less the cache"):
        assert in_gib(found[phase]) == pytest.approx(in_gib(alone[phase]), abs=0.02), "it leaves the device meanwhile"
    held = in_gib(found["while sampling, less the cache"]) - in_gib(found["rollout pass"])
    judging = held + in_gib(found["judge gqm"]) + in_gib(found["judge's pass"])
    assert in_gib(found["while judging, less the cache"]) == pytest.approx(judging, abs=0.03)
    one = 1024 * 2 * 32 * 2048 * 2 / GIB  # positions, keys and values, layers, hidden, bytes
    assert in_gib(found["KV cache of one reply of the judge"]) == pytest.approx(one, abs=0.006)
    room = 0.7 * (80 - in_gib(found["while judging, less the cache"]))
    assert int(found["judge's replies of full length at once"]) == pytest.approx(room / one, abs=2)
    assert found["judge ranker"] == "unknown"
    assert "while judging, less the cache" not in alone


def test_plans_of_supervised_stages(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n" * 640)
    sft = values("sft_argument.yaml", Machine(8), "--train_datasets", str(rows))
    assert (sft["rows per optimizer step"], sft["optimizer steps"], sft["training rows"]) == ("64", "10", "640")
    assert "KV cache, all at full length" not in sft
    assert "fits as written" not in sft
    pairs = values("rm_argument.yaml", Machine(8, 80 * GIB), "--max_steps", "70")
    assert (pairs["groups per optimizer step"], pairs["optimizer steps"]) == ("32", "70")
    assert in_gib(pairs["gradients"]) < 2 * in_gib(pairs["weights"]), "its output layer is not trained"
    assert values("ranker_argument.yaml", Machine(8))["groups"] == "8 candidates"


def test_held_out_rows_are_not_planned_as_training_rows(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n" * 5_000)
    prompts = [
        values("grpo_grrm_argument.yaml", Machine(8), "--train_datasets", str(rows), *options)["training prompts"]
        for options in (["--held_out", "200"], ["--held_out", "5000"], ["--held_out", "200", "--eval_datasets", "x"])
    ]
    assert prompts == ["4,800", "4,500", "5,000"]


@pytest.mark.parametrize(("val_size", "trained"), [("0.1", "4,500"), ("200", "4,800")])
def test_rows_that_supervised_stages_hold_out_are_not_planned_either(tmp_path, val_size, trained):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("{}\n" * 5_000)
    options = (
        "--train_datasets",
        str(rows),
        "--val_size",
        val_size,
        "--max_steps",
        "9",
        "--evaluation_strategy",
        "steps",
    )
    assert values("sft_argument.yaml", Machine(8), *options)["training rows"] == trained
    with pytest.raises(UserError, match="no examples are left to train on: add data, or lower val_size"):
        values("sft_argument.yaml", Machine(8), *options, "--val_size", "9000")
    beside = values("sft_argument.yaml", Machine(8), *options, "--val_size", "0", "--eval_datasets", "x")
    assert beside["training rows"] == "5,000"


@pytest.mark.parametrize(
    ("name", "rows"), [("sft_argument.yaml", 1), ("rm_argument.yaml", 2), ("ranker_argument.yaml", 8)]
)
def test_hours_count_all_texts_of_an_example(name, rows):
    plan = values(name, Machine(8, tokens_per_second=1000.0))
    tokens = rows * int(plan["tokens per row, at most"].replace(",", ""))
    assert plan["hours per 1,000 rows, at most"] == f"{tokens / 3600:.2f}"


def test_degrees_that_do_not_divide_the_model_are_refused_all_at_once(tmp_path):
    file = tmp_path / "sft.yaml"
    file.write_text("model_name_or_path: Qwen/Qwen2.5-0.5B\ntrain_datasets: x\noutput_dir: x\n")
    assert plan_of_file(str(file), Machine(1))
    with pytest.raises(UserError, match="tensor_parallel_degree 4"):
        show_plan(str(file), Machine(4), ["--tensor_parallel_degree", "4"], io.StringIO())


def test_an_unknown_model_has_batches_and_with_a_limit_is_an_error():
    tiny, elsewhere = "grpo_grrm_tiny_argument.yaml", ("--actor_model_name_or_path", "x")
    assert values(tiny, Machine(2), *elsewhere)["model"] == "unknown"
    with pytest.raises(UserError, match="the shape of the model 'x' is not known"):
        values(tiny, Machine(2, GIB), *elsewhere)
    small = values(tiny, Machine(2, GIB, model=str(FOLDER / "tiny_model_config.json")), *elsewhere)
    assert small["fits as written"] == "yes"


@pytest.mark.parametrize(
    ("text", "size"),
    [("80G", 80 * GIB), ("81559MiB", 81559 * 2**20), ("0.5 TB", 512 * GIB), ("24gb", 24 * GIB), ("80", 80 * GIB)],
)
def test_memory_is_read_with_its_unit(text, size):
    assert parse_memory(text) == size


@pytest.mark.parametrize("text", ["G", "-1G", "0G", "80 apples"])
def test_memory_that_is_no_size_is_refused(text):
    with pytest.raises(UserError, match="--memory is"):
        parse_memory(text)


def test_the_stage_of_a_file_is_that_which_knows_its_keys():
    for name, stage in (("sft", SFTConfig), ("rm", RewardModelConfig), ("rlvr_grrm", RLConfig)):
        rows = plan_of_file(str(FOLDER / f"{name}_argument.yaml"), Machine(8))
        assert ("rollouts" in dict(row[:2] for row in rows)) == (stage is RLConfig)
