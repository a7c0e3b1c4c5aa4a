//! Median and spread of repeated measurements.

use serde::{Deserialize, Serialize};

/// What rounds of one measurement gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted[sorted.len() / 2];
        let lower = sorted[(sorted.len() - 1) / 2];
        Some(Summary { median: (lower + upper) / 2.0, min, max })
    }

    /// The ratios round by round, so that what disturbs a whole round does not disturb them.
    pub fn of_ratios(values: &[f64], reference: &[f64]) -> Option<Summary> {
        let ratios: Vec<f64> =
            values.iter().zip(reference).filter(|(_, r)| **r > 0.0).map(|(v, r)| v / r).collect();
        Summary::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(
            Summary::of(&[4.0, 1.0, 2.0, 3.0]),
            Some(Summary { median: 2.5, min: 1.0, max: 4.0 })
        );
    }

    #[test]
    fn ratios_are_paired() {
        let ratio = Summary::of_ratios(&[2.0, 20.0], &[4.0, 40.0]).unwrap();
        assert_eq!(ratio, Summary { median: 0.5, min: 0.5, max: 0.5 });
    }
}
