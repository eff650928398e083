"""Fixtures of the tests that run real platforms. `make test-platforms` runs them, on one version of Python.

Each platform has one folder: `requirements.txt` pins its packages, and `behaviours.toml` lists the behaviours to prove.
`--release VERSION` tests another release of a platform, which `requirements-VERSION.txt` pins.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from platform_support import environments
from platform_support.behaviours import Results
from platform_support.environments import Environment
from support.hermetic import become_hermetic

# pip needs the caller's variables; the platforms get none of them.
_PIP_VARIABLES = dict(os.environ)
become_hermetic()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option --release."""
    parser.addoption("--release", default="", help="test the release that requirements-RELEASE.txt pins")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker `behaviour`, and the plugin that stores results for docs/reference/platform-checks.md."""
    config.addinivalue_line("markers", "behaviour(*names): behaviours of behaviours.toml that the test proves")
    config.pluginmanager.register(Results(config.getoption("--release")))


@pytest.fixture(scope="session")
def installed(request: pytest.FixtureRequest) -> Callable[[str], Environment]:
    """Return a function that takes a platform's folder name, installs it once, and returns its environment."""
    made: dict[str, Environment] = {}

    def get(name: str) -> Environment:
        if name not in made:
            made[name] = environments.install(name, _PIP_VARIABLES, request.config.getoption("--release"))
        return made[name]

    return get
