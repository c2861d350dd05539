"""What `grrm export` writes has the names, shapes and numbers of transformers.

transformers_shapes.json is what its `save_pretrained` (5.23.0) wrote of the same four models.
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import numpy as np
import paddle
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from support.command_line import invoke
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

from grrm.errors import UserError
from grrm.models import export, shards
from grrm.models.checkpoint import load_causal_lm
from grrm.models.export import export_policy
from grrm.models.hub import TOKENIZER_FILES
from grrm.models.shards import PICKLED
from grrm.models.tokenizer import load_tokenizer

SHAPES = json.loads((Path(__file__).parent / "transformers_shapes.json").read_text())
ROW = paddle.to_tensor([[3, 17, 200, 5, 9, 41, 260, 7]])


def checkpoint(folder: Path, name: str = "qwen2 tied") -> Path:
    """A checkpoint whose biases and norms are no constants."""
    architecture, head = name.split()
    write_tiny_checkpoint(folder, architecture=architecture, tie=head == "tied")
    draw = np.random.default_rng(5)
    weights = {
        key: draw.normal(1.0, 0.2, value.shape).astype("float32") if value.ndim == 1 else value
        for key, value in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors", {"format": "np"})
    return folder


def stored(file: Path) -> dict[str, list[int]]:
    with safe_open(str(file), framework="np") as tensors:
        return {name: tensors.get_slice(name).get_shape() for name in tensors.keys()}  # noqa: SIM118


def logits(folder: Path) -> np.ndarray:
    positions = paddle.arange(ROW.shape[1]).unsqueeze(0)
    found = load_causal_lm(folder)(
        input_ids=ROW, attention_mask=paddle.ones(ROW.shape, "int64"), position_ids=positions
    )
    return (found[0] if isinstance(found, tuple) else found).numpy()


@pytest.mark.parametrize("name", SHAPES)
def test_names_and_shapes_are_those_of_transformers_and_the_model_is_the_same(tmp_path, name):
    folder = checkpoint(tmp_path / "run", name)
    export_policy(folder, tmp_path / "hf")
    assert stored(tmp_path / "hf/model.safetensors") == SHAPES[name]
    np.testing.assert_array_equal(logits(tmp_path / "hf"), logits(folder))
    config = json.loads((tmp_path / "hf/config.json").read_text())
    assert config["torch_dtype"] == "float32"
    assert (config["tie_word_embeddings"], config["rope_theta"]) == (name.endswith(" tied"), 10000.0)


def test_the_command_writes_a_folder_with_tokenizer_and_what_ends_a_reply(tmp_path):
    folder, template = checkpoint(tmp_path / "run"), "{{ messages[0].content }}"
    (folder / "chat_template.jinja").write_text(template)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, 2]}))
    words = ["export", str(folder), str(tmp_path / "hf"), "--license", "mit"]
    done = invoke(*words)
    written = {Path(line).name for line in done.output.splitlines()}
    assert written >= {"config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}
    assert json.loads((tmp_path / "hf/generation_config.json").read_text())["eos_token_id"] == [0, 2]
    assert (tmp_path / "hf/chat_template.jinja").read_text() == template
    assert "license: mit\n" in (tmp_path / "hf/README.md").read_text()
    with pytest.raises(UserError, match="is there already"):
        export_policy(folder, tmp_path / "hf")


def test_the_tokenizer_of_a_run_has_the_class_name_of_transformers_and_no_path_of_this_machine(tmp_path):
    folder = checkpoint(tmp_path / "run")
    load_tokenizer(folder).save_pretrained(str(folder))  # as a run ends
    export_policy(folder, tmp_path / "hf")
    before, after = (json.loads((path / "tokenizer_config.json").read_text()) for path in (folder, tmp_path / "hf"))
    assert before["tokenizer_class"] == "PretrainedTokenizerFast"  # of PaddleNLP; transformers 4 knows no such class
    assert after["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert after["eos_token"] == before["eos_token"]
    assert str(tmp_path) in json.dumps(before)
    assert str(tmp_path) not in json.dumps(after)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_pickled_checkpoint_of_a_run_is_the_same_as_its_safetensors(tmp_path, dtype):
    folder = checkpoint(tmp_path / "run")
    model = load_causal_lm(folder, dtype)
    model.save_pretrained(str(folder), safe_serialization=True)
    export_policy(folder, tmp_path / "hf")
    paddle.save(model.state_dict(), str(folder / PICKLED))
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"convert them with `grrm export .*run NEW_FOLDER`"):
        load_causal_lm(folder)
    export_policy(folder, tmp_path / "from pickled")
    one, other = (tmp_path / name for name in ("hf", "from pickled"))
    assert stored(one / "model.safetensors") == stored(other / "model.safetensors")
    assert (one / "config.json").read_text() == (other / "config.json").read_text()
    np.testing.assert_array_equal(logits(one), logits(other))


class Command:
    def __reduce__(self):
        return os.system, ("touch ran",)


def test_a_pickled_checkpoint_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = checkpoint(tmp_path / "run")
    (folder / "model.safetensors").unlink()
    for content in (pickle.dumps({"model.norm.weight": Command()}), b"", b"\x80\x04K\x01."):
        (folder / PICKLED).write_bytes(content)
        with pytest.raises(UserError, match="is no file of weights alone"):
            export_policy(folder, tmp_path / "hf")
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "hf").exists()


def test_bfloat16_stays_bfloat16_bit_for_bit(tmp_path):
    folder = checkpoint(tmp_path / "run")
    model = load_causal_lm(folder, "bfloat16")
    model.save_pretrained(str(folder), safe_serialization=True)
    export_policy(folder, tmp_path / "hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["torch_dtype"] == "bfloat16"
    (mine,) = [t for t in export.read_tensors(tmp_path / "hf/model.safetensors") if t.name.endswith("q_proj.weight")]
    (theirs,) = [t for t in export.read_tensors(folder / "model.safetensors") if t.name.endswith("q_proj.weight")]
    assert mine.dtype == "BF16"
    np.testing.assert_array_equal(mine.words, theirs.words.T)


def test_a_large_model_is_written_in_parts_with_an_index(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "SHARD_BYTES", 20_000)
    folder = checkpoint(tmp_path / "run")
    export_policy(folder, tmp_path / "hf")
    index = json.loads((tmp_path / "hf/model.safetensors.index.json").read_text())
    files = sorted(set(index["weight_map"].values()))
    assert len(files) > 1
    assert {name: shape for file in files for name, shape in stored(tmp_path / "hf" / file).items()} == SHAPES[
        "qwen2 tied"
    ]
    assert index["metadata"]["total_size"] == 4 * sum(int(np.prod(shape)) for shape in SHAPES["qwen2 tied"].values())
    np.testing.assert_array_equal(logits(tmp_path / "hf"), logits(folder))


def test_what_transformers_has_no_place_for_is_refused_and_nothing_is_left(tmp_path):
    ranker = write_tiny_reward_model(tmp_path / "ranker", "ranker")
    with pytest.raises(UserError, match="for which transformers has no place"):
        export_policy(ranker, tmp_path / "hf")
    bare = checkpoint(tmp_path / "bare")
    for name in TOKENIZER_FILES:
        (bare / name).unlink(missing_ok=True)
    with pytest.raises(UserError, match="has no tokenizer files"):
        export_policy(bare, tmp_path / "hf")
    assert {path.name for path in tmp_path.iterdir()} == {"ranker", "bare"}


def test_optimizer_states_and_adapters_beside_the_weights_are_not_part_of_the_model(tmp_path):
    folder = checkpoint(tmp_path / "run")
    export_policy(folder, tmp_path / "alone")
    state = {"lm_head.weight/beta1_pow_acc_0": np.zeros(1, "float32")}
    for name in ("optimizer.safetensors", "master_weights-00001-of-00001.safetensors", "peft_model.safetensors"):
        save_file(state, folder / name)
    export_policy(folder, tmp_path / "beside")
    assert stored(tmp_path / "beside/model.safetensors") == stored(tmp_path / "alone/model.safetensors")
    (folder / "model.safetensors").unlink()
    with pytest.raises(UserError, match="holds LoRA adapters only: give the output folder of the finished run"):
        export_policy(folder, tmp_path / "adapters")


def test_rotary_parameters_of_transformers_5_are_kept(tmp_path):
    folder = checkpoint(tmp_path / "run")
    config = json.loads((folder / "config.json").read_text())
    config.pop("rope_theta", None)
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": {"rope_theta": 500.0}}))
    export_policy(folder, tmp_path / "hf")
    assert json.loads((tmp_path / "hf/config.json").read_text())["rope_theta"] == 500.0
    np.testing.assert_allclose(logits(tmp_path / "hf"), logits(folder), atol=1e-5)


def test_llama_3_s_scaling_of_positions_is_read_and_kept_where_transformers_5_writes_it(tmp_path):
    folder = checkpoint(tmp_path / "run", "llama tied")
    unscaled, config = logits(folder), json.loads((folder / "config.json").read_text())
    numbers = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 4}
    scaling = {"rope_type": "llama3", "rope_theta": config.pop("rope_theta"), **numbers}
    (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": scaling}))
    export_policy(folder, tmp_path / "hf")
    exported = json.loads((tmp_path / "hf/config.json").read_text())
    assert (exported["rope_scaling"], exported["rope_theta"]) == (scaling, scaling["rope_theta"])
    assert not np.allclose(logits(folder), unscaled, atol=1e-4)
    np.testing.assert_array_equal(logits(tmp_path / "hf"), logits(folder))
