"""What the documentation says is there, is there: links, files, commands, options, keys, statuses and examples."""

from __future__ import annotations

import io
import json
import pkgutil
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from mkdocs.config import load_config
from support.argument_files import typed_values
from support.reward_app import create_app

from grrm.cli import grrm
from grrm.cli.commands.training import STAGES
from grrm.config import DPOConfig, RewardModelConfig, RLConfig, SFTConfig
from grrm.config.document import GENERATED, with_tables
from grrm.config.key import keys_of
from grrm.config.load import parse_overrides
from grrm.config.memory_rows import parse_memory
from grrm.config.plan import Machine, show_plan
from grrm.gqm.groups import Candidate, Group, Status, TranslationTask
from grrm.judges.gqm import GQMOptions
from grrm.judges.registry import open_judge
from grrm.judges.sources import JudgeSource, read_sources
from grrm.judges.verifier import VerifierOptions
from grrm.models.trained_with import RECORD_FILE
from grrm.rewards.failure_policy import DEFAULT_ACTIONS, FailurePolicy
from grrm.rewards.mixing import counted
from grrm.tracking.rollout_dump import part_of
from grrm_reward_server.main import main as reward_server
from grrm_reward_server.settings import Settings

ROOT = Path(__file__).parents[1]
ENGLISH, CHINESE = ROOT / "README.md", ROOT / "README_zh.md"
PAGES = [ENGLISH, CHINESE, ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
RECIPES = sorted((ROOT / "llm/config/qwen").glob("*.yaml"))
MAX_LINES = {"README.md": 150, "README_zh.md": 150, "CONTRIBUTING.md": 120}
MAX_LINE_LENGTH = 120
GENERATED_KEYS = {"keys_common.md", "keys_rl.md", "keys_supervised.md"}
# A row of a table cannot be broken.
LONG_TABLES = {"benchmarks.md", "LOG.md", "arguments.md", "server.md", "train_judge.md"} | GENERATED_KEYS
SCRIPT_KEYS = {
    "run_rl.py": RLConfig,
    "run_sft.py": SFTConfig,
    "run_dpo.py": DPOConfig,
    "run_reward.py": RewardModelConfig,
}

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLES = re.compile(r"<!-- (\w+): written by .*?<!-- /\1 -->", re.DOTALL)  # generated
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
HEADING = re.compile(r"^(#+) ", re.MULTILINE)
DOTTED_NAME = re.compile(r"grrm(?:_csrc|_reward_server)?(?:\.\w+)+")
REPOSITORY_PATH = re.compile(r"(?:llm|reward_server|tests|docs|benchmarks|tools|csrc|\.ci)/[\w./-]*")

every_recipe = pytest.mark.parametrize("page", RECIPES, ids=lambda page: page.name)
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    return FENCE.sub("", text_of(page))


def blocks_of(page: Path, language: str) -> list[str]:
    """Fenced blocks of a page; the commands of an argument file, which are comments indented by two, are a shell's."""
    if page.suffix == ".yaml":
        header = "\n".join(re.findall(r"^#   *((?:grrm|python) .*|    .*)$", text_of(page), re.MULTILINE))
        return [header] if language == "bash" else []
    return [body for name, body in FENCE.findall(text_of(page)) if name == language]


def commands_of(page: Path) -> list[str]:
    """Command lines in shell blocks, and inline code that starts like one."""
    lines = [line for block in blocks_of(page, "bash") for line in block.replace("\\\n", " ").splitlines()]
    starts = ("grrm ", "make ", "python ")
    return [line for line in lines if line.strip()] + [
        code for code in INLINE_CODE.findall(prose_of(page)) if code.startswith(starts)
    ]


def words_after(command: str, program: str) -> list[str] | None:
    """The arguments of `program` where the command line runs it, else None."""
    words = shlex.split(command)
    names = [Path(word).name for word in words]
    return words[names.index(program) + 1 :] if program in names else None


def section(page: Path, heading: str) -> str:
    """The text below a second-level heading, up to the next one."""
    _, found, rest = text_of(page).partition(f"\n## {heading}\n")
    assert found, f"{page.name} has no section {heading!r}"
    return rest.partition("\n## ")[0]


def table_rows(text: str) -> Iterator[list[str]]:
    """Cells of the table rows that start with inline code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def long_options(command: click.Command) -> set[str]:
    context = click.Context(command, help_option_names=["-h", "--help"])  # as ours: a command keeps its help option
    return {name for parameter in command.get_params(context) for name in parameter.opts if name.startswith("--")}


@every_page
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(prose_of(page)):
        path = (page.parent / target.partition("#")[0]).resolve()
        assert target.startswith(("http://", "https://")) or path.exists(), target


@every_page
def test_every_anchor_is_a_heading_of_its_page(page: Path) -> None:
    for target in LINK.findall(prose_of(page)):
        name, _, anchor = target.partition("#")
        if anchor and not target.startswith(("http://", "https://")):
            headings = re.findall(r"^#+ (.+)$", prose_of(page.parent / name if name else page), re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}, target


def anchor_of(heading: str) -> str:
    """What GitHub makes of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


@every_page
def test_lines_are_short_enough_to_read(page: Path) -> None:
    prose = FENCE.sub(lambda block: block[2] if block[1] == "bash" else "", text_of(page))
    for line in prose.splitlines():
        is_exempt = line.startswith("|") and page.name in LONG_TABLES
        assert len(line) <= MAX_LINE_LENGTH or is_exempt, line


@pytest.mark.parametrize("name", MAX_LINES)
def test_front_pages_are_short(name: str) -> None:
    assert len(text_of(ROOT / name).splitlines()) <= MAX_LINES[name]


def test_the_pages_are_not_too_many_words_to_read() -> None:
    """Of all pages but the archive, and of no generated table; commands and bars of tables are no words."""
    pages = [page for page in PAGES if page.name not in {"LOG.md"} | GENERATED_KEYS]
    written = [TABLES.sub("", prose_of(page)) for page in pages]
    assert sum(len(re.findall(r"\S*\w\S*", text)) for text in written) <= 34_650


@every_page
def test_every_file_of_the_repository_that_is_named_exists(page: Path) -> None:
    named = [code for code in INLINE_CODE.findall(prose_of(page)) if REPOSITORY_PATH.fullmatch(code)]
    named += [word for command in commands_of(page) for word in shlex.split(command) if REPOSITORY_PATH.match(word)]
    for path in named:
        assert (ROOT / path).exists(), path


@every_page
def test_every_module_and_function_that_is_named_exists(page: Path) -> None:
    named = [code.partition("(")[0] for code in INLINE_CODE.findall(prose_of(page)) if DOTTED_NAME.match(code)]
    named += [word for command in commands_of(page) for word in command.split() if DOTTED_NAME.fullmatch(word)]
    for name in set(named) - {RECORD_FILE}:
        pkgutil.resolve_name(name)


@every_page
def test_every_grrm_command_exists_with_its_options(page: Path) -> None:
    check_grrm_commands(page)


@every_recipe
def test_every_command_in_a_recipes_header_exists(page: Path) -> None:
    assert commands_of(page)
    check_grrm_commands(page)
    for script in SCRIPT_KEYS:
        check_overrides(page, script)
    check_server_options(page)


def check_grrm_commands(page: Path) -> None:
    for line in commands_of(page):
        words = words_after(line, "grrm")
        if words is None:
            continue
        command: click.Command = grrm
        while isinstance(command, click.Group) and words:
            name = words.pop(0)
            assert name in command.commands, line
            command = command.commands[name]
        known = long_options(command)
        if command.name in STAGES:
            overrides = parse_overrides(words[1:])  # the first word is the argument file
            overrides.pop("nproc", None)
            typed_values(SCRIPT_KEYS[f"run_{command.name}.py"], overrides)
            continue
        if command.name == "plan":
            known |= {f"--{key}" for key in keys_of(RLConfig)}
        assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line


@every_page
def test_every_make_target_and_variable_exists(page: Path) -> None:
    makefile = text_of(ROOT / "Makefile") + text_of(ROOT / "tools/bootstrap.sh")
    for line in commands_of(page):
        for word in words_after(line, "make") or []:
            name, is_variable, _ = word.partition("=")
            pattern = rf"\$[({{]{name}\b|\({name}\)|,{name}\b|\$\{{{name}:|^{name} \?=" if is_variable else rf"^{name}:"
            assert re.search(pattern, makefile, re.MULTILINE), line


@every_page
@pytest.mark.parametrize("script", SCRIPT_KEYS)
def test_every_override_of_a_training_command_is_a_key(page: Path, script: str) -> None:
    check_overrides(page, script)


def check_overrides(page: Path, script: str) -> None:
    for line in commands_of(page):
        words = words_after(line, script) or []
        typed_values(SCRIPT_KEYS[script], parse_overrides(words[1:]))  # the first word is the argument file


@every_page
def test_every_option_of_the_reward_server_exists(page: Path) -> None:
    check_server_options(page)


def check_server_options(page: Path) -> None:
    for line in commands_of(page):
        words = words_after(line, "reward_server.py") or []
        assert {word for word in words if word.startswith("--")} <= long_options(reward_server), line


@every_page
def test_every_yaml_block_loads(page: Path) -> None:
    for block in blocks_of(page, "yaml"):
        values = yaml.safe_load(block)
        if "host" in values:
            Settings.model_validate(values)
            continue
        FailurePolicy.from_mapping(typed_values(RLConfig, values).get("failure_policy", {}))


def test_both_readmes_have_the_same_sections_blocks_links_and_figures() -> None:
    english, chinese = text_of(ENGLISH), text_of(CHINESE)
    assert HEADING.findall(FENCE.sub("", english)) == HEADING.findall(FENCE.sub("", chinese))
    assert FENCE.findall(english) == FENCE.findall(chinese)
    assert COMMENT.findall(english) == COMMENT.findall(chinese)
    twins = {f"{page}.md": f"{page}_zh.md" for page in ("README", "docs/recipe", "docs/tutorial_laptop")}
    assert [twins.get(link, link) for link in LINK.findall(english)] == [
        twins.get(link, link) for link in LINK.findall(chinese)
    ]
    results = [re.search(r"<!-- results -->(.*?)<!-- /results -->", text, re.DOTALL) for text in (english, chinese)]
    assert all(results)
    english_figures, chinese_figures = (re.findall(r"\d+(?:\.\d+)?", found[1]) for found in results if found)
    assert english_figures == chinese_figures


@pytest.mark.parametrize("page", ["tutorial_laptop", "tutorial_judge"])
def test_a_tutorial_has_the_same_sections_and_blocks_in_both_languages(page: str) -> None:
    english, chinese = text_of(ROOT / f"docs/{page}.md"), text_of(ROOT / f"docs/{page}_zh.md")
    assert FENCE.findall(english) == FENCE.findall(chinese)
    assert HEADING.findall(FENCE.sub("", english)) == HEADING.findall(FENCE.sub("", chinese))
    code = [set(INLINE_CODE.findall(FENCE.sub("", text))) for text in (english, chinese)]
    assert code[0] == code[1]


def test_readmes_tell_the_same_times() -> None:
    english = re.findall(r"(\d+)–(\d+) minutes", text_of(ENGLISH))
    assert english == re.findall(r"(\d+) 到 (\d+) 分钟", text_of(CHINESE))
    assert len(english) == 2


def test_readmes_have_equally_many_table_rows_with_the_same_code() -> None:
    rows = [[INLINE_CODE.findall(row[0]) for row in table_rows(text_of(page))] for page in (ENGLISH, CHINESE)]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 10


def test_every_algorithm_is_in_the_readme() -> None:
    choices = keys_of(RLConfig)["rl_algorithm"].choices
    shown = {INLINE_CODE.findall(row[0])[0] for row in table_rows(section(ENGLISH, "Algorithms"))}
    assert shown == {"rl_algorithm", *choices}


@pytest.mark.parametrize("page", GENERATED)
def test_tables_of_a_page_are_those_of_the_declarations(page: str) -> None:
    text = text_of(ROOT / page)
    assert with_tables(text, page) == text, f"run python -m grrm.config.document {page}"


def test_recipe_table_shows_what_the_argument_file_says() -> None:
    recipe = yaml.safe_load(text_of(ROOT / "llm/config/qwen/grpo_grrm_argument.yaml"))
    text = section(ROOT / "docs/arguments.md", "The 7B files and the GRRM recipe")
    shown = [code for code in INLINE_CODE.findall(text) if ": " in code]
    assert len(shown) > 15
    for code in shown:
        for key, value in yaml.safe_load(code).items():
            assert recipe[key] == value, key


def test_plan_shown_is_the_plan_printed() -> None:
    page = ROOT / "docs/arguments.md"
    lines = [line for block in blocks_of(page, "bash") for line in block.splitlines()]
    (line,) = [line for line in lines if line.startswith("grrm plan") and "--write" not in line]
    _, _, recipe, _, devices, _, memory = shlex.split(line)
    printed = io.StringIO()
    show_plan(str(ROOT / recipe), Machine(int(devices), parse_memory(memory)), out=printed)
    assert blocks_of(page, "text") == [printed.getvalue()]


def test_status_table_is_the_failure_policy() -> None:
    rows = list(table_rows(section(ROOT / "docs/reward_protocols.md", "Statuses and what the trainer does")))
    shown = {row[0].strip("`"): row[2].strip("`") for row in rows}
    expected = {status.value: DEFAULT_ACTIONS[status].value if status in DEFAULT_ACTIONS else "–" for status in Status}
    assert shown == expected


def test_judge_options_are_listed_with_their_defaults() -> None:
    text = text_of(ROOT / "docs/reward_protocols.md").partition("| judge option | default |")[2].partition("\n\n")[0]
    shown = {}
    for names, defaults, *_ in table_rows(text):
        values = INLINE_CODE.findall(defaults) or [defaults]
        shown |= dict(zip(INLINE_CODE.findall(names), values, strict=True))
    kinds = (VerifierOptions, GQMOptions)  # of both, the group judge's default
    known = {name: field.default for kind in kinds for name, field in kind.model_fields.items()}
    assert {name: str(value).lower() for name, value in known.items()} | {
        "prompt_length": "the model's positions"  # where the server is not told another
    } == shown


@pytest.mark.parametrize("route", ["/", "/v1/score"])
def test_answer_shown_for_a_request_is_the_servers(route: str) -> None:
    request, answer = (example(f"POST {route} {part}") for part in ("request", "answer"))
    client = create_app(Settings(), open_judge("chrf")).test_client()
    assert client.post(route, json=request).get_json() == answer


def test_part_shown_is_read_as_one() -> None:
    part = part_of(example("a part", "docs/mixing.md"))
    assert part == counted(part, required=False)


def test_judge_shown_is_one(tmp_path: Path) -> None:
    (code,) = blocks_of(ROOT / "docs/mixing.md", "python")
    (tmp_path / "mine.py").write_text(code, encoding="utf-8")
    judge = open_judge(f"{tmp_path}/mine.py:length", {"longest": 10})
    candidates = (Candidate("a", "ok", "ok"), Candidate("b", "?", None))
    (verdict,) = judge.judge([Group("g", TranslationTask("x", "de", "en"), candidates)])
    assert verdict.scores == (8.0, None)


def test_sources_shown_can_be_read() -> None:
    (block,) = (block for block in blocks_of(ROOT / "docs/mixing.md", "yaml") if "grrm" in block)
    assert [source.title for source in read_sources(yaml.safe_load(block)["reward_sources"])] == ["chrf", "grrm"]


def test_keys_of_a_source_are_in_the_table() -> None:
    rows = table_rows(text_of(ROOT / "docs/mixing.md").partition("## From several")[0])
    assert {name for row in rows for name in INLINE_CODE.findall(row[0])} == {*JudgeSource.model_fields}


def example(title: str, page: str = "docs/reward_protocols.md") -> Any:
    text = text_of(ROOT / page)
    _, found, rest = text.partition(f"<!-- example: {title} -->\n")
    assert found, title
    block = FENCE.match(rest)
    assert block is not None, title
    return json.loads(block[2])


def test_words_of_chinese_pages_are_searched_one_by_one():
    search = load_config(str(ROOT / "mkdocs.yml")).plugins["material/search"].config
    assert re.split(search.separator, "训练\u200b数据 of-two") == ["训练", "数据", "of", "two"]
