"""The plugin that Airflow loads through the entry point `airflow.plugins`: listeners for tasks, and pages for the UI.

Without a key in ``[profiling]`` that selects a component or a task, it has no listeners and no pages. The first request
creates the web application, because schedulers and tasks also load this module.
"""

from __future__ import annotations

import sys
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from heaptide.containment import contained
from heaptide.messages import print_message, reason

URL_PREFIX = "/heaptide"


class Pages:
    """The web application, as Airflow mounts it."""

    def __init__(self) -> None:
        self._app: Any = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        if self._app is None:
            from heaptide.platforms.airflow.web import app

            self._app = app.make()
        await self._app(scope, receive, send)


def _parts() -> tuple[list[Any], list[Any], list[Any]]:
    """Return listeners, applications and views; none of them if nothing is selected or something fails."""
    try:
        from heaptide.platforms.airflow import profiling

        chosen = profiling.current()
        if not chosen.selects_something:
            return [], [], []
        from heaptide.platforms.airflow import tasks

        base = f"{tasks.prefix()}{URL_PREFIX}"
        key = "dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"
        views = [
            {
                "name": "Memory",
                "href": f"{base}/task-instance?{key}",
                "destination": "task_instance",
                "url_route": "memory",
            },
            {
                "name": "Memory",
                "href": f"{base}/dag?dag_id={{DAG_ID}}",
                "destination": "dag",
                "url_route": "dag-memory",
            },
            {
                "name": "Component Memory",
                "href": f"{base}/components",
                "destination": "nav",
                "category": "admin",
                "url_route": "component-memory",
            },
        ]
        apps = [{"app": Pages(), "url_prefix": URL_PREFIX, "name": "Heaptide"}]
        return [tasks], apps, views
    except Exception as error:
        print_message(f"{reason(error)}; Airflow runs without Heaptide")
        return [], [], []


class HeaptidePlugin(AirflowPlugin):  # type: ignore[misc]
    """Heaptide in Airflow."""

    name = "heaptide"
    listeners, fastapi_apps, external_views = _parts()

    @classmethod
    def on_load(cls, *args: Any, **kwargs: Any) -> None:
        """Let a worker of the API server obey the control file of its component. Airflow calls this in each process."""
        if cls.fastapi_apps:
            _on_load()


@contained
def _on_load() -> None:
    if "airflow.api_fastapi.app" in sys.modules:
        from heaptide.platforms.airflow import components

        components.join_as_api_worker()
