"""Reads the data that a page contains, and checks that a browser runs only the page's own script."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

from support.controlled_program import page_data


def data_of(page: Path) -> Any:
    """Return the data of a page."""
    return json.loads(page_data(page.read_text()))


def assert_runs_only_its_own_script(page: Path) -> None:
    """Check the policy of a page against its script."""
    text = page.read_text()
    script = text.rpartition('<script type="module">')[2].partition("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    assert not re.search(r"(src|href)=.?http", text)
