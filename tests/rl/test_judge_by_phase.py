"""A generative judge in the trainer's own process gives the rewards that the reward server gives, group by group."""

from __future__ import annotations

import json
import shutil
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from support.reward_servers import reward_server
from support.rl_processes import TinyWorld, entry_command, metrics_of, on_ranks, one_rank, rollouts_of, run

from grrm.gqm.chat import render_chatml
from grrm.gqm.prompts import gqm_prompt

pytestmark = pytest.mark.slow
OPTIONS = {"prompt_type": "score", "show_copies": True, "retries": 0, "max_new_tokens": 8}
# Every response is its own translation, so that each group shows four of them, which this judge can count to.
SETTINGS = {"extractor_type": "none", "max_steps": "2", "save_steps": "2"}


IDS = "ABCD"
LAST_OF_PROMPT = "\n"
WIDTH, STATES = 64, 8  # hidden numbers: the first say what is written next, the others what was read
SURE, HEARD = 30.0, 400.0  # what the next token owes to the state, and to the text


def write_hand_made_judge(folder: Path, texts: list[str], prompts: list[str]) -> Path:
    """Write a checkpoint that answers `A: 3, B: 7, C: 0, D: 5` and ends; returns its folder.

    Which digits depends, greedily, on the mean of random vectors of all tokens before them: on the whole prompt.
    `prompts` are like those to come, chat template applied; their mean is taken off, so that digits differ.
    """
    from tokenizers import AddedToken, Tokenizer

    from grrm.data.bpe import EOS, train_bpe

    train_bpe(texts, folder, 300)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    scores = [[f"{', ' if i else ''}{name}: {digit}" for digit in range(10)] for i, name in enumerate(IDS)]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for row in scores for text in row])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text())
    mark = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": False}
    for text in (text for row in scores for text in row):
        config["added_tokens_decoder"][str(tokenizer.token_to_id(text))] = {"content": text, **mark}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    columns = [[tokenizer.token_to_id(text) for text in row] for row in scores]
    words = [tokenizer.encode(LAST_OF_PROMPT).ids, *columns, [tokenizer.token_to_id(EOS)]]
    follows = list(pairwise(words))
    _write_weights(folder, tokenizer.get_vocab_size(), follows, [tokenizer.encode(text).ids for text in prompts])
    return folder


def _write_weights(
    folder: Path, n_words: int, follows: list[tuple[list[int], list[int]]], prompts: list[list[int]]
) -> None:
    import paddle
    from paddlenlp.transformers import Qwen2Config, Qwen2ForCausalLM

    rng = np.random.default_rng(11)
    embedding = np.zeros((n_words, WIDTH), np.float32)
    embedding[:, STATES:] = rng.normal(size=(n_words, WIDTH - STATES))
    head = np.zeros((WIDTH, n_words), np.float32)
    for state, (words, next_words) in enumerate(follows):
        embedding[words] = 0
        embedding[words, state] = 8.0
        head[state, next_words] = SURE
        head[STATES:, next_words] = HEARD * rng.normal(size=(WIDTH - STATES, len(next_words))) / WIDTH
    normed = embedding / np.sqrt(np.square(embedding).mean(1, keepdims=True) + 1e-6)
    usual = np.mean([normed[ids].mean(0) for ids in prompts], axis=0)
    config = Qwen2Config(
        hidden_size=WIDTH,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        vocab_size=n_words,
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
        tie_word_embeddings=False,
    )
    model = Qwen2ForCausalLM(config)
    read = np.zeros((WIDTH, WIDTH), np.float32)
    read[STATES:, STATES:] = np.eye(WIDTH - STATES)
    values = {"embed_tokens.weight": embedding, "v_proj.weight": read, "v_proj.bias": -usual @ read}
    values |= {"o_proj.weight": np.eye(WIDTH), "lm_head.weight": head}
    for name, parameter in model.named_parameters():
        value = next((value for end, value in values.items() if name.endswith(end)), None)
        if value is None:  # queries and keys that are all alike attend to everything; the inner layer adds nothing
            value = np.ones(parameter.shape) if "norm" in name else np.zeros(parameter.shape)
        parameter.set_value(paddle.to_tensor(value.astype(np.float32)))
    model.save_pretrained(str(folder), safe_serialization=True)


def write_lettered_policy(source: Path, folder: Path) -> Path:
    """The tokenizer of `source` and a random policy that draws letters and spaces, which any judge may be shown."""
    import paddle
    from support.tiny_policy import random_policy

    from grrm.models.tokenizer import load_tokenizer

    shutil.copytree(source, folder)
    tokenizer = load_tokenizer(str(folder))
    texts = [tokenizer.decode([word]) for word in range(len(tokenizer))]
    model = random_policy(vocab_size=len(texts), tie_word_embeddings=False)
    refused = np.asarray([not (text.isascii() and text.replace(" ", "").isalpha()) for text in texts])
    for name, parameter in model.named_parameters():
        value = parameter.numpy()
        if name.endswith("embed_tokens.weight"):
            value[:, 0] = 3.0  # a number that is there at every position, as nothing is added to it
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            value[:, 0] = 0.0
        elif name.endswith("lm_head.weight"):
            value[0] = np.where(refused, -100.0, 0.0)
        parameter.set_value(paddle.to_tensor(value))
    model.save_pretrained(str(folder), safe_serialization=True)
    return folder


@pytest.fixture(scope="module")
def lettered(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> TinyWorld:
    policy = write_lettered_policy(world.policy, tmp_path_factory.mktemp("policy") / "policy")
    return TinyWorld(world.folder, policy, world.rl_data)


@pytest.fixture(scope="module")
def judge(world: TinyWorld, tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = [json.loads(line) for line in world.rl_data.read_text().splitlines()]
    texts = [row["src"] for row in rows]
    groups = [gqm_prompt(text, [text[i : i + 9] for i in range(4)], "de", "en", "score") for text in texts[:40]]
    prompts = [render_chatml(prompt) for prompt in groups]
    return write_hand_made_judge(tmp_path_factory.mktemp("judge") / "judge", texts, prompts)


@pytest.fixture(scope="module")
def served(lettered: TinyWorld, judge: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process whose judge is in a reward server."""
    output = tmp_path_factory.mktemp("served") / "out"
    options = [text for name, value in OPTIONS.items() for text in ("--judge-option", f"{name}={json.dumps(value)}")]
    options[options.index('prompt_type="score"')] = "prompt_type=score"
    with reward_server("--judge", "gqm", "--model", str(judge), *options) as (_, url):
        run(one_rank(entry_command(lettered, output, **SETTINGS, use_rm_server="true", reward_server=url)))
    return output


def inside(judge: Path) -> dict[str, str]:
    return {**SETTINGS, "reward_sources": json.dumps([{"judge": "gqm", "model": str(judge), "options": OPTIONS}])}


@pytest.mark.parametrize(
    ("n_ranks", "settings"),
    [
        (1, {}),
        pytest.param(2, {}, marks=pytest.mark.scale),
        pytest.param(2, {"tensor_parallel_degree": "2"}, marks=pytest.mark.scale),
        (2, {"tensor_parallel_degree": "2", "rollout_tensor_parallel_degree": "2"}),
    ],
    ids=["one process", "two data ranks", "two tensor ranks", "two that sample together"],
)
def test_rewards_are_those_of_the_reward_server(
    lettered: TinyWorld, judge: Path, served: Path, tmp_path: Path, n_ranks: int, settings: dict[str, str]
) -> None:
    command = entry_command(lettered, tmp_path / "out", **inside(judge), **settings)
    run(on_ranks(n_ranks, command, tmp_path / "logs"))
    ours, theirs = rollouts_of(tmp_path / "out"), rollouts_of(served)
    for one, other in zip(ours, theirs, strict=True):
        assert one["group_id"] == other["group_id"]
        assert one["candidates"] == other["candidates"], "responses, statuses, scores, rewards, advantages"
    scores = [candidate["score"] for group in ours for candidate in group["candidates"]]
    assert len({*scores}) >= 4, "the judge tells candidates apart"
    for line in metrics_of(tmp_path / "out"):
        assert line["seconds_judge_overlapped"] == 0
