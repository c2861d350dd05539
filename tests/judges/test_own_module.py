"""A judge as CONTRIBUTING has it: one module and its import, and every way to choose a judge has it with options."""

from __future__ import annotations

import importlib
import json
import sys

import pytest
import yaml
from support.command_line import invoke
from support.judged_groups import group_of
from support.reward_app import group, make_client, score_body

import grrm
from grrm import judges
from grrm.errors import UserError
from grrm.inference.judge_sources import open_mixture
from grrm.judges import registry
from grrm.judges.sources import read_sources
from grrm.judges.spec import SPECS
from grrm_reward_server.hosting import build_hosted_judge
from grrm_reward_server.settings import load_settings

MODULE = '''
"""A judge that prefers short translations."""

from dataclasses import dataclass

from grrm.judges.dedup import dedup_texts, expand_to_duplicates
from grrm.judges.spec import JudgeOptions, judge


@judge("brevity", help="prefers short translations")
class BrevityOptions(JudgeOptions):
    longest: int = 100
    per_word: bool = False

    def open(self, process):
        return BrevityJudge(self.longest, self.per_word)


@dataclass
class BrevityJudge:
    longest: int
    per_word: bool
    name: str = "brevity"

    def judge(self, groups):
        return [self._verdict(group) for group in groups]

    def _verdict(self, group):
        distinct = dedup_texts(group)
        sizes = [len(text.split() if self.per_word else text) for text in distinct.texts]
        return expand_to_duplicates(group, distinct, [max(0.0, 10 - 10 * size / self.longest) for size in sizes])
'''
TEXTS = ["two words", "three short words"]
OPTIONS = {"longest": 5, "per_word": True}
SCORES = [6.0, 4.0]


@pytest.fixture(autouse=True)
def brevity(tmp_path, monkeypatch):
    """The module, in the package of the judges, and imported as `registry` does."""
    (tmp_path / "brevity.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.setattr(judges, "__path__", [*judges.__path__, str(tmp_path)])
    importlib.import_module("grrm.judges.brevity")
    yield
    del SPECS["brevity"], sys.modules["grrm.judges.brevity"]


def test_an_argument_file_has_it():
    (source,) = yaml.safe_load("[{judge: brevity, options: {longest: 5, per_word: true}}]")
    mixture = open_mixture(read_sources([source]))
    assert list(mixture.judge([group_of(TEXTS)])[0].scores) == SCORES
    with pytest.raises(UserError, match="entry 1: unknown option of judge 'brevity' 'longst': did you mean 'longest'"):
        read_sources([{**source, "options": {"longst": 5}}])


def test_a_reward_server_has_it(tmp_path):
    (tmp_path / "server.yaml").write_text(yaml.safe_dump({"judge": "brevity", "judge_options": OPTIONS}))
    client = make_client(build_hosted_judge(load_settings(str(tmp_path / "server.yaml"), {})).judge)
    (verdict,) = client.post("/v1/score", json=score_body(group("g", *TEXTS))).get_json()["verdicts"]
    assert [candidate["score"] for candidate in verdict["candidates"]] == SCORES


def test_the_command_line_has_it(tmp_path):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"src_text": "zwei", "mt_texts": TEXTS}))
    given = ["rank", tmp_path / "rows.jsonl", "--src-lang", "de", "--trg-lang", "en", "--judge", "brevity"]
    given += ["--judge-option", "longest=5", "--judge-option", "per_word=true", "--out", tmp_path / "out.jsonl"]
    invoke(*given)
    assert json.loads((tmp_path / "out.jsonl").read_text())["judge_scores"] == SCORES
    assert "brevity: prefers short translations" in " ".join(invoke("rank", "-h").output.split())
    assert "| `brevity` | prefers short translations | nothing | unread |" in registry.judge_table()


def test_python_has_it():
    assert grrm.rank(None, ["zwei"], [TEXTS], "de", "en", judge="brevity", **OPTIONS)["scores"] == [SCORES]
    with pytest.raises(UserError, match="'longest' is 'x'; give a whole number"):
        grrm.rank(None, ["zwei"], [TEXTS], "de", "en", judge="brevity", longest="x")
