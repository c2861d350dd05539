"""Where rewards come from: the group protocol, a stock PaddleNLP server, a judge in process; and waiting for them."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from support.completions_server import CompletionsServer
from support.local_server import LocalServer
from support.rolled import LABEL, rolled_group
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

from grrm.config import RLConfig
from grrm.errors import UserError
from grrm.gqm.groups import Status, Verdict
from grrm.models.reward_models import load_reward_model, save_reward_model
from grrm.models.trained_with import TrainedWith
from grrm.parallel.data_ranks import DataRanks
from grrm.rewards.client import RewardServerError
from grrm.rewards.failure_policy import FailurePolicy
from grrm.rewards.shaping import OverlongConfig, ShapingConfig
from grrm.rl import reward_sources
from grrm.rl.reward_sources import await_judges, await_reward_server, build_rewarder
from grrm.rl.reward_stage import RewardStage, RowRewardStage, reward


class RowServer(LocalServer):
    """A stock PaddleNLP reward server that answers with `answer(rows)`."""

    def __init__(self) -> None:
        self.answer = lambda rows: success([len(text) for text in rows["response"]])
        super().__init__(self.serve)

    def serve(self, handler, body) -> None:
        if handler.command == "POST":
            handler.reply(200, self.answer(json.loads(body)))
        else:
            handler.reply(501, b"")


@pytest.fixture
def row_server():
    with RowServer() as server:
        yield server


def success(scores: list[float]) -> dict:
    return {"error_code": 0, "error_msg": "Success", "score": scores}


def settings(**changes):
    values = {
        "use_rule_reward": False,
        "use_rm_server": True,
        "reward_server": ["http://127.0.0.1:9"],
        "reward_protocol": "paddlenlp",
        "reward_token_file": None,
        "reward_connect_timeout_s": 20.0,
        "reward_read_timeout_s": 60.0,
        "reward_deadline_s": 60.0,
        "reward_attempts": 2,
        "reward_groups_per_request": 8,
    }
    return RLConfig(**{**values, **changes})


def stage(args, overlong: OverlongConfig | None = None):
    return build_rewarder(args, ShapingConfig(0.1, 0.0, overlong), FailurePolicy(), "<eos>")


def test_rows_of_all_groups_go_in_one_request_and_their_numbers_are_taken_as_they_are(row_server):
    rewarder = stage(settings(reward_server=row_server.url))
    assert isinstance(rewarder, RowRewardStage)
    groups = [rolled_group(0, [1, 2]), rolled_group(1, [3])]
    groups[0].finish_reasons[1] = "length"
    row_server.answer = lambda rows: success([0.5, -2.0, 70.0])
    groups = reward(rewarder, groups)
    (asked,) = row_server.asked
    rows = json.loads(asked.body)
    assert rows["response"] == ["r0<eos>", "r1", "r0<eos>"]  # the second was cut off
    assert rows["src"] == ["say zwei"] * 3
    assert rows["tgt"] == [LABEL] * 3
    assert [group.shaped.rewards for group in groups] == [(0.5, -2.0), (70.0,)]
    assert groups[0].shaped.statuses == (Status.SCORED,) * 2
    assert groups[0].judged.verdict is None


def test_overlong_penalties_are_subtracted_from_row_rewards(row_server):
    overlong = OverlongConfig(max_resp_len=10, buffer_len=4, penalty_factor=1.0)
    group = rolled_group(0, [6, 8, 10])
    row_server.answer = lambda rows: success([1.0, 1.0, 1.0])
    (group,) = reward(stage(settings(reward_server=row_server.url), overlong), [group])
    assert group.shaped.rewards == (1.0, 0.5, 0.0)


def test_error_code_of_a_row_server_is_a_failure_not_zeros(row_server):
    row_server.answer = lambda rows: {"error_code": 500, "error_msg": "judge broke", "score": [0.0]}
    group = rolled_group(0, [1])
    with pytest.raises(RewardServerError, match="judge broke"):
        reward(stage(settings(reward_server=row_server.url)), [group])


def test_argument_file_chooses_the_source():
    assert isinstance(stage(settings(reward_protocol="grrm")), RewardStage)
    assert isinstance(stage(settings(use_rm_server=False, reward_server=None)), RewardStage)


@pytest.mark.parametrize("name", ["chrf", "chrf++", "bleu", "consensus", "text_metric"])
def test_every_judge_inside_the_trainer_scores_a_group(name):
    group = rolled_group(0, [1, 1])
    (group,) = reward(stage(settings(use_rm_server=False, reward_server=None, reward_judge=name)), [group])
    assert group.judged.verdict.statuses == (Status.SCORED,) * 2


def test_a_reward_model_is_asked_inside_the_trainer_as_its_folder_records(tmp_path):
    folder = str(write_tiny_reward_model(tmp_path, "pairwise"))
    model = load_reward_model(folder)
    model.trained_with = TrainedWith(chat_template="none", prompt_type="codeblock-think")
    save_reward_model(model, folder)
    inside = {"use_rm_server": False, "reward_server": None}
    group = rolled_group(0, [1, 1, 1])
    (group,) = reward(stage(settings(**inside, reward_model_name_or_path=folder)), [group])
    assert group.judged.verdict.statuses == (Status.SCORED,) * 3
    stage(settings(**inside, reward_sources=[{"judge": "rm", "model": folder}]))
    with pytest.raises(UserError, match=r"not 'Tower': leave out prompt_type, .* reward_prompt_type"):
        stage(settings(**inside, reward_model_name_or_path=folder, reward_prompt_type="Tower"))
    with pytest.raises(UserError, match="not 'chatml': leave out chat_template"):
        stage(settings(**inside, reward_sources=[{"judge": "rm", "model": folder, "chat_template": "chatml"}]))


def test_a_reward_model_with_more_context_than_rows_bring_is_refused(tmp_path):
    folder = str(write_tiny_reward_model(tmp_path, "ranker"))
    model = load_reward_model(folder)
    model.trained_with = TrainedWith(context_segments=2)
    save_reward_model(model, folder)
    for source in ({"reward_model_name_or_path": folder}, {"reward_sources": [{"judge": "ranker", "model": folder}]}):
        inside = {"use_rm_server": False, "reward_server": None, **source}
        with pytest.raises(UserError, match="with 2 segments of context, but rows bring 1: set context_segments: 2"):
            stage(settings(**inside, context_segments=1))
        stage(settings(**inside, context_segments=2))


@pytest.mark.parametrize(("kind", "name"), [("pairwise", "rm"), ("ranker", "ranker")])
def test_a_reward_model_is_a_judge_inside_the_trainer(kind, name, tmp_path):
    folder = str(write_tiny_reward_model(tmp_path, kind))
    group = rolled_group(0, [1, 1, 1])
    source = stage(settings(use_rm_server=False, reward_server=None, reward_model_name_or_path=folder))
    assert source.judge.name == name
    (group,) = reward(source, [group])
    assert group.judged.verdict.statuses == (Status.SCORED,) * 3
    assert sum(group.judged.verdict.scores) == pytest.approx(15.0, abs=1e-4)
    assert len(set(group.judged.verdict.scores)) == 3


def test_a_folder_without_a_reward_model_is_told(tmp_path):
    folder = str(write_tiny_checkpoint(tmp_path))
    with pytest.raises(UserError, match="holds no reward model"):
        stage(settings(use_rm_server=False, reward_server=None, reward_model_name_or_path=folder))


def test_a_mixture_is_judged_inside_the_trainer_and_a_server_that_is_away_is_left_out():
    sources = [
        {"judge": "chrf", "weight": 2},
        {"judge": "bleu", "normalise": "rank"},
        {"judge": "server", "urls": ["http://127.0.0.1:9"], "deadline_s": 0.2},
    ]
    group = rolled_group(0, [1, 1])
    (group,) = reward(stage(settings(use_rm_server=False, reward_server=None, reward_sources=sources)), [group])
    assert group.judged.verdict.statuses == (Status.SCORED,) * 2
    parts = {part.name: part for part in group.judged.verdict.parts}
    assert list(parts) == ["chrf", "bleu", "server"]
    assert not parts["server"].counts
    assert parts["server"].statuses[0] in (Status.JUDGE_UNREACHABLE, Status.JUDGE_TIMEOUT)
    assert group.judged.verdict.scores[0] == pytest.approx((2 * parts["chrf"].scores[0] + 5.0) / 3)


def test_token_file_that_cannot_be_read_is_told(tmp_path):
    with pytest.raises(UserError, match=r"cannot read the reward_token_file '.*none' \(No such file or directory\)"):
        stage(settings(reward_token_file=str(tmp_path / "none")))


def test_judge_that_answers_too_few_verdicts_is_a_defect():
    judge = SimpleNamespace(name="short", judge=lambda groups: [])
    with pytest.raises(ValueError, match="0 verdicts for 1 groups"):
        reward(RewardStage(judge, ShapingConfig(), FailurePolicy()), [rolled_group(0, [1])])


def test_the_lowest_reward_of_its_own_group_fills_in_for_a_failed_candidate():
    statuses = (Status.SCORED, Status.TOO_LONG, Status.SCORED)
    verdicts = [Verdict(statuses, (8.0, None, 3.0)), Verdict(statuses, (6.0, None, 5.0))]
    verdicts.append(Verdict.unscored(3, Status.TOO_LONG))
    judge = SimpleNamespace(name="rm", judge=lambda groups: verdicts)
    stage = RewardStage(judge, ShapingConfig(0.5), FailurePolicy.from_mapping({"too_long": "lowest"}))
    groups = reward(stage, [rolled_group(position, [1, 2, 3]) for position in range(3)])
    assert [group.shaped.rewards for group in groups] == [(4.0, 1.5, 1.5), (3.0, 2.5, 2.5), (None,) * 3]
    assert [group.judged.verdict.scores[1] for group in groups] == [None] * 3
    assert groups[0].shaped.statuses == statuses


def test_trainer_warns_of_a_judge_that_gives_everything_one_score(caplog):
    def judge(groups):
        sizes = [len(group.candidates) for group in groups]
        return [Verdict((Status.SCORED,) * size, (5.0,) * size) for size in sizes]

    rewarder = RewardStage(SimpleNamespace(name="flat", judge=judge), ShapingConfig(), FailurePolicy())
    for step in range(16):
        assert "same score" not in caplog.text
        reward(rewarder, [rolled_group(step, [1, 2]), rolled_group(step + 100, [1, 2])])
    assert "the judge gave its last 64 translations the same score, 5:" in caplog.text


def test_ready_server_is_not_waited_for_and_none_is_looked_for_without_one(row_server, caplog):
    await_reward_server(settings(reward_server=row_server.url), DataRanks(0, 1))
    await_reward_server(settings(use_rm_server=False, reward_server=None), DataRanks(0, 1))
    assert not caplog.records


def test_server_that_starts_late_is_waited_for_with_a_word(row_server, monkeypatch, caplog):
    attempts = []
    real = reward_sources.RewardClient.wait_until_ready

    def late(client, timeout_s):
        attempts.append(timeout_s)
        if len(attempts) == 1:
            raise RewardServerError(row_server.url, ("readiness probe",), 3, "the connection was refused")
        real(client, timeout_s)

    monkeypatch.setattr(reward_sources.RewardClient, "wait_until_ready", late)
    await_reward_server(settings(reward_server=row_server.url, reward_deadline_s=90.0), DataRanks(0, 1))
    remedy = "start it, or correct reward_server; waiting up to 90 s"
    assert f"is not ready (the connection was refused): {remedy}" in caplog.text
    assert attempts == [1.0, 89.0]


def test_server_without_a_probe_may_be_paddlenlps_own_and_is_not_waited_for(caplog):
    with LocalServer(lambda handler, body: handler.reply(404, b"")) as server, pytest.raises(UserError) as caught:
        await_reward_server(settings(reward_server=server.url, reward_protocol="grrm"), DataRanks(0, 1))
    assert f"reward server {server.url} is not ready (" in str(caught.value)
    assert ", as PaddleNLP's own does: for that set reward_protocol: paddlenlp)" in str(caught.value)
    assert not caplog.records


def of_answers(url, **changes):
    source = {"judge": "rule+rubric", "route": "tinyv", "urls": [url], "deadline_s": 120, **changes}
    sources = [{"judge": "chrf"}, source]
    return settings(use_rm_server=False, reward_server=None, reward_routes={}, reward_sources=sources)


def test_a_judges_server_that_loads_its_model_for_long_is_waited_for(caplog):
    with CompletionsServer(lambda body, number: "True", model="rubric-7b") as server:
        server.model_status = 503
        late = threading.Timer(1.0, setattr, (server, "model_status", 200))
        late.start()
        await_judges(of_answers(f"{server.url}/v1"), DataRanks(0, 1))
        late.join()
    assert "which model it has, attempt 1" in caplog.text


def test_a_judges_server_that_never_comes_is_told_before_training():
    url = "http://127.0.0.1:9"
    with pytest.raises(UserError, match=rf"judge rule\+rubric: server {url} was not ready within 0.3 s"):
        await_judges(of_answers(url, deadline_s=0.3), DataRanks(0, 1))
    await_judges(of_answers(url, deadline_s=0.3, fallback="consensus"), DataRanks(0, 1))
    await_judges(settings(use_rm_server=False, reward_server=None), DataRanks(0, 1))


@pytest.mark.parametrize(("gates", "status"), [({"length": {"slack": 0}}, Status.WRONG_LENGTH), ({}, Status.SCORED)])
def test_gates_of_the_argument_file_stand_before_the_judge(gates, status):
    config = settings(use_rm_server=False, reward_judge="consensus", reward_gates=gates)
    plain = rolled_group(0, [2, 2, 2]).group
    longer = replace(plain.candidates[2], translation="far too long for that")
    group = rolled_group(0, [2, 2, 2], group=replace(plain, candidates=(*plain.candidates[:2], longer)))
    (group,) = reward(stage(config), [group])
    assert group.shaped.statuses == (Status.SCORED, Status.SCORED, status)
