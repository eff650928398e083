"""Every setting of Heaptide, declared once: its names, what it may be, its default, what it does.

A setting called `keep` is read, first found first taken, from

1. the environment, as ``HEAPTIDE__PROFILING__KEEP``, then as ``HEAPTIDE_KEEP``, then under a platform's own name,
2. the configuration file: ``keep`` in its section ``[profiling]``,
3. a platform's own configuration file, under the platform's own name,
4. its default.

A value that is not understood is told in one line and left out of account: nothing here stops a program. The page
docs/reference/settings.md is written from this list. Imported by programs that are not recorded, so it imports next
to nothing.
"""

from __future__ import annotations

import os
import sys

from heaptide import platforms
from heaptide.messages import say_once

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from heaptide.activation.config_files import Configuration
    from heaptide.platforms import Platform

YES = ("1", "t", "true", "y", "yes", "on")
NO = ("0", "f", "false", "n", "no", "off", "")
KEEP_ALL = sys.maxsize


def boolean(text: str) -> bool:
    """As people write it, in any case."""
    word = text.strip().lower()
    if word not in YES + NO:
        raise ValueError("it is neither yes nor no")
    return word in YES


def run(text: str) -> bool:
    """`run`, or any yes or no."""
    return text.strip().lower() == "run" or boolean(text)


def size(text: str) -> int:
    """A number of bytes; k, M and G, with or without iB, are powers of 1024, kB, MB and GB of 1000. 0 is off."""
    word = text.strip()
    digits = word.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    unit = word[len(digits) :].lower()
    factors = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
    for power, letter in enumerate("kmg", 1):
        factors.update(dict.fromkeys((letter, letter + "i", letter + "ib"), 1024**power))
    try:
        n_bytes = round(float(digits) * factors[unit])
    except (KeyError, ValueError, OverflowError):
        raise ValueError("a size is a number with k, M or G behind it, such as 512k or 1MiB") from None
    if not 0 <= n_bytes <= 1 << 50:
        raise ValueError("a size is from 0 to a pebibyte")
    return n_bytes


def room(text: str) -> int:
    """A size, or `all`."""
    return KEEP_ALL if text.strip().lower() == "all" else size(text)


def whole(text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError("it is not a whole number") from None


def sample(text: str) -> int | bool:
    """A size, or yes for the default size (`True`: only the native module knows it), or no."""
    word = text.strip().lower()
    if word in YES and word != "1":
        return True
    return 0 if word in NO else size(text)


def milliseconds(text: str) -> int:
    """A whole number of milliseconds."""
    number = whole(text)
    if not 1 <= number <= 86_400_000:
        raise ValueError("it is not from 1 to 86400000")
    return number


def count(text: str) -> int:
    """How many, or `all`."""
    if text.strip().lower() == "all":
        return KEEP_ALL
    number = whole(text)
    if number < 0:
        raise ValueError("it is less than 0")
    return number


def positive(text: str) -> int:
    """A whole number from 1 on."""
    number = whole(text)
    if number < 1:
        raise ValueError("it is less than 1")
    return number


def when_full(text: str) -> str:
    """`rotate` or `stop`."""
    word = text.strip().lower()
    if word not in ("rotate", "stop"):
        raise ValueError("it is neither rotate nor stop")
    return word


def words(text: str) -> list[str]:
    """Divided by commas, blanks taken off. Nothing at all is no word; nothing between two commas is an empty one."""
    return [word.strip() for word in text.split(",")] if text.strip() else []


def plain(text: str) -> str:
    """The text as it is, without blanks around it."""
    return text.strip()


class Setting:
    """One line of the list."""

    __slots__ = ("default", "help", "kind", "name", "parse", "short", "shown_default")

    def __init__(
        self,
        name: str,
        parse: Callable[[str], Any],
        default: Any,
        help: str,
        *,
        kind: str,
        short: str = "",
        shown_default: str = "",
    ) -> None:
        self.name = name
        self.parse = parse
        self.default = default
        self.help = help
        self.kind = kind
        # The short name in the environment, if it has one.
        self.short = short
        self.shown_default = shown_default

    @property
    def long(self) -> str:
        """The name in the environment that every setting has."""
        return f"HEAPTIDE__PROFILING__{self.name.upper()}"

    def environment_names(self, platforms: list[Platform]) -> list[str]:
        """All names in the environment, the first found wins."""
        others = [platform.variables.get(self.name, "") for platform in platforms]
        return [name for name in (self.long, self.short, *others) if name]


ALL = (
    Setting(
        "run", run, False, "record this process and the interpreters it starts, from their first line to their last",
        kind="`run`, yes or no", short="HEAPTIDE", shown_default="no",
    ),
    Setting(
        "control", plain, "", "answer HTTP requests that start, stop and look at recordings, on this address; without "
        "a host it is this machine alone. `{pid}` gives each process its own; else the first one has it, and workers "
        "of the same job are reached through it",
        kind="`[host:]port` or `unix:path`", short="HEAPTIDE_CONTROL",
    ),
    Setting(
        "token", plain, "", "what requests must show; needed for any address that other machines can reach",
        kind="text", short="HEAPTIDE_TOKEN",
    ),
    Setting(
        "token_file", plain, "", "a file with the token, so that it stands in no environment",
        kind="path", short="HEAPTIDE_TOKEN_FILE",
    ),
    Setting(
        "prefix", plain, "", "a path in front of the routes, such as `/pub/job/NAME/VERSION`",
        kind="path", short="HEAPTIDE_PREFIX",
    ),
    Setting(
        "token_header", plain, "", "a header that may carry the token, beside `Authorization: Bearer`",
        kind="name", short="HEAPTIDE_TOKEN_HEADER",
    ),
    Setting(
        "cors_origin", plain, "", "the one other origin whose pages may call",
        kind="`https://host`", short="HEAPTIDE_CORS_ORIGIN", shown_default="none",
    ),
    Setting(
        "profiler", boolean, False, "`heaptide serve` records the job from before its import, and has the profiler's "
        "routes",
        kind="yes or no", short="HEAPTIDE_PROFILER",
    ),
    Setting(
        "leaks", boolean, False, "flame graphs made by control first show what is still alive",
        kind="yes or no", short="HEAPTIDE_LEAKS",
    ),
    Setting(
        "sessions", plain, "", "folder for the sessions that control starts",
        kind="path", short="HEAPTIDE_SESSIONS", shown_default="a folder of the user's in the temporary folder",
    ),
    Setting(
        "keep_sessions", count, 10, "how many of these sessions are kept; the oldest go when a new one begins",
        kind="number or `all`", short="HEAPTIDE_KEEP_SESSIONS",
    ),
    Setting(
        "keep_bytes", room, 4 << 30, "how much room they may take together; 0 keeps the newest alone",
        kind="size, such as `1G`, or `all`", short="HEAPTIDE_KEEP_BYTES", shown_default="4G",
    ),
    Setting(
        "out", plain, "", "name of the capture; `{component}` `{pid}` `{host}` `{time}` are filled in, folders made",
        kind="pattern", short="HEAPTIDE_OUT",
        shown_default="`{component}_memory.bin` in the home for a component, else `heaptide-{component}.{pid}.tide`",
    ),
    Setting(
        "home", plain, "", "folder in which captures lie whose name has no folder",
        kind="path", short="HEAPTIDE_HOME",
        shown_default="the current folder",
    ),
    Setting(
        "keep", count, 5, "how many earlier captures of the same name are kept, each under the time of its last write; "
        "0 overwrites",
        kind="number or `all`", short="HEAPTIDE_KEEP",
    ),
    Setting(
        "max_size", size, 0, "how large a capture may become; looked at twice a second",
        kind="size, such as `1G`", short="HEAPTIDE_MAX_SIZE", shown_default="no limit",
    ),
    Setting(
        "when_full", when_full, "rotate", "what happens then: `rotate` begins a new capture and keeps this one as an "
        "earlier one, `stop` ends the recording",
        kind="`rotate` or `stop`", short="HEAPTIDE_WHEN_FULL",
    ),
    Setting(
        "objects", boolean, False, "record Python's own allocators, too: every object",
        kind="yes or no", short="HEAPTIDE_OBJECTS",
    ),
    Setting(
        "native", boolean, False, "show the C, C++ and Rust functions between the Python functions, too",
        kind="yes or no", short="HEAPTIDE_NATIVE",
    ),
    Setting(
        "sample", sample, 0, "record one allocation about every so many bytes; `yes` is every 512k",
        kind="size, yes or no", short="HEAPTIDE_SAMPLE", shown_default="no",
    ),
    Setting(
        "aggregate", boolean, False, "keep sums instead of every event: the file stays small however long it runs",
        kind="yes or no", short="HEAPTIDE_AGGREGATE",
    ),
    Setting(
        "follow_fork", boolean, False, "record forked children, too, each in a file of its own",
        kind="yes or no", short="HEAPTIDE_FOLLOW_FORK",
    ),
    Setting(
        "children", boolean, True, "interpreters that a recorded process starts join its session, each with a file of "
        "its own: the capture's name and the child's pid; `no` leaves them out",
        kind="yes or no", short="HEAPTIDE_CHILDREN",
    ),
    Setting(
        "interval", milliseconds, 10, "milliseconds between two looks at the resident size",
        kind="number", short="HEAPTIDE_INTERVAL",
    ),
    Setting(
        "signal", plain, "", "this signal starts a recording, and stops it the next time",
        kind="name, such as `USR2`", short="HEAPTIDE_SIGNAL",
    ),
    Setting(
        "control_file", plain, "", "touching this file starts a recording, and stops it the next time; `on` or `off` "
        "in it says which",
        kind="path", short="HEAPTIDE_CONTROL_FILE",
    ),
    Setting(
        "quiet", boolean, False, "say nothing where a recording begins or ends; failures are still told",
        kind="yes or no", short="HEAPTIDE_QUIET",
    ),
    Setting(
        "compat", words, (), "profilers whose imports find our front ends of the same name, such as `memray`; also "
        "`python -m memray`",
        kind="names and commas", short="HEAPTIDE_COMPAT", shown_default="none",
    ),
    Setting(
        "trace_components", words, (), "components that are recorded when they run",
        kind="names and commas", shown_default="none",
    ),
    Setting(
        "detailed_tracing", boolean, False, "record every object of the components, and the C, C++ and Rust functions "
        "between, as `objects` and `native` do for all",
        kind="yes or no",
    ),
    Setting(
        "trace_memory", boolean, False, "`heaptide worker` tells after each job what it left behind",
        kind="yes or no", short="HEAPTIDE_TRACE_MEMORY",
    ),
    Setting(
        "trace_memory_type", plain, "", "`heaptide worker` draws what holds objects of this type that a job left",
        kind="name", short="HEAPTIDE_TRACE_MEMORY_TYPE",
    ),
    Setting(
        "trace_memory_output_dir", plain, "memory_traces", "folder for these graphs",
        kind="path", short="HEAPTIDE_TRACE_MEMORY_OUTPUT_DIR",
    ),
    Setting(
        "greenlets", positive, 1, "so many jobs of `heaptide worker` run at a time",
        kind="number", short="HEAPTIDE_GREENLETS", shown_default="1",
    ),
    Setting(
        "max_jobs", count, 0, "`heaptide worker` ends after so many jobs",
        kind="number", short="HEAPTIDE_MAX_JOBS", shown_default="10, or each job of a file once",
    ),
    Setting(
        "max_memory", count, 0, "`heaptide worker` ends when its process is larger than so many MB",
        kind="number of MB; 0 is no limit", short="HEAPTIDE_MAX_MEMORY",
        shown_default="no limit",
    ),
)  # fmt: skip

# What is in the environment alone, with what it means.
ENVIRONMENT_ONLY = {
    "HEAPTIDE_CONFIG": "the configuration file to read, instead of looking for one; `off` reads none",
    "HEAPTIDE_GROUP": "processes with the same name here are one job: what HTTP asks of one is done by all",
    "HEAPTIDE_RUNTIME_DIR": "folder of the sockets by which processes of a job, and `heaptide ctl`, find each other",
    "HEAPTIDE_PROFILING_FILE": "`heaptide.profile` appends its line-by-line reports to this file",
    "NO_COLOR": "if it is set, no command colours what it prints",
    "HEAPTIDE_RANK": "the rank of this process in a run of many, where the launcher does not say it",
    "HEAPTIDE_SIZE": "how many ranks there are in all; set by `heaptide launch`",
    "HEAPTIDE_LOCAL_SIZE": "how many ranks there are on this host, where the launcher does not say it",
    "HEAPTIDE_SESSION": "set by Heaptide itself for the processes that a recorded one starts; `off` keeps one out",
    "HEAPTIDE_CONTROL_HOLDER": "set by Heaptide itself: the pid of the process that answers on `HEAPTIDE_CONTROL`",
    "HEAPTIDE_TIMELINE_FUNCTIONS": "set by Heaptide itself: where functions note themselves for a timeline",
}

CONFIG = "HEAPTIDE_CONFIG"
SESSION = "HEAPTIDE_SESSION"
CONTROL_HOLDER = "HEAPTIDE_CONTROL_HOLDER"


class Settings:
    """What holds for this process, as attributes named like the settings."""

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


def load() -> Settings:
    """Read environment and files anew. Never raises."""
    from heaptide.activation.config_files import find

    environment: Mapping[str, str] = {} if sys.flags.ignore_environment else os.environ
    return resolve(environment, find(environment))


def resolve(environment: Mapping[str, str], configuration: Configuration) -> Settings:
    """The values of all settings, given where they stand."""
    in_use = platforms.in_use(environment)
    values: dict[str, Any] = {}
    chosen_by: dict[str, Platform] = {}
    for setting in ALL:
        values[setting.name] = setting.default
        for name, text, platform in _given(setting, environment, configuration, in_use):
            try:
                values[setting.name] = setting.parse(text)
            except ValueError as error:
                say_once(f"{name} is {text!r}, which is not understood ({error}); it is left out of account")
                continue
            if platform is not None:
                chosen_by[setting.name] = platform
            break
    for section, name in configuration.unknown({setting.name for setting in ALL}):
        say_once(f"{configuration.path}: [{section}] has no setting {name}; see docs/settings.md")
    patterns = {name: pattern for platform in in_use for name, pattern in platform.components.items() if pattern}
    return Settings(values, {**patterns, **configuration.components}, chosen_by)


def _given(
    setting: Setting, environment: Mapping[str, str], configuration: Configuration, in_use: list[Platform]
) -> Iterator[tuple[str, str, Platform | None]]:
    """Every name under which a value is given, the value, and the platform that uses the name; the first one counts."""
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
