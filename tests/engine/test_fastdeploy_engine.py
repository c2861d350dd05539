"""FastDeploy behind our interface: its deviations are worked around, what it cannot do is refused."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading

import pytest
from support.fastdeploy_standin import fastdeploy_on_path, start_engine, with_fastdeploy
from support.tiny_policy import write_tiny_checkpoint

from grrm.engine import fastdeploy_engine
from grrm.engine.api import SamplingParams
from grrm.engine.open import open_checkpoint, open_fastdeploy, open_generator
from grrm.engine.options import FASTDEPLOY_OPTIONS, check_fastdeploy_options
from grrm.errors import UserError

STOPS = tuple(range(40))


@pytest.fixture(autouse=True)
def standin():
    with fastdeploy_on_path():
        yield


def llm():
    """The class behind the engine."""
    return sys.modules["fastdeploy"].LLM


@pytest.fixture
def engine(model, tmp_path):
    return start_engine(tmp_path, model)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return write_tiny_checkpoint(tmp_path_factory.mktemp("checkpoint") / "tiny")


def text_params(**values):
    return SamplingParams(**{"max_new_tokens": 6, "logprobs": False, **values})


def requests_of(engine, monkeypatch, prompts, params):
    """The sampling parameters that reach FastDeploy, one per prompt."""
    asked, reply = [], llm().reply
    monkeypatch.setattr(llm(), "reply", lambda self, *given: asked.append(given[2]) or reply(self, *given))
    engine.generate(prompts, params)
    return asked


def test_a_release_that_goes_on_after_a_stop_token_gives_the_same_completions(engine, prompts, monkeypatch):
    params = text_params(max_new_tokens=20, stop_token_ids=STOPS)
    heeded = engine.generate(prompts, params)
    monkeypatch.setattr(llm(), "heeds_stop_token_ids", False)
    assert engine.generate(prompts, params) == heeded
    assert {completion.finish_reason for completion in heeded} == {"stop"}


def test_the_checkpoints_own_end_token_ends_a_completion_whatever_the_stop_tokens(
    model, tmp_path, prompts, monkeypatch
):
    import fastdeploy

    monkeypatch.setattr(fastdeploy, "end_ids_of", lambda folder: list(STOPS))
    for completion in start_engine(tmp_path, model).generate(prompts, text_params(max_new_tokens=30)):
        assert completion.finish_reason == "stop"
        assert completion.token_ids[-1] == STOPS[0]


def test_nothing_is_left_to_the_defaults_of_the_checkpoint(engine, monkeypatch):
    params = text_params(temperature=0.7, top_p=0.9, repetition_penalty=1.1, stop_token_ids=(3, 4), seed=5)
    (asked,) = requests_of(engine, monkeypatch, [[5, 6]], params)
    assert (asked.temperature, asked.top_p, asked.top_k, asked.repetition_penalty) == (0.7, 0.9, 0, 1.1)
    assert (asked.presence_penalty, asked.frequency_penalty, asked.min_tokens) == (0.0, 0.0, 0)
    assert (asked.stop_token_ids, asked.max_tokens) == ([3, 4], 7)


def test_greedy_is_asked_for_as_top_p_of_nothing(engine, monkeypatch):
    (asked,) = requests_of(engine, monkeypatch, [[5, 6]], text_params(temperature=0, top_k=3))
    assert (asked.temperature, asked.top_p, asked.top_k) == (1.0, 0.0, 0)


def test_seeds_are_of_seed_and_stream_within_fastdeploys_bound(engine, monkeypatch):
    seeds = [
        one.seed for one in requests_of(engine, monkeypatch, [[5]] * 50, text_params(max_new_tokens=1, seed=2**62))
    ]
    assert len(set(seeds)) == 50
    assert all(0 <= seed <= 922337203685477580 for seed in seeds)


def test_top_k_needs_the_sampling_class_that_heeds_it(engine, prompts, monkeypatch):
    with pytest.raises(UserError, match=r"top_k 1 has no effect .*FD_SAMPLING_CLASS=base: set it to rejection"):
        engine.generate(prompts, text_params(top_k=1))
    monkeypatch.setenv("FD_SAMPLING_CLASS", "rejection")
    assert engine.generate(prompts, text_params(top_k=1)) == engine.generate(prompts, text_params(temperature=0))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"logprobs": True}, "does not reliably return the log-probability.*use the Paddle engine"),
        ({"top_logprobs": 2}, "not asked for top_logprobs.*use the Paddle engine"),
        ({"min_new_tokens": 2}, "min_new_tokens 2 has no effect in FastDeploy"),
    ],
)
def test_what_fastdeploy_would_ignore_is_refused(engine, values, message):
    with pytest.raises(UserError, match=message):
        engine.generate([[5]], text_params(**values))


def test_weights_that_change_are_refused(engine):
    with pytest.raises(UserError, match="cannot roll out a policy that is being trained: use the Paddle engine"):
        engine.update_weights()


def test_a_request_that_failed_is_one_sentence(engine, monkeypatch):
    reply = llm().reply

    def failing(self, index, prompt, params):
        output = reply(self, index, prompt, params)
        if index == 1:
            output.error_code, output.error_msg = 500, "out of blocks"
        return output

    monkeypatch.setattr(llm(), "reply", failing)
    with pytest.raises(UserError, match=r"failed on prompt 1 \(500: out of blocks\)"):
        engine.generate([[5], [6]], text_params())


def test_an_error_of_fastdeploys_own_is_not_hidden(engine, monkeypatch):
    def broken(*_):
        raise TimeoutError("worker")

    monkeypatch.setattr(llm(), "reply", broken)
    with pytest.raises(TimeoutError, match="worker"):
        engine.generate([[5]], text_params())


def test_a_call_past_the_deadline_raises_and_so_do_all_after_it(model, tmp_path, monkeypatch):
    engine, released = start_engine(tmp_path, model, deadline_s=0.01), threading.Event()
    monkeypatch.setattr(llm(), "generate", lambda *_: released.wait(120) and [])
    try:
        with pytest.raises(UserError, match=r"did not answer within 0\.01 s"):
            engine.generate([[5]], text_params())
        with pytest.raises(UserError, match="still busy with an earlier call"):
            engine.generate([[5]], text_params())
    finally:
        released.set()


def test_output_and_log_of_this_process_stay_its_own(model, tmp_path, capsys):
    handler = logging.StreamHandler()
    logging.getLogger().addHandler(handler)
    try:
        start_engine(tmp_path, model)
        assert handler in logging.getLogger().handlers
    finally:
        logging.getLogger().removeHandler(handler)
    written = capsys.readouterr()
    assert "Loading Weights" in written.err
    assert "Loading Weights" not in written.out


def test_the_model_starts_with_its_own_positions_and_the_options_given(checkpoint):
    options = {"tensor_parallel_size": 2, "quantization": "wint8", "gpu_memory_utilization": 0.5}
    opened = open_fastdeploy(checkpoint, max_num_seqs=7, options=options)
    args = llm().latest
    assert (args.model, args.max_model_len, args.max_num_seqs) == (str(checkpoint), 1024, 7)
    assert (args.tensor_parallel_size, args.quantization, args.gpu_memory_utilization) == (2, "wint8", 0.5)
    assert opened.max_prompt_tokens == 1022
    shorter = open_fastdeploy(checkpoint, options={"max_model_len": 100})
    assert shorter.max_prompt_tokens == 98


def test_every_option_is_one_that_fastdeploy_takes():
    from fastdeploy import EngineArgs

    assert set(FASTDEPLOY_OPTIONS) <= set(EngineArgs.__dataclass_fields__)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tensor_parallel": 2}, "unknown FastDeploy option 'tensor_parallel': did you mean 'tensor_parallel_size'"),
        ({"tool_parser_plugin": "x.py"}, "unknown FastDeploy option 'tool_parser_plugin'"),
        ({"max_model_len": "many"}, "'max_model_len' is 'many': it must be of type int"),
        ({"max_model_len": True}, "'max_model_len' is True: it must be of type int"),
        ({"tensor_parallel_size": 0}, "'tensor_parallel_size' is 0: it must be above 0"),
        ({"enable_prefix_caching": 1}, "'enable_prefix_caching' is 1: it must be of type bool"),
    ],
)
def test_options_that_make_no_sense_are_one_sentence(options, message):
    with pytest.raises(UserError, match=message):
        check_fastdeploy_options(options)


def test_more_positions_than_the_model_has_are_refused(checkpoint):
    with pytest.raises(UserError, match=r"'max_model_len' is 4096, but the model in .* has 1024 positions"):
        open_fastdeploy(checkpoint, options={"max_model_len": 4096})


@pytest.mark.parametrize("key", ["vocab_size", "max_position_embeddings"])
def test_a_config_without_sizes_is_refused(tmp_path, key):
    folder = write_tiny_checkpoint(tmp_path / "sizeless")
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace(f'"{key}"', '"nothing"'))
    with pytest.raises(UserError, match=f"names no {key}"):
        open_fastdeploy(folder)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"backend": "vllm"}, "unknown backend 'vllm': give one of paddle, fastdeploy"),
        (
            {"backend": "fastdeploy", "urls": ["http://h:1"]},
            "backend has no effect, as the model runs on",
        ),
        ({"backend": "fastdeploy", "dtype": "bfloat16"}, "dtype has no effect, as FastDeploy computes in bfloat16"),
        (
            {"backend": "fastdeploy", "attempts": 2},
            "attempts has no effect, as the model is a checkpoint",
        ),
        ({"backend": "paddle", "options": {}}, "options has no effect, as the backend is paddle"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(checkpoint, arguments, message):
    with pytest.raises(UserError, match=message):
        open_generator(checkpoint, **arguments)


def test_both_back_ends_write_the_same_greedy_text(checkpoint):
    prompts = ["Guten Morgen", "Translate", "a" * 50]
    texts = [
        opened.generator.generate_text(prompts, temperature=0.0, max_new_tokens=12)
        for opened in (open_checkpoint(checkpoint), open_generator(checkpoint, backend="fastdeploy"))
    ]
    assert texts[0] == texts[1]


def test_a_model_that_fastdeploy_cannot_serve_is_one_sentence(checkpoint, monkeypatch):
    import fastdeploy

    def refuse(*_, **__):
        raise ValueError("unsupported\narchitecture")

    monkeypatch.setattr(fastdeploy.LLM, "__init__", refuse)
    with pytest.raises(UserError, match=r"FastDeploy cannot serve the model in .* \(unsupported architecture\)"):
        open_fastdeploy(checkpoint)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("LLM = None", "has no LLM, so it is not FastDeploy 2"),
        ("import no_such_module", "cannot be imported .*no_such_module"),
    ],
)
def test_a_module_that_is_no_fastdeploy_is_one_sentence(checkpoint, tmp_path, source, message):
    (tmp_path / "fastdeploy.py").write_text(source)
    with fastdeploy_on_path(tmp_path), pytest.raises(UserError, match=message):
        open_fastdeploy(checkpoint)


def test_a_missing_fastdeploy_says_how_to_install_it(checkpoint, monkeypatch):
    monkeypatch.setattr(fastdeploy_engine, "find_spec", lambda name: None)
    with pytest.raises(
        UserError, match="FastDeploy is not installed: install paddlepaddle-gpu and fastdeploy-gpu from"
    ):
        open_fastdeploy(checkpoint)


def test_the_namesake_from_pypi_is_refused_without_running_it(tmp_path):
    (tmp_path / "fastdeploy").mkdir()
    (tmp_path / "fastdeploy" / "__init__.py").write_text("raise SystemExit('it ran')")
    (tmp_path / "fastdeploy-0.0.1.dist-info").mkdir()
    (tmp_path / "fastdeploy-0.0.1.dist-info" / "METADATA").write_text("Name: fastdeploy\nVersion: 0.0.1\n")
    code = "from grrm.engine.fastdeploy_engine import check_installed; check_installed()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=with_fastdeploy(tmp_path),
    )
    assert "fastdeploy 0.0.1 is not PaddlePaddle's FastDeploy: run `pip uninstall fastdeploy`" in done.stderr
    assert "it ran" not in done.stderr
