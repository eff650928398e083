"""Writes the inputs of a task and runs flytekit's container entry point for it, as a Flyte cluster does."""

import subprocess
import sys

from flytekit.core.context_manager import FlyteContextManager
from flytekit.core.type_engine import TypeEngine
from flytekit.core.utils import write_proto_to_file

name, folder = sys.argv[1:]
literals = TypeEngine.dict_to_literal_map(FlyteContextManager.current_context(), {"n": 1_000_000}, {"n": int})
write_proto_to_file(literals.to_flyte_idl(), f"{folder}/inputs.pb")
command = ["pyflyte-execute", "--inputs", f"{folder}/inputs.pb", "--output-prefix", f"{folder}/outputs"]
command += ["--raw-output-data-prefix", f"{folder}/raw", "--resolver"]
command += ["flytekit.core.python_auto_container.default_task_resolver", "--"]
sys.exit(subprocess.run([*command, "task-module", "tasks", "task-name", name]).returncode)
