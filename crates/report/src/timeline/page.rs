//! A chart as a page: curves, calls and notes, drawn by the page itself. One file without network requests.

use std::io::{self, Write};

use heaptide_analysis::model::chart::{Bracket, Chart, Series};
use serde_json::{Value, json};

use super::labels;
use crate::html::{PLOT, embed};
use crate::json::number;

pub fn page(out: &mut dyn Write, chart: &Chart) -> io::Result<()> {
    embed(out, PLOT, &data(chart))
}

fn data(chart: &Chart) -> Value {
    json!({
        "head": {
            "format": 1,
            "title": chart.title.as_str(),
            "measured": labels::backend(chart),
            "from": number(chart.from_s),
            "to": number(chart.to_s),
            "peak": chart.peak.map(point),
            "limit": chart.limit,
            "notes": chart.notes.iter().map(labels::note).collect::<Value>(),
        },
        "series": chart.series.iter().map(series).collect::<Value>(),
        "calls": chart.brackets.iter().map(call).collect::<Value>(),
    })
}

fn series(series: &Series) -> Value {
    let trend = series.trend.as_ref();
    let end = |(seconds, bytes): (f64, f64)| json!([number(seconds), number(bytes)]);
    json!({
        "name": labels::name(series),
        "seconds": series.points.iter().map(|point| number(point.0)).collect::<Value>(),
        "bytes": series.points.iter().map(|point| point.1).collect::<Value>(),
        "peak": series.peak.map(point),
        "bytes_per_s": trend.map(|trend| number(trend.bytes_per_s)),
        "trend": trend.map(|trend| json!([end(trend.from), end(trend.to)])),
    })
}

fn call(bracket: &Bracket) -> Value {
    json!({
        "function": bracket.function.as_str(),
        "number": bracket.number,
        "begin": number(bracket.begin.0),
        "end": number(bracket.end.0),
        "level": bracket.level,
    })
}

fn point((seconds, bytes): (f64, u64)) -> Value {
    json!([number(seconds), bytes])
}

#[cfg(test)]
mod tests {
    use super::*;
    use heaptide_analysis::model::chart::{SeriesRole, Trend};

    #[test]
    fn page_has_curves_peaks_trends_and_calls_in_bytes() {
        let chart = Chart {
            title: "</script>job".into(),
            to_s: 2.0,
            series: vec![Series {
                role: SeriesRole::Child {
                    process: "4711".into(),
                    name: "etl.py".into(),
                },
                points: vec![(0.0, 5), (1.5, 1 << 30)],
                peak: Some((1.5, 1 << 30)),
                trend: Some(Trend {
                    bytes_per_s: 2.5,
                    from: (0.0, 5.0),
                    to: (1.5, 9.0),
                }),
            }],
            brackets: vec![Bracket {
                function: "load".into(),
                number: 0,
                begin: (0.5, 5),
                end: (1.0, 6),
                level: 1,
            }],
            peak: Some((1.5, 1 << 30)),
            ..Chart::default()
        };
        let data = data(&chart);
        assert_eq!(data["head"]["peak"], json!([1.5, 1 << 30]));
        let series = &data["series"][0];
        assert_eq!(series["name"], "child 4711 etl.py");
        assert_eq!(series["bytes"], json!([5, 1 << 30]));
        assert_eq!(series["bytes_per_s"], 2.5);
        assert_eq!(data["calls"][0]["level"], 1);
        let mut out = Vec::new();
        page(&mut out, &chart).unwrap();
        assert!(!String::from_utf8(out).unwrap().contains("</script>job"));
    }
}
