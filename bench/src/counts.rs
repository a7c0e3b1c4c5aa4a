//! Instructions per request, compared with those that are kept in the tree: CI fails when one has grown.
//!
//! Called for `--check-counts` and `--record-counts`. Counts depend on the compiler, on the C library
//! and on what of a processor valgrind knows: figures that were recorded with others are not compared,
//! which is no failure.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::bench::Bench;
use crate::options::Mode;
use crate::scenario::Scenario;

/// What is compared: a response from the configuration, a file, an origin and a cache; and what users add to it.
const SCENARIOS: [&str; 8] =
    ["tiny", "file-1k", "file-1k-log", "proxy-tiny", "cache-100b", "tls-1k", "h2-1k", "h3-1k"];

/// The variant that valgrind can run.
const VARIANT: &str = "nowait epoll";

/// Growth that is no failure, as a share.
const GROWTH_MAX: f64 = 0.02;

/// The figures, and what they depend on.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct CountsFile {
    made_with: BTreeMap<String, String>,
    /// Instructions in user space per request.
    counts: BTreeMap<String, u64>,
}

/// Counts, and compares with the file or writes it.
pub fn run(bench: &Bench, all: &[Scenario], mode: Mode, file: &Path) -> Result<(), String> {
    let made_with = environment()?;
    let kept: CountsFile = match (mode, fs::read_to_string(file)) {
        (Mode::Record, _) => CountsFile::default(),
        (Mode::Check, text) => {
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", file.display()))?
        }
    };
    if mode == Mode::Check && kept.made_with != made_with {
        println!("Counts are not compared: they were made with other tools or another processor.");
        for (what, here) in &made_with {
            let then = kept.made_with.get(what).map_or("", String::as_str);
            if then != here {
                println!("  {what}: then \"{then}\", here \"{here}\"");
            }
        }
        println!("`cargo xtask counts --record` records them again.");
        return Ok(());
    }
    let mut counts = BTreeMap::new();
    for scenario in all.iter().filter(|scenario| SCENARIOS.contains(&scenario.subject.name)) {
        let name = scenario.subject.name;
        let count = || {
            let count =
                scenario.instructions(bench, VARIANT).map_err(|e| format!("{name}: {e}"))?;
            Ok::<u64, String>(count.round() as u64)
        };
        let then = kept.counts.get(name).copied();
        let mut now = count()?;
        println!("{}", line(name, then, now));
        if then.is_some_and(|then| is_too_much(then, now)) {
            // Chance makes no request cheaper; but one may be dearer, if its file is not resident yet.
            now = now.min(count()?);
            println!("{} when counted again", line(name, then, now));
        }
        counts.insert(name.to_owned(), now);
    }
    if mode == Mode::Record {
        let text = serde_json::to_string_pretty(&CountsFile { made_with, counts });
        let text = text.map_err(|error| error.to_string())? + "\n";
        return fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()));
    }
    let grown = grown(&kept.counts, &counts);
    if grown.is_empty() {
        return Ok(());
    }
    Err(format!(
        "a request takes more instructions than before: {}.\nFind out where: run the server under \
         `valgrind --tool=callgrind` before and after the change, and compare what \
         `callgrind_annotate --inclusive=yes` prints. If the change is worth it, say so in its commit, \
         and record the new figures with it: `cargo xtask counts --record`",
        grown.join(", ")
    ))
}

fn line(name: &str, then: Option<u64>, now: u64) -> String {
    match then {
        Some(then) => {
            let percent = 100.0 * (now as f64 / then as f64 - 1.0);
            format!("{name:12} {now:6} instructions per request, {percent:+.1} %")
        }
        None => format!("{name:12} {now:6} instructions per request"),
    }
}

/// The names of what has grown by too much. What was not counted before has not.
fn grown(then: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> Vec<String> {
    let has_grown = |(name, now): &(&String, &u64)| {
        then.get(*name).is_some_and(|then| is_too_much(*then, **now))
    };
    now.iter().filter(has_grown).map(|(name, _)| name.clone()).collect()
}

fn is_too_much(then: u64, now: u64) -> bool {
    now as f64 > then as f64 * (1.0 + GROWTH_MAX)
}

/// What the counts depend on.
fn environment() -> Result<BTreeMap<String, String>, String> {
    let flags = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = flags.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    // Of these, valgrind shows its programs what the processor has.
    let shown = ["sse4_2", "avx", "avx2", "bmi2", "fma", "rdrand", "f16c"];
    let has = |flag: &&&str| flags.split_whitespace().any(|known| known == **flag);
    let shown: Vec<&str> = shown.iter().filter(has).copied().collect();
    let facts = [
        ("rustc", first_line("rustc", "-V")?),
        ("valgrind", first_line("valgrind", "--version")?),
        ("libc", first_line("ldd", "--version")?),
        ("processor", format!("{} {}", std::env::consts::ARCH, shown.join(" "))),
    ];
    Ok(facts.map(|(name, value)| (name.to_owned(), value)).into())
}

fn first_line(program: &str, argument: &str) -> Result<String, String> {
    let output = Command::new(program).arg(argument).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_beyond_two_percent_is_too_much() {
        let counts = |of: &[(&str, u64)]| of.iter().map(|(n, c)| ((*n).to_owned(), *c)).collect();
        let then = counts(&[("a", 1000), ("b", 1000), ("c", 1000)]);
        let now = counts(&[("a", 1020), ("b", 1021), ("c", 900), ("new", 5000)]);
        assert_eq!(grown(&then, &now), ["b"]);
    }
}
