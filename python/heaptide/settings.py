"""Declares every setting of Heaptide: its names, its values, its default and its meaning.

The value of a setting such as `keep` comes from the first of these that has one:

1. the environment, as ``HEAPTIDE__PROFILING__KEEP``, then as ``HEAPTIDE_KEEP``, then under a platform's own name,
2. the configuration file: ``keep`` in its section ``[profiling]``,
3. a platform's own configuration file, under the platform's own name,
4. its default.

An invalid value is reported in one line and ignored: a setting never stops a program. The page
docs/reference/settings.md is generated from this list. Programs that are not recorded also import this module, so it
imports almost nothing.
"""

from __future__ import annotations

import os
import sys

from heaptide import platforms
from heaptide.messages import print_message_once
from heaptide.setting_values import (
    boolean,
    count,
    duration,
    labels,
    milliseconds,
    plain,
    positive,
    room,
    run,
    sample,
    size,
    threshold,
    when_full,
    words,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from heaptide.activation.config_files import Configuration
    from heaptide.platforms import Platform


class Setting:
    """The declaration of one setting."""

    __slots__ = ("default", "help", "name", "parse", "short", "shown_default", "values")

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        default: Any,
        help: str,
        *,
        values: str,
        short: str = "",
        shown_default: str = "",
    ) -> None:
        self.name = name
        self.parse = parse
        self.default = default
        self.help = help
        self.values = values
        # The short name in the environment, if it has one.
        self.short = short
        self.shown_default = shown_default

    @property
    def long(self) -> str:
        """The name in the environment that every setting has."""
        return f"HEAPTIDE__PROFILING__{self.name.upper()}"

    def environment_names(self, platforms: list[Platform]) -> list[str]:
        """Return all names in the environment, in order of precedence."""
        others = [platform.variables.get(self.name, "") for platform in platforms]
        return [name for name in (self.long, self.short, *others) if name]


ALL = (
    Setting(
        "run", run, False, "record this process and the interpreters it starts, from their first line to their last",
        values="`run`, yes or no", short="HEAPTIDE", shown_default="no",
    ),
    Setting(
        "control", plain, "", "serve the control API on this address; without a host, only on this machine. With "
        "`{pid}` each process has its own address; otherwise the first process answers for all workers of the program",
        values="`[host:]port` or `unix:path`", short="HEAPTIDE_CONTROL",
    ),
    Setting(
        "token", plain, "", "token that requests must send; required for an address that other machines can reach",
        values="text", short="HEAPTIDE_TOKEN",
    ),
    Setting(
        "token_file", plain, "", "file that contains the token, to keep it out of the environment",
        values="path", short="HEAPTIDE_TOKEN_FILE",
    ),
    Setting(
        "prefix", plain, "", "path before the routes, such as `/pub/job/NAME/VERSION`",
        values="path", short="HEAPTIDE_PREFIX",
    ),
    Setting(
        "token_header", plain, "", "header that may carry the token instead of `Authorization: Bearer`",
        values="name", short="HEAPTIDE_TOKEN_HEADER",
    ),
    Setting(
        "cors_origin", plain, "", "one other origin whose pages may send requests",
        values="`https://host`", short="HEAPTIDE_CORS_ORIGIN", shown_default="none",
    ),
    Setting(
        "profiler", boolean, False, "`heaptide serve` and jobs of Racetrack record from before the import of the job, "
        "and serve the control API",
        values="yes or no", short="HEAPTIDE_PROFILER",
    ),
    Setting(
        "leaks", boolean, False, "flame graphs of the control API initially show memory that is still allocated",
        values="yes or no", short="HEAPTIDE_LEAKS",
    ),
    Setting(
        "sessions", plain, "", "folder for sessions of the control API",
        values="path", short="HEAPTIDE_SESSIONS", shown_default="a folder of the user in the temporary folder",
    ),
    Setting(
        "keep_sessions", count, 10, "number of sessions to keep; a new one deletes the oldest",
        values="number or `all`", short="HEAPTIDE_KEEP_SESSIONS",
    ),
    Setting(
        "keep_bytes", room, 4 << 30, "bytes that all sessions may take; a new one deletes the oldest; 0 keeps one",
        values="size, such as `1G`, or `all`", short="HEAPTIDE_KEEP_BYTES", shown_default="4G",
    ),
    Setting(
        "out", plain, "", "name of the capture; `{component}` `{pid}` `{host}` `{time}` are replaced, folders created",
        values="pattern", short="HEAPTIDE_OUT",
        shown_default="`{component}_memory.bin` in the home for a component, else `heaptide-{component}.{pid}.tide`",
    ),
    Setting(
        "home", plain, "", "folder from which relative names of captures start",
        values="path", short="HEAPTIDE_HOME",
        shown_default="the current folder",
    ),
    Setting(
        "keep", count, 5, "number of earlier captures of the same name to keep; their names contain the time of their "
        "last write; 0 overwrites",
        values="number or `all`", short="HEAPTIDE_KEEP",
    ),
    Setting(
        "keep_children", count, 500, "number of captures of forked and spawned children to keep for each capture name; "
        "the oldest are deleted while the parent is recorded",
        values="number or `all`", short="HEAPTIDE_KEEP_CHILDREN",
    ),
    Setting(
        "keep_age", duration, 0.0, "age at which earlier captures and captures of children are deleted",
        values="duration, such as `12h` or `7d`", short="HEAPTIDE_KEEP_AGE", shown_default="no limit",
    ),
    Setting(
        "keep_total", room, 4 << 30, "bytes that all captures of one name may take, children and earlier ones included",
        values="size, such as `1G`, or `all`", short="HEAPTIDE_KEEP_TOTAL", shown_default="4G",
    ),
    Setting(
        "act_at", threshold, "", "memory use at which Heaptide reports live memory, before the process is killed: a "
        "percentage of the control group's limit (`90%`), a resident size (`400MB`), or a percentage of a size",
        values="percentage or size", short="HEAPTIDE_ACT_AT", shown_default="no report",
    ),
    Setting(
        "act_command", plain, "", "shell command to run after the report of `act_at`; `HEAPTIDE_REPORT` is its path",
        values="command", short="HEAPTIDE_ACT_COMMAND", shown_default="none",
    ),
    Setting(
        "max_size", size, 0, "maximum size of a capture; checked twice a second",
        values="size, such as `1G`", short="HEAPTIDE_MAX_SIZE", shown_default="no limit",
    ),
    Setting(
        "when_full", when_full, "rotate", "at the maximum size, `rotate` starts a new capture and keeps this one as "
        "an earlier one; `stop` stops the recording",
        values="`rotate` or `stop`", short="HEAPTIDE_WHEN_FULL",
    ),
    Setting(
        "objects", boolean, False, "also record Python's own allocators: every object",
        values="yes or no", short="HEAPTIDE_OBJECTS",
    ),
    Setting(
        "native", boolean, False, "also record the C, C++ and Rust functions between the Python functions",
        values="yes or no", short="HEAPTIDE_NATIVE",
    ),
    Setting(
        "sample", sample, 0, "record about one allocation per this number of bytes; `yes` is 512k",
        values="size, yes or no", short="HEAPTIDE_SAMPLE", shown_default="no",
    ),
    Setting(
        "aggregate", boolean, False, "keep sums instead of every event, so that the file stays small",
        values="yes or no", short="HEAPTIDE_AGGREGATE",
    ),
    Setting(
        "follow_fork", boolean, False, "also record forked children, each in its own file",
        values="yes or no", short="HEAPTIDE_FOLLOW_FORK",
    ),
    Setting(
        "children", boolean, True, "interpreters that a recorded process starts join its session, each with its own "
        "file: the capture's name followed by the child's process ID",
        values="yes or no", short="HEAPTIDE_CHILDREN",
    ),
    Setting(
        "interval", milliseconds, 10, "milliseconds between two samples of the resident size",
        values="number", short="HEAPTIDE_INTERVAL",
    ),
    Setting(
        "signal", plain, "", "signal that starts a recording, and stops it the next time",
        values="name, such as `USR2`", short="HEAPTIDE_SIGNAL",
    ),
    Setting(
        "control_file", plain, "", "file that starts a recording when touched, and stops it the next time; `on` or "
        "`off` in it chooses one of the two",
        values="path", short="HEAPTIDE_CONTROL_FILE",
    ),
    Setting(
        "labels", labels, {}, "labels of this process, by which reports filter; stored in captures, timelines and heap "
        "snapshots, and shown by the control API",
        values="`key=value`, separated by commas", short="HEAPTIDE_LABELS", shown_default="none",
    ),
    Setting(
        "redact", words, (), "patterns such as `*password*`: captures, timelines and heap snapshots hide matching "
        "words of the command line; snapshots also hide matching values and keys, and values under matching names; "
        "job records hide matching keys and labels",
        values="patterns, separated by commas", short="HEAPTIDE_REDACT", shown_default="none",
    ),
    Setting(
        "quiet", boolean, False, "print nothing when a recording starts or stops; failures are still reported",
        values="yes or no", short="HEAPTIDE_QUIET",
    ),
    Setting(
        "compat", words, (), "profilers to replace with Heaptide's front ends, such as `memray`: imports and "
        "`python -m memray` then use Heaptide, and a failure of Heaptide never raises an exception in the program",
        values="names, separated by commas", short="HEAPTIDE_COMPAT", shown_default="none",
    ),
    Setting(
        "jobs", plain, "", "folder for [job records](job-records.md): one line when a job begins and one when it ends, "
        "also without a recording",
        values="path", short="HEAPTIDE_JOBS", shown_default="no records",
    ),
    Setting(
        "jobs_keep", positive, 100_000, "number of files of job records to keep; the oldest are removed",
        values="number", short="HEAPTIDE_JOBS_KEEP",
    ),
    Setting(
        "jobs_keep_days", count, 30, "age in days at which files of job records are removed; 0 is never",
        values="number", short="HEAPTIDE_JOBS_KEEP_DAYS",
    ),
    Setting(
        "jobs_keep_bytes", room, 1 << 30, "bytes that all files of job records may take; the oldest are removed",
        values="size, such as `1G`, or `all`", short="HEAPTIDE_JOBS_KEEP_BYTES", shown_default="1G",
    ),
    Setting(
        "jobs_names", positive, 1000, "number of distinct job names that a process records; further ones become "
        "`(other jobs)`",
        values="number", short="HEAPTIDE_JOBS_NAMES",
    ),
    Setting(
        "trace_components", words, (), "components to record when they run",
        values="names, separated by commas", shown_default="none",
    ),
    Setting(
        "detailed_tracing", boolean, False, "turn on `objects` and `native` for components",
        values="yes or no",
    ),
    Setting(
        "trace_memory", boolean, False, "`heaptide worker` reports what each job leaks",
        values="yes or no", short="HEAPTIDE_TRACE_MEMORY",
    ),
    Setting(
        "trace_memory_type", plain, "", "`heaptide worker` draws what keeps leaked objects of this type alive",
        values="name", short="HEAPTIDE_TRACE_MEMORY_TYPE",
    ),
    Setting(
        "trace_memory_output_dir", plain, "memory_traces", "folder for graphs of leaked objects",
        values="path", short="HEAPTIDE_TRACE_MEMORY_OUTPUT_DIR",
    ),
    Setting(
        "greenlets", positive, 1, "number of jobs that `heaptide worker` runs concurrently",
        values="number", short="HEAPTIDE_GREENLETS", shown_default="1",
    ),
    Setting(
        "max_jobs", count, 0, "number of jobs after which `heaptide worker` exits",
        values="number", short="HEAPTIDE_MAX_JOBS", shown_default="10, or each job of a file once",
    ),
    Setting(
        "max_memory", count, 0, "resident size above which `heaptide worker` exits, in MiB",
        values="number; 0 is no limit", short="HEAPTIDE_MAX_MEMORY",
        shown_default="no limit",
    ),
)  # fmt: skip

# Variables that are not settings, and their meaning.
ENVIRONMENT_ONLY = {
    "HEAPTIDE_CONFIG": "path of the configuration file; `off` reads none",
    "HEAPTIDE_RUN": "name of the run: reports show its processes, also on other hosts, as one program; a control "
    "request to one process applies to all on its host; by default the first process names the run",
    "HEAPTIDE_GROUP": "older name of `HEAPTIDE_RUN`",
    "HEAPTIDE_RUN_FOLDER": "set by Heaptide: folder of the run, in which the wanted recording is stored",
    "HEAPTIDE_MY_CODE": "packages and folders of your own code, separated by commas, in addition to the main script's "
    "folder, the main module's package and editable installs; findings name the nearest line of your own code",
    "HEAPTIDE_RUNTIME_DIR": "folder for the sockets of the control API, where `heaptide ctl` finds them",
    "HEAPTIDE_PROFILING_FILE": "file to which `heaptide.profile` appends its line-by-line reports",
    "NO_COLOR": "if set, commands print no colours",
    "HEAPTIDE_RANK": "rank of this process, if the launcher does not set one",
    "HEAPTIDE_SIZE": "total number of ranks; set by `heaptide launch`",
    "HEAPTIDE_LOCAL_SIZE": "number of ranks on this host, if the launcher does not set one",
    "HEAPTIDE_SESSION": "set by Heaptide for processes that a recorded one starts; `off` excludes a process",
    "HEAPTIDE_CONTROL_HOLDER": "set by Heaptide: ID of the process that answers on `HEAPTIDE_CONTROL`",
    "HEAPTIDE_REPORT": "set by Heaptide for `HEAPTIDE_ACT_COMMAND`: path of the report",
    "HEAPTIDE_PID": "set by Heaptide for `HEAPTIDE_ACT_COMMAND`: ID of the process under memory pressure",
    "HEAPTIDE_USED_BYTES": "set by Heaptide for `HEAPTIDE_ACT_COMMAND`: bytes in use",
    "HEAPTIDE_LIMIT_BYTES": "set by Heaptide for `HEAPTIDE_ACT_COMMAND`: the limit",
    "HEAPTIDE_TIMELINE_FUNCTIONS": "set by Heaptide: file in which functions mark their start and end for a timeline",
    "HEAPTIDE_TIMELINE_PROFILE": "set by `mprof run` on Heaptide: makes `profile` a builtin of the program",
}

SESSION = "HEAPTIDE_SESSION"
RUN_FOLDER = "HEAPTIDE_RUN_FOLDER"
CONTROL_HOLDER = "HEAPTIDE_CONTROL_HOLDER"


class Settings:
    """The values of all settings for this process, as attributes."""

    def __init__(
        self, values: Mapping[str, Any], patterns: Mapping[str, str], platforms: Mapping[str, Platform]
    ) -> None:
        self._values = values
        # Component → pattern of its command lines.
        self.patterns = patterns
        # Setting → the platform whose variable or configuration file chose its value.
        self.platforms = platforms

    def __getattr__(self, name: str) -> Any:
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(name) from None

    def with_values(self, values: Mapping[str, Any]) -> Settings:
        """Return a copy in which a platform has replaced some values."""
        return Settings({**self._values, **values}, self.patterns, self.platforms)


def load() -> Settings:
    """Read the environment and the configuration files. Never raises."""
    from heaptide.activation.config_files import find

    environment: Mapping[str, str] = {} if sys.flags.ignore_environment else os.environ
    for name, meant in misspelt_variables(environment):
        print_message_once(f"{name} is not a setting of Heaptide; did you mean {meant}?")
    return resolve(environment, find(environment))


def misspelt_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the variables that resemble one of Heaptide, each with the name that was probably meant."""
    names = {*ENVIRONMENT_ONLY}
    for setting in ALL:
        names |= {setting.long, setting.short}
    unknown = [name for name in environment if name.startswith("HEAPTIDE") and name not in names]
    if not unknown:
        return []
    from heaptide.misspelt import misspelt

    return misspelt(unknown, names)


def resolve(environment: Mapping[str, str], configuration: Configuration) -> Settings:
    """Return the values of all settings."""
    in_use = platforms.in_use(environment)
    values: dict[str, Any] = {}
    chosen_by: dict[str, Platform] = {}
    for setting in ALL:
        values[setting.name] = setting.default
        for name, text, platform in _values_set(setting, environment, configuration, in_use):
            try:
                values[setting.name] = setting.parse(text)
            except ValueError as error:
                print_message_once(f"{name} is {text!r}, which is invalid ({error}); it is ignored")
                continue
            if platform is not None:
                chosen_by[setting.name] = platform
            break
    for section, name in configuration.unknown({setting.name for setting in ALL}):
        print_message_once(f"{configuration.path}: [{section}] has no setting {name}; see docs/reference/settings.md")
    patterns = {name: pattern for platform in in_use for name, pattern in platform.components.items() if pattern}
    return Settings(values, {**patterns, **configuration.components}, chosen_by)


def _values_set(
    setting: Setting, environment: Mapping[str, str], configuration: Configuration, in_use: list[Platform]
) -> Iterator[tuple[str, str, Platform | None]]:
    """Yield the name, text and platform of each value that was set, in order of precedence."""
    for name in (setting.long, setting.short):
        if name in environment:
            yield name, environment[name], None
    for platform in in_use:
        name = platform.variables.get(setting.name, "")
        if name in environment:
            yield name, environment[name], platform
    if setting.name in configuration.profiling:
        yield f"{configuration.path}: {setting.name}", configuration.profiling[setting.name], None
    for platform, path, values in configuration.platforms:
        name = platform.config_names.get(setting.name, "")
        if name in values:
            yield f"{path}: {name}", values[name], platform
