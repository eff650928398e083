"""Tests that PySpark's memory profiler for user-defined functions runs on Heaptide, without memory_profiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.line_tables import tables
from support.pyspark_folder import ensure_java, folder

pytestmark = pytest.mark.once

# PySpark has two ways to enable the profiler. The first, for old programs, must be set before the context starts.
PROGRAM = """
import memory_profiler
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

def grow(value):
    rows = [value] * 2_000_000
    total = len(rows)
    return total

for by_context in ("true", "false"):
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.python.profile.memory", by_context)
        .getOrCreate()
    )
    if by_context == "false":
        session.conf.set("spark.sql.pyspark.udf.profiler", "memory")
    print([row[0] for row in session.range(3).select(udf(grow, "long")("id")).collect()])
    if by_context == "false":
        session.profile.show(type="memory")
    else:
        session.sparkContext.show_profiles()
    session.stop()
print("heaptide" in memory_profiler.__file__)
"""


def test_memory_of_user_defined_functions_is_reported_line_by_line(tmp_path: Path) -> None:
    ensure_java()
    (tmp_path / "job.py").write_text(PROGRAM)
    environment = {
        **os.environ,
        "HEAPTIDE_COMPAT": "memory_profiler",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(folder()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        # A short program gains nothing from the optimising compiler.
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_LOCAL_DIRS": str(tmp_path),
    }
    done = subprocess.run([sys.executable, "job.py"], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("[2000000, 2000000, 2000000]") == 2
    assert done.stdout.rstrip().endswith("True")
    assert done.stdout.count("Profile of UDF<id=") == 2
    by_context, by_session = tables(done.stdout)
    for table in (by_context, by_session):
        assert table.row("rows = [value] * 2_000_000").visits >= 3
        assert table.row("rows = [value] * 2_000_000").increment > 10
        assert table.row("return total").visits >= 3
