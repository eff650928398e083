//! The OpenAPI document: made of the list of routes and of the options that the commands declare.

use crate::config::{Config, ReportOption};
use crate::json::{Json, object};
use crate::reports::{HIDE_NATIVE, NATIVE, Report, content_type, options_for_requests};
use crate::routes::{self, BASE, Operation, Route};

pub fn document(config: &Config, prefix: &str) -> Json {
    let mut paths: Vec<(String, Json)> = Vec::new();
    for route in routes::all() {
        if let Operation::Make(report) = route.operation {
            if report.command(config).is_none() {
                continue;
            }
        }
        let path = format!("{BASE}{}", route.path);
        let operation = operation(config, &route);
        match paths.iter_mut().find(|known| known.0 == path) {
            Some((_, methods)) => methods.set(&route.method.to_lowercase(), operation),
            None => paths.push((path, object([(&route.method.to_lowercase(), operation)]))),
        }
    }
    let server = if prefix.is_empty() { "/" } else { prefix };
    let mut document = object([
        ("openapi", "3.1.0".into()),
        (
            "info",
            object([
                ("title", format!("{}: memory profiler", config.name).into()),
                ("version", env!("CARGO_PKG_VERSION").into()),
                ("description", "Switch the memory profiler of this job on and off, and look at what it recorded.".into()),
            ]),
        ),
        ("servers", vec![object([("url", server.into())])].into()),
        ("paths", Json::Object(paths)),
        ("components", object([("schemas", schemas())])),
    ]);
    if config.token.is_some() {
        let bearer = object([("type", "http".into()), ("scheme", "bearer".into())]);
        let mut schemes = object([("token", bearer)]);
        if let Some(name) = &config.token_header {
            let header = object([
                ("type", "apiKey".into()),
                ("in", "header".into()),
                ("name", name.as_str().into()),
            ]);
            schemes.set("header", header);
        }
        // One of them is enough.
        let names = ["token", "header"].into_iter();
        let needed: Vec<Json> = names
            .filter(|name| schemes.get(name).is_some())
            .map(|name| object([(name, Json::Array(Vec::new()))]))
            .collect();
        let mut components = object([("schemas", schemas())]);
        components.set("securitySchemes", schemes);
        document.set("components", components);
        document.set("security", needed.into());
    }
    document
}

fn operation(config: &Config, route: &Route) -> Json {
    let summary = match route.operation {
        Operation::Make(report) => report
            .command(config)
            .map_or(String::new(), |command| command.about.clone()),
        _ => route.summary.to_owned(),
    };
    let tag = if route.path.starts_with("/memray") {
        "memray"
    } else {
        "profiler"
    };
    let mut parameters = Vec::new();
    if route.path.contains("{session}") {
        let mut parameter = parameter("session", "a session's id, or latest", text_schema());
        parameter.set("in", "path".into());
        parameter.set("required", true.into());
        parameters.push(parameter);
    }
    let mut answer = object([
        ("tags", vec![tag.into()].into()),
        ("summary", summary.into()),
        ("operationId", operation_id(route).into()),
    ]);
    let json = |name: &str| media("application/json", reference(name));
    let (success, content, errors): (&[u16], Json, &[u16]) = match route.operation {
        Operation::Status => {
            parameters.push(scope());
            (&[200], json("Status"), &[])
        }
        Operation::Start => {
            parameters.push(scope());
            let content = media("application/json", reference("StartOptions"));
            answer.set(
                "requestBody",
                object([("required", false.into()), ("content", content)]),
            );
            (&[200, 202], json("Started"), &[400, 404, 422, 500])
        }
        Operation::MemrayStart => (&[200, 202], json("Started"), &[500]),
        Operation::Stop => {
            parameters.push(scope());
            (&[200, 202], json("Stopped"), &[500])
        }
        Operation::MemrayStop => (&[200, 202], json("Stopped"), &[500]),
        Operation::Snapshot => (&[200], json("Session"), &[409, 500]),
        Operation::Heap => {
            let content = media("application/json", reference("HeapOptions"));
            answer.set(
                "requestBody",
                object([("required", false.into()), ("content", content)]),
            );
            let content = media("application/octet-stream", binary_schema());
            (&[200], content, &[400, 422, 500, 503])
        }
        Operation::Sessions => (&[200], json("Sessions"), &[]),
        Operation::Session => (&[200], json("Session"), &[404]),
        Operation::DeleteSession => (&[200], json("Deleted"), &[404, 409, 500]),
        Operation::Download | Operation::MemrayDownload => {
            parameters.push(parameter(
                "process",
                "the capture of this process alone",
                integer_schema(),
            ));
            let mut content = media("application/octet-stream", binary_schema());
            content.set("application/x-tar", object([("schema", binary_schema())]));
            (&[200, 206], content, &[400, 404, 416, 500])
        }
        Operation::Make(report) => (
            &[200],
            report_content(config, report, &mut parameters),
            &[400, 404, 500, 504],
        ),
        Operation::MemrayFlamegraph | Operation::MemrayStats => {
            let name = if route.operation == Operation::MemrayStats {
                "stats"
            } else {
                "flamegraph"
            };
            let content = report_content(config, Report::named(name), &mut parameters);
            (&[200], content, &[400, 404, 500, 504])
        }
        Operation::Docs | Operation::OpenApi => (&[200], Json::Object(Vec::new()), &[]),
    };
    let mut responses = Json::Object(Vec::new());
    for status in success {
        let description = crate::response::reason(*status);
        let response = object([
            ("description", description.into()),
            ("content", content.clone()),
        ]);
        responses.set(&status.to_string(), response);
    }
    if matches!(
        route.operation,
        Operation::Download | Operation::MemrayDownload
    ) {
        responses.set("304", object([("description", "Not Modified".into())]));
    }
    for status in [&[400, 401, 403, 405, 408, 411, 413, 429, 431][..], errors].concat() {
        let description = crate::response::reason(status);
        let response = object([
            ("description", description.into()),
            ("content", json("Error")),
        ]);
        responses.set(&status.to_string(), response);
    }
    answer.set("parameters", parameters.into());
    answer.set("responses", responses);
    answer
}

fn report_content(config: &Config, report: Report, parameters: &mut Vec<Json>) -> Json {
    let Some(command) = report.command(config) else {
        return Json::Object(Vec::new());
    };
    let formats = report.formats(command);
    let mut content = Json::Object(Vec::new());
    for format in &formats {
        let schema = if *format == "json" {
            object([("type", "object".into())])
        } else {
            text_schema()
        };
        let kind = content_type(format).split(';').next().unwrap_or_default();
        content.set(kind, object([("schema", schema)]));
    }
    if formats.len() > 1 {
        parameters.push(parameter(
            "format",
            "what to answer with",
            choice_schema(&formats),
        ));
    }
    if report.needs_base {
        let mut base = parameter("base", "the session to compare with", text_schema());
        base.set("required", true.into());
        parameters.push(base);
    }
    parameters.push(parameter(
        "process",
        "what this process recorded alone",
        integer_schema(),
    ));
    for option in options_for_requests(command) {
        parameters.push(parameter(&option.name, &option.help, option_schema(option)));
        if option.name == HIDE_NATIVE {
            let help = "0 does the same; 1, the default, shows those that were recorded";
            parameters.push(parameter(NATIVE, help, option_schema(option)));
        }
    }
    content
}

fn option_schema(option: &ReportOption) -> Json {
    let values: Vec<&str> = option.values.iter().map(String::as_str).collect();
    match (option.takes_value, values.is_empty()) {
        (false, _) => choice_schema(&["1", "0", "true", "false"]),
        (true, true) => text_schema(),
        (true, false) => choice_schema(&values),
    }
}

fn operation_id(route: &Route) -> String {
    let words = route.path.replace("{session}", "of_session");
    let words: Vec<&str> = words.split('/').filter(|word| !word.is_empty()).collect();
    format!("{}_{}", route.method.to_lowercase(), words.join("_"))
}

fn scope() -> Json {
    parameter(
        "scope",
        "job: all processes of the job (the default); process: the one that answers",
        choice_schema(&["job", "process"]),
    )
}

fn parameter(name: &str, help: &str, schema: Json) -> Json {
    object([
        ("name", name.into()),
        ("in", "query".into()),
        ("required", false.into()),
        ("description", help.into()),
        ("schema", schema),
    ])
}

fn media(kind: &str, schema: Json) -> Json {
    object([(kind, object([("schema", schema)]))])
}

fn reference(name: &str) -> Json {
    object([("$ref", format!("#/components/schemas/{name}").into())])
}

fn typed(kind: &str) -> Json {
    object([("type", kind.into())])
}

fn text_schema() -> Json {
    typed("string")
}

fn integer_schema() -> Json {
    object([("type", "integer".into()), ("minimum", Json::Integer(1))])
}

fn binary_schema() -> Json {
    object([("type", "string".into()), ("format", "binary".into())])
}

fn choice_schema(values: &[&str]) -> Json {
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

fn schemas() -> Json {
    let mut start_options = record(
        &[],
        [
            ("mode", choice_schema(&["exact", "objects", "sampled"])),
            ("sample_bytes", bounded(0, 1 << 50)),
            ("aggregate", typed("boolean")),
            ("native", typed("boolean")),
            ("native_traces", typed("boolean")),
            ("follow_fork", typed("boolean")),
            ("interval_ms", bounded(1, 86_400_000)),
        ],
    );
    start_options.set("additionalProperties", false.into());
    let mut heap_options = record(
        &[],
        [
            ("values", typed("boolean")),
            ("redact", list_of(text_schema())),
            ("fork", typed("boolean")),
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
