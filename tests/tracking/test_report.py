"""The report of runs: one file with all data, which asks nothing of the network; what a browser shows is next door."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.command_line import invoke
from support.dumped_run import config_of, write_run
from support.rolled import TASK
from tracking.reported_runs import HOSTILE, LONG_RUN, VERDICT, reported_runs, write_long_run

from grrm.errors import UserError
from grrm.tracking.metrics_log import MetricsLog
from grrm.tracking.report.facts import held_out, run_facts, training_reward
from grrm.tracking.report.run_report import render, report_data, write_report
from grrm.tracking.report.selection import Survey, choose, survey_run

BROWSER = Path(__file__).parents[2] / "llm/alignment/grrm/tracking/report/browser"


class Page(HTMLParser):
    """A page's elements with their attributes and the text in each."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.open = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.texts.append("")
        self.open = True

    def handle_endtag(self, tag):
        self.open = False

    def handle_data(self, data):
        if self.open:
            self.texts[-1] += data

    def texts_of(self, tag: str) -> list[str]:
        return [text for (name, _), text in zip(self.elements, self.texts, strict=True) if name == tag]

    def values(self, *names: str) -> list[str]:
        return [
            value for _, attributes in self.elements for name, value in attributes.items() if name in names and value
        ]

    @property
    def data(self):
        return json.loads(self.texts_of("script")[0])


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory) -> list[Path]:
    return reported_runs(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def page(two_runs, tmp_path_factory) -> Page:
    out = tmp_path_factory.mktemp("page") / "report.html"
    write_report(two_runs, out)
    return Page(out.read_text(encoding="utf-8"))


def test_the_page_asks_nothing_of_the_network_and_allows_no_script_but_its_own(page):
    assert page.values("src", "srcset", "href") == []
    (policy,) = (value for value in page.values("content") if "default-src" in value)
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for kind, text in (("script", page.texts_of("script")[1]), ("style", page.texts_of("style")[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert "&gt;" not in text
        assert not re.search(r"@import|url\(|\bfetch\(|XMLHttpRequest|innerHTML|insertAdjacentHTML", text)


def test_both_languages_have_every_string_and_scripts_use_no_other():
    strings = json.loads((BROWSER / "strings.json").read_text(encoding="utf-8"))
    assert set(strings) == {"en", "zh"}
    assert strings["en"].keys() == strings["zh"].keys()
    for key, english in strings["en"].items():
        chinese = strings["zh"][key]
        assert sorted(re.findall(r"\{\w+\}", english)) == sorted(re.findall(r"\{\w+\}", chinese)), key
        assert not re.search(r"[\u4e00-\u9fff]", english)
    scripts = "".join(path.read_text(encoding="utf-8") for path in BROWSER.glob("*.js"))
    plain = set(re.findall(r'\bt\("(\w+)"', scripts))
    starts = tuple(re.findall(r"\bt\(`(\w+_)\$\{", scripts))
    assert plain <= set(strings["en"])
    named = re.findall(r'"(\w+)"', scripts)
    unused = {key for key in strings["en"] if key not in plain and key not in named and not key.startswith(starts)}
    assert unused == set()


def test_what_was_sampled_cannot_end_the_element_that_holds_it(page):
    assert [attributes.get("type") for tag, attributes in page.elements if tag == "script"] == [
        "application/json",
        None,
    ]
    assert not any(tag in ("img", "b", "svg") for tag, _ in page.elements)
    texts = {sample["text"] for group in page.data["groups"] for sample in group["samples"]}
    assert set(HOSTILE) <= texts


def test_groups_carry_every_judges_scores_and_their_agreement(page):
    groups = [group for group in page.data["groups"] if group["run"] == 1 and group["use"] == "trained"]
    assert {group["tau"] for group in groups} == {-1.0}
    assert {tuple(group["judges"]) for group in groups} == {("contrary",)}
    right = next(sample for sample in groups[0]["samples"] if sample["text"] == "two")
    assert right["others"] == [pytest.approx(10 - right["score"])]
    aborted = [group for group in page.data["groups"] if group["use"] == "aborted"]
    assert [group["run"] for group in aborted] == [0, 1]


def test_prompts_and_equal_samples_stand_there_once(tmp_path):
    run = write_run(tmp_path / "run", config_of(), steps=2)
    path = run / "rollouts/rollouts-rank000.jsonl"
    path.write_text(path.read_text().replace('"twos"', '"one"'))
    data = report_data([run], 100)
    assert len(data["prompts"]) == 1
    merged = [sample["n"] for sample in data["groups"][0]["samples"]]
    assert sum(merged) == 3


def test_a_source_with_two_references_is_two_prompts(tmp_path):
    run = write_run(tmp_path / "run", config_of(), steps=1)
    path = run / "rollouts/rollouts-rank000.jsonl"
    first, *others = path.read_text().splitlines(keepends=True)
    path.write_text(json.dumps(json.loads(first) | {"reference": "another"}) + "\n" + "".join(others))
    data = report_data([run], 100)
    references = [data["prompts"][group["prompt"]]["reference"] for group in data["groups"]]
    assert references[:2] == ["another", TASK.reference]


def test_settings_that_differ_are_named_and_others_are_not(page):
    names = dict(page.data["settings"])
    assert names["score_scale_factor"] == [0.1, 0.2]
    assert "rollout_n" not in names


def test_a_change_has_the_interval_that_was_recorded_for_it_and_no_other():
    first = {"step": 0, "eval_chrf_greedy": 60.0, "eval_chrf": 50.0}
    ends = {"eval_alarm/chrf_greedy_change_low": -0.5, "eval_alarm/chrf_greedy_change_high": 2.5}
    last = {"step": 20, "eval_chrf_greedy": 61.0, "eval_chrf": 55.0, "eval_alarm/chrf_greedy_change": 1.0, **ends}
    greedy, sampled = held_out([first, {"step": 1, "reward_mean": 0.5}, last])
    assert (greedy["first"], greedy["last"], greedy["interval"]) == ([0, 60.0], [20, 61.0], [-0.5, 2.5, 0.99])
    assert sampled["interval"] is None
    (greedy, _) = held_out([first, last | {"eval_alarm/chrf_greedy_change": 3.0}])
    assert greedy["interval"] is None  # of a difference from another evaluation
    assert held_out([last])[0]["interval"] is None
    itself = {"eval_alarm/chrf_greedy_change": 0.0, **dict.fromkeys(ends, 0.0)}  # as the first evaluation records it
    assert held_out([first | itself])[0]["interval"] is None  # nothing to compare with


def test_a_verdict_gives_the_interval_of_the_evaluations_that_it_compares():
    lines = [{"step": step, "eval_chrf": chrf} for step, chrf in ((0, 50.0), (10, 51.0), (20, 52.0))]
    assert held_out(lines, VERDICT)[0]["interval"] is None
    assert held_out(lines[1:], VERDICT)[0]["interval"] == [0.5, 1.5, 0.95]
    assert held_out(lines[1:], {"verdict": "unsure", "changes": {}})[0]["interval"] is None


def test_a_difference_of_values_with_intervals_is_bounded_by_both():
    def line(step, low, value, high):
        return {
            "step": step,
            "eval_pair_accuracy": value,
            "eval_pair_accuracy_low": low,
            "eval_pair_accuracy_high": high,
        }

    (change,) = held_out([line(0, 0.5, 0.6, 0.7), line(9, 0.6, 0.75, 0.8)])
    assert change["interval"] == pytest.approx([-0.1, 0.3, 0.95])


def test_training_reward_compares_many_steps_and_says_nothing_of_few():
    noisy = [{"step": step, "reward_mean": 0.5 + 0.1 * (-1) ** step} for step in range(40)]
    noisy[0]["reward_mean"], noisy[-1]["reward_mean"] = 0.9, 0.1
    reward = training_reward(noisy)
    assert reward["steps"] == 10
    assert reward["interval"][0] < 0 < reward["interval"][1]
    assert training_reward(noisy[:19]) is None
    assert training_reward([line | {"step": 5 * line["step"]} for line in noisy])["steps"] == 50


def test_facts_name_the_source_of_rewards():
    assert run_facts([], {"use_rm_server": True, "reward_server": ["http://a"], "reward_judge": "chrf"})["judge"] == (
        "reward server http://a"
    )
    sources = [{"judge": "gqm", "model": "/home/me/runs/gqm"}, {"judge": "chrf"}]
    assert run_facts([], {"reward_sources": sources})["judge"] == "gqm runs/gqm, chrf"
    facts = run_facts([{"step": 1, "interval_runtime": 2.0}, {"step": 2, "interval_runtime": 3.5}], {})
    assert facts == {"steps": 2, "seconds": 5.5}


def test_a_verdict_is_carried_if_there_is_one(tmp_path, page):
    assert [run["verdict"] for run in page.data["runs"]] == [None, VERDICT]
    (tmp_path / "metrics.jsonl").touch()
    (tmp_path / "verdict.json").write_text("{")
    with pytest.raises(UserError, match=r"verdict\.json is not JSON"):
        report_data([tmp_path], 10)


def test_rewards_of_language_pairs_are_columns_where_there_are_several(tmp_path):
    survey = survey_run(write_long_run(tmp_path, steps=2))
    assert set(survey.pair_rewards()) == {"pair/en-de/reward_mean", "pair/en-zh/reward_mean"}
    assert survey.pair_rewards()["pair/en-de/reward_mean"][0] == [1, 2]


def test_a_step_without_a_reward_in_a_language_pair_is_left_out_of_its_column(tmp_path):
    run = write_long_run(tmp_path, steps=2)
    path = run / "rollouts/rollouts-rank000.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if (record["step"], record["trg_lang"]) == (1, "de"):
            for candidate in record["candidates"]:
                candidate |= {"status": "judge_timeout", "score": None, "reward": None, "advantage": None}
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    columns = survey_run(run).pair_rewards()
    assert [columns[f"pair/en-{to}/reward_mean"][0] for to in ("de", "zh")] == [[2], [1, 2]]


def test_a_long_run_fits_into_five_megabytes_and_every_rule_has_its_groups(tmp_path):
    run = write_long_run(tmp_path, **LONG_RUN)
    page = render(report_data([run], 2000))
    assert 1e6 < len(page.encode()) < 5e6
    steps = {group["step"] for group in Page(page).data["groups"]}
    assert {1, LONG_RUN["steps"]} <= steps


def test_groups_of_runs_are_chosen_alike_and_within_the_limits(tmp_path):
    surveys = [survey_run(write_long_run(tmp_path / name, steps=12)) for name in ("a", "b")]
    chosen = choose(surveys, 20, 10**9)
    assert [len(keys) for keys in chosen] == [20, 20]
    assert len(chosen[0] & chosen[1]) > 15
    assert all(choose(surveys, 20, 0)) is False
    assert [len(keys) for keys in choose(surveys, 10**6, 10**9)] == [len(survey.sizes) for survey in surveys]


def test_a_group_that_is_too_large_leaves_room_for_the_others():
    survey = Survey(sizes={(1, "long"): 900, (2, "a"): 300, (3, "b"): 300}, spreads={(1, "long"): 5.0, (2, "a"): 1.0})
    survey.by_prompt = {1: [(1, "long")], 2: [(2, "a")], 3: [(3, "b")]}
    assert choose([survey], 10, 700) == [{(2, "a"), (3, "b")}]
    assert choose([survey], 1, 700) == [{(2, "a")}]


def test_a_run_of_another_stage_has_curves_and_no_groups(tmp_path):
    MetricsLog(tmp_path / "sft").log(10, {"loss": 2.0, "eval_loss": 2.5})
    done = invoke("report", tmp_path / "sft", "--out", tmp_path / "r.html")
    assert done.output.startswith("file:///")
    data = Page((tmp_path / "r.html").read_text(encoding="utf-8")).data
    assert data["runs"][0]["metrics"]["loss"] == [[10], [2.0]]
    assert data["groups"] == []


def test_folders_without_a_run_and_a_run_named_twice_are_refused(tmp_path, two_runs):
    with pytest.raises(UserError, match=r"neither metrics\.jsonl nor rollouts"):
        write_report([tmp_path], tmp_path / "r.html")
    with pytest.raises(UserError, match="named twice"):
        write_report([two_runs[0], two_runs[0]], tmp_path / "r.html")
