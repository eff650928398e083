//! JSON schemas of the bodies that the control API accepts and returns.

use serde_json::{Value, json};

pub(crate) fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn described(mut schema: Value, description: &str) -> Value {
    schema["description"] = description.into();
    schema
}

fn boolean(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

fn integer() -> Value {
    json!({"type": "integer"})
}

pub(crate) fn text() -> Value {
    json!({"type": "string"})
}

pub(crate) fn positive() -> Value {
    json!({"type": "integer", "minimum": 1})
}

pub(crate) fn binary() -> Value {
    json!({"type": "string", "format": "binary"})
}

pub(crate) fn choice(values: &[&str]) -> Value {
    json!({"type": "string", "enum": values})
}

fn or_null(type_name: &str) -> Value {
    json!({"type": [type_name, "null"]})
}

fn list_of(schema: Value) -> Value {
    json!({"type": "array", "items": schema})
}

fn bounded(least: u64, most: u64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({"type": "object", "required": required, "properties": properties})
}

/// An object that has no properties but these.
fn options(properties: Value) -> Value {
    json!({"type": "object", "properties": properties, "additionalProperties": false})
}

fn labels() -> Value {
    json!({"type": ["object", "null"], "additionalProperties": text()})
}

pub(crate) fn schemas() -> Value {
    let start_options = options(json!({
        "mode": described(
            choice(&["exact", "objects", "sampled"]),
            "record every allocation, also every Python object, or a sample of the allocations",
        ),
        "sample_bytes": described(
            bounded(0, 1 << 50),
            "in sampled mode: sample about one allocation per this many bytes",
        ),
        "aggregate": boolean("store sums instead of events, which bounds the size of the file"),
        "native": boolean("also record native frames (C, C++, Rust)"),
        "native_traces": boolean("memray's name for native"),
        "follow_fork": boolean("also record processes of the program that start later; true by default"),
        "interval_ms": described(
            bounded(1, 86_400_000),
            "milliseconds between two samples of the resident size",
        ),
    }));
    let mode_options = options(json!({
        "mode": described(
            choice(&["exact", "objects", "sampled"]),
            "record every allocation, also every Python object, or a sample of the allocations",
        ),
        "sample_bytes": described(
            bounded(0, 1 << 50),
            "in sampled mode: sample about one allocation per this many bytes",
        ),
        "native": boolean("also record native frames (C, C++, Rust)"),
    }));
    let mode_changed = json!({
        "result": choice(&["changed", "unchanged", "pending"]),
        "session": or_null("string"),
        "mode": reference("Mode"),
        "warnings": list_of(text()),
        "links": reference("Links"),
    });
    let mode = json!({
        "mode": choice(&["exact", "objects", "sampled"]),
        "sample_bytes": integer(),
        "native": {"type": "boolean"},
        "aggregate": {"type": "boolean"},
    });
    let heap_options = options(json!({
        "values": boolean("store the values of short strings and of numbers"),
        "redact": described(
            list_of(text()),
            "patterns of names and values to hide; * matches any text",
        ),
        "fork": boolean("walk a forked copy of the process, which shortens the pause"),
    }));
    let status = json!({
        "state": choice(&["recording", "stopped"]),
        "pid": positive(),
        "identity": reference("Identity"),
        "title": text(),
        "labels": labels(),
        "run": text(),
        "wanted_session": described(
            or_null("string"),
            "the session that new processes join",
        ),
        "time_unix_ms": integer(),
        "session": or_null("string"),
        "output": or_null("string"),
        "failed": boolean("its last recording has failed, for example on a full disk, and was not stopped since"),
        "mode": {"anyOf": [reference("Mode"), {"type": "null"}]},
        "name": text(),
        "command": text(),
        "version": text(),
        "resident_bytes": or_null("integer"),
        "directory": text(),
        "addresses": list_of(text()),
        "processes": list_of(reference("Process")),
        "links": reference("Links"),
    });
    let process = json!({
        "pid": positive(),
        "process": described(text(), "the process ID, with the host or start if the ID is ambiguous: 1@web-2"),
        "title": described(text(), "the role or the program of the process"),
        "labels": labels(),
        "identity": reference("Identity"),
        "state": choice(&["recording", "stopped", "unknown"]),
        "session": or_null("string"),
        "output": or_null("string"),
        "problem": or_null("string"),
        "bytes": integer(),
        "recording": {"type": "boolean"},
    });
    let identity = described(
        json!({
            "type": ["object", "null"],
            "properties": {
                "host": or_null("string"),
                "boot_id": or_null("string"),
                "pid_namespace": or_null("string"),
                "pid": positive(),
                "start": or_null("string"),
            },
        }),
        "the identity of the process among all hosts and containers",
    );
    let started = json!({
        "result": choice(&["started", "already_running", "pending"]),
        "session": text(),
        "pid": positive(),
        "pids": list_of(positive()),
        "output": text(),
        "warnings": list_of(text()),
        "links": reference("Links"),
    });
    let stopped = json!({
        "result": choice(&["stopped", "already_stopped", "pending"]),
        "session": or_null("string"),
        "bytes": integer(),
        "peak_bytes": or_null("integer"),
        "duration_ms": or_null("integer"),
        "processes": list_of(reference("Process")),
        "warnings": list_of(text()),
        "links": reference("Links"),
    });
    let session = json!({
        "id": text(),
        "kind": choice(&["session", "snapshot"]),
        "run": or_null("string"),
        "of": or_null("string"),
        "state": choice(&["recording", "finished"]),
        "started": or_null("string"),
        "duration_ms": or_null("integer"),
        "bytes": integer(),
        "peak_bytes": or_null("integer"),
        "total_bytes": or_null("integer"),
        "n_allocations": or_null("integer"),
        "options": {"type": "object"},
        "processes": list_of(reference("Process")),
        "links": reference("Links"),
    });
    let sessions = json!({
        "sessions": list_of(reference("Session")),
        "keep": {"type": "object"},
    });
    let files = json!({
        "files": list_of(object(
            &["name", "bytes"],
            json!({"name": text(), "bytes": integer(), "modified_unix_ms": integer()}),
        )),
    });
    json!({
        "Error": object(&["error", "type"], json!({"error": text(), "type": text()})),
        "StartOptions": start_options,
        "HeapOptions": heap_options,
        "ModeOptions": mode_options,
        "ModeChanged": object(&["result", "session", "mode", "warnings"], mode_changed),
        "Mode": object(&["mode", "sample_bytes", "native", "aggregate"], mode),
        "Status": object(&["state", "pid", "session", "output"], status),
        "Process": object(&["pid"], process),
        "Identity": identity,
        "Started": object(&["result", "session", "pid", "pids", "output", "warnings"], started),
        "Stopped": object(&["result"], stopped),
        "Session": object(&["id", "kind", "state", "bytes", "processes"], session),
        "Sessions": object(&["sessions", "keep"], sessions),
        "Files": object(&["files"], files),
        "Deleted": object(&["deleted"], json!({"deleted": text()})),
        "Links": {"type": "object", "additionalProperties": text()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_request_body_has_a_description() {
        let schemas = schemas();
        for name in ["StartOptions", "HeapOptions", "ModeOptions"] {
            let properties = schemas[name]["properties"].as_object().unwrap();
            assert!(!properties.is_empty());
            for (option, schema) in properties {
                assert!(schema["description"].is_string(), "{name}: {option}");
            }
        }
    }
}
