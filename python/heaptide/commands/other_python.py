"""``heaptide run --python``: runs the program with the interpreter of another environment.

That environment does not need to contain Heaptide: the interpreter imports only Heaptide from this environment.

If `uv tool`, `uvx` or `pipx` installed Heaptide, its environment lacks the packages of the project. By default the
program then runs in the active virtual environment (``VIRTUAL_ENV``). If none is active and a module is missing, a
message suggests ``--python``.
"""

from __future__ import annotations

import os
import sys

from heaptide.messages import print_message

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# Loads the package without adding its parent folder, with all other packages, to the import path.
_CODE = (
    "import sys; from importlib import util; folder = sys.argv.pop(1); "
    "spec = util.spec_from_file_location('heaptide', folder + '/__init__.py', submodule_search_locations=[folder]); "
    "sys.modules['heaptide'] = module = util.module_from_spec(spec); spec.loader.exec_module(module); "
    "from heaptide.commands import other_python; other_python.is_chosen = True; "
    "from heaptide.__main__ import main; sys.exit(main())"
)
# Files by which `uv tool` and `pipx` mark the environments that they make.
_MARKS = ("uv-receipt.toml", "pipx_metadata.json")
# The folder in uv's cache that holds the environments of `uvx`, without its version number.
_UVX_FOLDER = "archive-v"

# Whether `start` has started this interpreter.
is_chosen = False


def wanted(named: str | None) -> str:
    """Return the path of the interpreter that must run the program; empty if it is this one."""
    if is_chosen:
        return ""
    if named is not None:
        return named if os.sep in named else _on_path(named)
    python = _of_active_environment()
    return python if python and is_tool() else ""


def is_tool() -> bool:
    """Return whether `uv tool`, `uvx` or `pipx` made this environment, for Heaptide alone."""
    if any(os.path.exists(os.path.join(sys.prefix, mark)) for mark in _MARKS):
        return True
    return os.path.basename(os.path.dirname(sys.prefix)).startswith(_UVX_FOLDER)


def advice_if_project_is_missing() -> str:
    """Return advice if the program ran in an environment made for Heaptide alone; else an empty string."""
    if is_chosen or not is_tool():
        return ""
    example = ".venv/bin/python" if os.path.exists(".venv/bin/python") else "PATH/TO/python"
    return (
        f"the program ran with {sys.executable}, which lacks the packages of your project: "
        f"activate the project's environment, or use --python {example}"
    )


def _of_active_environment() -> str:
    """Return the interpreter of the active virtual environment, unless that is this environment; else empty."""
    active = os.environ.get("VIRTUAL_ENV", "")
    if not active or os.path.realpath(active) == os.path.realpath(sys.prefix):
        return ""
    python = os.path.join(active, "bin", "python")
    return python if os.path.exists(python) else ""


def start(python: str) -> NoReturn:
    """Execute the same command with another interpreter, in this process. Raises OSError if it cannot be started."""
    python = os.path.abspath(python)
    os.execv(python, [python, "-c", _CODE, _PACKAGE, *sys.argv[1:]])


def announce(python: str) -> None:
    """Print which interpreter was chosen by default."""
    print_message(f"running with {python}, because VIRTUAL_ENV names its environment")


def _on_path(name: str) -> str:
    import shutil

    return shutil.which(name) or name
