//! Range requests: `Range`, `If-Range` and `If-None-Match`.

use crate::request::Request;
use crate::response::{Body, Response};

/// Applies these headers. Returns status 304 if the client has the content, the requested range, or status 416 if the
/// range lies outside; without such a header, the whole response.
///
/// `is_prefix` returns whether the current content begins with the content of an earlier tag, so that its download may
/// be resumed.
pub(crate) fn apply(
    request: &Request,
    mut response: Response,
    tag: &str,
    is_prefix: impl Fn(&str) -> bool,
) -> Response {
    let is_weak = tag.starts_with("W/");
    if let Some(known) = request.header("If-None-Match") {
        let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
        let is_known =
            known.trim() == "*" || known.split(',').any(|one| strong(one) == strong(tag));
        if is_known && !is_weak {
            response.status = 304;
            response.body = Body::default();
            return response;
        }
    }
    let Some(range) = request.header("Range") else {
        return response;
    };
    // A download may only be resumed if the bytes that the client has are unchanged.
    let is_changed = |known: &str| is_weak || known.trim() != tag && !is_prefix(known.trim());
    if request.header("If-Range").is_some_and(is_changed) {
        return response;
    }
    let Some(length) = response.body.length() else {
        return response;
    };
    match parse(range, length) {
        RequestedRange::All => response,
        RequestedRange::Nothing => Response::error(
            416,
            "RangeNotSatisfiable",
            format!("the file has {length} bytes"),
        )
        .with("Content-Range", format!("bytes */{length}")),
        RequestedRange::Part(from, to) => {
            response.status = 206;
            response.body = response.body.slice(from, to);
            response.with("Content-Range", format!("bytes {from}-{}/{length}", to - 1))
        }
    }
}

#[derive(Debug, PartialEq)]
enum RequestedRange {
    All,
    Nothing,
    /// From the first byte up to, but not including, the second.
    Part(u64, u64),
}

/// Parses a `Range` header. Several ranges, other units and invalid text mean the whole body, as HTTP allows.
fn parse(range: &str, length: u64) -> RequestedRange {
    let Some(range) = range
        .trim()
        .strip_prefix("bytes=")
        .filter(|range| !range.contains(','))
    else {
        return RequestedRange::All;
    };
    let Some((first, last)) = range.split_once('-') else {
        return RequestedRange::All;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim(), number(first), last.trim(), number(last)) {
        ("", _, _, Some(0)) => RequestedRange::Nothing,
        ("", _, _, Some(n_last)) if length > 0 => {
            RequestedRange::Part(length.saturating_sub(n_last), length)
        }
        ("", _, _, Some(_)) => RequestedRange::Nothing,
        (_, Some(from), _, _) if from >= length => RequestedRange::Nothing,
        (_, Some(from), "", _) => RequestedRange::Part(from, length),
        (_, Some(from), _, Some(to)) if to >= from => {
            RequestedRange::Part(from, to.saturating_add(1).min(length))
        }
        _ => RequestedRange::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_parsed_as_http_specifies() {
        assert_eq!(parse("bytes=0-9", 100), RequestedRange::Part(0, 10));
        assert_eq!(parse("bytes=90-", 100), RequestedRange::Part(90, 100));
        assert_eq!(parse("bytes=-5", 100), RequestedRange::Part(95, 100));
        assert_eq!(parse("bytes=-500", 100), RequestedRange::Part(0, 100));
        assert_eq!(parse("bytes=50-500", 100), RequestedRange::Part(50, 100));
        assert_eq!(parse("bytes=100-", 100), RequestedRange::Nothing);
        assert_eq!(parse("bytes=-0", 100), RequestedRange::Nothing);
        assert_eq!(parse("bytes=-5", 0), RequestedRange::Nothing);
        for all in [
            "bytes=9-1",
            "bytes=0-1,5-6",
            "lines=1-2",
            "bytes=x-",
            "bytes=",
            "bytes=-",
        ] {
            assert_eq!(parse(all, 100), RequestedRange::All, "{all}");
        }
    }
}
