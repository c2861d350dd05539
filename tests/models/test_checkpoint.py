"""Models from disk, in either library's layout."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from paddlenlp.transformers import model_utils
from safetensors.numpy import load_file, save_file
from support.tiny_models import save_as_hugging_face

from grrm.engine.api import SamplingParams
from grrm.engine.paddle.engine import PaddleEngine
from grrm.errors import UserError
from grrm.models.checkpoint import check_architecture, check_checkpoint, load_causal_lm, rotary_overrides
from grrm.models.gathered_weights import save_policy
from grrm.models.policy import load_policy


@pytest.mark.parametrize("writer", ["paddlenlp", "hugging face"])
def test_from_pretrained_generates_what_the_saved_model_does(writer, model, tmp_path):
    directory = tmp_path / "model"
    if writer == "paddlenlp":
        model.save_pretrained(str(directory), safe_serialization=True)
    else:
        save_as_hugging_face(model, directory)
    written = set(directory.iterdir())
    params = SamplingParams(max_new_tokens=6)
    loaded = PaddleEngine.from_pretrained(directory, max_num_seqs=4).generate([[5, 6]] * 3, params)
    wanted = PaddleEngine(model, max_num_seqs=4).generate([[5, 6]] * 3, params)
    assert [c.token_ids for c in loaded] == [c.token_ids for c in wanted]
    np.testing.assert_allclose(loaded[0].logprobs, wanted[0].logprobs, atol=1e-4)
    assert set(directory.iterdir()) == written


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"tie_word_embeddings": True}, {"fuse_attention_qkv": True, "fuse_attention_ffn": True}],
    ids=["plain", "tied", "fused"],
)
def test_a_saved_model_is_whole_for_training_and_without_a_parameter_it_is_not(
    architecture, settings, make_model, full_forward, tmp_path
):
    model = make_model(architecture, **settings)
    model.save_pretrained(str(tmp_path), safe_serialization=True)
    np.testing.assert_allclose(
        full_forward(load_policy(tmp_path), [5, 6, 7]), full_forward(model, [5, 6, 7]), atol=1e-4
    )
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors[f"{architecture}.layers.1.mlp.down_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "np"})
    for load in (load_policy, PaddleEngine.from_pretrained):
        with pytest.raises(UserError, match=r"lack layers\.1\.mlp\.down_proj\.weight: they are not whole"):
            load(tmp_path)


def test_layers_share_one_table_of_rotary_positions(model, tmp_path):
    save_as_hugging_face(model, tmp_path / "model")
    loaded = load_policy(tmp_path / "model")
    tables = {id(layer.self_attn.rotary_emb) for layer in loaded.qwen2.layers}
    assert len(loaded.qwen2.layers) > 1
    assert len(tables) == 1


def test_rotary_base_is_read_where_transformers_5_writes_it(model, tmp_path):
    directory = tmp_path / "model"
    save_as_hugging_face(model, directory)
    config = json.loads((directory / "config.json").read_text())
    config["rope_parameters"] = {"rope_theta": config.pop("rope_theta"), "rope_type": "default"}
    assert config["rope_parameters"]["rope_theta"] != 10_000  # PaddleNLP's default
    (directory / "config.json").write_text(json.dumps(config))
    params = SamplingParams(max_new_tokens=6)
    wanted = PaddleEngine(model).generate([[5, 6]], params)[0]
    np.testing.assert_allclose(
        PaddleEngine.from_pretrained(directory).generate([[5, 6]], params)[0].logprobs, wanted.logprobs, atol=1e-4
    )
    assert load_policy(directory).config.rope_theta == config["rope_parameters"]["rope_theta"]


@pytest.mark.parametrize(
    ("model_type", "given"),
    [
        ("qwen2", {"rope_scaling": {"type": "yarn", "factor": 4.0}}),
        ("qwen2", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 5e5}}),
        ("llama", {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}),
        ("llama", {"rope_scaling": {"type": "linear"}}),
        ("llama", {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}),
    ],
)
def test_scaled_rotary_embeddings_that_would_be_left_out_or_lack_a_number_are_refused(tmp_path, model_type, given):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **given}))
    with pytest.raises(UserError, match="scales rotary embeddings"):
        PaddleEngine.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    ("model_type", "given"),
    [
        ("llama", {"attention_bias": True}),
        ("llama", {"mlp_bias": True}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 4, "max_position_embeddings": 40}),
        ("qwen2", {"quantization_config": {"quant_method": "gptq", "bits": 8}}),
    ],
)
def test_what_the_model_would_be_without_is_refused(tmp_path, model_type, given):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": model_type, **given}))
    with pytest.raises(UserError, match=r"has \w+, which would be left out here: give another model"):
        check_architecture(tmp_path)


@pytest.mark.parametrize("record", [None, {"format": "np"}])
@pytest.mark.parametrize("tied", [False, True])
def test_weights_under_torch_names_are_read_as_torch_s_whatever_their_record_says(
    record, tied, make_model, full_forward, tmp_path
):
    model = make_model("qwen2", tie_word_embeddings=tied)
    save_as_hugging_face(model, tmp_path / "model")
    file = tmp_path / "model/model.safetensors"
    save_file(load_file(file), file, metadata=record)
    np.testing.assert_allclose(
        full_forward(load_policy(tmp_path / "model"), [5, 6, 7]), full_forward(model, [5, 6, 7]), atol=1e-4
    )


def test_scaling_that_llama_knows_reaches_it():
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e6}
    found = rotary_overrides(Path(), {"model_type": "llama", "rope_parameters": linear})
    assert found == {"rope_theta": 1e6, "rope_scaling_type": "linear", "rope_scaling_factor": 2.0}
    three = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    three["original_max_position_embeddings"] = 8192
    for given in ({"rope_scaling": three, "rope_theta": 5e5}, {"rope_parameters": three | {"rope_theta": 5e5}}):
        found = rotary_overrides(Path(), {"model_type": "llama", **given})
        assert found["rope_scaling"].items() >= three.items()
        assert (found | given)["rope_theta"] == 5e5


def test_missing_model_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="does not exist: give the folder of a model"):
        PaddleEngine.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"has no config\.json"):
        PaddleEngine.from_pretrained(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    with pytest.raises(UserError, match="no weights"):
        PaddleEngine.from_pretrained(tmp_path)


def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(UserError, match=r"has no config\.json"):
        check_checkpoint(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    os.mkfifo(tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="no weights"):
        check_checkpoint(tmp_path)


def test_a_config_of_endless_brackets_is_one_sentence(tmp_path):
    (tmp_path / "config.json").write_text('{"a": ' + "[" * 100_000)
    with pytest.raises(UserError, match=r"config\.json' is not readable JSON"):
        check_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["model_state.pdparams", "pytorch_model.bin"])
def test_pickled_weights_are_refused_before_they_are_opened(tmp_path, name):
    (tmp_path / "config.json").write_text('{"model_type": "qwen2"}')
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    with pytest.raises(UserError, match=rf"holds pickled weights only \({name}\), which could run code"):
        PaddleEngine.from_pretrained(tmp_path)


def test_weights_cut_short_are_one_sentence(model, tmp_path):
    model.save_pretrained(str(tmp_path), safe_serialization=True)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:50])
    with pytest.raises(UserError, match=r"cannot be loaded .*its weights are damaged"):
        PaddleEngine.from_pretrained(tmp_path)


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
def test_a_tied_model_is_saved_with_one_head_and_loaded_without_a_warning(
    architecture, make_model, full_forward, tmp_path, monkeypatch
):
    make_model(architecture, tie_word_embeddings=True).save_pretrained(str(tmp_path / "start"), safe_serialization=True)
    policy = load_policy(tmp_path / "start")
    save_policy(policy, tmp_path / "saved")
    stored = load_file(tmp_path / "saved/model.safetensors")
    assert [name for name in stored if "embed_tokens" in name or "lm_head" in name] == [
        f"{architecture}.embed_tokens.weight"
    ]
    warned: list[str] = []
    monkeypatch.setattr(model_utils.logger, "warning", lambda text, *_: warned.append(text))
    for load in (load_policy, load_causal_lm):
        logits = full_forward(load(tmp_path / "saved"), [5, 6, 7])
        np.testing.assert_allclose(logits, full_forward(policy, [5, 6, 7]), atol=1e-5)
    assert not [text for text in warned if "newly initialized" in text]
    untied = json.loads((tmp_path / "saved/config.json").read_text()) | {"tie_word_embeddings": False}
    (tmp_path / "saved/config.json").write_text(json.dumps(untied))
    with pytest.raises(UserError, match=r"lack lm_head\.weight"):
        load_policy(tmp_path / "saved")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", "1000000000"),
        ("hidden_size", "0"),
        ("hidden_size", "32.5"),
        ("vocab_size", "true"),
        ("max_position_embeddings", "-5"),
        ("rope_theta", "NaN"),
        ("rope_theta", "Infinity"),
        ("rms_norm_eps", "null"),
        ("rms_norm_eps", '"1e-6"'),
    ],
)
def test_config_with_a_number_that_no_model_has_is_one_sentence_before_a_network_is_built(tmp_path, key, value):
    (tmp_path / "config.json").write_text(f'{{"model_type": "qwen2", "{key}": {value}}}')
    with pytest.raises(UserError, match=f"config.json' has {key} .*, which no model has: correct it, or get the"):
        check_architecture(tmp_path)
