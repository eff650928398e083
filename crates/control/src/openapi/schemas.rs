//! The forms of what is sent and answered.

use crate::json::{Json, object};

pub(super) fn reference(name: &str) -> Json {
    object([("$ref", format!("#/components/schemas/{name}").into())])
}

impl Json {
    /// The same schema, with a sentence for whoever fills it in.
    fn described(mut self, sentence: &str) -> Json {
        self.set("description", sentence.into());
        self
    }
}

fn typed(kind: &str) -> Json {
    object([("type", kind.into())])
}

pub(super) fn text_schema() -> Json {
    typed("string")
}

pub(super) fn integer_schema() -> Json {
    object([("type", "integer".into()), ("minimum", Json::Integer(1))])
}

pub(super) fn binary_schema() -> Json {
    object([("type", "string".into()), ("format", "binary".into())])
}

pub(super) fn choice_schema(values: &[&str]) -> Json {
    let values: Vec<Json> = values.iter().map(|value| (*value).into()).collect();
    object([("type", "string".into()), ("enum", values.into())])
}

fn or_null(kind: &str) -> Json {
    object([("type", vec![kind.into(), "null".into()].into())])
}

fn list_of(schema: Json) -> Json {
    object([("type", "array".into()), ("items", schema)])
}

fn record<const N: usize>(required: &[&str], properties: [(&str, Json); N]) -> Json {
    let required: Vec<Json> = required.iter().map(|name| (*name).into()).collect();
    object([
        ("type", "object".into()),
        ("required", required.into()),
        ("properties", object(properties)),
    ])
}

pub(super) fn schemas() -> Json {
    let mut start_options = record(
        &[],
        [
            (
                "mode",
                choice_schema(&["exact", "objects", "sampled"]).described(
                    "what is recorded: every allocation, every Python object too, or a sample",
                ),
            ),
            (
                "sample_bytes",
                bounded(0, 1 << 50).described("sampled: one allocation about every so many bytes"),
            ),
            (
                "aggregate",
                typed("boolean").described("keep sums: the file stays small however long it runs"),
            ),
            (
                "native",
                typed("boolean").described("record the C, C++ and Rust functions between, too"),
            ),
            (
                "native_traces",
                typed("boolean").described("the same, as memray calls it"),
            ),
            (
                "follow_fork",
                typed("boolean").described("record forked children, too"),
            ),
            (
                "interval_ms",
                bounded(1, 86_400_000)
                    .described("milliseconds between two looks at the resident size"),
            ),
        ],
    );
    start_options.set("additionalProperties", false.into());
    let mut heap_options = record(
        &[],
        [
            (
                "values",
                typed("boolean").described("keep the texts of short strings and numbers"),
            ),
            (
                "redact",
                list_of(text_schema())
                    .described("names and values that are not shown, with * for any text"),
            ),
            (
                "fork",
                typed("boolean")
                    .described("look at a copy of the process, which stands still for less"),
            ),
        ],
    );
    heap_options.set("additionalProperties", false.into());
    object([
        (
            "Error",
            record(
                &["error", "type"],
                [("error", text_schema()), ("type", text_schema())],
            ),
        ),
        ("StartOptions", start_options),
        ("HeapOptions", heap_options),
        (
            "Status",
            record(
                &["state", "pid", "session", "output"],
                [
                    ("state", choice_schema(&["recording", "stopped"])),
                    ("pid", integer_schema()),
                    ("session", or_null("string")),
                    ("output", or_null("string")),
                    ("name", text_schema()),
                    ("command", text_schema()),
                    ("version", text_schema()),
                    ("resident_bytes", or_null("integer")),
                    ("directory", text_schema()),
                    ("processes", list_of(reference("Process"))),
                    ("links", reference("Links")),
                ],
            ),
        ),
        (
            "Process",
            record(
                &["pid"],
                [
                    ("pid", integer_schema()),
                    ("state", choice_schema(&["recording", "stopped", "unknown"])),
                    ("session", or_null("string")),
                    ("output", or_null("string")),
                    ("problem", or_null("string")),
                    ("bytes", typed("integer")),
                    ("recording", typed("boolean")),
                ],
            ),
        ),
        (
            "Started",
            record(
                &["result", "session", "pid", "pids", "output", "warnings"],
                [
                    (
                        "result",
                        choice_schema(&["started", "already_running", "pending"]),
                    ),
                    ("session", text_schema()),
                    ("pid", integer_schema()),
                    ("pids", list_of(integer_schema())),
                    ("output", text_schema()),
                    ("warnings", list_of(text_schema())),
                    ("links", reference("Links")),
                ],
            ),
        ),
        (
            "Stopped",
            record(
                &["result"],
                [
                    (
                        "result",
                        choice_schema(&["stopped", "already_stopped", "pending"]),
                    ),
                    ("session", or_null("string")),
                    ("bytes", typed("integer")),
                    ("peak_bytes", or_null("integer")),
                    ("duration_ms", or_null("integer")),
                    ("processes", list_of(reference("Process"))),
                    ("warnings", list_of(text_schema())),
                    ("links", reference("Links")),
                ],
            ),
        ),
        (
            "Session",
            record(
                &["id", "kind", "state", "bytes", "processes"],
                [
                    ("id", text_schema()),
                    ("kind", choice_schema(&["session", "snapshot"])),
                    ("of", or_null("string")),
                    ("state", choice_schema(&["recording", "finished"])),
                    ("started", or_null("string")),
                    ("duration_ms", or_null("integer")),
                    ("bytes", typed("integer")),
                    ("peak_bytes", or_null("integer")),
                    ("total_bytes", or_null("integer")),
                    ("n_allocations", or_null("integer")),
                    ("options", typed("object")),
                    ("processes", list_of(reference("Process"))),
                    ("links", reference("Links")),
                ],
            ),
        ),
        (
            "Sessions",
            record(
                &["sessions", "keep"],
                [
                    ("sessions", list_of(reference("Session"))),
                    ("keep", typed("object")),
                ],
            ),
        ),
        (
            "Deleted",
            record(&["deleted"], [("deleted", text_schema())]),
        ),
        (
            "Links",
            object([
                ("type", "object".into()),
                ("additionalProperties", text_schema()),
            ]),
        ),
    ])
}

fn bounded(least: i64, most: i64) -> Json {
    object([
        ("type", "integer".into()),
        ("minimum", Json::Integer(least)),
        ("maximum", Json::Integer(most)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_of_a_body_says_what_it_does() {
        let schemas = schemas();
        for name in ["StartOptions", "HeapOptions"] {
            let properties = schemas.get(name).and_then(|one| one.get("properties"));
            let Some(Json::Object(properties)) = properties else {
                panic!("{name} has no properties");
            };
            assert!(!properties.is_empty());
            for (option, schema) in properties {
                let sentence = schema.get("description").and_then(Json::as_text);
                assert!(sentence.is_some(), "{name}: {option} is not described");
            }
        }
    }
}
