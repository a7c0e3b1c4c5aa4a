//! What was measured: the file `results.json`, from which the table and the charts are made.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::machine::Machine;
use crate::server::{Side, other_build};
use crate::stats::Summary;

/// All scenarios measured so far; a run replaces those that it measures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Results {
    /// Of the last run.
    pub machine: Machine,
    pub scenarios: BTreeMap<String, ScenarioResult>,
}

/// The result of one scenario.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ScenarioResult {
    pub title: String,
    /// Of the values, for example `µs of server CPU per request`.
    pub unit: String,
    /// What it was measured on: scenarios that a run does not measure keep what was measured before.
    #[serde(default)]
    pub processor: String,
    pub better: Better,
    pub rounds: usize,
    pub seconds: f64,
    /// The label of nginx's best row; ratios are to it.
    pub reference: Option<String>,
    /// The label of nginx's usual setting where that is another one.
    pub usual: Option<String>,
    pub rows: Vec<VariantResult>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    Lower,
    Higher,
}

/// One variant of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VariantResult {
    pub label: String,
    pub side: Side,
    pub value: Summary,
    /// To the reference, round by round.
    pub ratio: Option<Summary>,
    /// To nginx's usual setting.
    pub ratio_usual: Option<Summary>,
    /// To the other build of Nowait.
    #[serde(default)]
    pub ratio_against: Option<Summary>,
    /// Medians of what else was seen, by name with unit.
    pub also: BTreeMap<String, f64>,
}

/// The measurements of one variant, before they are judged.
pub struct Samples {
    pub label: String,
    pub side: Side,
    pub values: Vec<f64>,
    pub also: BTreeMap<&'static str, Vec<f64>>,
}

impl Samples {
    pub fn new(label: &str, side: Side) -> Samples {
        Samples { label: label.to_owned(), side, values: Vec::new(), also: BTreeMap::new() }
    }

    pub fn push(&mut self, value: f64, also: &[(&'static str, f64)]) {
        self.values.push(value);
        for (name, value) in also {
            self.also.entry(name).or_default().push(*value);
        }
    }
}

impl ScenarioResult {
    /// The best of the peers.
    pub fn best_peer(&self) -> Option<&VariantResult> {
        let peers = self.rows.iter().filter(|row| matches!(row.side, Side::Peer(_)));
        let median = |row: &VariantResult| row.value.median;
        match self.better {
            Better::Lower => peers.min_by(|a, b| median(a).total_cmp(&median(b))),
            Better::Higher => peers.max_by(|a, b| median(a).total_cmp(&median(b))),
        }
    }

    /// Finds nginx's best row and sets every row in relation to it.
    pub fn fill(&mut self, samples: &[Samples], usual: Option<&str>) {
        let median = |s: &Samples| Summary::of(&s.values).map_or(f64::NAN, |s| s.median);
        let of_nginx = samples.iter().filter(|s| s.side == Side::Nginx && !s.values.is_empty());
        let reference = match self.better {
            Better::Lower => of_nginx.min_by(|a, b| median(a).total_cmp(&median(b))),
            Better::Higher => of_nginx.max_by(|a, b| median(a).total_cmp(&median(b))),
        };
        let usual = samples.iter().find(|s| Some(s.label.as_str()) == usual);
        self.reference = reference.map(|s| s.label.clone());
        self.usual = usual.map(|s| s.label.clone());
        self.rows = samples
            .iter()
            .filter_map(|s| {
                let ratio = |to: &Samples| Summary::of_ratios(&s.values, &to.values);
                let other = other_build(&s.label);
                let other = samples.iter().find(|known| known.label == other);
                let also = s.also.iter().filter_map(|(name, values)| {
                    Some(((*name).to_owned(), Summary::of(values)?.median))
                });
                Some(VariantResult {
                    label: s.label.clone(),
                    side: s.side,
                    value: Summary::of(&s.values)?,
                    ratio: reference.and_then(ratio),
                    ratio_usual: usual.and_then(ratio),
                    ratio_against: other.and_then(ratio),
                    also: also.collect(),
                })
            })
            .collect();
    }
}

impl Results {
    /// The results kept so far; none when there is no readable file.
    pub fn load(directory: &Path) -> Results {
        let text = fs::read_to_string(directory.join("results.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub fn save(&self, directory: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::create_dir_all(directory)
            .and_then(|()| fs::write(directory.join("results.json"), text + "\n"))
            .map_err(|error| format!("{}: {error}", directory.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::Peer;

    #[test]
    fn the_best_of_nginx_is_the_reference() {
        let mut samples: Vec<Samples> = Vec::new();
        for (label, side, value) in [
            ("off", Side::Nginx, 8.0),
            ("on", Side::Nginx, 10.0),
            ("epoll", Side::Nowait, 6.0),
            ("against: epoll", Side::Against, 12.0),
            ("HAProxy", Side::Peer(Peer::Haproxy), 7.0),
            ("H2O", Side::Peer(Peer::H2o), 5.0),
        ] {
            let mut s = Samples::new(label, side);
            s.push(value, &[("requests/s", 1.0)]);
            samples.push(s);
        }
        let mut outcome = ScenarioResult {
            title: String::new(),
            unit: String::new(),
            processor: String::new(),
            better: Better::Lower,
            rounds: 1,
            seconds: 1.0,
            reference: None,
            usual: None,
            rows: Vec::new(),
        };
        outcome.fill(&samples, Some("on"));
        assert_eq!(outcome.reference.as_deref(), Some("off"));
        assert_eq!(outcome.rows[2].ratio.unwrap().median, 0.75);
        assert_eq!(outcome.rows[2].ratio_usual.unwrap().median, 0.6);
        assert_eq!(outcome.rows[2].ratio_against.unwrap().median, 0.5);
        assert_eq!(outcome.rows[3].ratio_against, None);
        let text = serde_json::to_string(&outcome).unwrap();
        let back: ScenarioResult = serde_json::from_str(&text).unwrap();
        assert_eq!(back.rows.len(), 6);
        assert_eq!(back.best_peer().unwrap().label, "H2O");
    }
}
