//! Parts of a body: `Range`, `If-Range` and `If-None-Match`.

use crate::request::Request;
use crate::response::{Body, Response};

/// The part that was asked for, if one was.
pub(crate) fn apply(request: &Request, mut response: Response, tag: &str) -> Response {
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
    // Only of the very same bytes may a part be continued.
    if request
        .header("If-Range")
        .is_some_and(|known| is_weak || known.trim() != tag)
    {
        return response;
    }
    let Some(length) = response.body.length() else {
        return response;
    };
    match parse(range, length) {
        Asked::All => response,
        Asked::Nothing => Response::error(
            416,
            "RangeNotSatisfiable",
            format!("the capture has {length} bytes"),
        )
        .with("Content-Range", format!("bytes */{length}")),
        Asked::Part(from, to) => {
            response.status = 206;
            response.body = response.body.slice(from, to);
            response.with("Content-Range", format!("bytes {from}-{}/{length}", to - 1))
        }
    }
}

#[derive(Debug, PartialEq)]
enum Asked {
    All,
    Nothing,
    /// From the first up to, without, the second.
    Part(u64, u64),
}

/// Several ranges, other units and nonsense mean everything, as HTTP wants it.
fn parse(range: &str, length: u64) -> Asked {
    let Some(range) = range
        .trim()
        .strip_prefix("bytes=")
        .filter(|range| !range.contains(','))
    else {
        return Asked::All;
    };
    let Some((first, last)) = range.split_once('-') else {
        return Asked::All;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (first.trim(), number(first), last.trim(), number(last)) {
        ("", _, _, Some(0)) => Asked::Nothing,
        ("", _, _, Some(n_last)) if length > 0 => {
            Asked::Part(length.saturating_sub(n_last), length)
        }
        ("", _, _, Some(_)) => Asked::Nothing,
        (_, Some(from), _, _) if from >= length => Asked::Nothing,
        (_, Some(from), "", _) => Asked::Part(from, length),
        (_, Some(from), _, Some(to)) if to >= from => {
            Asked::Part(from, to.saturating_add(1).min(length))
        }
        _ => Asked::All,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_mean_what_http_says() {
        assert_eq!(parse("bytes=0-9", 100), Asked::Part(0, 10));
        assert_eq!(parse("bytes=90-", 100), Asked::Part(90, 100));
        assert_eq!(parse("bytes=-5", 100), Asked::Part(95, 100));
        assert_eq!(parse("bytes=-500", 100), Asked::Part(0, 100));
        assert_eq!(parse("bytes=50-500", 100), Asked::Part(50, 100));
        assert_eq!(parse("bytes=100-", 100), Asked::Nothing);
        assert_eq!(parse("bytes=-0", 100), Asked::Nothing);
        assert_eq!(parse("bytes=-5", 0), Asked::Nothing);
        for all in [
            "bytes=9-1",
            "bytes=0-1,5-6",
            "lines=1-2",
            "bytes=x-",
            "bytes=",
            "bytes=-",
        ] {
            assert_eq!(parse(all, 100), Asked::All, "{all}");
        }
    }
}
