"""`grrm init`: a folder in which the documentation's commands work, and that is never overwritten by surprise."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from support.command_line import invoke

from grrm.errors import UserError

ROOT = Path(__file__).parents[2]
TINY = "llm/config/qwen/grpo_grrm_tiny_argument.yaml"


init = partial(invoke, "init")


def files_below(folder: Path) -> dict[Path, bytes]:
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_file_lies_where_the_clone_has_it(tmp_path):
    said = init(tmp_path / "my work").output
    files = files_below(tmp_path / "my work")
    assert {Path(TINY), Path("llm/config/qwen/tiny_model_config.json"), Path("reward_server/reward_server.py")} <= {
        *files
    }
    assert {Path("llm/alignment/grrm/run_rl.py"), Path("llm/alignment/grrm/run_sft.py")} <= {*files}
    assert files == {place: (ROOT / place).read_bytes() for place in files}
    assert {path.name for path in (ROOT / "llm/config/qwen").iterdir()} <= {place.name for place in files}
    assert f"{len(files)} files copied, 0 already there" in said
    assert f"cd '{tmp_path}/my work'" in said


def test_a_second_time_changes_nothing(tmp_path):
    init(tmp_path)
    before = files_below(tmp_path)
    assert f"0 files copied, {len(before)} already there" in init(tmp_path).output
    assert files_below(tmp_path) == before


def test_a_file_that_was_edited_is_kept_and_nothing_else_is_copied(tmp_path):
    (tmp_path / TINY).parent.mkdir(parents=True)
    (tmp_path / TINY).write_text("mine")
    with pytest.raises(UserError, match=r"grpo_grrm_tiny_argument\.yaml would be overwritten: .* --force"):
        init(tmp_path)
    assert files_below(tmp_path) == {Path(TINY): b"mine"}


def test_force_replaces_what_differs(tmp_path):
    init(tmp_path)
    (tmp_path / TINY).write_text("mine")
    assert "1 files copied" in init(tmp_path, "--force").output
    assert (tmp_path / TINY).read_bytes() == (ROOT / TINY).read_bytes()


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="cannot write"):
        init(tmp_path / "file")
