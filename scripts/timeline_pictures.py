"""Creates the pictures of docs/guide/timelines.md from one real run: `scripts/timeline_pictures.py HEAPTIDE`.

HEAPTIDE is the command of an installed wheel. The script draws the run as SVG, as PNG, as a page, and on a terminal,
and converts the terminal's output to SVG. If Chromium is installed, it also takes a screenshot of the page.
"""

from __future__ import annotations

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
IMAGES = REPOSITORY / "docs" / "images"
COLUMNS, LINES = 100, 34
# RGB values of the terminal colours that the chart uses.
COLOURS = {
    "36": "#22b8cf", "33": "#e0a800", "32": "#40c057", "35": "#cc5de8", "34": "#4c8dff", "96": "#66d9e8",
    "93": "#ffd43b", "92": "#8ce99a", "31": "#ff6b6b", "1": "#ffffff",
}  # fmt: skip
INK, PAPER = "#d5d9de", "#16191d"
LETTER, LINE = 8.4, 17


def main() -> int:
    """Record once, and create each picture."""
    heaptide = str(Path(sys.argv[1]).absolute())
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        shutil.copy(REPOSITORY / "examples" / "timeline" / "job.py", scratch)
        subprocess.run([heaptide, "record", "-T", "0.05", "-o", "run.timeline", "job.py"], cwd=scratch, check=True)
        plot = [heaptide, "plot", "-t", "heaptide record job.py", "run.timeline"]
        for target in ("record.svg", "record.png", "record.html"):
            subprocess.run([*plot, "-o", str(IMAGES / target)], cwd=scratch, check=True)
        (IMAGES / "record-terminal.svg").write_text(terminal(terminal_output(plot, scratch)))
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium:
        shot = f"--screenshot={IMAGES / 'record-page.png'}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--window-size=1140,640"]
        subprocess.run([chromium, *options, shot, (IMAGES / "record.html").as_uri()], check=True, capture_output=True)
    return 0


def terminal_output(command: list[str], folder: str) -> str:
    """Return the output of a command that writes to a terminal."""
    controller, terminal_end = os.openpty()
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "LINES": str(LINES), "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=terminal_end) as process:
        os.close(terminal_end)
        text = b""
        try:
            while part := os.read(controller, 1 << 16):
                text += part
        except OSError:
            # Reading fails once the command has closed the terminal: this is the end of its output.
            pass
        process.wait()
    return text.decode().replace("\r", "")


def terminal(text: str) -> str:
    """Return coloured terminal output as SVG."""
    lines = text.rstrip("\n").split("\n")
    width, height = round(COLUMNS * LETTER + 32), len(lines) * LINE + 28
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">',
        f'<rect width="100%" height="100%" rx="8" fill="{PAPER}"/>',
        '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">',
    ]
    for number, line in enumerate(lines):
        y, column, colour = 26 + number * LINE, 0, INK
        for part in re.split(r"(\x1b\[\d+m)", line):
            if code := re.fullmatch(r"\x1b\[(\d+)m", part):
                colour = COLOURS.get(code[1], INK)
            elif part:
                x, length = 16 + column * LETTER, len(part) * LETTER
                # SVG would strip spaces at the ends of a text.
                words = html.escape(part).replace(" ", "\N{NO-BREAK SPACE}")
                out.append(f'<text x="{x:.1f}" y="{y}" textLength="{length:.1f}" fill="{colour}">{words}</text>')
                column += len(part)
    return "\n".join([*out, "</g>", "</svg>"]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
