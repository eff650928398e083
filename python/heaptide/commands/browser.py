"""Opens a page in the user's browser."""

from __future__ import annotations

import os
import sys

from heaptide.messages import print_message


def open_page(path: str) -> None:
    """Open a page, or print its path if there is no graphical browser."""
    import pathlib
    import webbrowser

    has_screen = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    try:
        browser = webbrowser.get() if has_screen else None
    except webbrowser.Error:
        browser = None
    if browser is None:
        print_message(f"there is no browser here: open {path} in one")
        return
    # A browser may stay in the background for hours. If it inherited the output of this command, a program that reads
    # the output to its end would wait for the browser.
    sys.stdout.flush()
    saved = os.dup(1), os.dup(2)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    try:
        is_opened = browser.open(pathlib.Path(path).absolute().as_uri())
    except (OSError, webbrowser.Error):
        is_opened = False
    finally:
        for number, descriptor in enumerate(saved, 1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.close(null)
    if not is_opened:
        print_message(f"no browser could be started: open {path} in one")
