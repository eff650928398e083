//! Memory over time: the heap and the resident size as two lines.

use heaptide_analysis::model::live::Curve;
use heaptide_report::units::size;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Line;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType};

use super::paint::Paint;

/// The limit is only drawn if the program comes near it; otherwise it would flatten the curves.
const MIN_LIMIT_SHARE: f64 = 0.5;

pub(super) fn draw(frame: &mut Frame, area: Rect, curve: &Curve, limit: Option<u64>, paint: Paint) {
    let heap = points(&curve.heap);
    let resident = points(&curve.resident);
    let n_bins = curve.heap.len().max(curve.resident.len());
    // The axis ends at the start of the last bin.
    let end = n_bins.saturating_sub(1).max(1) as f64;
    let all = heap.iter().chain(&resident);
    let highest = all.map(|point| point.1).fold(1.0, f64::max);
    let limit = limit.map(|bytes| bytes as f64);
    let limit = limit.filter(|&limit| highest > limit * MIN_LIMIT_SHARE);
    let top = highest.max(limit.unwrap_or(0.0));
    let line: Vec<(f64, f64)> = limit
        .map(|limit| vec![(0.0, limit), (end, limit)])
        .unwrap_or_default();
    let mut lines = vec![
        dataset(
            "resident",
            &resident,
            Marker::Dot,
            paint.line(Color::Yellow),
        ),
        dataset("heap", &heap, Marker::Braille, paint.line(Color::Cyan)),
    ];
    if limit.is_some() {
        lines.push(dataset(
            "limit",
            &line,
            Marker::Braille,
            paint.line(Color::Red),
        ));
    }
    let seconds = (curve.bin_ns as f64 / 1e9) * end;
    let chart = Chart::new(lines)
        .x_axis(axis(end, "0 s".into(), format!("{seconds:.1} s"), paint))
        .y_axis(axis(top * 1.05, "0".into(), size(top as u64), paint))
        // The line above the chart is the legend.
        .legend_position(None);
    frame.render_widget(chart, area);
}

fn points(values: &[Option<u64>]) -> Vec<(f64, f64)> {
    let numbered = values.iter().enumerate();
    numbered
        .filter_map(|(bin, value)| Some((bin as f64, (*value)? as f64)))
        .collect()
}

fn dataset<'a>(name: &'a str, data: &'a [(f64, f64)], marker: Marker, style: Style) -> Dataset<'a> {
    Dataset::default()
        .name(name)
        .marker(marker)
        .graph_type(GraphType::Line)
        .style(style)
        .data(data)
}

fn axis(end: f64, first: String, last: String, paint: Paint) -> Axis<'static> {
    Axis::default()
        .bounds([0.0, end])
        .style(paint.dim())
        .labels([Line::raw(first), Line::raw(last)])
}
