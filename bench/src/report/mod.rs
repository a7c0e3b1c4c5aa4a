//! The report: a table for terminals and pages, and charts.

mod chart;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::results::{Better, Results, ScenarioResult};
use crate::stats::Summary;

/// Writes `results.json`, `table.md` and the charts. `order` is that of the scenarios.
pub fn write(results: &Results, order: &[&str], directory: &Path) -> Result<(), String> {
    results.save(directory)?;
    let table = directory.join("table.md");
    fs::write(&table, page(results, order))
        .map_err(|error| format!("{}: {error}", table.display()))?;
    chart::draw(results, order, directory)
}

/// All scenarios as one Markdown page.
fn page(results: &Results, order: &[&str]) -> String {
    let machine = &results.machine;
    let mut text = format!(
        "# Measurements\n\n{}, Linux {}, {} processors, {}{}; {}; {}{}.\n\
         Medians; in brackets the quartiles of the rounds (the smallest and the largest round where \
         a scenario was measured before quartiles were kept). Ratios are to nginx's best setting, \
         and to its usual one where that is another; a difference smaller than the distance of its \
         quartiles is \"no difference\".\n{}",
        machine.processor,
        machine.kernel,
        machine.processors,
        machine.congestion_control,
        if machine.namespace { " in a network namespace" } else { ", no network namespace" },
        machine.nginx,
        machine.nowait.as_deref().unwrap_or("Nowait was not measured"),
        machine.peers.iter().map(|peer| format!("; {peer}")).collect::<String>(),
        match machine.state.as_str() {
            "" => String::new(),
            state => format!("The machine before the run: {state}.\n"),
        },
    );
    text.push_str(&summary(results, order));
    for name in order {
        if let Some(outcome) = results.scenarios.get(*name) {
            let _ = write!(text, "\n## {}\n\n", outcome.title);
            if outcome.processor != machine.processor && !outcome.processor.is_empty() {
                let _ =
                    write!(text, "Measured before, on another machine: {}.\n\n", outcome.processor);
            }
            text.push_str(&table(outcome));
        }
    }
    text
}

/// One line per scenario: nginx's best, the best of Nowait with each driver, the best of other servers, and the
/// floor.
fn summary(results: &Results, order: &[&str]) -> String {
    let header = ["", "nginx's best", "", "nowait epoll", "nowait io_uring", "best peer", "floor"];
    let mut lines = vec![header.map(str::to_owned).to_vec()];
    for outcome in order.iter().filter_map(|name| results.scenarios.get(*name)) {
        let reference =
            outcome.rows.iter().find(|row| Some(&row.label) == outcome.reference.as_ref());
        let Some(reference) = reference else { continue };
        let best = |driver: &str| {
            let rows = outcome.rows.iter().filter(|row| row.label.starts_with(driver));
            let ratios = rows.filter_map(|row| row.ratio);
            let better = match outcome.better {
                Better::Lower => ratios.min_by(|a, b| a.median.total_cmp(&b.median)),
                Better::Higher => ratios.max_by(|a, b| a.median.total_cmp(&b.median)),
            };
            better.map(|ratio| relation(&ratio, "× ")).unwrap_or_default()
        };
        let peer = outcome
            .best_peer()
            .and_then(|row| Some(format!("{} {}", row.label, relation(row.ratio.as_ref()?, "× "))));
        lines.push(vec![
            outcome.title.clone(),
            format!("{:.1} {}", reference.value.median, outcome.unit),
            reference.label.clone(),
            best("nowait epoll"),
            best("nowait io_uring"),
            peer.unwrap_or_default(),
            best("floor"),
        ]);
    }
    format!("\n{}", aligned(&lines))
}

/// One scenario as a Markdown table.
pub fn table(outcome: &ScenarioResult) -> String {
    let names: Vec<&String> =
        outcome.rows.first().map(|row| row.also.keys().collect()).unwrap_or_default();
    let usual = outcome.usual.is_some();
    let mut header = vec![String::new(), outcome.unit.clone(), "to nginx's best".to_owned()];
    header.extend(usual.then(|| "to its usual".to_owned()));
    let against = outcome.rows.iter().any(|row| row.ratio_against.is_some());
    header.extend(against.then(|| "to the other build".to_owned()));
    header.extend(names.iter().map(|name| (*name).clone()));
    let mut lines = vec![header];
    for row in &outcome.rows {
        let mut line = vec![row.label.clone(), spread(&row.value, 1)];
        line.push(row.ratio.as_ref().map(|ratio| relation(ratio, "")).unwrap_or_default());
        line.extend(usual.then(|| {
            row.ratio_usual.as_ref().map(|ratio| relation(ratio, "")).unwrap_or_default()
        }));
        line.extend(against.then(|| {
            row.ratio_against.as_ref().map(|ratio| relation(ratio, "")).unwrap_or_default()
        }));
        line.extend(names.iter().map(|name| {
            row.also.get(*name).map(|value| format!("{value:.0}")).unwrap_or_default()
        }));
        lines.push(line);
    }
    aligned(&lines)
}

/// A ratio, after this sign. What differs by less than the rounds differ among themselves is no
/// difference.
fn relation(ratio: &Summary, sign: &str) -> String {
    let (low, high) = ratio.range();
    match (ratio.median - 1.0).abs() < high - low {
        true => format!("no difference ({low:.2}–{high:.2})"),
        false => format!("{sign}{}", spread(ratio, 2)),
    }
}

fn spread(summary: &Summary, digits: usize) -> String {
    let (median, (low, high)) = (summary.median, summary.range());
    format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
}

/// A Markdown table whose columns line up in a terminal too.
pub fn aligned(lines: &[Vec<String>]) -> String {
    let columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for (index, line) in lines.iter().enumerate() {
        let cell = |(cell, width): (&String, &usize)| {
            format!("{cell}{}", " ".repeat(width - cell.chars().count()))
        };
        let cells: Vec<String> = line.iter().zip(&widths).map(cell).collect();
        let _ = writeln!(text, "| {} |", cells.join(" | "));
        if index == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            let _ = writeln!(text, "|-{}-|", rules.join("-|-"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_within_the_spread_are_none() {
        let ratio = |values: &[f64]| relation(&Summary::of(values).unwrap(), "× ");
        assert_eq!(ratio(&[0.9, 0.98, 1.1]), "no difference (0.94–1.04)");
        assert_eq!(ratio(&[0.69, 0.7, 0.71, 0.72, 0.73]), "× 0.71 (0.70–0.72)");
        assert_eq!(ratio(&[1.0, 1.0]), "× 1.00 (1.00–1.00)");
    }

    #[test]
    fn columns_line_up() {
        let lines = [vec!["".to_owned(), "µs".to_owned()], vec!["a".to_owned(), "1".to_owned()]];
        assert_eq!(aligned(&lines), "|   | µs |\n|---|----|\n| a | 1  |\n");
    }
}
