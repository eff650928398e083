"""Reads the part of TOML that Heaptide's settings need. Only for Python 3.10, which has no `tomllib`.

It reads tables, strings on one line, integers, booleans, and lists of these over one or more lines. Multi-line strings
and all other values become None, because the file may contain tables of other tools.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", '"': '"', "\\": "\\"}


def loads(text: str) -> dict[str, Any]:
    """Return the tables of a document. Raises ValueError if its syntax is invalid."""
    root: dict[str, Any] = {}
    table: dict[str, Any] = root
    at = 0
    while (at := _skip_blanks_and_comments(text, at)) < len(text):
        if text[at] == "[":
            is_list = text.startswith("[[", at)
            names, _ = _key(text, at + (2 if is_list else 1), "]")
            # No setting is a list of tables, so the keys that follow go into a table that nothing reads.
            table = {} if is_list else _nested_table(root, names)
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        else:
            names, at = _key(text, at, "=")
            value, at = _value(text, _skip_blanks(text, at))
            _nested_table(table, names[:-1])[names[-1]] = value
            at = _end_of_line(text, at)
    return root


def _nested_table(table: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the nested table under these names, and create missing ones."""
    for name in names:
        child = table.setdefault(name, {})
        table = child if isinstance(child, dict) else {}
    return table


def _skip_blanks(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t":
        at += 1
    return at


def _skip_blanks_and_comments(text: str, at: int) -> int:
    """Return the position after blanks, empty lines and comments."""
    while at < len(text):
        if text[at] == "#":
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text[at] in " \t\r\n":
            at += 1
        else:
            break
    return at


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    rest = text[at : len(text) if end < 0 else end].strip()
    if rest and not rest.startswith("#"):
        raise ValueError(f"unexpected {rest!r} after a value in line {text.count(chr(10), 0, at) + 1}")
    return len(text) if end < 0 else end + 1


def _key(text: str, at: int, until: str) -> tuple[list[str], int]:
    """Return the parts of a dotted key, and the position after it."""
    names: list[str] = []
    while True:
        at = _skip_blanks(text, at)
        begin = at
        if text[at : at + 1] in ('"', "'"):
            name, at = _value(text, at)
        else:
            while at < len(text) and (text[at].isalnum() or text[at] in "_-"):
                at += 1
            name = text[begin:at]
        at = _skip_blanks(text, at)
        if not name or text[at : at + 1] not in (".", until):
            raise ValueError(f"invalid key in line {text.count(chr(10), 0, begin) + 1}")
        names.append(str(name))
        at += 1
        if text[at - 1] == until:
            return names, at


def _value(text: str, at: int) -> tuple[Any, int]:
    first = text[at : at + 1]
    if first in ('"', "'"):
        return _multi_line_string(text, at) if text.startswith(first * 3, at) else _single_line_string(text, at)
    if first == "[":
        return _list(text, at)
    if first == "{":
        return _inline_table(text, at)
    end = at
    while end < len(text) and text[end] not in ",]}#\r\n":
        end += 1
    word = text[at:end].strip()
    if not word:
        raise ValueError(f"missing value in line {text.count(chr(10), 0, at) + 1}")
    if word in ("true", "false"):
        return word == "true", end
    digits = word.replace("_", "").lstrip("+-")
    return (int(word.replace("_", "")) if digits.isdecimal() else None), end


def _single_line_string(text: str, at: int) -> tuple[str, int]:
    quote = text[at]
    letters: list[str] = []
    at += 1
    while at < len(text) and text[at] != "\n":
        if text[at] == quote:
            return "".join(letters), at + 1
        if text[at] == "\\" and quote == '"':
            letter = text[at + 1 : at + 2]
            if letter in ("u", "U"):
                width = 4 if letter == "u" else 8
                letters.append(chr(int(text[at + 2 : at + 2 + width], 16)))
                at += 2 + width
                continue
            if letter not in ESCAPES:
                raise ValueError(f"unknown escape \\{letter} in line {text.count(chr(10), 0, at) + 1}")
            letters.append(ESCAPES[letter])
            at += 2
            continue
        letters.append(text[at])
        at += 1
    raise ValueError(f"unterminated string in line {text.count(chr(10), 0, at) + 1}")


def _multi_line_string(text: str, at: int) -> tuple[None, int]:
    quotes = text[at : at + 3]
    end = at + 3
    while not text.startswith(quotes, end):
        if end >= len(text):
            raise ValueError(f"unterminated string in line {text.count(chr(10), 0, at) + 1}")
        end += 2 if text[end] == "\\" and quotes == '"""' else 1
    end += 3
    while text.startswith(quotes[0], end):  # up to two quotes may belong to the text
        end += 1
    return None, end


def _list(text: str, at: int) -> tuple[list[Any], int]:
    values: list[Any] = []
    begin, at = at, _skip_blanks_and_comments(text, at + 1)
    while at < len(text):
        if text[at] == "]":
            return values, at + 1
        value, at = _value(text, at)
        values.append(value)
        at = _skip_blanks_and_comments(text, at)
        if text[at : at + 1] == ",":
            at = _skip_blanks_and_comments(text, at + 1)
        elif text[at : at + 1] != "]":
            break
    raise ValueError(f"unterminated list in line {text.count(chr(10), 0, begin) + 1}")


def _inline_table(text: str, at: int) -> tuple[dict[str, Any], int]:
    values: dict[str, Any] = {}
    begin, at = at, _skip_blanks_and_comments(text, at + 1)
    while at < len(text):
        if text[at] == "}":
            return values, at + 1
        names, at = _key(text, at, "=")
        value, at = _value(text, _skip_blanks(text, at))
        _nested_table(values, names[:-1])[names[-1]] = value
        at = _skip_blanks_and_comments(text, at)
        if text[at : at + 1] == ",":
            at = _skip_blanks_and_comments(text, at + 1)
    raise ValueError(f"unterminated table in line {text.count(chr(10), 0, begin) + 1}")
