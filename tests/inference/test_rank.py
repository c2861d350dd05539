"""Ranking lists of texts: scores, and statuses where there is none."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from support.completions_server import CompletionsServer
from support.text_models import by_source
from support.tiny_policy import write_tiny_reward_model

import grrm
from grrm.engine import api
from grrm.errors import UserError
from grrm.gqm.chat import render_chatml
from grrm.gqm.groups import TranslationTask
from grrm.inference import reward_scoring
from grrm.inference.rank import group_of, judge_in_batches
from grrm.judges.interface import OpenedGenerator
from grrm.judges.registry import open_judge
from grrm.judges.value_head import RewardModelOptions
from grrm.models.trained_with import TrainedWith, write_trained_with

VERDICT = "B is best.\n\n### Final Ranking:\n\nB > A\n\n### Scores:\n\nB: 9, A: 4\n"


@pytest.fixture
def open_script(monkeypatch):
    """Makes opening a model answer with a script."""

    def install(script, **options):
        opened = OpenedGenerator(script, render_chatml, options.pop("max_prompt_tokens", None), **options)
        monkeypatch.setattr("grrm.inference.batch_calls.open_generator", lambda *_, **__: opened)
        return script

    return install


def test_scores_stand_in_the_order_of_the_candidates_with_statuses(open_script):
    open_script(by_source({"Hallo": [VERDICT]}))
    result = grrm.rank("model", ["Hallo"], [["Bye", "Hello", "Bye", None, "\0"]], "de", "en")
    assert result["scores"] == [[4, 9, 4, None, None]]
    assert result["statuses"] == [["scored", "scored", "duplicate", "unparsable_candidate", "unsafe_candidate"]]
    assert result["rankings"] == [[[1], [0, 2]]]
    assert result["attempts"] == [1]


def test_what_is_never_readable_has_no_numbers(open_script):
    script = open_script(by_source({"Hallo": ["no idea"], "Tag": [VERDICT]}))
    result = grrm.rank("model", ["Hallo", "Tag"], [["a", "b"], ["c", "d"]], ["de", "de"], ["en", "fr"], retry=2)
    assert result["scores"] == [None, [4, 9]]
    assert result["statuses"][0] == ["judge_unparsable"] * 2
    assert result["attempts"] == [3, 1]
    assert [len(call["prompts"]) for call in script.calls] == [2, 1, 1]


def test_batches_change_nothing_but_the_calls(open_script):
    results, seeds = [], []
    for batch_rows in (1, 2, 5):
        script = open_script(by_source({f"S{i}": [VERDICT] for i in range(5)}))
        seen = []
        results.append(
            grrm.rank(
                "model",
                [f"S{i}" for i in range(5)],
                [["a", "b"]] * 5,
                "de",
                "en",
                batch_rows=batch_rows,
                progress=lambda done, total, seen=seen: seen.append((done, total)),
            )
        )
        seeds.append(script.seeds)
        assert seen == [(min(done, 5), 5) for done in range(batch_rows, 5 + batch_rows, batch_rows)]
    assert results[0] == results[1] == results[2]
    assert seeds[0] == seeds[1] == seeds[2]


def test_a_prompt_beyond_the_models_positions_is_a_status_and_not_a_crash(open_script):
    script = open_script(by_source({"": [VERDICT]}), max_prompt_tokens=600)
    result = grrm.rank("model", ["x" * 900, "y"], [["a", "b"]] * 2, "de", "en")
    assert result["statuses"] == [["too_long"] * 2, ["scored"] * 2]
    assert len(script.calls[0]["prompts"]) == 1


def test_each_candidate_by_itself(open_script):
    script = open_script(by_source({"good": ["fine\n8"], "bad": ["poor\n2"]}))
    result = grrm.rank("model", ["S"], [["bad", "good"]], "de", "en", judge="sqm")
    assert result["scores"] == [[2, 8]]
    assert result["rankings"] == [None]
    assert len(script.calls[0]["prompts"]) == 2


def test_lists_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="2 lists of candidates for 1 sources"):
        grrm.rank("model", ["a"], [["b", "c"], ["d", "e"]], "de", "en")
    with pytest.raises(ValueError, match="2 languages for 1 rows"):
        grrm.rank("model", ["a"], [["b", "c"]], ["de", "fr"], "en")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"judge": "oracle"}, "unknown judge 'oracle'"),
        ({"prompt_type": "stars"}, "'prompt_type' is 'stars'"),
        ({"permutations": 0}, "'permutations' is 0"),
        ({"temperature": -1}, "'temperature' is -1"),
        ({"trg_langs": "xx"}, "unknown language 'xx'"),
        ({"judge": "sqm", "shuffle": True}, "unknown judge option 'shuffle'"),
        ({"judge": "rankr"}, "unknown judge 'rankr'.*'ranker'"),
        ({"judge": None}, "judge is None"),
        ({"judge": "comet", "references": ["b"]}, "COMET has no environment"),
        ({"judge": "server"}, "unknown judge 'server'"),
        ({"judge_options": {"temperature": 0.5}, "temperature": 0.0}, "temperature is given as an argument and among"),
        ({"judge_options": {"retries": 2}, "retry": 0}, "retries is given as an argument and among"),
        ({"retries": 2, "retry": 0}, "retry and retries are one option; leave out one of the two"),
        ({"judge_options": ["metric"]}, "judge_options is \\['metric'\\]"),
    ],
)
def test_mistakes_are_found_before_a_model_is_opened(options, message):
    given = {"src_langs": "de", "trg_langs": "en"} | options
    with pytest.raises(UserError, match=message):
        grrm.rank("/nowhere", ["a"], [["b", "c"]], **given)


@pytest.mark.parametrize(
    ("sources", "candidates", "references", "message"),
    [
        (["a"], ["bc"], None, r"mt_list\[0\] is 'bc'; give a list of texts"),
        (["a", "b"], [["c"], ["d", 3]], None, r"mt_list\[1\] holds 3"),
        (["a"], [None], None, r"mt_list\[0\] is None"),
        (["a"], [map(str.strip, ["b", "c"])], None, r"mt_list\[0\] is <map .*give a list of texts"),
        (["a"], iter([["b", "c"]]), None, "mt_list is <list_iterator .*give a list"),
        ([None], [["b"]], None, r"src_list\[0\] is None"),
        ("ab", [["c"], ["d"]], None, "src_list is 'ab'; give a list"),
        (["a"], [["b"]], "c", "references is 'c'; give a list"),
        (["a"], [["b"]], [None], r"references\[0\] is None"),
    ],
)
def test_what_is_no_text_is_named_with_its_row(sources, candidates, references, message):
    judge = "consensus" if references is None else "chrf"
    with pytest.raises(UserError, match=message):
        grrm.rank(None, sources, candidates, "de", "en", judge=judge, references=references)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"src_langs": None}, "None is no language; give its code or name"),
        ({"trg_langs": ["en", None]}, "None is no language"),
        ({"contexts": [None, []]}, r"contexts\[0\] is None; give a list of pairs"),
        ({"contexts": [[], [("a", 1)]]}, r"contexts\[1\] holds \('a', 1\); give pairs"),
        ({"contexts": "ab"}, "contexts is 'ab'; give a list"),
    ],
)
def test_what_is_no_language_or_context_is_named(changed, message):
    arguments = {"src_langs": "de", "trg_langs": "en"} | changed
    with pytest.raises(UserError, match=message):
        grrm.rank(None, ["a", "b"], [["c", "d"], ["e", "f"]], judge="consensus", **arguments)


def test_arrays_of_texts_are_lists_of_texts():
    texts, candidates = np.array(["a", "b"]), np.array([["c", "d"], ["e", "f"]])
    found = grrm.rank(None, texts, candidates, "de", "en", judge="chrf", references=texts)
    assert found["statuses"] == [["scored", "scored"]] * 2


def test_a_limit_in_tokens_needs_something_that_counts_them(open_script):
    open_script(by_source({}), counts_tokens=False)
    with pytest.raises(UserError, match="needs the folder of the tokenizer"):
        grrm.rank("model", ["a"], [["b", "c"]], "de", "en", judge_options={"prompt_length": 100})


class Characters:
    """A tokenizer of characters; like Qwen's, its end of text is not the end of a turn."""

    eos_token_id, unk_token_id = 0, None

    def __call__(self, text, add_special_tokens, return_attention_mask=True):
        return {"input_ids": [ord(letter) for letter in text]}

    def decode(self, token_ids, skip_special_tokens, clean_up_tokenization_spaces):
        return "".join(map(chr, token_ids))

    def convert_tokens_to_ids(self, token):
        return 1 if token == "<|im_end|>" else None


class Engine(api.Engine):
    """Always finds B best; keeps what it was asked, and with which settings."""

    max_prompt_tokens = None

    def _generate(self, requests, on_finished):
        self.params, self.prompt = requests[0].params, "".join(map(chr, requests[0].prompt))
        reply = [ord(letter) for letter in VERDICT]
        return [api.Completion(reply, [0.0] * len(reply), "stop") for _ in requests]


def test_an_open_engine_and_its_tokenizer_are_used_as_they_are():
    result = grrm.rank(None, ["a"], [["b", "c"]], "de", "en", model=Engine(), tokenizer=Characters())
    assert result["scores"] == [[4, 9]]
    with pytest.raises(ValueError, match="go together"):
        grrm.rank(None, ["a"], [["b", "c"]], "de", "en", model=Engine())


def test_an_open_engine_stops_at_the_end_of_the_turn_like_one_that_is_opened_by_its_path():
    engine = Engine()
    grrm.rank(None, ["a"], [["b", "c"]], "de", "en", model=engine, tokenizer=Characters())
    assert engine.params.stop_token_ids == (0, 1)


def test_an_open_engine_is_asked_in_the_template_that_the_folder_of_its_model_records(tmp_path):
    engine = Engine()
    for template, begin in (("none", "Given a source text"), ("chatml", "<|im_start|>user\nGiven a source text")):
        write_trained_with(tmp_path, TrainedWith(chat_template=template))
        grrm.rank(tmp_path, ["a"], [["b", "c"]], "de", "en", model=engine, tokenizer=Characters())
        assert engine.prompt.startswith(begin)


def test_a_prompt_beyond_an_open_engines_limit_is_a_status_and_no_exception():
    engine = Engine()
    engine.max_prompt_tokens = 2000
    candidates = [["b", "c"], ["b" * 2000, "c"]]
    result = grrm.rank(None, ["a", "a"], candidates, "de", "en", model=engine, tokenizer=Characters())
    assert result["scores"] == [[4, 9], None]
    assert result["statuses"][1] == ["too_long", "too_long"]


def test_servers_rank_too():
    with CompletionsServer(lambda body, number: VERDICT) as server:
        result = grrm.rank(None, ["Hallo"], [["Bye", "Hello"]], "de", "en", urls=[server.url], attempts=2)
    assert result["scores"] == [[4, 9]]
    assert server.requests[0]["prompt"].startswith("<|im_start|>user\nGiven a source text in German")
    assert server.requests[0]["stop"] == ["<|im_end|>"]


def test_no_rows_ask_nobody(open_script):
    script = open_script(by_source({}))
    assert grrm.rank("model", [], [], "de", "en")["scores"] == []
    assert script.calls == []


def test_a_batch_of_no_rows_is_refused():
    with pytest.raises(ValueError, match="at least one row"):
        judge_in_batches(open_judge("consensus"), [group_of(0, TranslationTask("a", "de", "en"), ["b"])], batch_rows=0)


def test_the_package_has_what_it_says():
    assert {"rank", "translate"} <= set(dir(grrm))
    with pytest.raises(AttributeError, match="no attribute 'sing'"):
        _ = grrm.sing


def test_answers_are_judged_by_what_the_references_hold(open_script):
    open_script(by_source({"10 for 4": ["Total Score: 8"]}))
    result = grrm.rank("model", ["2 + 2?"], [["four"]], "en", "en", judge="rubric", references=["10 for 4"])
    assert result["scores"] == [[8]]


@pytest.mark.parametrize(
    ("judge", "references", "message"),
    [("verifier", None, "judge 'verifier' needs `references`"), ("gqm", ["4"], "judge 'gqm' reads no references")],
)
def test_references_are_given_where_they_are_read(judge, references, message):
    with pytest.raises(UserError, match=message):
        grrm.rank("model", ["2 + 2?"], [["four"]], "en", "en", judge=judge, references=references)


def test_judges_without_a_model_rank_too():
    texts = [["good day", "good bye", "good day"]]
    agreed = grrm.rank(None, ["Guten Tag"], texts, "de", "en", judge="consensus", judge_options={"metric": "bleu"})
    assert agreed["scores"][0][0] > agreed["scores"][0][1]
    found = grrm.rank(None, ["Guten Tag"], texts, "de", "en", judge="text_metric", references=["good day"])
    assert found["rankings"] == [[[0, 2], [1]]]
    assert found["statuses"] == [["scored", "scored", "duplicate"]]


@pytest.mark.parametrize("judge", ["ranker", "rm"])
def test_a_reward_model_ranks_as_its_judge_does(judge, tmp_path, monkeypatch):
    folder = write_tiny_reward_model(tmp_path / judge, {"ranker": "ranker", "rm": "pairwise"}[judge])
    # Not with a process of its own: the fast layers would change PaddleNLP's classes for the tests that follow.
    open_ranker = partial(reward_scoring.open_reward_judge, own_process=False)
    monkeypatch.setattr("grrm.inference.rank.open_reward_judge", open_ranker)
    texts = ["good day", "good bye"]
    result = grrm.rank(folder, ["Guten Tag"], [texts], "de", "en", judge=judge, judge_options={"score_scale": 0.5})
    settings = RewardModelOptions(score_scale=0.5)
    (verdict,) = open_ranker(folder, judge, settings).judge(
        [group_of(0, TranslationTask("Guten Tag", "de", "en"), texts)]
    )
    assert result["scores"] == [list(verdict.scores)]


@pytest.mark.parametrize(
    ("folder", "given", "message"),
    [
        (None, {"judge": "ranker"}, "give its folder as model_path"),
        ("/nowhere", {"judge": "ranker", "temperature": 0.0, "seed": 3}, "does not read temperature, seed"),
        ("/nowhere", {"judge": "ranker", "urls": ["http://localhost"]}, "does not read urls"),
        ("/nowhere", {"judge": "consensus"}, "'consensus' has no model"),
        (None, {"judge": "consensus", "metrik": "chrf"}, "does not read metrik: leave it out; its options are metric"),
        (None, {"judge": "consensus", "judge_options": {"metrik": "chrf"}}, "metrik"),
        (None, {"judge": "chrf"}, "needs `references`"),
        (None, {"judge": "consensus", "chat_template": "qwen3"}, "does not read chat_template"),
        (None, {"judge": "consensus", "judge_options": {"name": "mine"}}, "name"),
    ],
)
def test_judges_that_generate_nothing_refuse_what_they_do_not_read(folder, given, message):
    with pytest.raises(UserError, match=message):
        grrm.rank(folder, ["a"], [["b", "c"]], "de", "en", **given)
