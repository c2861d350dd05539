"""Pages of the site that do not lie in docs/: README, CONTRIBUTING, and the sources that pages link to.

A hook of mkdocs. Links between the files of the repository become links between pages.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
HOME, DOCS, SOURCES = "README.md", "docs", "source"
TOP = {"index.md": HOME, "README_zh.md": "README_zh.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(?=[)#])")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside docs/, and one for every source file that a page links to."""
    for name, path in TOP.items():
        files.append(File.generated(config, name, content=(ROOT / path).read_text(encoding="utf-8")))
    pages = [file for file in files if file.src_uri.endswith(".md")]
    linked = {path for file in pages for path in _targets(file) if _source_page(path)}
    for path in sorted(linked):
        files.append(File.generated(config, _source_page(path) or "", content=_shown(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to their pages; links to folders become text."""
    page_path = page.file.src_uri
    if page_path.startswith(f"{SOURCES}/"):
        return markdown

    def rewritten(match: re.Match[str]) -> str:
        path = _repository_path(page_path, match[1])
        target = _source_page(path) or _page_of(path)
        return posixpath.relpath(target, posixpath.dirname(page_path) or ".")

    folders = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)\)")

    def without_folder(match: re.Match[str]) -> str:
        return match[1] if (ROOT / _repository_path(page_path, match[2])).is_dir() else match[0]

    return _LINK.sub(rewritten, folders.sub(without_folder, markdown))


def _targets(file: File) -> set[str]:
    return {_repository_path(file.src_uri, link) for link in _LINK.findall(file.content_string)}


def _repository_path(page: str, link: str) -> str:
    """The path below the repository of what a page links to."""
    folder = posixpath.dirname(TOP.get(page, f"{DOCS}/{page}"))
    return posixpath.normpath(posixpath.join(folder, link))


def _source_page(path: str) -> str | None:
    """The page that shows a source file; None for what is a page itself, or not a file."""
    is_page = path.endswith(".md") or path.startswith(f"{DOCS}/")
    shown = path.lstrip(".")  # what begins with a dot is left out of a site
    return None if is_page or not (ROOT / path).is_file() else f"{SOURCES}/{shown}.md"


def _page_of(path: str) -> str:
    return next((name for name, source in TOP.items() if source == path), path.removeprefix(f"{DOCS}/"))


def _shown(path: str) -> str:
    text, language = (ROOT / path).read_text(encoding="utf-8"), _LANGUAGES.get(Path(path).suffix, "text")
    return f"---\nsearch: {{exclude: true}}\n---\n# {path}\n\n````{language}\n{text}````\n"
