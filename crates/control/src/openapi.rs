//! The OpenAPI document: made of the list of routes and of the options that the commands declare.

mod schemas;

use crate::config::{Config, ReportOption};
use crate::json::{Json, object};
use crate::reports::{HIDE_NATIVE, NATIVE, Report, content_type, options_for_requests};
use crate::routes::{self, BASE, Operation, Route};
use schemas::{binary_schema, choice_schema, integer_schema, reference, schemas, text_schema};

pub(crate) fn document(config: &Config, prefix: &str) -> Json {
    let mut paths: Vec<(String, Json)> = Vec::new();
    for route in routes::all() {
        if let Operation::Report(report) = route.operation {
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
                ("description", "Program the memory profiler of this job on and off, and look at what it recorded.".into()),
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
        Operation::Report(report) => report
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
        Operation::Report(report) | Operation::MemrayReport(report) => (
            &[200],
            report_content(config, report, &mut parameters),
            &[400, 404, 500, 504],
        ),
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
