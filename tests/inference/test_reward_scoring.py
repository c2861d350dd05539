"""A folder of a reward model as a judge: what the model reads, what changes no score, what is refused."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest
from support.judged_groups import group_of
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

from grrm.config.keys.reward_model import GroupConfig
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.gqm.mt_prompts import MT_PROMPT_TYPES, mt_prompt
from grrm.inference.reward_scoring import open_reward_judge
from grrm.judges.metrics import JudgeMetrics
from grrm.judges.spec import read_options
from grrm.judges.value_head import RewardModelOptions
from grrm.models.reward_models import load_reward_model, save_reward_model
from grrm.models.tokenizer import encoder, load_tokenizer, special_tokens
from grrm.models.trained_with import TrainedWith
from grrm.training.gold_groups import GroupEncoder

KINDS = {"rm": ("pairwise", {}), "ranker": ("ranker", {"blocks": 1}), "group": ("ranker", {"compare": "group"})}
# Not with a process of its own: the fast layers would change PaddleNLP's classes for the tests that follow.
open_judge = partial(open_reward_judge, own_process=False)
TEXTS = ["Good morning", "Good night, Anna", "x", "Morning"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("reward_models")
    return {
        name: write_tiny_reward_model(root / name, kind, max_positions=128, **settings)
        for name, (kind, settings) in KINDS.items()
    }


@pytest.fixture(scope="module", params=KINDS)
def judge(request, folders):
    return open_judge(folders[request.param])


def read_by(judge, monkeypatch) -> list:
    """The groups of tokens that the judge's model is given from now on."""
    seen: list = []
    from grrm.models import reward_models

    def score_groups(model, groups, *, max_tokens):
        seen.extend(groups)
        return [[float(i) for i, _ in enumerate(group.responses)] for group in groups]

    monkeypatch.setattr(reward_models, "score_groups", score_groups)
    return seen


def test_the_order_of_candidates_changes_no_score(judge):
    order = [2, 0, 3, 1]
    first, permuted = judge.judge([group_of(TEXTS), group_of([TEXTS[i] for i in order])])
    assert len(set(first.scores)) == len(TEXTS)
    for place, i in enumerate(order):
        assert permuted.scores[place] == pytest.approx(first.scores[i], abs=1e-5)


def test_a_copy_scores_as_its_original(judge):
    (verdict,) = judge.judge([group_of([*TEXTS, TEXTS[1]])])
    assert verdict.scores[4] == verdict.scores[1]
    assert verdict.statuses[4] is Status.DUPLICATE


def test_a_group_scores_the_same_in_a_batch_and_alone(judge):
    groups = [group_of(TEXTS[:n], source="Guten Morgen " * n) for n in (2, 4, 3)]
    for group, verdict in zip(groups, judge.judge(groups), strict=True):
        assert judge.judge([group])[0].scores == pytest.approx(verdict.scores, abs=1e-5)


@pytest.mark.parametrize("name", ["rm", "ranker"])
def test_the_model_reads_what_it_was_trained_on(name, folders, monkeypatch):
    metrics = JudgeMetrics()
    judge = open_judge(folders[name], name, metrics=metrics)
    read = read_by(judge, monkeypatch)
    judge.judge([group_of(TEXTS, source="Hallo\nAnna")])
    tokenizer = load_tokenizer(folders[name])
    encode = GroupEncoder(GroupConfig(), tokenizer, folders[name], [tokenizer.eos_token_id] if name == "rm" else [])
    row = {"src_text": "Hallo\nAnna", "src_lang": "de", "trg_lang": "en", "mt_texts": TEXTS, "scores": [0] * len(TEXTS)}
    assert read == [encode.group(row).candidates]
    assert tokenizer.decode(read[0].prompt_ids) == render_chatml(mt_prompt("Hallo\nAnna", "de", "en", "Tower"))
    assert metrics.values()["tokens_read"] == len(read[0].prompt_ids) + sum(map(len, read[0].responses))


def test_no_text_becomes_a_special_token(folders, monkeypatch):
    judge = open_judge(folders["ranker"])
    tokenizer = load_tokenizer(folders["ranker"])
    special = set(tokenizer.convert_tokens_to_ids(list(special_tokens(tokenizer))))
    assert special
    read = read_by(judge, monkeypatch)
    for token in special_tokens(tokenizer):
        judge.judge([group_of([f"a{token}b", token], source="Hallo"), group_of(["a", "b"], source=f"Hallo {token}")])
    plain = sum(one in special for one in read[0].prompt_ids)
    assert plain > 0
    for group in read:
        assert sum(one in special for one in group.prompt_ids) == plain
        assert not special & {one for response in group.responses for one in response}
    decoded = tokenizer.decode(read[0].responses[0], skip_special_tokens=False)
    assert decoded == f"a{special_tokens(tokenizer)[0]}b"


def test_a_candidate_beyond_the_models_positions_is_too_long_and_never_cut(judge):
    (verdict,) = judge.judge([group_of([*TEXTS[:2], "z" * 200])])
    assert verdict.statuses == (Status.SCORED, Status.SCORED, Status.TOO_LONG)
    assert verdict.scores[:2] == pytest.approx(judge.judge([group_of(TEXTS[:2])])[0].scores, abs=1e-5)
    (nothing,) = judge.judge([group_of(TEXTS[:2], source="y" * 200)])
    assert nothing.statuses == (Status.TOO_LONG,) * 2


def test_only_a_ranker_that_compares_is_shown_copies(folders, monkeypatch):
    for name, n_shown in (("rm", 2), ("ranker", 2), ("group", 3)):
        judge = open_judge(folders[name])
        read = read_by(judge, monkeypatch)
        judge.judge([group_of(["a", "b", "a"])])
        assert len(read[0].responses) == n_shown


def test_a_language_that_the_prompt_cannot_name_is_a_sentence(judge):
    from grrm.gqm.groups import Candidate, Group

    group = Group("g", TranslationTask("x", "qq", "en"), tuple(Candidate(text, text, text) for text in TEXTS))
    with pytest.raises(UserError, match="qq"):
        judge.judge([group])


def test_a_folder_that_is_none_of_a_reward_model_is_a_sentence(tmp_path, folders):
    with pytest.raises(UserError, match="does not exist"):
        open_judge(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no reward model"):
        open_judge(write_tiny_checkpoint(tmp_path / "policy"))
    with pytest.raises(UserError, match="is a pairwise one: use the judge rm"):
        open_judge(folders["rm"], "ranker")
    cut = shutil.copytree(folders["ranker"], tmp_path / "cut")
    head = cut / "ranker_head.safetensors"
    head.write_bytes(head.read_bytes()[:-10])
    with pytest.raises(UserError, match="not whole"):
        open_judge(cut)


def test_a_model_is_asked_with_the_prompts_that_it_was_trained_with_or_not_at_all(tmp_path):
    folder = write_tiny_reward_model(tmp_path / "ranker", "ranker", blocks=1)
    model = load_reward_model(folder)
    model.trained_with = TrainedWith(prompt_type="codeblock-think", chat_template="none")
    save_reward_model(model, folder)
    task, given = TranslationTask("One", "en", "de"), RewardModelOptions(prompt_type="codeblock-think")
    for judge in (open_judge(folder), open_judge(folder, options=given, chat_template="none")):
        asked = judge.scorer.prompt_ids(task)
        assert asked == encoder(load_tokenizer(folder))(mt_prompt(task.source, "en", "de", "codeblock-think"))
    named = r"'codeblock-think', not 'Tower': leave out prompt_type, .*--mt-prompt-type.*, or set it to codeblock-think"
    with pytest.raises(UserError, match=rf"trained with the prompt type {named}"):
        open_judge(folder, options=RewardModelOptions(prompt_type="Tower"))
    with pytest.raises(UserError, match=r"the chat template 'none', not 'chatml': leave out chat_template, or"):
        open_judge(folder, chat_template="chatml")
    model.trained_with = TrainedWith()
    save_reward_model(model, folder)
    asked = open_judge(folder).scorer.prompt_ids(task)
    assert asked == encoder(load_tokenizer(folder))(render_chatml(mt_prompt(task.source, "en", "de", "Tower")))


def test_a_language_pair_that_was_not_trained_on_has_a_status_unless_any_will_do(tmp_path):
    folder = write_tiny_reward_model(tmp_path / "ranker", "ranker", blocks=1)
    model = load_reward_model(folder)
    model.trained_with = TrainedWith(language_pairs=("de-en",))
    save_reward_model(model, folder)
    candidates = (Candidate("a", "Hello", "Hello"), Candidate("b", "Hi", "Hi"))
    pairs = (("German", "en"), ("de", "fr"))
    groups = [Group("-".join(pair), TranslationTask("Hallo", *pair), candidates) for pair in pairs]
    known, unseen = open_judge(folder).judge(groups)
    assert known.statuses == (Status.SCORED, Status.SCORED)
    assert unseen.statuses == (Status.UNSEEN_LANGUAGES, Status.UNSEEN_LANGUAGES)
    assert unseen.scores == (None, None)
    both = open_judge(folder, options=RewardModelOptions(any_language_pair=True)).judge(groups)
    assert {status for verdict in both for status in verdict.statuses} == {Status.SCORED}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"batch_tokens": 0}, "'batch_tokens' is 0; give a number at least 1"),
        ({"score_scale": 0}, "'score_scale' is 0; give a number above 0"),
        ({"score_scale": True}, "'score_scale' is True; give a number"),
        ({"prompt_type": "tower"}, "'prompt_type' is 'tower'; give one of codeblock-think, Tower"),
        ({"temperature": 0.5}, "unknown judge option 'temperature'"),
    ],
)
def test_options_are_checked(values, message):
    with pytest.raises(UserError, match=message):
        read_options(RewardModelOptions, values)


def test_the_scale_is_a_factor_on_differences(folders):
    (plain,) = open_judge(folders["rm"]).judge([group_of(TEXTS[:2])])
    options = read_options(RewardModelOptions, {"score_scale": 2})
    (scaled,) = open_judge(folders["rm"], options=options).judge([group_of(TEXTS[:2])])
    assert [score - 5 for score in scaled.scores] == pytest.approx(
        [2 * (score - 5) for score in plain.scores], abs=1e-5
    )


@pytest.mark.parametrize("prompt_type", MT_PROMPT_TYPES)
def test_every_translation_prompt_can_be_chosen(prompt_type):
    assert RewardModelOptions(prompt_type=prompt_type).prompt_type == prompt_type
