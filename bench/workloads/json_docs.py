"""Parses, changes and writes JSON documents, as a service does."""

import json

doc = json.dumps([{"k%d" % j: [j, str(j), {"x": j * 1.5}] for j in range(40)} for _ in range(200)])
for _ in range(150):
    rows = json.loads(doc)
    for row in rows:
        row["new"] = len(row)
    json.dumps(rows)
