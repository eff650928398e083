"""Runs while Airflow starts: the entry point `airflow.policy` loads this module in every process that imports Airflow.

It defines no policy. Airflow loads plugins only after scheduler and API server have tried to import memray, so Heaptide
must replace Airflow's decorator for memray here. An exception here would stop Airflow.
"""

from __future__ import annotations

from heaptide.containment import contained


@contained
def _begin() -> None:
    from heaptide.platforms.airflow import profiling

    if profiling.current().is_configured:
        from heaptide.platforms.airflow import components

        components.install()


_begin()
