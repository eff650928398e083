"""The routes, each guarded by Airflow's authentication and permissions.

A task's numbers, reports and capture require permission to read task instances of its DAG. The query names the DAG, and
a record of another DAG is not found. Captures of components contain the memory of all DAGs, so only operators can read
them and start or stop recordings: users who may edit pools. No path in a request is used as a path of a file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO
from urllib.parse import quote

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, Form, HTTPException, Request
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from heaptide.messages import reason
from heaptide.platforms.airflow import profiling
from heaptide.platforms.airflow.web import component_list, component_page, dag_page, history, render, task_page

READ_TASKS = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_INSTANCE))


def _is_operator(user: Any) -> bool:
    return bool(get_auth_manager().is_authorized_pool(method="PUT", user=user))


def _require_operator(user: GetUserDep) -> None:
    if not _is_operator(user):
        raise HTTPException(403, "only users who may edit pools can inspect and control components")


def _require_same_origin(request: Request) -> None:
    """Reject forms of other sites, because the browser sends the session's cookie with them."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise HTTPException(403, "this request comes from another site")


OPERATOR = Depends(_require_operator)
SAME_ORIGIN = Depends(_require_same_origin)


def make() -> FastAPI:
    """Return the application."""
    app = FastAPI(title="Heaptide", docs_url=None, redoc_url=None, openapi_url=None)
    app.add_exception_handler(HTTPException, _explain)
    app.get("/task-instance", dependencies=[READ_TASKS])(show_task_instance)
    app.get("/task-instance/{report}", dependencies=[READ_TASKS])(report_task_instance)
    app.get("/dag", dependencies=[READ_TASKS])(show_dag)
    app.get("/components", dependencies=[OPERATOR])(show_components)
    app.get("/components/{report}", dependencies=[OPERATOR])(report_component)
    app.post("/components/{action}", dependencies=[OPERATOR, SAME_ORIGIN])(act_on_component)
    return app


def show_task_instance(
    dag_id: str, run_id: str, task_id: str, map_index: str = "-1", record: str = "", format: str = "html"
) -> Response:
    """Show the memory of a task instance, of its latest process or of the one that `record` names."""
    index = int(map_index) if map_index.lstrip("-").isdigit() else -1  # Airflow does not replace {MAP_INDEX}
    rows = history.of_task_instance(dag_id, run_id, task_id, index)
    if format == "json":
        return _json(rows)
    return HTMLResponse(task_page.page(dag_id, run_id, task_id, index, rows, record))


def report_task_instance(report: str, dag_id: str, record: str) -> Response:
    """Return a report of the capture of one record of the DAG."""
    row = history.find(dag_id, record)
    if row is None:
        raise HTTPException(404, "there is no such record")
    return _report(report, history.readable_capture(row))


def show_dag(dag_id: str, format: str = "html") -> Response:
    """Show the memory of a DAG's tasks over its runs."""
    rows = history.of_dag_and_its_logs(dag_id)
    return _json(rows) if format == "json" else HTMLResponse(dag_page.page(dag_id, rows))


def show_components(format: str = "html") -> Response:
    """Show the components, their captures, and the memory of DAG file parses."""
    chosen = profiling.current()
    found = component_list.listed(chosen)
    return _json(found) if format == "json" else HTMLResponse(component_page.page(found))


def report_component(report: str, name: str) -> Response:
    """Return a report of a listed capture."""
    return _report(report, component_list.find(profiling.current(), name))


def act_on_component(action: str, component: Annotated[str, Form()], name: Annotated[str, Form()] = "") -> Response:
    """Start or stop the recording of a component, or store a copy of its current capture."""
    chosen = profiling.current()
    if component not in profiling.COMPONENTS or not chosen.is_controlled(component):
        raise HTTPException(404, "this component is not selected in [profiling]")
    if action in ("start", "stop"):
        component_list.ask(component, chosen, "on" if action == "start" else "off")
    elif action == "snapshot":
        try:
            component_list.snapshot(component, chosen, name)
        except ValueError as error:
            raise HTTPException(404, str(error)) from None
    else:
        raise HTTPException(404, "there is no such action")
    return RedirectResponse("../components", status_code=303)


def _report(report: str, capture: str | None) -> Response:
    if capture is None:
        raise HTTPException(404, "the capture is not on this host, or has been removed")
    if report == "capture":
        return _download(capture)
    try:
        if report in render.PAGES:
            return HTMLResponse(render.report(report, capture))
        if report in render.TEXTS:
            return PlainTextResponse(render.report(report, capture))
    except ValueError as error:
        raise HTTPException(500, str(error)) from None
    raise HTTPException(404, "there is no such report")


def _download(capture: str) -> Response:
    """Return the content of a capture. Its size is not announced, because a process may be writing to it."""
    try:
        file = open(capture, "rb")  # noqa: SIM115 - `_pieces` closes it
    except OSError as error:
        raise HTTPException(404, f"the capture cannot be read: {reason(error)}") from None
    name = quote(os.path.basename(capture), safe="")
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    return StreamingResponse(_pieces(file), media_type="application/octet-stream", headers=headers)


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while piece := file.read(1 << 20):
            yield piece


def _json(content: Any) -> Response:
    import json

    return Response(json.dumps(content), media_type="application/json")


async def _explain(request: Request, error: Any) -> Response:
    """Return an error as a page, because Airflow shows it in a frame."""
    from heaptide.platforms.airflow.web import layout

    page = layout.document("Memory", f'<p class="empty">{layout.text(error.detail)}</p>')
    return HTMLResponse(page, status_code=error.status_code)
