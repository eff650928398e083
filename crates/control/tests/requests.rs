//! Any bytes are parsed or refused without a panic, and every size stays within its bound.

use heaptide_control::request::{MAX_BODY_BYTES, MAX_HEAD_BYTES, Request, parse_query};
use heaptide_control::routes;
use proptest::prelude::*;

fn read(bytes: &[u8]) -> Result<Option<Request>, u16> {
    Request::parse(bytes).map_err(|refusal| refusal.status)
}

#[test]
fn request_is_parsed_into_its_parts() {
    let bytes = b"POST /pub/job/x/1/api/v1/profiler/start?a=1&b=%20x+y HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}rest";
    let request = read(bytes).unwrap().unwrap();
    assert_eq!(request.method, "POST");
    assert_eq!(request.path, "/pub/job/x/1/api/v1/profiler/start");
    assert_eq!(request.parameter("b"), Some(" x y"));
    assert_eq!(request.header("host"), Some("h"));
    assert_eq!(request.body, b"{}");
}

#[test]
fn oversized_and_ambiguous_requests_are_refused_with_their_own_status() {
    assert_eq!(read(b""), Ok(None));
    assert_eq!(read(b"GET / HTTP/1.1\r\nHos"), Ok(None));
    assert_eq!(read(b"what is this\r\n\r\n"), Err(400));
    let large = format!(
        "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n",
        MAX_BODY_BYTES + 1
    );
    assert_eq!(read(large.as_bytes()), Err(413));
    assert_eq!(
        read(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n{}"),
        Ok(None)
    );
    assert_eq!(
        read(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} "),
        Err(400)
    );
    assert_eq!(
        read(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        Err(411)
    );
    let long = format!(
        "GET /{} HTTP/1.1\r\nHost: h\r\n\r\n",
        "a".repeat(MAX_HEAD_BYTES)
    );
    assert_eq!(read(long.as_bytes()), Err(431));
    let many = format!(
        "GET / HTTP/1.1\r\nHost: h\r\n{}\r\n",
        "a: b\r\n".repeat(100)
    );
    assert_eq!(read(many.as_bytes()), Err(431));
}

#[test]
fn reason_of_a_refusal_names_what_is_wrong() {
    for (query, reason) in [
        ("a=%f", "a percent sign without two hexadecimal digits"),
        ("a=%ff", "a query parameter is not valid UTF-8"),
        ("a=b%00", "a query parameter contains %00"),
    ] {
        assert_eq!(parse_query(query).unwrap_err().reason, reason);
    }
    let head = "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n";
    let two = |second| Request::parse(format!("{head}{second}\r\n\r\n{{}} ").as_bytes());
    let refusal = two("Content-Length: 3").unwrap_err();
    assert_eq!(
        refusal.reason,
        "there are two different Content-Length headers"
    );
    assert!(matches!(two("Content-Length: 2"), Ok(Some(_))));
}

#[test]
fn http_1_1_requests_need_exactly_one_host() {
    assert_eq!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(400));
    assert_eq!(
        read(b"GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n"),
        Err(400)
    );
    assert_eq!(
        read(b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
        Err(400)
    );
    assert!(
        read(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            .unwrap()
            .is_some()
    );
    assert!(read(b"GET / HTTP/1.0\r\n\r\n").unwrap().is_some());
}

#[test]
fn content_length_consists_of_digits() {
    let status = |length: &str| {
        let head = format!("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n");
        read(head.as_bytes())
    };
    for invalid in ["+0", "-0", "0x0", "0, 0", "1e1", "", "99999999999999999999"] {
        assert_eq!(status(invalid), Err(400), "{invalid:?}");
    }
    assert!(status("0").unwrap().is_some());
}

/// Bytes similar to requests, so that the parser gets past the first line.
fn almost_requests() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b"GET ".to_vec()),
        Just(b"POST /api/v1/profiler/".to_vec()),
        Just(b" HTTP/1.1\r\n".to_vec()),
        Just(b"Content-Length: 3\r\n".to_vec()),
        Just(b"Host: h\r\n".to_vec()),
        Just(b"Transfer-Encoding: x\r\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"?leaks=%31&".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..20),
    ];
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in almost_requests()) {
        match read(&bytes) {
            Ok(Some(request)) => {
                prop_assert!(request.body.len() <= MAX_BODY_BYTES);
                let _ = routes::resolve(&request.path);
            }
            Ok(None) => prop_assert!(bytes.len() <= MAX_HEAD_BYTES + MAX_BODY_BYTES),
            Err(status) => prop_assert!((400..500).contains(&status)),
        }
    }

    #[test]
    fn any_path_resolves_without_panic(path in "(/(api|v1|profiler|sessions|docs|stats|[^?#]{0,5}))*") {
        let _ = routes::resolve(&path);
    }
}
