"""Checks the messages of the heaptide command."""

from __future__ import annotations

USAGE_HINT = "\n\nFor more information, try '--help'."


def one_sentence(stderr: str) -> str:
    """Check that a command printed one sentence and nothing else to standard error, and return the sentence.

    The sentence follows `heaptide: `. For a wrong option it follows `error: `, and a hint at `--help` comes after it.
    """
    assert stderr.endswith("\n"), stderr
    prefix, _, sentence = stderr.removesuffix("\n").partition(": ")
    if prefix == "error":
        assert sentence.endswith(USAGE_HINT), stderr
        sentence = sentence.removesuffix(USAGE_HINT)
    else:
        assert prefix == "heaptide", stderr
    assert sentence and "\n" not in sentence and not sentence.endswith("."), stderr
    return sentence
