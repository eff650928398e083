"""Sends generated requests to every route of the control API, and checks the responses against its OpenAPI document.

    build/venv-3.12/bin/python scripts/test_api_schema.py --max-examples 20

Run it with an interpreter that has Heaptide and schemathesis. The first run sends no token, the second sends the token
that the program created. Prints the summaries of schemathesis, and exits with 1 if a response violates the document.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = """
import sys
import heaptide.control

control = heaptide.control.start("0", requests_per_second=1_000_000, directory="sessions", keep_sessions=3)
control.handle("POST", heaptide.control.BASE + "/start", trusted=True)
kept = [None] * 1_000_000
control.handle("POST", heaptide.control.BASE + "/snapshot", trusted=True)
print(control.address, control.token_file, flush=True)
sys.stdin.read()
"""
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


def main() -> int:
    """Run schemathesis without and with the token."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--max-examples", default="5", help="generated requests for each route [default: 5]")
    parser.add_argument("--seed", default="1", help="seed of the generator [default: 1]")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {"HEAPTIDE_RUNTIME_DIR": str(folder / "run"), "PATH": "/usr/bin:/bin"}
        program = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert program.stdin is not None and program.stdout is not None
        address, token_file = program.stdout.readline().split()
        token = Path(token_file).read_text(encoding="utf-8").strip()
        limits = ["--max-examples", options.max_examples, "--seed", options.seed]
        headers: list[str] = []
        failures = 0
        for _ in range(2):
            failures += run(f"{address}/openapi.json", folder, *limits, *headers)
            headers = ["--header", f"Authorization: Bearer {token}"]
        program.stdin.close()
        failures += program.wait()
    return min(failures, 1)


def run(document: str, folder: Path, *options: str) -> int:
    """Run schemathesis over all routes of a document, and print its summary."""
    # Each report starts a process, so a response may take long on a busy machine.
    fixed = ["--phases", "coverage,fuzzing", "--workers", "2", "--request-timeout", "600", "--no-color"]
    command = [sys.executable, "-m", "schemathesis.cli", "run", document, *fixed, "--checks", CHECKS]
    command += ["--suppress-health-check", "all", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    shown = done.stdout if done.returncode else done.stdout[done.stdout.rfind(" SUMMARY ") :]
    print(shown, done.stderr, flush=True)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
