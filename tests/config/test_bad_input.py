"""Every mistake a user can make with the training scripts is one sentence on stderr and a non-zero exit status."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import ends_with_a_sentence, the_mistakes, the_sentence
from support.local_server import refusing_url
from support.rl_processes import CONFIGS, ROOT, SCRIPTS, TinyWorld, entry_command, environment, train_rl
from support.rows import write_jsonl

from grrm.config import RLConfig, load_config
from grrm.errors import suggestion
from grrm.models import hub
from grrm.rl import run as rl_run
from grrm.rl.prompts import read_prompts


@pytest.fixture
def complaint(world: TinyWorld, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Run the RL entry point in this process with changed settings; returns its sentence."""

    def run(**settings: str) -> str:
        command = entry_command(world, tmp_path / "out", **settings)
        return ends_with_a_sentence(lambda: train_rl(command), capsys)

    return run


# --- the argument file, as a real process -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "content", "sentence"),
    [
        ("run_dpo.py", None, "The argument file '.*missing.yaml' cannot be read: No such file or directory"),
        ("run_rl.py", "learning_rat: 1.0e-4\n", "Unknown key 'learning_rat'; did you mean 'learning_rate'"),
        ("run_sft.py", "output_dir: [unclosed\n", "line 2: this is not valid YAML"),
        ("run_reward.py", "just text\n", "holds no settings"),
    ],
    ids=["missing", "unknown key", "broken", "no mapping"],
)
def test_bad_argument_file_is_told_before_paddle_is_loaded(
    tmp_path: Path, script: str, content: str | None, sentence: str
) -> None:
    path = tmp_path / ("missing.yaml" if content is None else "arguments.yaml")
    if content is not None:
        path.write_text(content)
    done = started([script, str(path)], "-X", "importtime")
    imports = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert imports
    assert not any(line.split("|")[-1].strip().split(".")[0] in ("paddle", "paddlenlp") for line in imports)
    told = [the_sentence(done.stderr)]
    if content == "learning_rat: 1.0e-4\n":  # the keys that must be there are told as missing too
        told = the_mistakes(done.stderr)
    assert re.search(sentence, told[0])


def test_no_argument_file_is_a_sentence_below_the_help() -> None:
    done = started(["run_rl.py"])
    assert "no argument file was given: run_rl.py ARGUMENTS.yaml" in the_sentence(done.stderr)
    assert done.stdout.startswith("usage: run_rl.py ARGUMENTS.yaml")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "llm/alignment/grrm/run_sft.py <(echo output_dir: [unclosed)",
            "/dev/fd/[0-9]+, line 2: this is not valid YAML",
        ),
        (
            "reward_server/reward_server.py --config <(echo port: 0) --token-file <(echo two words)",
            "the token file /dev/fd/[0-9]+ holds no token",
        ),
    ],
    ids=["arguments", "settings and token"],
)
def test_a_process_substitution_is_read_as_a_file(words: str, sentence: str) -> None:
    command = ["bash", "-c", f'"{sys.executable}" {words}']
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=600, env=environment(), cwd=ROOT, check=False
    )
    assert done.returncode == 2
    assert re.search(sentence, the_sentence(done.stderr))


def started(arguments: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, str(SCRIPTS / arguments[0]), *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(), check=False)
    assert done.returncode == 2
    return done


# --- data -------------------------------------------------------------------------------------------------------------

TGT = json.dumps({"source": "zwei", "src_lang": "de", "trg_lang": "en", "reference": "two"})


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ([{"prompt": "x", "tgt": TGT}], "line 1 has no key 'src'.*set prompt_key and response_key"),
        ([{"src": "", "tgt": TGT}], "line 1 has an empty prompt"),
        ([{"src": "x", "tgt": TGT}], "1 prompts for 1 epochs do not fill one rollout of global_batch_size 4"),
    ],
    ids=["wrong key", "empty prompt", "too few"],
)
def test_bad_data_is_told(complaint, tmp_path: Path, lines: list[dict], sentence: str) -> None:
    path = write_jsonl(tmp_path / "data.jsonl", lines)
    assert re.search(sentence, complaint(train_datasets=str(path), max_steps="-1"))


def test_prompt_over_the_limit_is_left_out_and_counted(world: TinyWorld, tmp_path: Path, caplog) -> None:
    path = tmp_path / "data.jsonl"
    rows = [{"src": "many words " * 99, "tgt": TGT}, {"src": "few words", "tgt": TGT}]
    write_jsonl(path, rows)
    command = entry_command(world, tmp_path / "out")
    prompts = read_prompts(load_config(RLConfig, command[1], command[2:]), str(path), tokenizer_of(world))
    assert [item.prompt_text for item in prompts] == ["few words"]
    assert "1 of 2 rows are longer than max_prompt_len = 96 tokens and were left out" in caplog.text


def tokenizer_of(world: TinyWorld):
    from grrm.models.tokenizer import load_tokenizer

    return load_tokenizer(str(world.policy))


# --- model and tokenizer ----------------------------------------------------------------------------------------------


def cut_in_half(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def configured(**changes):
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return change


def without_files(*names: str):
    return lambda folder: [(folder / name).unlink() for name in names]


def written(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (without_files("config.json"), "has no config.json: pass a checkpoint directory"),
        (written("config.json", "{"), "config.json' is not readable JSON"),
        (written("config.json", "[]"), "config.json' is not a JSON object"),
        (cut_in_half, "cannot be loaded .*its weights are damaged"),
        (configured(model_type="bert"), "architecture 'bert', which .* give a checkpoint of qwen2 or llama"),
        (configured(max_position_embeddings=64), "rows may have 108 tokens but the model has only 64 positions"),
        (without_files("tokenizer_config.json", "tokenizer.json"), "has no tokenizer that can be read"),
    ],
    ids=[
        *("no config", "broken config", "config of another shape", "truncated"),
        *("other architecture", "too few positions", "no tokenizer"),
    ],
)
def test_bad_model_folder_is_told(complaint, world: TinyWorld, tmp_path: Path, damage, sentence: str) -> None:
    model = tmp_path / "model"
    shutil.copytree(world.policy, model)
    damage(model)
    said = complaint(actor_model_name_or_path=str(model))
    assert re.search(sentence, said)
    assert len(said) < 700


def test_missing_model_folder_is_told(complaint, tmp_path: Path) -> None:
    assert "which does not exist" in complaint(actor_model_name_or_path=str(tmp_path / "none"))


def test_a_hub_that_cannot_be_reached_is_told(complaint, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> Path:
        raise ConnectionError("Connection refused. Try again later")

    monkeypatch.setattr(hub, "from_paddlenlp", refuse)
    monkeypatch.setattr(hub, "from_hugging_face", refuse)
    said = complaint(actor_model_name_or_path="Organisation/Model")
    reasons = "PaddleNLP's hub: Connection refused; Hugging Face: Connection refused"
    assert f"'Organisation/Model' is no folder here, and cannot be had from a hub ({reasons}): mend the name" in said


def test_tokenizer_with_more_tokens_than_the_model_is_told(world: TinyWorld) -> None:
    from types import SimpleNamespace

    from grrm.errors import UserError
    from grrm.training.model_setup import check_fit

    tokenizer = tokenizer_of(world)
    check_fit(tokenizer, SimpleNamespace(vocab_size=len(tokenizer)), 10**6)
    with pytest.raises(UserError, match=f"has {len(tokenizer)} tokens but the model only 100"):
        check_fit(tokenizer, SimpleNamespace(vocab_size=100), 10)


# --- where it writes and resumes --------------------------------------------------------------------------------------


def test_output_folder_that_cannot_be_made_is_told(complaint, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot be made (File exists): name another folder" in complaint(output_dir=str(tmp_path / "file"))
    assert "cannot be made (Not a directory)" in complaint(output_dir=str(tmp_path / "file/below"))


@pytest.mark.parametrize(
    ("marker", "sentence"),
    [
        (None, "has no grrm_state.json: it is incomplete, use an earlier one"),
        ("{", "is damaged: use an earlier checkpoint"),
        ("[]", "is damaged: use an earlier checkpoint"),
        ('{"step": 2}', "is not of an RL run"),
    ],
    ids=["incomplete", "broken", "other shape", "of a supervised run"],
)
def test_checkpoint_that_cannot_be_resumed_is_told(
    complaint, tmp_path: Path, marker: str | None, sentence: str
) -> None:
    checkpoint = tmp_path / "checkpoint-2"
    checkpoint.mkdir()
    if marker is not None:
        (checkpoint / "grrm_state.json").write_text(marker)
    assert sentence in complaint(resume_from_checkpoint=str(checkpoint))
    assert "is not a directory" in complaint(resume_from_checkpoint=str(tmp_path / "none"))


# --- the reward server ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["grrm", "paddlenlp"])
def test_reward_server_that_does_not_run_is_told_before_the_model_is_loaded(
    complaint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setattr(rl_run, "load_part", lambda *args, **options: pytest.fail("the model was loaded"))
    with refusing_url() as url:
        limits = {f"reward_{name}_s": "0.5" for name in ("connect_timeout", "read_timeout", "deadline")}
        settings = {"use_rm_server": "true", "reward_server": url, **limits}
        said = complaint(yaml=own_arguments(tmp_path, protocol), **settings)
    assert f"reward server {url} was not ready within 0.5 s (the connection was refused): start it" in said


def own_arguments(tmp_path: Path, protocol: str) -> str:
    """The tiny argument file for `protocol`, without the keys that the row protocol has no use for."""
    text = (CONFIGS / "grpo_grrm_tiny_argument.yaml").read_text()
    if protocol == "paddlenlp":
        text = re.sub(r"(?m)^(score_scale_factor|default_reward):.*\n", "", text)
    path = tmp_path / "arguments.yaml"
    path.write_text(f"{text}\nreward_protocol: {protocol}\n")
    return str(path)


def test_a_name_is_only_suggested_where_it_is_near():
    assert suggestion("port", ["power", "report_to"]) == "give one of power, report_to."
    assert suggestion("nope", ["comet", "chrf"]) == "give one of comet, chrf."
    assert suggestion("chfr", ["comet", "chrf"]) == "did you mean 'chrf'?"
    assert suggestion("round", ["round_to_integer", "reward"]) == "did you mean 'round_to_integer'?"
