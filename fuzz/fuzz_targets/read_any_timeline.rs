//! Reads any bytes as a timeline: as a whole file, and after the first two lines of either format. Draws every timeline
//! that can be read.
#![no_main]

use std::path::Path;

use heaptide_analysis::timeline::{ChartOptions, Named, chart};
use heaptide_timeline::read;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    draw(data);
    draw(&[b"heaptide timeline 1\nstarted 1.0\n", data].concat());
    draw(&[b"CMDLINE python job.py\nMEM 10.5 1794786898.5\n", data].concat());
});

fn draw(bytes: &[u8]) {
    let Ok(timeline) = read(Path::new("job.timeline"), bytes) else {
        return;
    };
    let run = Named {
        name: "job".to_owned(),
        started: String::new(),
        timeline: &timeline,
    };
    let options = ChartOptions {
        has_slope: true,
        max_points: 100,
        ..ChartOptions::default()
    };
    chart(&[run], &options);
}
