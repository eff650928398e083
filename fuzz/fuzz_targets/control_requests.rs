//! Any bytes at the door of a running job: a request or a refusal, never a panic, never more than its bounds.
#![no_main]

use heaptide_control::json::Json;
use heaptide_control::request::{MAX_BODY_BYTES, Request};
use heaptide_control::{routes, steering::Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    match Request::read(&mut &bytes[..]) {
        Ok(Some(request)) => {
            assert!(request.body.len() <= MAX_BODY_BYTES);
            let _ = routes::find(&request.path);
            if let Ok(body) = Json::parse(&request.body) {
                let _ = Options::from_json(&body);
            }
        }
        Ok(None) => assert!(bytes.is_empty()),
        Err(refusal) => assert!((400..500).contains(&refusal.status)),
    }
    if let Ok(value) = Json::parse(bytes) {
        // What was read can be written, and read again.
        assert!(Json::parse(value.to_string().as_bytes()).is_ok());
    }
});
