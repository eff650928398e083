//! Least squares with few columns: finds a coefficient for each column, and its error.
//!
//! Columns that always change together get coefficients with a huge error. A small term keeps their equations solvable.

use super::trend::normal;

/// The resident size of a process is exact only to about this many bytes: the kernel counts the pages of each thread in
/// batches.
const NOISE_BYTES: f64 = 65_536.0;
/// Errors are unknown unless there are at least this many rows more than columns.
const MIN_SPARE_ROWS: usize = 6;
/// This fraction of the diagonal's sum is added to each element of the diagonal, so that the equations of columns that
/// change together can be solved.
const RIDGE: f64 = 1e-9;
/// One-sided bound of 95%.
const NORMAL_QUANTILE_95: f64 = 1.645;

pub struct Regression {
    /// The sums of the products of each two columns, a matrix in row-major order; after `solve`, its inverse.
    products: Vec<f64>,
    /// The sum of the products of each column and the result.
    with_result: Vec<f64>,
    result_squares: f64,
    /// The sum of each column.
    sums: Vec<f64>,
    n_columns: usize,
    n_rows: usize,
    coefficients: Vec<f64>,
    variance: f64,
}

/// A coefficient.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub slope: f64,
    /// An upper bound: the coefficient is lower with a probability of 95%.
    pub upper: f64,
    /// Probability that it is above zero.
    pub confidence: f64,
    /// Probability that it is above the average of the others; 1 if there are none.
    pub confidence_above_others: f64,
}

impl Regression {
    pub fn new(n_columns: usize) -> Regression {
        Regression {
            products: vec![0.0; n_columns * n_columns],
            with_result: vec![0.0; n_columns],
            result_squares: 0.0,
            sums: vec![0.0; n_columns],
            n_columns,
            n_rows: 0,
            coefficients: Vec::new(),
            variance: 0.0,
        }
    }

    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Adds a row: columns that are not zero, each once, and the number to explain.
    pub fn add(&mut self, row: &[(usize, f64)], result: f64) {
        for &(one, x) in row {
            for &(other, y) in row {
                self.products[one * self.n_columns + other] += x * y;
            }
            self.with_result[one] += x * result;
            self.sums[one] += x;
        }
        self.result_squares += result * result;
        self.n_rows += 1;
    }

    pub fn solve(&mut self) {
        let n = self.n_columns;
        let trace: f64 = (0..n).map(|at| self.products[at * n + at]).sum();
        let original = self.products.clone();
        for at in 0..n {
            self.products[at * n + at] += RIDGE * trace.max(1.0);
        }
        invert(&mut self.products, n);
        self.coefficients = (0..n).map(|row| self.dot(row, &self.with_result)).collect();
        let b = &self.coefficients;
        let explained: f64 = (0..n).map(|at| b[at] * self.with_result[at]).sum();
        let squares: f64 = (0..n)
            .flat_map(|one| (0..n).map(move |other| (one, other)))
            .map(|(one, other)| b[one] * b[other] * original[one * n + other])
            .sum();
        let residual = (self.result_squares - 2.0 * explained + squares).max(0.0);
        let spare = self.n_rows.saturating_sub(n).max(1) as f64;
        self.variance = (residual / spare).max(NOISE_BYTES * NOISE_BYTES);
    }

    /// Returns a coefficient after `solve`; `None` if there are too few rows.
    pub fn estimate(&self, column: usize) -> Option<Estimate> {
        let n = self.n_columns;
        let spare = self.n_rows.checked_sub(n)?;
        if spare < MIN_SPARE_ROWS {
            return None;
        }
        let error = (self.variance * self.products[column * n + column].max(0.0)).sqrt();
        let slope = self.coefficients[column];
        // The column minus the average of the others, weighted by their sums.
        let others = self.sums.iter().sum::<f64>() - self.sums[column];
        let confidence_above_others = if others > 0.0 {
            let weights = self.sums.iter().map(|sum| -sum / others);
            let mut weights: Vec<f64> = weights.collect();
            weights[column] = 1.0;
            let difference: f64 = weights
                .iter()
                .zip(&self.coefficients)
                .map(|(w, b)| w * b)
                .sum();
            let variance: f64 = (0..n)
                .map(|row| weights[row] * self.dot(row, &weights))
                .sum();
            certainty(
                difference,
                (self.variance * variance.max(0.0)).sqrt(),
                spare,
            )
        } else {
            1.0
        };
        Some(Estimate {
            slope,
            upper: slope + NORMAL_QUANTILE_95 * error,
            confidence: certainty(slope, error, spare),
            confidence_above_others,
        })
    }

    /// One row of the matrix times a vector.
    fn dot(&self, row: usize, vector: &[f64]) -> f64 {
        let row = &self.products[row * self.n_columns..][..self.n_columns];
        row.iter().zip(vector).map(|(one, other)| one * other).sum()
    }
}

/// The probability that a value with this error is above zero, by Student's distribution, approximated by the normal
/// one.
fn certainty(value: f64, error: f64, n_spare: usize) -> f64 {
    if !error.is_finite() || error <= 0.0 {
        return 0.0;
    }
    let (t, n) = (value / error, n_spare as f64);
    normal(t * (1.0 - 1.0 / (4.0 * n)) / (1.0 + t * t / (2.0 * n)).sqrt())
}

/// Inverts a symmetric positive definite matrix in place (Gauss–Jordan, without a search for pivots).
fn invert(matrix: &mut [f64], n: usize) {
    for pivot in 0..n {
        let scale = matrix[pivot * n + pivot];
        if scale <= 0.0 {
            // Rounding left no digits: nothing is known about this column.
            matrix[pivot * n + pivot] = f64::INFINITY;
            continue;
        }
        matrix[pivot * n + pivot] = 1.0;
        for column in 0..n {
            matrix[pivot * n + column] /= scale;
        }
        for row in (0..n).filter(|&row| row != pivot) {
            let factor = matrix[row * n + pivot];
            matrix[row * n + pivot] = 0.0;
            for column in 0..n {
                matrix[row * n + column] -= factor * matrix[pivot * n + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solved(rows: &[([f64; 2], f64)]) -> Regression {
        let mut regression = Regression::new(2);
        for (row, result) in rows {
            regression.add(&[(0, row[0]), (1, row[1])], *result);
        }
        regression.solve();
        regression
    }

    #[test]
    fn coefficients_of_an_exact_sum_are_found() {
        let rows: Vec<([f64; 2], f64)> = (0..20)
            .map(|n| [f64::from(n % 5), f64::from(n % 7)])
            .map(|row| (row, 1e6 * row[0] + 3e6 * row[1]))
            .collect();
        let regression = solved(&rows);
        for (column, expected) in [(0, 1e6), (1, 3e6)] {
            let estimate = regression.estimate(column).unwrap();
            assert!((estimate.slope - expected).abs() < 10.0, "{estimate:?}");
            assert!(estimate.confidence > 0.999, "{estimate:?}");
        }
        assert!(regression.estimate(1).unwrap().confidence_above_others > 0.999);
        assert!(regression.estimate(0).unwrap().confidence_above_others < 0.001);
    }

    #[test]
    fn columns_that_change_together_are_uncertain() {
        let rows: Vec<([f64; 2], f64)> = (1..40)
            .map(|n| ([f64::from(n % 9), f64::from(n % 9)], 1e6 * f64::from(n % 9)))
            .collect();
        let estimate = solved(&rows).estimate(0).unwrap();
        assert!(estimate.confidence < 0.95, "{estimate:?}");
        assert!(estimate.upper > 1e6, "{estimate:?}");
    }

    #[test]
    fn few_rows_give_no_estimate() {
        assert!(
            solved(&[([1.0, 0.0], 1.0), ([0.0, 1.0], 1.0)])
                .estimate(0)
                .is_none()
        );
    }
}
