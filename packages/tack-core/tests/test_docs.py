"""The documentation tells the truth: its examples run, its commands are CI's, its links lead somewhere."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
TESTS = Path(__file__).resolve().parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("packages/*/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, text, and the line of the page where its text starts."""

    language: str
    text: str
    line: int
    end: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m[1], m[2], text.count("\n", 0, m.start(2)) + 1, text.count("\n", 0, m.end()) + 1)
        for m in FENCE.finditer(text)
    ]


def output_of(block: Block, page: Path, namespace: dict[str, Any]) -> str:
    """What the block prints, then the exception that ends it, as its type and message."""
    # The page's path and line numbers are the code's, so kernels find their source in the page itself.
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        try:
            exec(code, namespace)
        except Exception as error:
            print(f"{type(error).__name__}: {error}")
    return printed.getvalue()


def python_pages() -> list[Path]:
    return [page for page in PAGES if any(block.language == "python" for block in blocks(page))]


@pytest.mark.parametrize("page", python_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_print_what_the_page_says(page: Path) -> None:
    """The python blocks of a page run in order in one namespace.

    A ``text`` block right under one is what it prints, with ``...`` for any text. One that has none
    prints nothing and raises nothing.
    """
    found = blocks(page)
    namespace: dict[str, Any] = {"__name__": page.stem}
    wrong = []
    for block, after in zip(found, [*found[1:], None], strict=True):
        if block.language != "python":
            continue
        adjacent = after is not None and after.language == "text" and after.line - block.end <= 3
        want = after.text if after is not None and adjacent else ""
        got = output_of(block, page, namespace)
        if not doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS):
            wrong.append(f"{page}:{block.line}\n--- the page says\n{want}\n--- it prints\n{got}")
    assert not wrong, "\n".join(wrong)


def test_an_example_that_fails_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("text\n\n```python\nprint(1)\n1 / 0\n```\n")
    (block,) = blocks(page)
    assert block.line == 4
    assert output_of(block, page, {}) == "1\nZeroDivisionError: division by zero\n"


def test_ci_runs_the_test_command_of_the_readme() -> None:
    commands = [b.text.strip() for b in blocks(ROOT / "README.md") if b.language == "sh"]
    (command,) = [c for c in commands if c.startswith("python3 -m venv") and " -m pytest" in c]
    assert command in (ROOT / ".ci" / "run").read_text().splitlines()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose)
    missing = [t for t in targets if "://" not in t and not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design/reference-map.md"])
def test_files_that_a_guide_to_the_source_names_exist(page: str) -> None:
    """Paths in backquotes, relative to the repository or to the source; not the reference's own."""
    prose = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
    prose = re.sub(r"^\|[^|]*\|", "", prose, flags=re.MULTILINE)  # the left columns are the reference's
    named = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/(?:[\w.-]+\.(?:py|md|toml))?)`", prose)
    bases = (ROOT, ROOT / "packages/tack-core/src/tack", TESTS)
    assert named
    assert not [name for name in named if not any((base / name).exists() for base in bases)]


def test_tests_that_the_map_of_the_reference_names_exist() -> None:
    """A rule without its test is noticed when the test gets another name."""
    page = (ROOT / "docs" / "design" / "reference-map.md").read_text(encoding="utf-8")
    files = list(TESTS.rglob("test_*.py"))
    there = {path.stem for path in files}
    there |= {
        name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"`(test_\w+)(?:\.py)?`", page))
    assert len(named) > 50
    assert not named - there
