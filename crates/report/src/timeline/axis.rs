//! Round numbers for axes.

use crate::units::{Layout, is_layout};

/// An axis: its marks and their unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    pub from: f64,
    pub to: f64,
    pub marks: Vec<f64>,
    pub unit: &'static str,
    /// The number of bytes or seconds in one unit of the axis.
    pub scale: f64,
    n_decimals: usize,
}

impl Axis {
    /// Bytes from 0 to a little above `top`, with about `n_marks` marks.
    pub fn of_bytes(top: u64, n_marks: usize) -> Axis {
        let top = (top as f64).max(1.0);
        let (units, [large, small]) = match is_layout(Layout::Mprof) {
            true => (["GiB", "MiB"], [1_073_741_824.0, 1_048_576.0]),
            false => (["GB", "MB"], [1e9, 1e6]),
        };
        let (unit, scale) = match top >= 20.0 * large {
            true => (units[0], large),
            false => (units[1], small),
        };
        let mut axis = Axis::new(0.0, top * 1.04 / scale, n_marks, unit, scale);
        // Extends to the next mark if that is near, so that the chart ends in a grid line.
        let step = axis.step(n_marks);
        let up = (axis.to / step).ceil() * step;
        if up - axis.to < 0.35 * step {
            axis = Axis::new(0.0, up, n_marks, unit, scale);
        }
        axis
    }

    pub fn of_seconds(from: f64, to: f64, n_marks: usize) -> Axis {
        let (unit, scale) = match to.abs().max(from.abs()) {
            longest if longest > 3.0 * 3600.0 => ("h", 3600.0),
            longest if longest > 600.0 => ("min", 60.0),
            _ => ("s", 1.0),
        };
        Axis::new(from / scale, to / scale, n_marks, unit, scale)
    }

    fn new(from: f64, to: f64, n_marks: usize, unit: &'static str, scale: f64) -> Axis {
        let mut axis = Axis {
            from,
            to: if to > from { to } else { from + 1.0 },
            marks: Vec::new(),
            unit,
            scale,
            n_decimals: 0,
        };
        let step = axis.step(n_marks);
        let is_whole = |n: &usize| {
            let scaled = step * 10f64.powi(*n as i32);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        };
        axis.n_decimals = (0..6).find(is_whole).unwrap_or(6);
        let first = (axis.from / step).ceil();
        axis.marks = (0..200)
            .map(|n| (first + f64::from(n)) * step)
            .take_while(|mark| *mark <= axis.to * (1.0 + 1e-9))
            .collect();
        axis
    }

    /// 1, 2, 2.5 or 5 times a power of ten.
    fn step(&self, n_marks: usize) -> f64 {
        let min_step = (self.to - self.from) / n_marks.max(1) as f64;
        let power = 10f64.powf(min_step.log10().floor());
        let times = [1.0, 2.0, 2.5, 5.0]
            .into_iter()
            .find(|times| times * power >= min_step);
        times.unwrap_or(10.0) * power
    }

    /// The text of a mark.
    pub fn label(&self, mark: f64) -> String {
        format!("{mark:.*}", self.n_decimals)
    }

    /// The position of a value of the original unit on the axis: 0 at its beginning, 1 at its end.
    pub fn position(&self, value: f64) -> f64 {
        (value / self.scale - self.from) / (self.to - self.from)
    }

    pub fn position_of_mark(&self, mark: f64) -> f64 {
        (mark - self.from) / (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_cover_the_axis() {
        let axis = Axis::of_seconds(0.0, 12.3, 6);
        assert_eq!(axis.marks, [0.0, 2.5, 5.0, 7.5, 10.0]);
        assert_eq!(axis.label(2.5), "2.5");
        let axis = Axis::of_seconds(0.0, 0.73, 5);
        assert_eq!(axis.label(axis.marks[1]), "0.2");
        let axis = Axis::of_bytes(300_000_000, 5);
        assert_eq!((axis.unit, axis.label(axis.marks[1])), ("MB", "100".into()));
        assert_eq!(Axis::of_bytes(100 << 30, 4).unit, "GB");
        assert_eq!(Axis::of_seconds(0.0, 86_400.0, 6).unit, "h");
    }

    #[test]
    fn axis_of_an_empty_range_has_a_length() {
        let axis = Axis::of_seconds(5.0, 5.0, 4);
        assert!(axis.to > axis.from && !axis.marks.is_empty());
        assert!(!Axis::of_bytes(0, 4).marks.is_empty());
    }
}
