"""The decoder of fused operators: blocks, sharing, what it runs and how it calls them.

With operators written from Paddle's sources on a CPU, and with Paddle's own where there is a GPU.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import paddle
import pytest
from engine.paddle.fused_reference import block_attention, padded, reference_operators, rms_norm

from grrm.engine.block_cache import BLOCK
from grrm.engine.paddle.gpu_decoder import GpuDecoder, attention_arguments, paddle_operators
from grrm.engine.paddle.plain_decoder import PlainDecoder

WIDE = {"hidden_size": 192, "max_position_embeddings": 200}  # heads of 32 numbers, which the CUDA kernel takes


@pytest.fixture(params=["reference", "gpu"])
def gpu(request, make_model):
    """A decoder, the model in float32 to compare with, and the largest error in parts of the largest logit."""
    if request.param == "reference":
        model = make_model("qwen2", **WIDE)
        yield SimpleNamespace(decoder=GpuDecoder(model, reference_operators()), model=model, tolerance=1e-5)
        return
    if not paddle.is_compiled_with_cuda() or paddle.device.cuda.device_count() == 0:
        pytest.skip("there is no GPU, or Paddle was not built for one")
    before = paddle.device.get_device()
    paddle.set_device("gpu")
    rounded = make_model("qwen2", **WIDE)
    rounded.to(dtype="bfloat16")
    yield SimpleNamespace(decoder=GpuDecoder(rounded), model=make_model("qwen2", **WIDE), tolerance=0.05)
    paddle.set_device(before)


def new_cache(decoder, n_slots, max_len):
    """Whatever is read before it was written is no number."""
    cache = decoder.new_cache(n_slots, max_len)
    for stored in (*cache.keys, *cache.values):
        paddle.assign(paddle.full(stored.shape, float("nan"), stored.dtype), output=stored)
    return cache


def assert_close(gpu, got, sequences, full_forward):
    wanted = np.stack([full_forward(gpu.model, sequence)[-1] for sequence in sequences])
    assert np.abs(got.numpy() - wanted).max() < gpu.tolerance * np.abs(wanted).max()


def test_prompts_of_several_blocks_and_their_samples_equal_the_full_forward_pass(gpu, full_forward):
    rng = np.random.default_rng(1)
    prompts = [rng.integers(0, 97, n).tolist() for n in (60, 64, 130, 1)]
    slots, sources = np.array([6, 0, 3, 2, 5, 1, 4]), np.array([0, 1, 2, 2, 3, 1, 2])
    cache = new_cache(gpu.decoder, 8, 150)
    assert_close(gpu, gpu.decoder.prefill(*padded(prompts), cache, slots, sources), prompts, full_forward)
    samples = [list(prompts[source]) for source in sources]
    for _ in range(6):  # 60 tokens become more than a block; samples of a prompt go different ways
        drawn = rng.integers(0, 97, len(samples))
        positions = np.array([len(sample) for sample in samples])
        for sample, token in zip(samples, drawn, strict=True):
            sample.append(int(token))
        got = gpu.decoder.decode(slots, drawn, positions, cache)
    assert_close(gpu, got, samples, full_forward)


def test_samples_go_on_when_the_slot_their_prompt_ran_in_is_filled_anew(gpu, full_forward):
    rng = np.random.default_rng(2)
    first, second = (rng.integers(0, 97, n).tolist() for n in (70, 90))
    cache = new_cache(gpu.decoder, 2, 100)
    gpu.decoder.prefill(*padded([first]), cache, np.array([0, 1]), np.array([0, 0]))
    used = cache.tables.blocks_SB.copy()
    for prompt in (second, second, second):
        gpu.decoder.prefill(*padded([prompt]), cache, np.array([0]), np.array([0]))
    assert cache.tables.n_free == 0  # four blocks in all, and no more were asked for
    assert (cache.tables.blocks_SB[1] == used[1]).all()
    got = gpu.decoder.decode(np.array([1, 0]), np.array([7, 8]), np.array([70, 90]), cache)
    assert_close(gpu, got, [[*first, 7], [*second, 8]], full_forward)


def test_greedy_tokens_are_those_of_the_plain_decoder(make_model):
    model = make_model("llama", tie_word_embeddings=True, **WIDE)
    prompts = [[5, 6, 7] * 20, [8, 9]]

    def greedy(decoder):
        cache, drawn = decoder.new_cache(2, 96), []
        positions = np.array([len(prompt) for prompt in prompts])
        tokens = np.asarray(decoder.prefill(*padded(prompts), cache, np.arange(2), np.arange(2))).argmax(1)
        for _ in range(12):
            drawn.append(tokens.tolist())
            tokens = np.asarray(decoder.decode(np.arange(2), tokens, positions, cache)).argmax(1)
            positions = positions + 1
        return drawn

    assert greedy(GpuDecoder(model, reference_operators())) == greedy(PlainDecoder(model))


def test_the_cache_takes_the_memory_it_is_said_to(model):
    decoder = GpuDecoder(model, reference_operators())
    cache = decoder.new_cache(3, BLOCK + 1)
    assert sum(4 * stored.size for stored in (*cache.keys, *cache.values)) == 3 * decoder.cache_bytes(BLOCK + 1)


def test_prompts_are_told_of_as_places_in_a_padded_array():
    lengths = np.array([2, 1, 3])
    tables = np.array([[4, -1], [2, -1], [0, 1]], np.int32)
    given = attention_arguments(np.zeros(3, np.int64), lengths, tables, paddle.CPUPlace())
    assert given.pop("max_seq_len") == 3
    assert {name: tensor.numpy().tolist() for name, tensor in given.items()} == {
        "seq_lens_encoder": [2, 1, 3],
        "seq_lens_decoder": [0, 0, 0],
        "seq_lens_this_time": [2, 1, 3],
        "padding_offsets": [0, 0, 1, 3, 3, 3],  # token 3, the third row's first, stands at 3 + 3 = 2 x 3
        "cum_offsets": [0, 1, 3],
        "cu_seqlens_q": [0, 2, 3, 6],
        "cu_seqlens_k": [0, 2, 3, 6],
        "block_tables": [[4, -1], [2, -1], [0, 1]],
        "max_enc_len_this_time": [3],
        "max_dec_len_this_time": [0],
    }


def test_steps_are_told_of_as_one_token_a_row():
    given = attention_arguments(np.array([7, 64]), np.ones(2, np.int64), np.zeros((2, 2), np.int32), paddle.CPUPlace())
    assert given["max_seq_len"] == 1
    assert given["seq_lens_encoder"].numpy().tolist() == [0, 0]
    assert given["seq_lens_decoder"].numpy().tolist() == [7, 64]
    assert given["padding_offsets"].numpy().tolist() == given["cum_offsets"].numpy().tolist() == [0, 0]
    assert [given[f"max_{kind}_len_this_time"].item() for kind in ("enc", "dec")] == [0, 64]


@pytest.mark.parametrize("change", [{"block_table": 1}, {"qkv": None}])
def test_calls_that_paddles_signature_refuses_fail_on_a_cpu_too(change, make_model):
    calls = []
    recording = replace(
        reference_operators(), block_attention=lambda *a, **k: calls.append((a, k)) or block_attention(*a, **k)
    )
    decoder = GpuDecoder(make_model("qwen2"), recording)
    decoder.prefill(np.array([[1, 2]]), np.array([2]), decoder.new_cache(1, 16), np.array([0]), np.array([0]))
    positional, named = calls[0]
    with pytest.raises(TypeError, match=next(iter(change))):
        block_attention(*positional, **named, **change)


@pytest.mark.skipif(paddle.is_compiled_with_cuda(), reason="this Paddle has the kernel, and runs it in the tests above")
def test_paddles_own_operator_takes_the_arguments_and_lacks_its_kernel_only(make_model):
    here = replace(paddle_operators(), rms_norm=rms_norm, device="cpu", dtypes=(paddle.float32,))
    decoder = GpuDecoder(make_model("qwen2", **WIDE), here)
    with pytest.raises(RuntimeError, match="kernel `block_multihead_attention` is not registered"):
        decoder.prefill(np.array([[1, 2]]), np.array([2]), decoder.new_cache(1, 16), np.array([0]), np.array([0]))


def test_a_model_is_refused_with_what_stands_in_its_way(make_model):
    """By what Paddle's operators run, but on the CPU, where there is always a model."""
    here = replace(paddle_operators(), device="cpu")
    narrow, wide = make_model("qwen2"), make_model("qwen2", **WIDE)
    assert GpuDecoder.unsupported_reason(narrow) == "its parameters are not all on the GPU"
    assert GpuDecoder.unsupported_reason(narrow, here) == "its parameters are float32, not all bfloat16 or float16"
    with pytest.raises(ValueError, match="float32, not all bfloat16"):
        GpuDecoder(narrow, here)
    for model in (narrow, wide):
        model.to(dtype="bfloat16")
    assert GpuDecoder.unsupported_reason(narrow, here) == "its heads are 8 wide, not one of 32, 64, 96, 128"
    assert GpuDecoder.unsupported_reason(wide, here) is None
    wide.qwen2.norm.to(dtype="float32")
    assert (
        GpuDecoder.unsupported_reason(wide, here)
        == "its parameters are bfloat16 and float32, not all bfloat16 or float16"
    )


def test_the_cache_has_the_models_type(make_model):
    model = make_model("qwen2", **WIDE)
    model.to(dtype="bfloat16")
    decoder = GpuDecoder(model, replace(paddle_operators(), device="cpu"))
    cache = decoder.new_cache(1, 10)
    assert {stored.dtype for stored in (*cache.keys, *cache.values)} == {paddle.bfloat16}
    assert decoder.cache_bytes(10) == 2 * sum(stored.size for stored in (*cache.keys, *cache.values))
