"""Pinned wheels through pip itself, from a folder of wheels instead of the network; and apt-get's part."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from grrm.data import downloads
from grrm.data.downloads import Wheel, downloaded_debs, downloaded_wheel, sha256_of
from grrm.errors import UserError


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one wheel, which says that it needs a package that does not exist."""
    folder = tmp_path_factory.mktemp("shelf")
    with zipfile.ZipFile(folder / "grrm_texts-1.0-py3-none-any.whl", "w") as archive:
        info = "grrm_texts-1.0.dist-info"
        metadata = "Metadata-Version: 2.1\nName: grrm-texts\nVersion: 1.0\nRequires-Dist: grrm-no-such-package\n"
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return folder


def offline(shelf: Path, requirement: str = "grrm-texts==1.0", sha256: str | None = None) -> Wheel:
    (wheel,) = shelf.glob("*.whl")
    return Wheel(requirement, sha256 or sha256_of(wheel), ("--no-index", "--find-links", str(shelf)))


def test_the_pinned_wheel_alone_is_there_for_the_length_of_the_block(shelf: Path) -> None:
    with downloaded_wheel(offline(shelf)) as wheel:
        assert wheel.name == "grrm_texts-1.0-py3-none-any.whl"
        assert zipfile.is_zipfile(wheel)
    assert not wheel.exists()


def test_a_wheel_with_other_contents_is_refused(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def copy(command: list[str], cwd: Path, **_: object) -> None:
        shutil.copy(next(shelf.glob("*.whl")), cwd)

    monkeypatch.setattr(downloads.subprocess, "run", copy)
    with (
        pytest.raises(UserError, match=r"grrm-texts==1\.0 was downloaded with SHA-256 .* where 0000 is pinned"),
        downloaded_wheel(offline(shelf, sha256="0000")),
    ):
        pass


def test_a_wheel_that_cannot_be_had_is_one_sentence_with_pips_reason_and_the_remedy(shelf: Path) -> None:
    with (
        pytest.raises(UserError, match=r"cannot be downloaded by pip \(ERROR: No matching .*: check the network, or"),
        downloaded_wheel(offline(shelf, "grrm-texts==2.0")),
    ):
        pass


def test_a_download_ends_at_its_deadline(shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "DEADLINE_S", 0.001)
    with pytest.raises(UserError, match=r"within 0\.001 s: check the network"), downloaded_wheel(offline(shelf)):
        pass


def test_debian_packages_are_what_apt_get_leaves_in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "apt-get"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *absent*) echo "E: Unable to locate package absent" >&2; exit 100;; esac\n'
    )
    with script.open("a") as file:
        file.write('for name in "$@"; do case $name in lo-*) echo x > "${name}_1_all.deb";; esac; done\n')
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with downloaded_debs(["lo-de", "lo-en"]) as folder:
        assert sorted(path.name for path in folder.iterdir()) == ["lo-de_1_all.deb", "lo-en_1_all.deb"]
    reason = r"apt-get cannot download absent \(E: Unable to locate package absent\): check the network"
    with pytest.raises(UserError, match=reason), downloaded_debs(["absent"]):
        pass


def test_without_apt_get_the_sentence_says_where_the_packages_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    reason = r"no apt-get to download x: get them from packages\.debian\.org"
    with pytest.raises(UserError, match=reason), downloaded_debs(["x"]):
        pass
