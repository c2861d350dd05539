"""The bar chart: a picture, whole or not there, whatever there is to show."""

from __future__ import annotations

import pytest
from matplotlib.image import imread

from grrm.cli.results import write_bar_chart
from grrm.errors import UserError
from grrm.evaluation.bootstrap import Interval

BARS = {"de-en": Interval(0.8, 0.7, 0.9), "zh-en": None}


@pytest.mark.parametrize("bars", [BARS, {}], ids=["a bar and a gap", "nothing"])
def test_the_chart_is_a_picture(bars, tmp_path):
    path = tmp_path / "new" / "chart.png"
    write_bar_chart(path, "Accuracy", "share", bars, limits=(0, 1), baseline=0.5)
    assert imread(path).ndim == 3
    assert [file.name for file in path.parent.iterdir()] == ["chart.png"]


def test_a_gap_is_not_a_bar_of_nothing(tmp_path):
    for name, value in (("gap", None), ("zero", Interval(0.0, 0.0, 0.0))):
        write_bar_chart(tmp_path / f"{name}.png", "Accuracy", "share", {"de-en": value}, limits=(0, 1))
    assert (tmp_path / "gap.png").read_bytes() != (tmp_path / "zero.png").read_bytes()


def test_a_path_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match="cannot write"):
        write_bar_chart(tmp_path, "Accuracy", "share", BARS, limits=(0, 1))
