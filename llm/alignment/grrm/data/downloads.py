"""Files from package registries: pinned wheels through pip, with their hash checked, and Debian's packages."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from grrm.errors import UserError

DEADLINE_S = 900
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Wheel:
    """A pinned wheel of PyPI; `options` are further ones of `pip download`, such as the Python it is made for."""

    requirement: str
    sha256: str
    options: tuple[str, ...] = ()


@contextmanager
def downloaded_wheel(wheel: Wheel) -> Iterator[Path]:
    """The wheel, without what it depends on, for the length of the block.

    Raises UserError when pip cannot get it within DEADLINE_S, or its contents are not the pinned ones.
    """
    with tempfile.TemporaryDirectory(prefix="grrm-download-") as name:
        folder = Path(name)
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
        options = ["--no-deps", "--only-binary=:all:", "--retries", "2", *wheel.options, "--dest", name]
        _run([*pip, *options, wheel.requirement], folder, f"{wheel.requirement} cannot be downloaded by pip")
        files = list(folder.glob("*.whl"))
        if len(files) != 1:
            raise UserError(
                f"pip downloaded {len(files)} wheels of {wheel.requirement}: download it and give --from FILE"
            )
        check_sha256(files[0], wheel.sha256, wheel.requirement)
        yield files[0]


def check_sha256(path: Path, expected: str, name: str) -> None:
    """Raises UserError unless the SHA-256 of the file at `path` is `expected`; `name` is what the message calls it."""
    actual = sha256_of(path)
    if actual != expected:
        raise UserError(
            f"{name} was downloaded with SHA-256 {actual} where {expected} is pinned, so it is not the file that was "
            "tested: check the package index, or give a file that you trust with --from"
        )


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def downloaded_debs(packages: Sequence[str]) -> Iterator[Path]:
    """A folder with the current files of Debian's `packages`, for the length of the block.

    apt checks them against the signed lists of the system. Raises UserError when there is no apt-get, or it cannot
    get them within DEADLINE_S.
    """
    if shutil.which("apt-get") is None:
        raise UserError(
            f"there is no apt-get to download {', '.join(packages)}: get them from packages.debian.org and give their "
            "folder with --from"
        )
    with tempfile.TemporaryDirectory(prefix="grrm-download-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt downloads as a user of its own
        _run(["apt-get", "download", "-q", *packages], folder, f"apt-get cannot download {', '.join(packages)}")
        yield folder


def _run(command: Sequence[str], folder: Path, failure: str) -> None:
    remedy = "check the network, or download it elsewhere and give it with --from"
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=DEADLINE_S)
    except subprocess.TimeoutExpired as error:
        raise UserError(f"{failure} within {DEADLINE_S} s: {remedy}") from error
    except (subprocess.CalledProcessError, OSError) as error:
        lines = (getattr(error, "stderr", "") or str(error)).strip().splitlines()
        reason = next(
            (line for line in reversed(lines) if line.startswith(("ERROR", "E:"))), lines[-1] if lines else ""
        )
        raise UserError(f"{failure} ({reason.rstrip('. ')}): {remedy}") from error
