"""Checks that the repository matches its documents; `make lint` runs it.

Each check is one function that yields violations as (path, line, problem and remedy). There is no list of exceptions:
fix a violation in the tree or in the document.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pythons import versions

REPOSITORY = Path(__file__).resolve().parent.parent
ARCHITECTURE = "docs/architecture.md"
GLOSSARY = "docs/internals/glossary.md"
SUFFIXES = ("rs", "py", "pyi", "ts", "tsx", "mjs", "js", "css", "c", "cpp", "h")
LONGEST_FILE = 500
LARGEST_FOLDER = 35
Violation = tuple[str, int, str]


@cache
def tracked(*patterns: str) -> list[str]:
    """Return the files in git that still exist, relative to the repository."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=REPOSITORY, check=True, capture_output=True)
    return [path for path in listed.stdout.decode().split("\0") if path and (REPOSITORY / path).is_file()]


@cache
def text(path: str) -> str:
    """Return the content of a text file."""
    return (REPOSITORY / path).read_text(errors="replace")


def lines(*paths: str) -> Iterator[tuple[str, int, str]]:
    """Yield path, number and content of every line."""
    return ((path, number, line) for path in paths for number, line in enumerate(text(path).splitlines(), 1))


@cache
def sources() -> tuple[str, ...]:
    """Return the hand-written files with code, without built pages and lock files."""
    scripts = [path for path in tracked("scripts", "tests/layout") if "." not in Path(path).name]
    return (*(path for path in tracked(*(f"*.{suffix}" for suffix in SUFFIXES)) if "/dist/" not in path), *scripts)


def table(page: str, first_column: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows of the Markdown table whose heading starts with `first_column`."""
    inside = False
    for _, number, line in lines(page):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if inside and line.startswith("| "):
            yield number, cells
        inside = line.startswith("|") and (inside or cells[0] == first_column)


def crates() -> Iterator[Violation]:
    """The crate table lists every crate with its dependencies, and crates without unsafe code forbid it."""
    missing = {path.split("/")[1] for path in tracked("crates/*/Cargo.toml")}
    for number, (cell, _, _, dependencies, unsafe) in table(ARCHITECTURE, "crate"):
        name = cell.strip("`")
        if name not in missing:
            yield ARCHITECTURE, number, f"there is no crate {name}; remove its row"
            continue
        missing.remove(name)
        manifest = text(f"crates/{name}/Cargo.toml").partition("[dev-dependencies]")[0]
        actual = sorted(set(re.findall(r"^heaptide-([a-z]+)", manifest, re.M)))
        if re.findall(r"`([a-z]+)`", dependencies) != actual:
            yield ARCHITECTURE, number, f"{name} depends on {', '.join(actual) or 'no crate'}; correct its row"
        if ("#![forbid(unsafe_code)]" in text(f"crates/{name}/src/lib.rs")) == (unsafe == "yes"):
            yield f"crates/{name}/src/lib.rs", 1, f"the crate table has unsafe: {unsafe}; correct it or the forbid"
    for name in sorted(missing):
        yield ARCHITECTURE, 1, f"crate {name} is missing from the crate table; add a row"


def python_folders() -> Iterator[Violation]:
    """The folder table has every folder of python/heaptide."""
    rows = {cells[0].strip("`/"): number for number, cells in table(ARCHITECTURE, "folder")}
    folders = {path.split("/")[2] for path in tracked("python/heaptide/*/*.py")}
    for name in sorted(rows.keys() ^ folders):
        yield (
            ARCHITECTURE,
            rows.get(name, 1),
            f"folder {name} is in the table or in python/heaptide, not in both; correct it",
        )


def named_modules() -> Iterator[Violation]:
    """Every module and path that the architecture pages and CONTRIBUTING.md name exists."""
    for page, number, line in lines(ARCHITECTURE, "CONTRIBUTING.md", *tracked("docs/internals/*.md")):
        modules = [f"crates/{crate}/src/{rest}" for crate, rest in re.findall(r"`([a-z]+)::([a-z_:]+)`", line)]
        paths = re.findall(r"`((?:crates|python|tests|scripts|bench|web|docs|fuzz)/[\w./-]*)`", line)
        for name in [module.replace("::", "/") for module in modules] + paths:
            if not (REPOSITORY / name).exists() and not (REPOSITORY / f"{name}.rs").exists():
                yield page, number, f"there is no {name}; correct the name"


def interpreter_layout() -> Iterator[Violation]:
    """Only agent/cpython knows interpreter offsets and versions; agent/native and attach are exempt."""
    outside = ("crates/agent/src/cpython/", "crates/agent/src/native/", "crates/attach/")
    for path, number, line in lines(*(path for path in tracked("crates/*/src/*.rs") if not path.startswith(outside))):
        code = line.partition("//")[0]
        if re.search(r"\(3, ?1\d\)|\bminor *[<>=]=? *1\d\b", code):
            yield path, number, "depends on a Python version; move the decision to agent/cpython"
        if path.startswith("crates/agent/") and re.search(r"\b(word|half|byte|pointer)\([^()]* \+ \d+\)", code):
            yield path, number, "reads at a literal offset; name the offset in agent/cpython"
    for path, number, line in lines(*tracked("python/heaptide/*.py")):
        if re.search(r"\b(tp_flags|__flags__|from_address|string_at)\b", line):
            yield path, number, "reads interpreter memory from Python; move it to agent/cpython"


def opening_paragraphs() -> Iterator[Violation]:
    """Every source file opens with a comment or docstring on its purpose; an empty `__init__.py` needs none."""
    for path in sources():
        content = re.sub(r"^#!.*\n", "", text(path))
        is_python = path.endswith((".py", ".pyi"))
        opening = "//!" if path.endswith(".rs") else ("//", "/*", "# ", "#\n")
        if not (content.startswith(opening) or (is_python and (not content or ast.get_docstring(ast.parse(content))))):
            yield path, 1, "no opening paragraph; state the purpose of the file"


def file_lengths() -> Iterator[Violation]:
    """No source file is longer than the limit."""
    for path in sources():
        length = text(path).count("\n")
        if length > LONGEST_FILE:
            yield path, length, f"{length} lines, more than {LONGEST_FILE}; split the file"


def folder_sizes() -> Iterator[Violation]:
    """No folder directly contains more source files than the limit."""
    for folder, count in Counter(str(Path(path).parent) for path in sources()).items():
        if count > LARGEST_FOLDER:
            yield folder, 1, f"{count} files, more than {LARGEST_FOLDER}; group them into folders by subject"


def glossary() -> Iterator[Violation]:
    """The glossary is sorted, and every word in it is used elsewhere."""
    everything = "\n".join(text(path) for path in (*sources(), *tracked("*.md")) if path != GLOSSARY).lower()
    previous = ""
    for number, (word, *_) in table(GLOSSARY, "word"):
        if word.lower() <= previous:
            yield GLOSSARY, number, f"{word!r} is not in alphabetical order after {previous!r}; move it"
        previous = word.lower()
        for name in previous.split(", "):
            if not re.search(rf"\b{re.escape(name)}", everything):
                yield GLOSSARY, number, f"{name!r} is used nowhere; remove the row"


def anchors(page: str) -> set[str]:
    """Return the anchors that GitHub derives from the headings of a page."""
    headings = re.findall(r"^#+ (.*)", re.sub(r"```.*?```", "", text(page), flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> Iterator[Violation]:
    """Every relative link in a Markdown file leads to a file, and its anchor to a heading."""
    for page, number, line in lines(*tracked("*.md")):
        for name, anchor in re.findall(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)", re.sub(r"`[^`]*`", "", line)):
            target = (REPOSITORY / page).parent / name if name else REPOSITORY / page
            if not target.exists():
                yield page, number, f"link to {name}: no such file; correct the path"
            elif anchor and anchor not in anchors(str(target.resolve().relative_to(REPOSITORY))):
                yield page, number, f"link to {name}#{anchor}: no such heading; correct the anchor"


def python_versions() -> Iterator[Violation]:
    """Code and docs name the versions of pyproject.toml's classifiers, and the crates spell the range once."""
    oldest, newest = (f"{major}.{minor}" for major, minor in (versions()[0], versions()[-1]))
    in_crates = 0
    for path, number, line in lines(*sources(), *tracked("*.md", "pyproject.toml")):
        for first, last in re.findall(r"CPython (3\.\d+) to (3\.\d+)", line):
            in_crates += path.startswith("crates/")
            if (first, last) != (oldest, newest):
                yield path, number, f"supported versions are {oldest} to {newest}; correct the range"
            elif path.startswith("crates/") and in_crates > 1:
                yield path, number, "spells the supported versions again; use the constant"
        for version in re.findall(r"OLDEST: \(u8, u8\) = \((\d, \d+)\)|requires-python = \">=(.*)\"", line):
            if "".join(version).replace(", ", ".") != oldest:
                yield path, number, f"the oldest supported version is {oldest}; correct it"


def machine_paths() -> Iterator[Violation]:
    """No file names a folder that exists only on one machine."""
    for path, number, line in lines(*sources(), *tracked("*.md", "*.toml", "*.json", "*.txt", "Makefile")):
        if re.search(r"(?<![\w.}~-])/(root|Users|work|workspace|home/(?!me/))\b", line) and path != "scripts/tidy.py":
            yield path, number, "absolute path of one machine; make it relative"


CHECKS = (crates, python_folders, named_modules, interpreter_layout, opening_paragraphs, file_lengths)
CHECKS += (folder_sizes, glossary, links, python_versions, machine_paths)


def main() -> int:
    """Run all checks, or those named on the command line, and print every violation."""
    wanted = [check for check in CHECKS if check.__name__ in (sys.argv[1:] or [check.__name__])]
    found = [violation for check in wanted for violation in check()]
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
