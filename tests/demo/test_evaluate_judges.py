"""How judges are measured, and the choice of the ranker that judges."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from support.tiny_checkpoint import write_tiny_checkpoint, write_tiny_reward_model

from grrm.data.parquet import write_rows
from grrm.demo.evaluate_judges import main
from grrm.demo.stages import write_json

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
    said = run(
        *("measure", "--ranker", f"ranker_none={ranker}", "--baseline", "consensus", "--groups", f"dev={groups}"),
        *("--prompt-type", "Tower", "--out", tmp_path / "ranking.json"),
    )
    found = json.loads((tmp_path / "ranking.json").read_text())
    assert set(found) == {"consensus", "ranker_none"}
    # "good day" twice agrees with itself; the candidate without a translation and its gold take no part.
    assert found["consensus"]["dev"]["accuracy"]["mean"] > 0.5
    assert found["consensus"]["dev"]["n_pairs"] == found["ranker_none"]["dev"]["n_pairs"] == 5 + 1
    assert found["ranker_none"]["dev"]["coverage"] == 1.0
    assert found["ranker_none"]["dev"]["milliseconds_a_group"] > 0
    assert f"consensus {found['consensus']['dev']['accuracy']['mean']:.3f} in order" in said


def test_a_judge_that_writes_and_a_mixture_are_measured_with_their_tokens(tmp_path):
    ranker = write_tiny_reward_model(tmp_path / "ranker", "ranker", blocks=1)
    writer = write_tiny_checkpoint(tmp_path / "sqm")
    groups = write_groups(tmp_path / "dev.parquet")
    sources = [
        {"judge": "ranker", "model": str(ranker), "options": {"prompt_type": "Tower"}, "normalise": "mean"},
        {"judge": "consensus", "weight": 0.5, "normalise": "mean"},
    ]
    run(
        *("measure", "--sqm", f"sqm={writer}", "--sqm-option", "max_new_tokens=3", "--sqm-option", "retries=0"),
        *("--mixture", f"mixture={json.dumps(sources)}", "--baseline", "consensus", "--groups", f"dev={groups}"),
        *("--prompt-type", "Tower", "--out", tmp_path / "ranking.json"),
    )
    found = {name: of_sets["dev"] for name, of_sets in json.loads((tmp_path / "ranking.json").read_text()).items()}
    assert set(found) == {"consensus", "sqm", "mixture"}
    assert found["mixture"]["coverage"] == 1.0
    assert found["mixture"]["tokens"]["mean"] == found["consensus"]["tokens"]["mean"] == 0
    assert 0 < found["sqm"]["tokens"]["mean"] <= 3 * 3  # three different translations, and two, three tokens each


@pytest.mark.parametrize(("of_group", "chosen"), [(0.71, "ranker_none"), (0.73, "ranker_group")])
def test_the_ranker_that_does_better_on_the_dev_rows_judges(tmp_path, of_group, chosen):
    folders = {name: tmp_path / name for name in ("ranker_none", "ranker_group")}
    options = []
    for name, folder in folders.items():
        folder.mkdir()
        (folder / "model.safetensors").write_text(name)
        (folder / "metrics.jsonl").write_text("{}")
        options += ["--ranker", f"{name}={folder}"]
    correlations = {"ranker_none": (0.72, 0.6), "ranker_group": (of_group, 0.9)}
    record = {
        name: {"dev": {"correlation": {"mean": dev}}, "heldout": {"correlation": {"mean": heldout}}}
        for name, (dev, heldout) in correlations.items()
    }
    write_json(tmp_path / "ranking.json", record)
    (tmp_path / "out").mkdir()
    run("choose", "--ranking", tmp_path / "ranking.json", *options, "--out", tmp_path / "out")
    assert (tmp_path / "out" / "model.safetensors").read_text() == chosen
    assert json.loads((tmp_path / "out" / "choice.json").read_text())["chosen"] == chosen
    assert not (tmp_path / "out" / "metrics.jsonl").exists()
