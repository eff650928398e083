"""Formats results as Markdown: for each Python the tables of overhead and of heap queries, and each budget line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import budget
from heap import QUERIES, TOOLS, HeapCosts

if TYPE_CHECKING:
    from overhead import Result


def markdown(results: list[Result]) -> str:
    """Return the page bench/results/latest.md."""
    first = results[0]
    machine = "{cores} cores of {cpu}, Linux {kernel}, {libc}".format(**first.machine)
    page = [
        "# Overhead, measured",
        "",
        f"Created by `{first.command}` on {first.date}: {machine}. CPU time as a ratio to the bare run, best of "
        f"{first.repetitions} interleaved runs; `bare-again` shows the noise. "
        "The JSON files in this folder contain the raw figures.",
    ]
    for result in results:
        versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
        page += ["", f"## Python {result.python}", "", f"With {versions}.", "", *overhead(result)]
        if result.fixed_costs.heap:
            page += ["", *heap(result.fixed_costs.heap)]
        lines = budget.lines(result)
        if lines:
            met = sum(line.ok for line in lines)
            page += ["", f"Budget: {met} of {len(lines)} lines met.", "", *budget_table(lines)]
        page += [f"- not measured: {reason}" for reason in result.fixed_costs.failed]
    return "\n".join(page) + "\n"


def overhead(result: Result) -> list[str]:
    """Return CPU ratio and capture size of each tool on each workload."""
    tools = list(dict.fromkeys(tool for costs in result.overhead.values() for tool in costs if tool != "bare"))
    rows = [["workload", "bare", *tools]]
    for workload, costs in result.overhead.items():
        row = [workload, f"{costs['bare'].cpu:.2f} s"]
        for tool in tools:
            ratio = result.ratio(workload, tool)
            if ratio is None:
                row.append("failed")
            else:
                size = costs[tool].capture_size
                row.append(f"{ratio:.3f}" + (f" · {size / 1e6:.2f} MB" if size else ""))
        rows.append(row)
    return table(rows)


def heap(measured: HeapCosts) -> list[str]:
    """Return each tool's time per million objects, for every query."""
    rows = [["CPU time for a million objects", *TOOLS, "guppy3 takes"]]
    for query in QUERIES:
        costs = measured.costs.get(query.name, {})
        ratio = measured.times_faster(query.name)
        cells = [costs[tool].cell() if tool in costs else "" for tool in TOOLS]
        rows.append([query.title, *cells, f"{ratio:.1f} times as long" if ratio else ""])
    return table(rows)


def budget_table(lines: list[budget.Line]) -> list[str]:
    """Return the budget as a table: line, budget, measured, verdict."""
    rows = [["line", "budget", "measured", "verdict"]]
    rows += [[line.name, line.budget, line.measured, line.verdict] for line in lines]
    return table(rows)


def table(rows: list[list[str]]) -> list[str]:
    """Return Markdown rows, padded so that the source is readable as a table."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return [padded[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *padded[1:]]
