//! A scene as a page: the SVG with a small script that shows values under the pointer. One file without network requests.

use std::io::{self, Write};

use heaptide_analysis::model::chart::Chart;

use super::scene::scene;
use super::{labels, svg};
use crate::json::write_text;
use crate::markup::fill;
use crate::units::mib;

const PAGE: &str = include_str!("page.html");
const SCRIPT: &str = include_str!("page.js");
/// The hash of the script. The page allows no other script. A test compares it with the hash that browsers compute.
const SCRIPT_HASH: &str = "JIScHZp5u06xwaUYSFW1yw0gyIWoDpswCZIkZMOs8kc=";

pub fn page(out: &mut dyn Write, chart: &Chart) -> io::Result<()> {
    let scene = scene(chart);
    let mut data: Vec<u8> = Vec::new();
    let (left, top, width, height) = scene.plot;
    let longest = chart
        .series
        .iter()
        .map(|series| series.points.len())
        .max()
        .unwrap_or(0);
    let step = (chart.to_s - chart.from_s) / longest.max(1) as f64;
    write!(
        data,
        "{{\"plot\":[{left},{top},{width},{height}],\"from\":{},\"to\":{},\"step\":{step},\"series\":[",
        scene.x_range_s.0, scene.x_range_s.1
    )?;
    for (number, series) in chart.series.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(data, "{comma}{{\"name\":")?;
        write_text(&mut data, &labels::label(series))?;
        write!(data, ",\"points\":[")?;
        for (number, &(seconds, bytes)) in series.points.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(data, "{comma}[{seconds:.4},{:.4}]", mib(bytes))?;
        }
        write!(data, "]}}")?;
    }
    write!(data, "]}}")?;
    // A name must not close the element that contains it.
    let data = String::from_utf8_lossy(&data).replace('<', "\\u003c");
    let contents = [
        ("HASH", SCRIPT_HASH),
        ("PICTURE", &svg::render(&scene)),
        ("DATA", &data),
        ("SCRIPT", SCRIPT.trim_end()),
    ];
    fill(out, PAGE, &contents)
}
