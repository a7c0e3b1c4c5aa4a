//! Median and spread of repeated measurements.

use serde::{Deserialize, Serialize};

/// What the rounds of one measurement gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Lower and upper quartile; results of older runs have none.
    #[serde(default)]
    pub quartiles: Option<(f64, f64)>,
}

impl Summary {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        // Interpolated between the two values that the point lies between.
        let at = |part: f64| {
            let place = part * (sorted.len() - 1) as f64;
            let (lower, upper) = (sorted[place.floor() as usize], sorted[place.ceil() as usize]);
            lower + (upper - lower) * place.fract()
        };
        Some(Summary { median: at(0.5), min, max, quartiles: Some((at(0.25), at(0.75))) })
    }

    /// The range that tables and charts show: the quartiles, or else the extremes.
    pub fn range(&self) -> (f64, f64) {
        self.quartiles.unwrap_or((self.min, self.max))
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
            Some(Summary { median: 2.5, min: 1.0, max: 4.0, quartiles: Some((1.75, 3.25)) })
        );
        let five = Summary::of(&[5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!((five.median, five.range()), (3.0, (2.0, 4.0)));
        assert_eq!(Summary::of(&[7.0]).unwrap().range(), (7.0, 7.0));
    }

    #[test]
    fn results_of_older_runs_have_no_quartiles() {
        let old: Summary = serde_json::from_str(r#"{"median":2.0,"min":1.0,"max":4.0}"#).unwrap();
        assert_eq!(old.range(), (1.0, 4.0));
    }

    #[test]
    fn ratios_are_paired() {
        let ratio = Summary::of_ratios(&[2.0, 20.0], &[4.0, 40.0]).unwrap();
        assert_eq!((ratio.median, ratio.range()), (0.5, (0.5, 0.5)));
    }
}
