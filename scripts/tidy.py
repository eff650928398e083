"""Checks that the repository is as its documents describe it; `make lint` runs it.

Each check is one function that yields violations as (path, line, problem and remedy). There is no list of exceptions: a
violation is fixed in the tree or in the document.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from pythons import versions

REPOSITORY = Path(__file__).resolve().parent.parent
ARCHITECTURE = "docs/architecture.md"
GLOSSARY = "docs/internals/glossary.md"
LONGEST_FILE = 500
Violation = tuple[str, int, str]


@cache
def tracked(*patterns: str) -> list[str]:
    """Paths of the files in git that still exist, relative to the repository."""
    listed = subprocess.run(["git", "ls-files", "-z", "--", *patterns], cwd=REPOSITORY, check=True, capture_output=True)
    return [path for path in listed.stdout.decode().split("\0") if path and (REPOSITORY / path).is_file()]


@cache
def text(path: str) -> str:
    """Content of a tracked text file; empty for a binary one."""
    content = (REPOSITORY / path).read_bytes()
    return "" if b"\0" in content else content.decode(errors="replace")


def numbered(path: str) -> Iterator[tuple[int, str]]:
    """Lines of a file with their numbers."""
    return enumerate(text(path).splitlines(), 1)


def sources() -> list[str]:
    """Files that people write as code: no generated pages, no lock files."""
    kinds = ("rs", "py", "pyi", "ts", "tsx", "mjs", "js", "css", "c", "cpp", "h")
    scripts = [path for path in tracked("scripts", "tests/layout") if text(path).startswith("#!")]
    return sorted({path for path in tracked(*(f"*.{kind}" for kind in kinds)) if "/dist/" not in path} | {*scripts})


def table(path: str, first_column: str) -> Iterator[tuple[int, list[str]]]:
    """Rows of the Markdown table whose heading starts with `first_column`."""
    inside = False
    for number, line in numbered(path):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif inside and not line.startswith("|--"):
            yield number, cells
        elif cells[0] == first_column:
            inside = True


def crate_table() -> Iterator[Violation]:
    """The crate table has every crate with its dependencies, and the crates without unsafe code forbid it."""
    names = {path.split("/")[1] for path in tracked("crates/*/Cargo.toml")}
    for number, (cell, _, _, dependencies, unsafe) in table(ARCHITECTURE, "crate"):
        name = cell.strip("`")
        if name not in names:
            yield ARCHITECTURE, number, f"there is no crate {name}; remove its row"
            continue
        names.remove(name)
        manifest = text(f"crates/{name}/Cargo.toml").partition("[dev-dependencies]")[0]
        actual = sorted(set(re.findall(r"^heaptide-([a-z]+)", manifest, re.M)))
        if re.findall(r"`([a-z]+)`", dependencies) != actual:
            yield ARCHITECTURE, number, f"{name} depends on {', '.join(actual) or 'no crate'}; correct its row"
        is_forbidden = "#![forbid(unsafe_code)]" in text(f"crates/{name}/src/lib.rs")
        if is_forbidden == (unsafe == "yes"):
            yield f"crates/{name}/src/lib.rs", 1, f"the crate table says unsafe: {unsafe}; correct it or the forbid"
    for name in sorted(names):
        yield ARCHITECTURE, 1, f"crate {name} is missing from the crate table; add a row"


def python_folders() -> Iterator[Violation]:
    """The folder table names the folders of python/heaptide."""
    folders = {path.split("/")[2] for path in tracked("python/heaptide/*/*.py")}
    for number, (cell, *_) in table(ARCHITECTURE, "folder"):
        name = cell.strip("`/")
        if name not in folders:
            yield ARCHITECTURE, number, f"python/heaptide has no folder {name}; remove its row"
        folders.discard(name)
    for name in sorted(folders):
        yield ARCHITECTURE, 1, f"python/heaptide/{name} is missing from the folder table; add a row"


def named_modules() -> Iterator[Violation]:
    """Every `crate::module` and repository path that the architecture pages and CONTRIBUTING.md name exists."""
    for path in [ARCHITECTURE, "CONTRIBUTING.md", *tracked("docs/internals/*.md")]:
        for number, line in numbered(path):
            for crate, rest in re.findall(r"`([a-z]+)::([a-z_:]+)`", line):
                module = REPOSITORY / "crates" / crate / "src" / rest.replace("::", "/")
                if not (module.is_dir() or module.with_suffix(".rs").is_file()):
                    yield path, number, f"there is no module {crate}::{rest}; name the present one"
            for name in re.findall(r"`((?:crates|python|tests|scripts|bench|web|docs|fuzz)/[\w./-]*)`", line):
                if not (REPOSITORY / name).exists() and "NN" not in name and not name.startswith("web/node"):
                    yield path, number, f"there is no {name}; name the present one"


def interpreter_layout() -> Iterator[Violation]:
    """Only agent/cpython knows interpreter offsets and versions; native unwinding and attach have their own ABI."""
    for path in tracked("crates/*/src/*.rs"):
        if path.startswith(("crates/agent/src/cpython/", "crates/agent/src/native/", "crates/attach/")):
            continue
        for number, line in numbered(path):
            code = line.partition("//")[0]
            if re.search(r"\(3, ?1\d\)|\bminor *[<>=]=? *1\d\b", code):
                yield path, number, "depends on a Python version; move the decision to agent/cpython"
            if path.startswith("crates/agent/") and re.search(r"\b(word|half|byte|pointer)\([^()]* \+ \d+\)", code):
                yield path, number, "reads at a literal offset; name the offset in agent/cpython"
    for path in tracked("python/heaptide/*.py"):
        for number, line in numbered(path):
            if re.search(r"\b(tp_flags|__flags__|from_address|string_at)\b", line):
                yield path, number, "reads interpreter memory from Python; move it to agent/cpython"


def opening_paragraphs() -> Iterator[Violation]:
    """Every source file opens with a comment or docstring on its purpose; an empty `__init__.py` needs none."""
    for path in sources():
        content = text(path)
        lines = content.splitlines()
        if lines and lines[0].startswith("#!"):
            lines = lines[1:]
        if path.endswith((".py", ".pyi")):
            has_opening = ast.get_docstring(ast.parse(content)) is not None or not content or lines[0].startswith("# ")
        else:
            opening = {"rs": "//!"}.get(path.rpartition(".")[2], ("//", "/*", "#"))
            has_opening = bool(lines) and lines[0].startswith(opening) and not lines[0].startswith(("#i", "#d"))
        if not has_opening:
            yield path, 1, "no opening paragraph; state the purpose of the file"


def file_lengths() -> Iterator[Violation]:
    """No source file is longer than the limit."""
    for path in sources():
        length = len(text(path).splitlines())
        if length > LONGEST_FILE:
            yield path, length, f"{length} lines, more than {LONGEST_FILE}; split the file"


def glossary() -> Iterator[Violation]:
    """The glossary is sorted, explains a word once, and every word is used elsewhere."""
    everything = "\n".join(text(path) for path in [*sources(), *tracked("*.md")] if path != GLOSSARY).lower()
    previous = ""
    for number, (cell, *_) in table(GLOSSARY, "word"):
        word = cell.lower()
        if word <= previous:
            yield GLOSSARY, number, f"{cell!r} is not in alphabetical order after {previous!r}; move it"
        previous = word
        for name in re.sub(r"\(.*\)", "", word).split(", "):
            if not re.search(rf"\b{re.escape(name.strip())}", everything):
                yield GLOSSARY, number, f"{name!r} is used nowhere; remove the row"


def anchors(path: str) -> set[str]:
    """Anchors that GitHub derives from the headings of a page."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)", re.sub(r"```.*?```", "", text(path), flags=re.S), re.M):
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{number}" if number else slug for slug, last in found.items() for number in range(last + 1)}


def links() -> Iterator[Violation]:
    """Every relative link in a Markdown file leads to a file, and its anchor to a heading."""
    for path in tracked("*.md"):
        for number, line in numbered(path):
            for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):
                    continue
                name, _, anchor = target.partition("#")
                file = (REPOSITORY / path).parent / name if name else REPOSITORY / path
                if not file.exists():
                    yield path, number, f"link to {target}: no such file; correct the path"
                elif anchor and anchor not in anchors(str(file.resolve().relative_to(REPOSITORY))):
                    yield path, number, f"link to {target}: no such heading; correct the anchor"


def python_versions() -> Iterator[Violation]:
    """Code and docs name the versions of pyproject.toml's classifiers, and the crates spell the range once."""
    oldest, newest = (f"{major}.{minor}" for major, minor in (versions()[0], versions()[-1]))
    in_crates = 0
    for path in [*sources(), *tracked("*.md")]:
        for number, line in numbered(path):
            for first, last in re.findall(r"CPython (3\.\d+) to (3\.\d+)", line):
                if (first, last) != (oldest, newest):
                    yield path, number, f"supported versions are {oldest} to {newest}; correct the range"
                in_crates += path.startswith("crates/")
                if path.startswith("crates/") and in_crates > 1:
                    yield path, number, "spells the supported versions again; use the constant"
            for minor in re.findall(r"OLDEST: \(u8, u8\) = \(3, (\d+)\)", line):
                if f"3.{minor}" != oldest:
                    yield path, number, f"the oldest supported version is {oldest}; correct the constant"
    if f'requires-python = ">={oldest}"' not in text("pyproject.toml"):
        yield "pyproject.toml", 1, f"requires-python must be >={oldest}, the oldest classifier"


def machine_paths() -> Iterator[Violation]:
    """No file names a folder that exists only on one developer's machine."""
    for path in [*sources(), *tracked("*.md", "*.toml", "*.json", "*.txt", "Makefile")]:
        for number, line in numbered(path):
            if re.search(r"(?<![\w.}~-])/(root|Users|work|workspace|home/(?!me/))\b", line) and "tidy.py" not in path:
                yield path, number, "absolute path of one machine; make it relative"


CHECKS = (
    crate_table,
    python_folders,
    named_modules,
    interpreter_layout,
    opening_paragraphs,
    file_lengths,
    glossary,
    links,
    python_versions,
    machine_paths,
)


def main() -> int:
    """Run the checks, or those named on the command line, and print every violation."""
    wanted = set(sys.argv[1:])
    found = [violation for check in CHECKS if not wanted or check.__name__ in wanted for violation in check()]
    for path, line, message in found:
        print(f"{path}:{line}: {message}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
