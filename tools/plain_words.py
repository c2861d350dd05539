"""Check the words of the code: names of definitions, and openings and paragraphs of docstrings; `make lint` runs it."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("llm", "reward_server", "csrc", "benchmarks", "tools")

# fmt: off
VAGUE_WORDS = frozenset({
    "found", "one", "told", "wanted", "drawn", "here", "place", "places", "whole", "given", "made",
    "kept", "taken", "left", "known", "asked", "owed", "holds", "room", "thing", "things",
})
# fmt: on
OPENINGS = frozenset({"What", "How", "Why", "Where", "Which", "Whether", "Who", "Whose", "When", "That"})
ALLOWED = frozenset({"require_known"})  # names
MAX_WORDS = 60  # of a paragraph

_NAME_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_WORD = re.compile(r"\S*[^\W\d_]{2}\S*")  # symbols of formulas do not count
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n(?=\s*\w+: )|\n(?=\s*[-*] )")


def main() -> int:
    """Print all findings; return the exit status."""
    paths = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")))
    findings = [
        f"{path.relative_to(ROOT)}:{finding}" for path in paths for finding in findings_of(path.read_text("utf-8"))
    ]
    print(*findings, sep="\n", end="\n" * bool(findings), file=sys.stderr)
    return int(bool(findings))


def findings_of(source: str) -> list[str]:
    """Return "line: finding" for every name and docstring of a module's `source` that breaks a rule."""
    tree = ast.parse(source)
    findings: dict[str, int] = {}
    for name, line in names_defined(tree):
        if name not in ALLOWED and (words := sorted(VAGUE_WORDS.intersection(parts_of(name)))):
            findings.setdefault(f"name {name} contains {', '.join(words)}", line)
    for text, line in docstrings(tree):
        opening = text.split(maxsplit=1)[0].strip(",.:;")
        if opening in OPENINGS:
            findings.setdefault(f"docstring opens with {opening}: {text.splitlines()[0]}", line)
        for paragraph in _PARAGRAPH_END.split(text):
            if (n_words := len(_WORD.findall(paragraph))) > MAX_WORDS:
                findings.setdefault(f"paragraph of {n_words} words: {paragraph.splitlines()[0]}", line)
    return [f"{line}: {finding}" for finding, line in sorted(findings.items(), key=lambda item: item[1])]


def parts_of(name: str) -> list[str]:
    """Split snake_case and CamelCase into lower-case words."""
    return [part.lower() for part in _NAME_PART.findall(name)]


def names_defined(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the functions, classes, arguments, variables and attributes that `tree` defines, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr, node.lineno
        elif isinstance(node, ast.alias) and node.asname:
            yield node.asname, 1
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node.name, node.lineno


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield the docstrings of a module, its classes and functions, with the lines of what they document."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            text := ast.get_docstring(node)
        ):
            yield text, getattr(node, "lineno", 1)


if __name__ == "__main__":
    sys.exit(main())
