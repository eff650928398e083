"""Writes docs/reference/settings.md from the list of settings; with --check only reports whether it is up to date."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PAGE = REPOSITORY / "docs" / "reference" / "settings.md"

HEAD = """\
# Settings

<!-- Written by scripts/settings_page.py from python/heaptide/settings.py; do not edit by hand. -->

Heaptide reads a setting from the environment, else from the configuration file, else uses its default:

- In the **environment** every setting has a long name, `HEAPTIDE__PROFILING__` and the setting in capitals. Most also
  have the short name below.
- The **configuration file** is the one that `HEAPTIDE_CONFIG` names, or else the first of `heaptide.toml`,
  `heaptide.cfg` (INI) and `pyproject.toml` in the current folder, then in `HEAPTIDE_HOME`. Settings belong in the
  section `[profiling]` (`[tool.heaptide.profiling]` in `pyproject.toml`). The section `[components]` names
  [components](../guide/activation.md#components-of-a-service) by their command lines.
- `python -E` and `python -I` ignore all of it.

An invalid value is reported in one line on standard error and ignored. No setting can stop a program.

| setting | short name in the environment | value | default | effect |
|---|---|---|---|---|
"""

BETWEEN = """
Only in the environment:

| variable | meaning |
|---|---|
"""


def page() -> str:
    """Return the whole page."""
    from heaptide import platforms, settings

    known = platforms.all_platforms()

    rows = []
    for setting in settings.ALL:
        names = ", ".join(f"`{name}`" for name in setting.environment_names(known)[1:])
        default = setting.shown_default or {False: "no", True: "yes", "": ""}.get(setting.default, str(setting.default))
        rows.append(f"| `{setting.name}` | {names} | {setting.values} | {default} | {setting.help} |")
    only = {**settings.ENVIRONMENT_ONLY, **{name: text for each in known for name, text in each.documented.items()}}
    lines = [f"| `{name}` | {meaning} |" for name, meaning in only.items()]
    return HEAD + "\n".join(rows) + "\n" + BETWEEN + "\n".join(lines) + "\n"


def main() -> int:
    """Write the page, or check it."""
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() == page():
            return 0
        print(
            "docs/reference/settings.md is not up to date with heaptide/settings.py; run scripts/settings_page.py",
            file=sys.stderr,
        )
        return 1
    PAGE.write_text(page())
    return 0


if __name__ == "__main__":
    sys.exit(main())
