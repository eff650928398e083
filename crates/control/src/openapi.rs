//! The OpenAPI document, generated from the table of routes and the options of the report commands.

mod schemas;

use serde_json::{Map, Value, json};

use crate::config::{Config, ReportOption};
use crate::downloads::FORMATS;
use crate::reports::{HIDE_NATIVE, NATIVE, Report, content_type, options_for_requests};
use crate::response::reason;
use crate::routes::{self, BASE, Operation, Route};
use schemas::{binary, choice, reference, schemas, text};

const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";
/// Statuses with which any route can refuse a request.
const REFUSALS: &[u16] = &[400, 401, 403, 405, 408, 411, 413, 429, 431, 503];

pub(crate) fn document(config: &Config, prefix: &str) -> Value {
    let mut paths = Map::new();
    for route in routes::all() {
        if matches!(route.operation, Operation::Report(report) if report.command(config).is_none())
        {
            continue;
        }
        let methods = paths
            .entry(format!("{BASE}{}", route.path))
            .or_insert_with(|| json!({}));
        methods[route.method.to_lowercase()] = operation(config, &route);
    }
    let server = if prefix.is_empty() { "/" } else { prefix };
    let mut document = json!({
        "openapi": "3.1.0",
        "info": {
            "title": format!("{}: memory profiler", config.name),
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Start and stop the memory profiler of this program and read its reports.",
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": {"schemas": schemas()},
    });
    if let Some(token) = &config.token {
        let mut schemes = json!({"token": {"type": "http", "scheme": "bearer"}});
        // Separate entries are alternatives: a request needs either the bearer token or the header.
        let mut security = vec![json!({"token": []})];
        if let Some(name) = &config.token_header {
            schemes["header"] = json!({"type": "apiKey", "in": "header", "name": name});
            security.push(json!({"header": []}));
        }
        for methods in document["paths"].as_object_mut().into_iter().flatten() {
            if let Some(delete) = methods.1.get_mut("delete") {
                delete["security"] = security.clone().into();
            }
        }
        if !token.is_chosen() {
            // The program's own user needs no token.
            security.insert(0, json!({}));
        }
        document["components"]["securitySchemes"] = schemes;
        document["security"] = security.into();
    }
    document
}

fn operation(config: &Config, route: &Route) -> Value {
    let summary = match route.operation {
        Operation::Report(report) => report
            .command(config)
            .map_or("", |command| command.about.as_str()),
        _ => route.summary,
    };
    let tag = if route.path.starts_with("/memray") {
        "memray"
    } else {
        "profiler"
    };
    let mut parameters = Vec::new();
    if route.path.contains("{session}") {
        let mut session = parameter("session", "a session ID, or latest", text());
        session["in"] = "path".into();
        session["required"] = true.into();
        parameters.push(session);
    }
    let mut body = None;
    let json = |name: &str| media(JSON, reference(name));
    let (success, content, errors): (&[u16], Value, &[u16]) = match route.operation {
        Operation::Status => {
            parameters.push(scope());
            (&[200], json("Status"), &[])
        }
        Operation::Start => {
            parameters.push(scope());
            body = Some("StartOptions");
            (&[200, 202], json("Started"), &[400, 404, 422, 500])
        }
        Operation::MemrayStart => (&[200, 202], json("Started"), &[500]),
        Operation::Stop => {
            parameters.push(scope());
            (&[200, 202], json("Stopped"), &[500])
        }
        Operation::MemrayStop => (&[200, 202], json("Stopped"), &[500]),
        Operation::Mode => {
            parameters.push(scope());
            body = Some("ModeOptions");
            (&[200, 202], json("ModeChanged"), &[400, 409, 422, 500])
        }
        Operation::Snapshot => (&[200], json("Session"), &[409, 500]),
        Operation::Heap => {
            body = Some("HeapOptions");
            (&[200], media(BYTES, binary()), &[400, 422, 500])
        }
        Operation::Sessions => (&[200], json("Sessions"), &[]),
        Operation::Session => (&[200], json("Session"), &[404]),
        Operation::Files => {
            parameters.push(parameter(
                "name",
                "the file to download; omit it to list the files",
                text(),
            ));
            let mut content = json("Files");
            content[BYTES] = json!({"schema": binary()});
            (&[200, 206], content, &[404, 416])
        }
        Operation::DeleteSession => (&[200], json("Deleted"), &[404, 409, 500]),
        Operation::Download | Operation::MemrayDownload => {
            parameters.push(process_parameter());
            if route.operation == Operation::MemrayDownload {
                let help = "memray: for memray's commands (default); heaptide: the capture itself";
                parameters.push(parameter("format", help, choice(&FORMATS)));
            }
            let mut content = media(BYTES, binary());
            content["application/x-tar"] = json!({"schema": binary()});
            (&[200, 206], content, &[400, 404, 416, 500, 504])
        }
        Operation::Report(report) | Operation::MemrayReport(report) => (
            &[200],
            report_content(config, report, &mut parameters),
            &[400, 404, 500, 504],
        ),
        Operation::Docs | Operation::OpenApi => (&[200], json!({}), &[]),
    };
    let mut responses = json!({});
    for status in success {
        responses[status.to_string()] = json!({"description": reason(*status), "content": content});
    }
    if matches!(
        route.operation,
        Operation::Download | Operation::MemrayDownload | Operation::Files
    ) {
        responses["304"] = json!({"description": reason(304)});
    }
    for status in REFUSALS.iter().chain(errors) {
        responses[status.to_string()] =
            json!({"description": reason(*status), "content": json("Error")});
    }
    let mut operation = json!({
        "tags": [tag],
        "summary": summary,
        "operationId": operation_id(route),
        "parameters": parameters,
        "responses": responses,
    });
    if let Some(schema) = body {
        operation["requestBody"] = json!({"required": false, "content": json(schema)});
    }
    operation
}

fn report_content(config: &Config, report: Report, parameters: &mut Vec<Value>) -> Value {
    let Some(command) = report.command(config) else {
        return json!({});
    };
    let formats = report.formats(command);
    let mut content = json!({});
    for format in &formats {
        let schema = if *format == "json" {
            json!({"type": "object"})
        } else {
            text()
        };
        let media_type = content_type(format).split(';').next().unwrap_or_default();
        content[media_type] = json!({"schema": schema});
    }
    if formats.len() > 1 {
        parameters.push(parameter(
            "format",
            "format of the response",
            choice(&formats),
        ));
    }
    if report.needs_base {
        let mut base = parameter("base", "session to compare with", text());
        base["required"] = true.into();
        parameters.push(base);
    }
    parameters.push(process_parameter());
    for option in options_for_requests(command) {
        parameters.push(parameter(&option.name, &option.help, option_schema(option)));
        if option.name == HIDE_NATIVE {
            let help = "0 hides native frames; 1 (default) shows them if they were recorded";
            parameters.push(parameter(NATIVE, help, option_schema(option)));
        }
    }
    content
}

fn option_schema(option: &ReportOption) -> Value {
    let values: Vec<&str> = option.values.iter().map(String::as_str).collect();
    match (option.takes_value, values.is_empty()) {
        (false, _) => choice(&["1", "0", "true", "false"]),
        (true, true) => text(),
        (true, false) => choice(&values),
    }
}

fn operation_id(route: &Route) -> String {
    let words = route.path.replace("{session}", "of_session");
    let words: Vec<&str> = words.split('/').filter(|word| !word.is_empty()).collect();
    format!("{}_{}", route.method.to_lowercase(), words.join("_"))
}

fn scope() -> Value {
    parameter(
        "scope",
        "job: all processes of the program (default); process: only the answering process",
        choice(&["job", "process"]),
    )
}

fn process_parameter() -> Value {
    let help = "only the capture of this process: its ID, and its host or start if the ID is ambiguous (1@web-2)";
    let schema = json!({"type": "string", "pattern": "^[0-9]+(@[^@]+)*$"});
    parameter("process", help, schema)
}

fn parameter(name: &str, help: &str, schema: Value) -> Value {
    json!({
        "name": name,
        "in": "query",
        "required": false,
        "description": help,
        "schema": schema,
    })
}

fn media(media_type: &str, schema: Value) -> Value {
    json!({media_type: {"schema": schema}})
}
