"""The decoder against PaddleNLP's full forward pass."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from engine.paddle.fused_reference import reference_operators

from grrm.engine.paddle import cpu_decoder
from grrm.engine.paddle import plain_decoder as decoder_module
from grrm.engine.paddle.cpu_decoder import CpuDecoder
from grrm.engine.paddle.gpu_decoder import GpuDecoder
from grrm.engine.paddle.plain_decoder import PlainDecoder
from grrm.errors import UserError
from grrm_csrc.blas import packing_addresses

VARIANTS = [
    ("qwen2", {}),
    ("qwen2", {"tie_word_embeddings": True}),
    ("qwen2", {"fuse_attention_qkv": True, "fuse_attention_ffn": True}),
    ("qwen2", {"num_key_value_heads": 6}),
    ("qwen2", {"num_key_value_heads": 1}),
    ("qwen3", {"head_dim": 12}),
    ("qwen3", {"tie_word_embeddings": True, "num_key_value_heads": 6}),
    ("qwen2_moe", {}),
    ("qwen2_moe", {"norm_topk_prob": True, "tie_word_embeddings": True}),
    ("llama", {}),
    ("llama", {"tie_word_embeddings": True}),
    ("llama", {"fuse_attention_qkv": True, "fuse_attention_ffn": True}),
    ("llama", {"rope_scaling_type": "linear", "rope_scaling_factor": 2.0}),
    (
        "llama",
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 16,
            }
        },
    ),
]


class PackedDecoder(CpuDecoder):
    """With its weights laid out for the BLAS, however few they are."""

    def __init__(self, model):
        super().__init__(model, max_packed_bytes=1 << 40)
        self._packs = True

    def new_cache(self, n_slots, max_len):
        cache = super().new_cache(n_slots, max_len)
        assert (cache.packed is None) == (packing_addresses() is None)
        return cache


class ReferenceGpuDecoder(GpuDecoder):
    """With operators that run on a CPU."""

    def __init__(self, model):
        super().__init__(model, reference_operators())

    def _run(self, *given):
        return super()._run(*given).numpy()


DECODERS = {"plain": PlainDecoder, "cpu": CpuDecoder, "packed": PackedDecoder, "gpu": ReferenceGpuDecoder}


@pytest.fixture(params=list(DECODERS))
def decoder_class(request):
    return DECODERS[request.param]


def skip_unless_it_runs(decoder_class, model):
    if issubclass(decoder_class, CpuDecoder) and CpuDecoder.unsupported_reason(model):
        pytest.skip("the C++ decoder does not run this here")


def errors_of_prefill_and_steps(decoder_class, model, full_forward, lengths, padded, n_steps=8):
    rng = np.random.default_rng(1)
    tokens = rng.integers(0, 97, (len(lengths), padded + n_steps))
    wanted = [full_forward(model, row) for row in tokens]
    lengths = np.array(lengths)
    padded_tokens = np.where(np.arange(padded) < lengths[:, None], tokens[:, :padded], 0)
    # Slots out of order, one prompt in two of them, the rest free.
    slots, sources = np.array([5, 0, 3, 6]), np.array([0, 1, 2, 1])
    skip_unless_it_runs(decoder_class, model)
    decoder = decoder_class(model)
    cache = decoder.new_cache(8, padded + n_steps)
    got = decoder.prefill(padded_tokens, lengths, cache, slots, sources)
    errors = [np.abs(got[r] - wanted[r][lengths[r] - 1]).max() for r in range(len(lengths))]
    for step in range(n_steps):
        got = decoder.decode(slots, tokens[sources, lengths[sources] + step], lengths[sources] + step, cache)
        errors += [np.abs(got[i] - wanted[r][lengths[r] + step]).max() for i, r in enumerate(sources)]
    return errors


@pytest.mark.parametrize(("architecture", "settings"), VARIANTS)
def test_prefill_and_every_step_equal_the_full_forward_pass(
    architecture, settings, decoder_class, make_model, full_forward
):
    model = make_model(architecture, **settings)
    for name in ("fuse_attention_qkv", "num_key_value_heads"):
        assert getattr(model.config, name) == settings.get(name, getattr(model.config, name))
    errors = errors_of_prefill_and_steps(decoder_class, model, full_forward, lengths=[5, 16, 1], padded=16)
    assert max(errors) < 1e-4
    assert np.abs(full_forward(model, [1, 2, 3])).max() > 0.5  # not equal because all is zero


def test_fused_weights_are_really_fused(make_model):
    for architecture in ("qwen2", "llama"):
        model = make_model(architecture, fuse_attention_qkv=True, fuse_attention_ffn=True)
        layer = PlainDecoder(model).weights.layers[0]
        assert (len(layer.attention_in), len(layer.mlp_in)) == (1, 1)


def test_long_prompts_attend_in_blocks_of_queries(model, full_forward, monkeypatch):
    monkeypatch.setattr(decoder_module, "_QUERY_BLOCK", 7)
    assert max(errors_of_prefill_and_steps(PlainDecoder, model, full_forward, lengths=[20, 32, 1], padded=32)) < 1e-4


@pytest.mark.parametrize(
    ("slots", "tokens", "positions", "message"),
    [
        ([2], [1], [0], "slots"),
        ([0], [97], [1], "tokens"),
        ([0], [1], [16], "positions"),
        ([0], [1], [-1], "positions"),
    ],
)
def test_the_cpu_decoder_refuses_what_lies_outside_its_arrays(slots, tokens, positions, message, model):
    skip_unless_it_runs(CpuDecoder, model)
    decoder = CpuDecoder(model)
    with pytest.raises(ValueError, match=message):
        decoder.decode(np.array(slots), np.array(tokens), np.array(positions), decoder.new_cache(2, 16))


def test_the_cpu_decoder_names_what_it_cannot_run(make_model):
    skip_unless_it_runs(CpuDecoder, make_model("qwen2"))
    assert "fused" in CpuDecoder.unsupported_reason(make_model("qwen2", fuse_attention_qkv=True))
    assert CpuDecoder.unsupported_reason(make_model("qwen2_moe")) == "it has experts"
    narrow = make_model("qwen2")
    narrow.lm_head.weight = paddle.create_parameter([48, 90], "float32")
    assert CpuDecoder.unsupported_reason(narrow) == "the head has the shape [48, 90], not [48, 97]"
    with pytest.raises(ValueError, match="the head"):
        CpuDecoder(narrow)


def test_weights_are_laid_out_within_the_memory_that_is_allowed_and_where_it_pays(model, monkeypatch):
    skip_unless_it_runs(CpuDecoder, model)
    if packing_addresses() is None:
        pytest.skip("the BLAS of this wheel does not lay matrices out")
    n_bytes = 4 * cpu_decoder._n_multiplied(CpuDecoder(model).weights)

    def packed(n):
        return CpuDecoder(model, max_packed_bytes=n).new_cache(1, 16).packed

    assert packed(n_bytes) is None  # a small model
    monkeypatch.setattr(cpu_decoder, "FEW_WEIGHTS", 0)
    assert packed(n_bytes).ctypes.data % 64 == 0
    assert packed(n_bytes - 4) is None


def test_weights_are_laid_out_again_when_any_of_them_has_changed_and_only_then(make_model, monkeypatch):
    model = make_model("qwen2")
    skip_unless_it_runs(CpuDecoder, model)
    if packing_addresses() is None:
        pytest.skip("the BLAS of this wheel does not lay matrices out")
    decoder, times, call = PackedDecoder(model), [], cpu_decoder.cpu_kernels.call

    def counting(name, *given):
        times.append(name == "grrm_pack" and given[-1] is not None)
        return call(name, *given)

    monkeypatch.setattr(cpu_decoder.cpu_kernels, "call", counting)
    decoder.new_cache(1, 16)
    decoder.new_cache(2, 32)
    assert sum(times) == 1
    layer = decoder.weights.layers[-1]
    matrices = [one.weight for one in (*layer.attention_in, layer.attention_out, *layer.mlp_in, layer.mlp_out)]
    for number, matrix in enumerate([*matrices, decoder.weights.lm_head]):
        changed = matrix.numpy()
        changed[-1, -1] += 1e-3
        matrix.set_value(changed)
        decoder.new_cache(1, 16)
        assert sum(times) == 2 + number


def test_the_cpu_cache_takes_the_memory_it_is_said_to(model):
    skip_unless_it_runs(CpuDecoder, model)
    decoder = CpuDecoder(model)
    cache = decoder.new_cache(3, 20)
    assert cache.keys.nbytes + cache.values.nbytes == 3 * decoder.cache_bytes(20)


def test_stale_cache_of_an_earlier_sequence_is_invisible(decoder_class, model, full_forward):
    skip_unless_it_runs(decoder_class, model)
    decoder = decoder_class(model)
    cache = decoder.new_cache(2, 32)
    for prompt in ([9] * 30, [4, 5, 6]):
        tokens = np.zeros((1, 32), np.int64)
        tokens[0, : len(prompt)] = prompt
        decoder.prefill(tokens, np.array([len(prompt)]), cache, np.array([1]), np.array([0]))
    got = decoder.decode(np.array([1]), np.array([8]), np.array([3]), cache)
    assert np.abs(got[0] - full_forward(model, [4, 5, 6, 8])[-1]).max() < 1e-4


def test_kept_slots_keep_their_sequences(model, full_forward):
    decoder = PlainDecoder(model)
    cache = decoder.new_cache(4, 16)
    tokens = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    decoder.prefill(tokens, np.array([3, 3, 3]), cache, np.array([0, 1, 3]), np.array([0, 1, 2]))
    cache.keep(np.array([3, 1]))
    got = decoder.decode(np.array([0, 1]), np.array([10, 11]), np.array([3, 3]), cache)
    for row, sequence in enumerate(([7, 8, 9, 10], [4, 5, 6, 11])):
        assert np.abs(got[row] - full_forward(model, sequence)[-1]).max() < 1e-4


def test_weight_changes_are_seen_without_a_copy(decoder_class, make_model, full_forward):
    model = make_model("qwen2")
    skip_unless_it_runs(decoder_class, model)
    decoder = decoder_class(model)
    optimizer = paddle.optimizer.AdamW(0.05, parameters=model.parameters())
    model(paddle.to_tensor([[1, 2, 3]]))[0].mean().backward()
    optimizer.step()
    cache = decoder.new_cache(1, 16)
    got = decoder.prefill(np.array([[1, 2, 3]]), np.array([3]), cache, np.array([0]), np.array([0]))
    assert np.abs(got[0] - full_forward(model, [1, 2, 3])[-1]).max() < 1e-4
    state = {name: tensor * 0.5 for name, tensor in model.state_dict().items()}
    model.set_state_dict(state)
    if decoder_class is PackedDecoder:
        cache = decoder.new_cache(1, 16)
    got = decoder.prefill(np.array([[1, 2, 3]]), np.array([3]), cache, np.array([0]), np.array([0]))
    assert np.abs(got[0] - full_forward(model, [1, 2, 3])[-1]).max() < 1e-4


@pytest.mark.parametrize(
    ("architecture", "setting"),
    [
        ("llama", {"rope_scaling_type": "dynamic_ntk"}),
        ("llama", {"alibi": True}),
        ("qwen2", {"hidden_act": "gelu"}),
    ],
)
def test_unsupported_settings_are_refused_by_name(architecture, setting, make_model):
    with pytest.raises(UserError, match=next(iter(setting))):
        PlainDecoder(make_model(architecture, **setting))


def test_another_architecture_is_refused_by_name():
    with pytest.raises(UserError, match="Linear"):
        PlainDecoder(paddle.nn.Linear(2, 2))
