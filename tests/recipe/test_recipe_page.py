"""docs/recipe.md, docs/eax.md and docs/answers.md line by line: each command is run, run tiny on a CPU, or read."""

from __future__ import annotations

import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from recipe.documented import (
    CHECKED,
    Command,
    Substitution,
    classify,
    commands_of,
    cpu_seconds,
    drop,
    give,
    run,
    show,
    start_server,
    without,
)
from support.command_line import invoke
from support.rows import annotated_groups

ROOT = Path(__file__).parents[2]
PAGE, CHINESE = ROOT / "docs/recipe.md", ROOT / "docs/recipe_zh.md"
PAGES = (PAGE, ROOT / "docs/eax.md", ROOT / "docs/answers.md")
CONFIG = "llm/config/qwen/reward_server_grrm.yaml"
LAUNCH = "python -m paddle.distributed.launch"
STOP = "kill $(jobs -p)"
FREE_PORTS: dict[str, str] = {}

EXECUTED_HEADS = ("grrm doctor", "grrm data", "grrm plan", "grrm eval ranking", "grrm replay")
EXECUTED_HEADS += ("grrm report", "grrm export", "grrm rank sampled", "grrm rank x2x_sampled", "cat", "for")
EXECUTED_HEADS += ("grrm rank answers.parquet --judge answer", "kill")
CHECKED_HEADS = ("python3 -m venv", "source", "pip install", "hf download", "grrm scorer install")


def on_one_process(words: list[str]) -> list[str]:
    return ["python", *drop("--gpus")(words[3:])]


def on_free_ports(words: list[str]) -> list[str]:
    return [re.sub(r"\b(?:87\d\d|800\d)\b", lambda found: free_port(found[0]), word) for word in words]


def free_port(name: str) -> str:
    """A port of this machine for one of the page, the same each time."""
    if name not in FREE_PORTS:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            FREE_PORTS[name] = str(probe.getsockname()[1])
    return FREE_PORTS[name]


def of_script(file: str, **values: object):
    """Those options where a training command names this script or argument file."""
    return lambda words: give(**values)(words) if any(word.endswith(file) for word in words) else words


CPU = {"device": "cpu", "bf16": "false", "amp_master_grad": "false", "sharding": "", "report_to": "none"}
STEPS = {"max_steps": 2, "save_steps": 2, "logging_steps": 1}
RL_SIZE = {"max_prompt_len": 400, "max_dec_len": 24, "max_length": 424, "global_batch_size": 4, "rollout_n": 4}
RL_SIZE |= {"global_mini_batch_size": 4, "per_device_train_batch_size": 8, "overlong_reward_buffer": 12}
SUBSTITUTIONS = (
    Substitution((LAUNCH,), "launcher and GPUs: one process", on_one_process),
    Substitution((LAUNCH,), "layers on two ranks: on one", give(tensor_parallel_degree=1, sequence_parallel="false")),
    Substitution((LAUNCH,), "GPU, bfloat16, sharding, VisualDL: CPU, float32, none", lambda w: give(**CPU)(w)),
    Substitution((LAUNCH,), "epochs: two steps", give(**STEPS)),
    Substitution(
        (LAUNCH,),
        "Qwen2.5-7B and 12,000 tokens a row: 30,000 weights and 512",
        of_script("run_sft.py", model_name_or_path="models/tiny", max_length=512, per_device_train_batch_size=4),
    ),
    Substitution(
        (LAUNCH,),
        "512 prompts, 5,000 tokens a response: 4 prompts, 24 tokens",
        of_script("run_rl.py", **RL_SIZE),
    ),
    Substitution(
        (LAUNCH,),
        "a judge that half of all candidates may fail with: one that may fail with all, as it has learned nothing",
        of_script("grpo_grrm_argument.yaml", max_unscored_fraction=1.0),
    ),
    Substitution(
        (LAUNCH,),
        "2,048 tokens a row, two blocks, 4 % held out every 100 steps: 512, one, two groups every 2",
        of_script("/ranker_argument.yaml", max_length=512, val_size=2, eval_steps=2, blocks=1),
    ),
    Substitution(
        (LAUNCH,),
        "2,048 tokens a row, 4 % or 1 % held out: 512, two pairs",
        of_script("run_dpo.py", max_length=512, val_size=2, eval_steps=2, per_device_train_batch_size=2),
    ),
    Substitution(
        (LAUNCH,),
        "2,048 tokens a row, 4 % or 1 % held out: 512, two pairs",
        of_script("/rm_argument.yaml", max_length=512, val_size=2, eval_steps=2, learning_rate=0.01),
    ),
    Substitution(
        ("for",),
        "eight GPUs, each a part of the files: one",
        lambda words: ["for", words[1].replace("seq 0 7", "seq 0 0").replace("num 8", "num 1").replace("768", "24")],
    ),
    Substitution(
        ("grrm data pairs",),
        "margins of 1 and 2 of good samples: any difference, as no tiny model is good",
        give(min_margin=1e-6, min_winner_score=0),
    ),
    Substitution(
        (LAUNCH, "python reward_server/reward_server.py", "grrm serve", "grrm rank answers.parquet"),
        "ports: free ones",
        on_free_ports,
    ),
    Substitution(
        ("grrm data corpus phrases",),
        "3,000 rows and 600 held out: 24 and 12",
        give(train_rows=24, dev_rows=6, heldout_rows=6),
    ),
    Substitution(
        ("python llm/alignment/grrm/run_sft.py", "python llm/alignment/grrm/run_rl.py"),
        "150 to 400 steps, 16 to 32 rows each: two of four",
        give(**STEPS, report_to="none", per_device_train_batch_size=4),
    ),
    Substitution(
        ("python llm/alignment/grrm/run_rl.py",),
        "32 prompts a rollout: four",
        give(global_batch_size=4, per_device_train_batch_size=8),
    ),
    Substitution(
        ("python reward_server/reward_server.py",),
        "replies of 8,192 tokens in bfloat16: 24 in float32",
        lambda words: [
            *words,
            *(["--dtype", "float32", "--judge-option", "max_new_tokens=24"] if CONFIG in words else ()),
        ],
    ),
    Substitution(
        ("grrm plan llm/config/qwen/rlvr_grrm_argument.yaml", "grrm plan llm/config/qwen/grpo_grrm_argument.yaml"),
        "512 prompts a rollout: 8, which there are",
        lambda words: [*words, "--global_batch_size", "8", "--global_mini_batch_size", "8"],
    ),
    Substitution(
        ("grrm rank", "grrm translate"),
        "replies of hundreds or thousands of tokens: 24",
        lambda words: words if {"rm", "text_metric", "answer"} & set(words) else give(max_new_tokens=24)(words),
    ),
    Substitution(
        ("grrm translate downloads/TowerBlocks-MT/data/train.parquet",),
        "samples in code blocks: as they are, from a policy that has not learned to write any",
        give(prompt_type="Tower"),
    ),
    Substitution(
        ("grrm rank data/towerblocks_mt/samples.parquet",),
        "GRRM's scores as gold: chrF, as no tiny model writes verdicts",
        lambda words: give(judge="text_metric")(drop("--model", "--retry", "--max-new-tokens")(words)),
    ),
    Substitution(("grrm rank", "grrm translate"), "eight GPUs: one process", drop("--devices")),
    Substitution(("grrm eval mt",), "COMET and BLEURT: neither", without("--comet", "--bleurt")),
    Substitution(("grrm eval mt",), "COMET and BLEURT: neither", drop("--bleurt-model")),
)
ENDS_WITH = {"grrm doctor --gpu": 1}  # there is no GPU here, which it says


def classified(page: Path) -> list[tuple[Command, str, list[str], list[str]]]:
    found = commands_of(page)
    return [(one, *classify(one, EXECUTED_HEADS, CHECKED_HEADS, SUBSTITUTIONS)) for one in found]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_page_is_in_a_class(page):
    assert len(classified(page)) > 12


def test_a_command_in_no_class_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```bash\nmake everything\n```\n")
    with pytest.raises(AssertionError, match="no list names what becomes of: make everything"):
        classified(page)


def test_both_languages_have_the_same_commands():
    assert commands_of(CHINESE) == commands_of(PAGE)


def test_estimates_of_the_page_are_what_its_plans_print_and_each_fits(monkeypatch):
    monkeypatch.chdir(ROOT)
    tables = [
        re.findall(r"^\| \[.*\| ([\d.]+ GiB) \| ([\d.]+) (?:hours|小时) \|$", page.read_text(encoding="utf-8"), re.M)
        for page in (PAGE, CHINESE)
    ]
    printed = []
    for command in (one for one in commands_of(PAGE) if one.starts("grrm plan")):
        done = invoke(*command.words[1:])
        (memory,) = re.findall(r"^fits as written +yes  \(([\d.]+ GiB);", done.stdout, re.MULTILINE)
        (hours,) = re.findall(r"^hours per 1,000 rows, at most +([\d.]+) ", done.stdout, re.MULTILINE)
        printed.append((memory, hours))
    assert tables == [printed, printed]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `grrm init` with two dozen rows where downloads would be, and a model with random weights."""
    from support.tiny_policy import write_policy

    from grrm.data.bpe import corpus_texts, train_bpe
    from grrm.data.corpora.phrases import build_phrases
    from grrm.gqm.mt_prompts import mt_prompt

    folder = tmp_path_factory.mktemp("recipe")
    subprocess.run([sys.executable, "-m", "grrm.cli", "init", folder], check=True, capture_output=True)
    for source in ("llm/alignment/grrm", "reward_server"):  # a clone has the packages there too, a wheel does not
        assert (folder / source).is_dir()
    build_phrases(folder / "corpus", 24, 8, ["en", "de", "fr"], seed=1)
    downloads = folder / "downloads"
    for name in ("TowerBlocks-MT/data", "TowerBlocks-MT-Ranking", "TowerBlocks-MT-CoT-ZhEn"):
        (downloads / name).mkdir(parents=True)
    train, held_out = folder / "corpus/train.parquet", folder / "corpus/heldout.parquet"
    shutil.copy(train, downloads / "TowerBlocks-MT/data/train.parquet")
    annotated_groups(train, downloads / "TowerBlocks-MT-Ranking/train.parquet", 12)
    annotated_groups(held_out, downloads / "TowerBlocks-MT-Ranking/test.parquet", 4)
    rows = pq.read_table(train).to_pylist()
    worked = [{**row, "response": f"Word by word.\n```\n{row['trg_text']}\n```"} for row in rows]
    pq.write_table(pa.Table.from_pylist(worked), downloads / "TowerBlocks-MT-CoT-ZhEn/train.parquet")
    (folder / "data/test").mkdir(parents=True)
    shutil.copy(held_out, folder / "data/test/wmt24.parquet")
    prompts = [mt_prompt(row["src_text"], row["src_lang"], row["trg_lang"], "codeblock-think") for row in rows]
    train_bpe([*prompts, *corpus_texts(train)], folder / "models/tiny", vocab_size=512)
    write_policy(folder / "models/tiny", max_position_embeddings=1024)
    for name in ("policy-7b", "rubric-7b", "tinyv-1.5b"):
        shutil.copytree(folder / "models/tiny", folder / "checkpoints" / name)
    questions_and_answers(folder)
    shutil.copy(train, folder / "train.parquet")
    return folder


def questions_and_answers(folder: Path) -> None:
    """Answers with their criteria, questions as verl reads them, and a line of translation data."""
    from grrm.data.convert import convert_to_src_tgt

    answers = {"src_text": "2 + 2?", "src_lang": "en", "trg_lang": "en", "trg_text": "4", "mt_texts": ["four", "five"]}
    asked = {"data_source": "polaris_tinyv", "prompt": [{"role": "user", "content": "2 + 2?"}]}
    asked |= {"reward_model": {"ground_truth": "4"}, "extra_info": {"question": "2 + 2?", "criteria": "10 for 4"}}
    pq.write_table(pa.Table.from_pylist([answers] * 2), folder / "answers.parquet")
    pq.write_table(pa.Table.from_pylist([asked] * 2), folder / "train_polaris.parquet")
    convert_to_src_tgt(folder / "corpus/heldout.parquet", folder / "rl.jsonl", "Tower")


def stopped(servers: list[subprocess.Popen[str]]) -> list[int]:
    """End them as `kill` does; their exit statuses."""
    for server in servers:
        server.send_signal(signal.SIGTERM)
    return [server.wait(timeout=120) for server in servers]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_the_page_works(workplace, page, capsys):
    """In order, each on what the earlier ones left; then the table of classes is printed."""
    servers: list[subprocess.Popen[str]] = []
    began, spent, table, failures = time.monotonic(), cpu_seconds(), [], []
    try:
        for command, kind, words, told in classified(page):
            start = time.monotonic()
            if kind == CHECKED:
                subprocess.run(["bash", "-n", "-c", command.text], check=True)
            elif command.is_background:
                server, problems = start_server(workplace, words)
                servers.append(server)
                failures += problems
            elif command.text == STOP:
                assert stopped(servers) == [0] * len(servers)
                servers.clear()
            else:
                failures += run(workplace, words, ENDS_WITH.get(command.text, 0))
            table.append((kind, time.monotonic() - start, command.text, told))
    finally:
        statuses = stopped(servers)
    with capsys.disabled():
        show(table, time.monotonic() - began, cpu_seconds() - spent)
    assert not failures, "\n".join(failures)
    assert statuses == [0] * len(servers)
