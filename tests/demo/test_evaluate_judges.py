"""How judges are measured, and the choice of the ranker that judges."""

from __future__ import annotations

import json
from unittest.mock import Mock

import pytest
from click.testing import CliRunner
from support.tiny_policy import write_tiny_checkpoint, write_tiny_reward_model

from grrm.data.parquet import write_rows
from grrm.demo import evaluate_judges
from grrm.demo.evaluate_judges import main, ranking_record
from grrm.demo.stages import write_json
from grrm.gqm.groups import Group, Status, TranslationTask, Verdict
from grrm.inference.rank import group_of

GROUPS = [
    ("Guten Tag", "de", "en", ["good day", "good day", "good bye", "goody"], [10.0, 10.0, 4.0, 3.0]),
    ("Rom", "de", "en", ["Rome", "Room", None], [10.0, 5.0, None]),
]


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def write_groups(path):
    import pyarrow as pa

    names, lists = ("src_text", "src_lang", "trg_lang"), (pa.list_(pa.string()), pa.list_(pa.float64()))
    write_rows(
        path,
        GROUPS,
        pa.schema([*((name, pa.string()) for name in names), *zip(("mt_texts", "scores"), lists, strict=True)]),
    )
    return path


def test_judges_with_and_without_a_model_are_measured_on_the_same_groups(tmp_path):
    ranker = write_tiny_reward_model(tmp_path / "ranker", "ranker", blocks=1)
    groups = write_groups(tmp_path / "dev.parquet")
    source = {"judge": "ranker", "model": str(ranker), "options": {"prompt_type": "Tower"}}
    judges = ("--judge", f"ranker_none={json.dumps(source)}", "--judge", 'consensus={"judge": "consensus"}')
    said = run("measure", *judges, "--groups", f"dev={groups}", "--orders", 1, "--out", tmp_path / "ranking.json")
    found = json.loads((tmp_path / "ranking.json").read_text())
    assert set(found) == {"consensus", "ranker_none"}
    # "good day" twice agrees with itself; the candidate without a translation and its gold take no part.
    assert found["consensus"]["dev"]["accuracy"]["mean"] > 0.5
    assert found["consensus"]["dev"]["n_pairs"] == found["ranker_none"]["dev"]["n_pairs"] == 5 + 1
    assert found["ranker_none"]["dev"]["coverage"] == 1.0
    assert found["ranker_none"]["dev"]["milliseconds_a_group"] > 0
    assert found["ranker_none"]["dev"]["order_consistency"]["mean"] == 1.0, "a ranker knows no order"
    assert found["ranker_none"]["dev"]["readable"] == 1.0
    assert f"consensus {found['consensus']['dev']['accuracy']['mean']:.3f} in order" in said


def test_a_judge_that_writes_and_a_mixture_are_measured_with_their_tokens(tmp_path):
    ranker = write_tiny_reward_model(tmp_path / "ranker", "ranker", blocks=1)
    writer = write_tiny_checkpoint(tmp_path / "sqm")
    groups = write_groups(tmp_path / "dev.parquet")
    sources = [
        {"judge": "ranker", "model": str(ranker), "options": {"prompt_type": "Tower"}, "normalise": "mean"},
        {"judge": "consensus", "weight": 0.5, "normalise": "mean"},
    ]
    sqm = {"judge": "sqm", "model": str(writer), "options": {"max_new_tokens": 3, "retries": 0}}
    logprob = {"judge": "grrm.demo.logprob_judge:judge", "options": {"model": str(writer), "prompt_type": "Tower"}}
    judges = {"sqm": sqm, "mixture": sources, "consensus": {"judge": "consensus"}, "logprob": logprob}
    options = [word for name, source in judges.items() for word in ("--judge", f"{name}={json.dumps(source)}")]
    run("measure", *options, "--groups", f"dev={groups}", "--out", tmp_path / "ranking.json")
    found = {name: of_sets["dev"] for name, of_sets in json.loads((tmp_path / "ranking.json").read_text()).items()}
    assert set(found) == set(judges)
    assert found["logprob"]["coverage"] == 1.0
    assert found["sqm"]["readable"] == found["sqm"]["coverage"] == 0.0
    assert found["sqm"]["accuracy_ties_half"] is None
    assert found["mixture"]["coverage"] == 1.0
    assert found["mixture"]["tokens"]["mean"] == found["consensus"]["tokens"]["mean"] == 0
    assert 0 < found["sqm"]["tokens"]["mean"] <= 3 * 3  # three different translations, and two, three tokens each


class FirstIsBest:
    """Scores by position, and cannot be read where a candidate says so."""

    name = "first"

    def judge(self, groups: list[Group]) -> list[Verdict]:
        return [self._verdict([one.response for one in group.candidates]) for group in groups]

    def _verdict(self, texts: list[str]) -> Verdict:
        if "unreadable" in texts:
            return Verdict.unscored(len(texts), Status.JUDGE_UNPARSABLE)
        return Verdict((Status.SCORED,) * len(texts), tuple(float(5 - place // 2) for place in range(len(texts))))


def test_a_record_has_ties_order_saturation_and_the_hardest_groups():
    task = TranslationTask("Rom", "de", "en")
    texts = [["a", "b", "c"], ["d", "e", "f"], ["g", "h", "unreadable"]]
    golds = [[9.0, 8.0, 1.0], [1.0, 2.0, 3.0], [1.0, 5.0, 9.0]]
    groups = [group_of(number, task, some) for number, some in enumerate(texts)]
    found = ranking_record(FirstIsBest(), groups, golds, n_orders=1)
    # Scores 5, 5, 4: of three pairs the first is tied; right in the first group, wrong in the second.
    assert found["accuracy"]["mean"] == pytest.approx(2 / 6)
    assert found["accuracy_ties_half"]["mean"] == pytest.approx((2.5 + 0.5) / 6)
    assert found["hardest_third"]["mean"] == pytest.approx(0.5 / 3)
    assert found["tied"] == pytest.approx(2 / 6)
    assert found["readable"] == pytest.approx(2 / 3)
    assert found["score_variance"] == pytest.approx(2 / 9)
    assert found["order_consistency"]["mean"] == 0.0
    assert found["n_groups"] == 3


@pytest.mark.parametrize(("of_group", "chosen"), [(0.71, "ranker_none"), (0.73, "ranker_group"), (None, "ranker_none")])
def test_the_ranker_that_does_better_on_the_dev_rows_judges(tmp_path, of_group, chosen, monkeypatch):
    if of_group is None:  # a file system without links
        monkeypatch.setattr(evaluate_judges.os, "link", Mock(side_effect=PermissionError))
    folders = {name: tmp_path / name for name in ("ranker_none", "ranker_group")}
    options = []
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "model.safetensors").write_text(name)
        (folder / "metrics.jsonl").write_text("{}")
        options += ["--ranker", f"{name}={folder}"]
    correlations = {"ranker_none": (0.72, 0.6), "ranker_group": (of_group, 0.9)}
    record = {
        name: {"dev": {"correlation": dev and {"mean": dev}}, "heldout": {"correlation": {"mean": heldout}}}
        for name, (dev, heldout) in correlations.items()
    }
    write_json(tmp_path / "ranking.json", record)
    (tmp_path / "out").mkdir()
    run("choose", "--ranking", tmp_path / "ranking.json", *options, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_text() == chosen
    assert json.loads((tmp_path / "out" / "choice.json").read_text())["chosen"] == chosen
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
