"""Loads the program of ``heaptide serve`` from a Python file: a class with a ``perform`` method, or a function."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from heaptide.platforms import racetrack


class NoJob(Exception):
    """The file contains nothing to call; the message describes what it should contain."""


class ServedProgram:
    """A callable with its signature and its documentation."""

    def __init__(self, function: Callable[..., Any], source: object) -> None:
        self.function = function
        self.signature = inspect.signature(function)
        self.is_async = inspect.iscoroutinefunction(function)
        self.about = inspect.getdoc(function) or ""
        self._source = source

    def example(self) -> dict[str, Any]:
        """Return example arguments: those of `docs_input_example`, or the defaults."""
        method = getattr(self._source, racetrack.EXAMPLE_METHOD, None)
        if callable(method):
            example = method()
            if isinstance(example, dict):
                return example
        parameters = self.signature.parameters.values()
        return {one.name: one.default for one in parameters if one.default is not one.empty and _is_plain(one.default)}

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of the arguments."""
        named = [
            one for one in self.signature.parameters.values() if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        ]
        takes_any = any(one.kind is one.VAR_KEYWORD for one in self.signature.parameters.values())
        return {
            "type": "object",
            "properties": {one.name: _schema_of(one.annotation) for one in named},
            "required": [one.name for one in named if one.default is one.empty],
            "additionalProperties": takes_any,
        }


def load(path: str, entrypoint: str | None) -> ServedProgram:
    """Import the file and return its program. Exceptions that the file raises are not caught."""
    module = _import(path)
    if entrypoint is not None:
        if not hasattr(module, entrypoint):
            raise NoJob(f"{path} has no {entrypoint}: name a class with a perform method, or a function")
        return _served(getattr(module, entrypoint), path)
    own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
    classes = [value for value in own if inspect.isclass(value) and callable(getattr(value, "perform", None))]
    if len(classes) > 1:
        names = ", ".join(value.__name__ for value in classes)
        raise NoJob(f"{path} has several jobs ({names}): choose one with --entrypoint")
    if classes:
        return _served(classes[0], path)
    if callable(getattr(module, "perform", None)):
        return _served(module.perform, path)
    functions = [value for value in own if inspect.isfunction(value) and not value.__name__.startswith("_")]
    if len(functions) == 1:
        return _served(functions[0], path)
    raise NoJob(f"{path} has no job: write a class with a perform method or a function, or name one with --entrypoint")


def _import(path: str) -> ModuleType:
    path = os.path.abspath(path)
    name = os.path.splitext(os.path.basename(path))[0]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not os.path.isfile(path):
        raise NoJob(f"{path} is not a Python file: name the file that holds the job")
    # Modules in the same folder can be imported, as if the file were run as a script.
    sys.path.insert(0, os.path.dirname(path))
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _served(value: Any, path: str) -> ServedProgram:
    if inspect.isclass(value):
        made = value()
        perform = getattr(made, "perform", None)
        if not callable(perform):
            raise NoJob(f"{value.__name__} in {path} has no method perform")
        return ServedProgram(perform, made)
    if not callable(value):
        raise NoJob(f"{value!r} in {path} cannot be called: name a class with a perform method, or a function")
    return ServedProgram(value, value)


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, str, list, dict))


def _schema_of(annotation: Any) -> dict[str, Any]:
    types = {"int": "integer", "float": "number", "str": "string", "bool": "boolean", "list": "array", "dict": "object"}
    name = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    json_type = types.get(name.partition("[")[0])
    return {"type": json_type} if json_type else {}
