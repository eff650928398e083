"""Checks the messages of the heaptide command."""

from __future__ import annotations


def one_sentence(stderr: str) -> str:
    """Check that a failed command printed one line, `heaptide: ` and a sentence, and return the sentence."""
    assert stderr.startswith("heaptide: ") and stderr.count("\n") == 1 and stderr.endswith("\n"), stderr
    sentence = stderr.removeprefix("heaptide: ").rstrip("\n")
    assert sentence and not sentence.endswith("."), stderr
    return sentence
