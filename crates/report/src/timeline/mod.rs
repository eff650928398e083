//! Charts of memory over time: on the terminal, as SVG, as PNG, and as a page.
//!
//! All of them share `labels`. `svg` and `png` render the same `scene`; [`terminal`] draws with characters. `scene` and
//! [`terminal`] use `axis`, which finds round numbers. The script of the page draws the chart.

mod axis;
mod labels;
mod page;
mod png;
mod scene;
mod svg;
pub mod terminal;

pub use page::page;
pub use png::png;
pub use svg::svg;

#[cfg(test)]
mod tests {
    use heaptide_analysis::model::chart::{Bracket, Chart, ChartNote, Series, SeriesRole, Trend};

    use super::*;
    use crate::text::Style;

    /// Values that a damaged or malicious file may contain.
    fn extreme() -> Chart {
        let series = |bytes: u64| Series {
            role: SeriesRole::Child {
                process: u32::MAX.to_string(),
                name: "</script><b>\x1b[2J&\"".into(),
            },
            points: vec![(-1e12, 0), (0.0, bytes), (1e12, u64::MAX)],
            peak: Some((1e12, u64::MAX)),
            trend: Some(Trend {
                bytes_per_s: -1e30,
                from: (-1e12, 1e40),
                to: (1e12, -1e40),
            }),
        };
        let bracket = Bracket {
            function: "</title>".into(),
            number: 3,
            begin: (1e12, u64::MAX),
            end: (-1e12, 0),
            level: u32::MAX,
        };
        Chart {
            title: "</script>".repeat(1000),
            from_s: -1e12,
            to_s: 1e12,
            top_bytes: u64::MAX,
            series: vec![series(0), series(1), series(u64::MAX)],
            brackets: vec![bracket.clone(), bracket],
            peak: Some((1e12, u64::MAX)),
            limit: Some(u64::MAX),
            notes: vec![
                ChartNote::LimitIn {
                    seconds: 1e300,
                    limit: u64::MAX,
                    has_ended: true,
                },
                ChartNote::LimitFarAway { limit: 0, peak: 0 },
            ],
            ..Chart::default()
        }
    }

    fn drawn(draw: impl Fn(&mut Vec<u8>, &Chart) -> std::io::Result<()>, chart: &Chart) -> String {
        let mut out = Vec::new();
        draw(&mut out, chart).expect("writing to a vector succeeds");
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn long_names_in_the_legend_have_separate_rows() {
        let series = |name: &str| Series {
            role: SeriesRole::Total {
                name: name.into(),
                started: "2026-11-16 13:33:08.822".into(),
            },
            points: vec![(0.0, 0), (1.0, 1 << 20)],
            peak: None,
            trend: Some(Trend {
                bytes_per_s: 1_048_576.0,
                from: (0.0, 0.0),
                to: (1.0, 1_048_576.0),
            }),
        };
        let of = |name: &str| Chart {
            to_s: 1.0,
            top_bytes: 1 << 20,
            series: vec![series(name), series(name)],
            ..Chart::default()
        };
        let height = |chart: &Chart| scene::scene(chart).height;
        let short = of("a");
        let long = of("a-rather-long-name.timeline");
        assert!(height(&long) > height(&short));
        assert_eq!(
            drawn(|out, chart| svg(out, chart), &long)
                .matches("slope +1.05 MB/s<")
                .count(),
            2
        );
    }

    #[test]
    fn extreme_values_and_hostile_names_are_drawn_safely() {
        for is_flame in [false, true] {
            let mut chart = extreme();
            chart.is_flame = is_flame;
            let in_terminal = drawn(
                |out, chart| terminal::chart(out, chart, 80, 20, Style::Plain),
                &chart,
            );
            assert!(!in_terminal.contains('\x1b'));
            let picture = drawn(|out, chart| svg(out, chart), &chart);
            assert!(
                !picture.contains("<b>") && !picture.contains("NaN") && !picture.contains("inf")
            );
            let whole = drawn(|out, chart| page(out, chart), &chart);
            assert_eq!(whole.matches("</script>").count(), 2);
        }
        assert!(drawn(|out, chart| png(out, chart), &extreme()).len() > 1000);
    }

    #[test]
    fn empty_chart_is_drawn() {
        let chart = Chart::default();
        assert!(drawn(|out, chart| svg(out, chart), &chart).ends_with("</svg>\n"));
        assert!(drawn(|out, chart| png(out, chart), &chart).len() > 1000);
    }
}
