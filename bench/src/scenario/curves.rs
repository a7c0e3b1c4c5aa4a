//! Growth: what more of one thing costs, in several sizes beside nginx.
//!
//! Called for `--growth`. Instructions and memory are the same on a busy machine; a start and a reload are measured
//! by their CPU time.

use std::net::TcpStream;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::growth::{self, Figure, Large};
use super::idle::{self, Idle};
use super::{count, growth::measure};
use crate::bench::{Bench, Subject};
use crate::machine::Machine;
use crate::process;
use crate::report;
use crate::server::{ADDRESS, Side, Variant};
use crate::stats::Summary;

/// What a curve shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CurveFigure {
    /// User instructions per request. Counted with epoll alone.
    Instructions,
    /// Allocated by all processes.
    Memory,
    Start,
    Reload,
}

/// What grows.
#[derive(Clone, Copy)]
enum Growing {
    /// Connections, all of which but one are idle.
    Connections,
    Configuration(fn(usize) -> Large),
}

/// One curve.
pub struct Curve {
    name: &'static str,
    title: &'static str,
    growing: Growing,
    figure: CurveFigure,
    sizes: &'static [usize],
}

/// The sizes of things of which configurations have few.
const HUNDREDS: &[usize] = &[10, 100, 500, 2_000];
/// The sizes of things of which they have many.
const THOUSANDS: &[usize] = &[10, 100, 1_000, 10_000];
/// The sizes of lists that programs write.
const LISTS: &[usize] = &[100, 1_000, 10_000, 100_000];

/// Rounds; figures that are the same in each have one.
const ROUNDS_MAX: usize = 6;

const MB: f64 = (1 << 20) as f64;

/// The curves, in the order of the report.
pub fn all() -> Vec<Curve> {
    use CurveFigure::{Instructions, Memory, Reload, Start};
    use Growing::{Configuration, Connections};
    let curve = |name, title, growing, figure, sizes| Curve { name, title, growing, figure, sizes };
    let mut curves = vec![
        curve("connections-memory", "idle connections", Connections, Memory, THOUSANDS),
        curve("connections-request", "idle connections", Connections, Instructions, THOUSANDS),
    ];
    let mut add = |names: [&'static str; 4], title, large: fn(usize) -> Large, sizes| {
        let figures = [Instructions, Memory, Start, Reload];
        for (name, figure) in names.into_iter().zip(figures) {
            curves.push(curve(name, title, Configuration(large), figure, sizes));
        }
    };
    add(
        ["servers-request", "servers-memory", "servers-start", "servers-reload"],
        "virtual servers",
        Large::Hosts,
        &[10, 100, 1_000, 5_000],
    );
    add(
        ["locations-request", "locations-memory", "locations-start", "locations-reload"],
        "locations, prefixes",
        Large::Locations,
        &[10, 100, 1_000, 5_000],
    );
    add(
        ["regexes-request", "regexes-memory", "regexes-start", "regexes-reload"],
        "locations, regular expressions",
        Large::RegexLocations,
        HUNDREDS,
    );
    add(
        ["map-request", "map-memory", "map-start", "map-reload"],
        "entries of a map, texts",
        Large::Entries,
        LISTS,
    );
    add(
        ["map-regexes-request", "map-regexes-memory", "map-regexes-start", "map-regexes-reload"],
        "entries of a map, regular expressions",
        Large::RegexEntries,
        HUNDREDS,
    );
    add(
        ["geo-request", "geo-memory", "geo-start", "geo-reload"],
        "networks of geo",
        Large::Networks,
        LISTS,
    );
    add(
        ["upstream-request", "upstream-memory", "upstream-start", "upstream-reload"],
        "servers of an upstream group",
        Large::UpstreamServers,
        HUNDREDS,
    );
    curves
}

/// All curves measured so far; a run replaces those that it measures.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CurveResults {
    /// Of the last run.
    machine: Machine,
    curves: std::collections::BTreeMap<String, CurveResult>,
}

/// The result of one curve.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CurveResult {
    title: String,
    unit: String,
    sizes: Vec<usize>,
    rows: Vec<CurveRow>,
}

/// One variant of a server; medians in the order of the sizes.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct CurveRow {
    label: String,
    side: Side,
    values: Vec<f64>,
}

impl Curve {
    /// What `--only` calls it.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The title of its table.
    pub fn title(&self) -> String {
        let what = match self.figure {
            CurveFigure::Instructions => "Instructions of a request",
            CurveFigure::Memory => "Memory",
            CurveFigure::Start => "CPU of a start",
            CurveFigure::Reload => "CPU of a reload",
        };
        format!("{what}: {}", self.title)
    }

    fn unit(&self) -> &'static str {
        match self.figure {
            CurveFigure::Instructions => "user instructions per request",
            CurveFigure::Memory => "MB allocated by all processes",
            CurveFigure::Start => "ms of CPU for a start",
            CurveFigure::Reload => "ms of CPU for a reload",
        }
    }

    fn run(&self, bench: &Bench) -> Result<CurveResult, String> {
        let mut variants = bench.plain_variants();
        if self.figure == CurveFigure::Instructions {
            variants.retain(|variant| !variant.events.contains("io_uring"));
        }
        let rounds = match self.figure {
            CurveFigure::Instructions | CurveFigure::Memory => 1,
            CurveFigure::Start | CurveFigure::Reload => bench.options.rounds.min(ROUNDS_MAX),
        };
        let row = |variant: &Variant| CurveRow {
            label: variant.label.clone(),
            side: variant.side,
            values: Vec::new(),
        };
        let mut rows: Vec<CurveRow> = variants.iter().map(row).collect();
        for size in self.sizes {
            let mut values = vec![Vec::new(); variants.len()];
            for round in 0..rounds {
                for (variant, values) in variants.iter().zip(&mut values) {
                    let value = self
                        .measure(bench, variant, *size)
                        .map_err(|error| format!("{} with {size}: {error}", variant.label))?;
                    let subject = Subject { name: self.name, title: self.title };
                    let text = format!("{size:7} {value:12.1} {}", self.unit());
                    bench.progress(&subject, round, &variant.label, &text);
                    values.push(value);
                }
            }
            for (row, values) in rows.iter_mut().zip(values) {
                let median = Summary::of(&values).map_or(f64::NAN, |summary| summary.median);
                row.values.push(median);
            }
        }
        let sizes = self.sizes.to_vec();
        Ok(CurveResult { title: self.title(), unit: self.unit().to_owned(), sizes, rows })
    }

    fn measure(&self, bench: &Bench, variant: &Variant, size: usize) -> Result<f64, String> {
        let large = match self.growing {
            Growing::Connections => return self.connections(bench, variant, size),
            Growing::Configuration(large) => large(size),
        };
        let _origin = large.has_origin().then(|| bench.origin()).transpose()?;
        let cost = |figure| measure(bench, large, variant, figure);
        Ok(match self.figure {
            CurveFigure::Instructions => {
                let setup = growth::setup(bench, large, 1);
                let send = |requests| ask(&large.request(), requests);
                count::configured(bench, &setup, variant, &send)?
            }
            CurveFigure::Memory => cost(Figure::Start)?.allocated / MB,
            CurveFigure::Start => cost(Figure::Start)?.cpu.as_secs_f64() * 1e3,
            CurveFigure::Reload => cost(Figure::Reload)?.cpu.as_secs_f64() * 1e3,
        })
    }

    fn connections(&self, bench: &Bench, variant: &Variant, count: usize) -> Result<f64, String> {
        idle::raise_limit(count)?;
        if self.figure == CurveFigure::Memory {
            let allocated = process::allocated_bytes;
            let (_, with) = idle::measure(bench, variant, count, Idle::Plain, allocated)?;
            return Ok(with as f64 / MB);
        }
        let setup = bench.setup(1);
        // They are opened by the first requests, which are not counted.
        let idle = std::cell::OnceCell::new();
        let request = crate::probe::request("/tiny", false);
        let send = |requests| {
            if idle.get().is_none() {
                let opened = (0..count).map(|_| open(&request)).collect::<Result<Vec<_>, _>>()?;
                let _ = idle.set(opened);
            }
            ask(&request, requests)
        };
        count::configured(bench, &setup, variant, &send)
    }
}

/// Makes so many requests on one connection, all of which are answered with "OK".
fn ask(request: &[u8], requests: usize) -> Result<(), String> {
    let stream = TcpStream::connect(ADDRESS).map_err(|error| error.to_string())?;
    (0..requests).try_for_each(|_| growth::ask(&stream, request)).map_err(|error| error.to_string())
}

/// A connection that has made a request.
fn open(request: &[u8]) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(ADDRESS).map_err(|error| error.to_string())?;
    growth::ask(&stream, request).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Measures the curves, prints a table after each, and keeps the results.
///
/// # Errors
/// One could not be measured.
pub fn run(bench: &Bench, machine: Machine) -> Result<(), String> {
    let out = bench.options.out.as_deref();
    let mut results = out.map(CurveResults::load).unwrap_or_default();
    results.machine = machine;
    let (only, mut failed) = (&bench.options.only, Vec::new());
    for curve in all() {
        if !only.is_empty() && !only.iter().any(|name| name == curve.name) {
            continue;
        }
        match curve.run(bench) {
            Ok(result) => {
                println!("\n{}", result.table());
                results.curves.insert(curve.name.to_owned(), result);
                out.map_or(Ok(()), |directory| results.save(directory))?;
            }
            Err(error) => {
                println!("{}: {error}", curve.name);
                failed.push(curve.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("not measured: {}", failed.join(", "))) }
}

impl CurveResult {
    /// As a Markdown table: a column for each size, with the ratio to nginx.
    fn table(&self) -> String {
        let mut header = vec![self.unit.clone()];
        header.extend(self.sizes.iter().map(usize::to_string));
        let nginx = self.rows.iter().find(|row| row.side == Side::Nginx);
        let mut lines = vec![header];
        for row in &self.rows {
            let mut line = vec![row.label.clone()];
            for (at, value) in row.values.iter().enumerate() {
                let beside = nginx.filter(|nginx| nginx.label != row.label);
                let beside = beside.and_then(|nginx| nginx.values.get(at));
                line.push(match beside.filter(|nginx| **nginx > 0.0) {
                    Some(nginx) => format!("{} (× {:.2})", number(*value), value / nginx),
                    None => number(*value),
                });
            }
            lines.push(line);
        }
        format!("## {}\n\n{}", self.title, report::aligned(&lines))
    }
}

/// Instructions have no fractions.
fn number(value: f64) -> String {
    if value < 1000.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

impl CurveResults {
    fn load(directory: &Path) -> CurveResults {
        let text = std::fs::read_to_string(directory.join("curves.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    fn save(&self, directory: &Path) -> Result<(), String> {
        let json = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(directory.join("curves.json"), json + "\n"))
            .and_then(|()| std::fs::write(directory.join("curves.md"), self.text()))
            .map_err(|error| format!("{}: {error}", directory.display()))
    }

    fn text(&self) -> String {
        let Machine { processor, kernel, nginx, nowait, .. } = &self.machine;
        let nowait = nowait.as_deref().unwrap_or("no Nowait");
        let mut text = format!(
            "# Growth\n\n{processor}, Linux {kernel}; {nginx}; {nowait}. Made by `cargo xtask bench --growth`. \
             In parentheses the ratio to nginx.\n"
        );
        let order = all();
        for result in order.iter().filter_map(|curve| self.curves.get(curve.name)) {
            text.push('\n');
            text.push_str(&result.table());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curves_have_different_names() {
        let mut names: Vec<_> = all().iter().map(Curve::name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn tables_show_the_ratio_to_nginx() {
        let row = |label: &str, side, values: [f64; 2]| CurveRow {
            label: label.to_owned(),
            side,
            values: values.to_vec(),
        };
        let result = CurveResult {
            title: "Memory: servers".to_owned(),
            unit: "MB".to_owned(),
            sizes: vec![10, 100],
            rows: vec![
                row("nginx", Side::Nginx, [10.0, 2000.0]),
                row("nowait", Side::Nowait, [5.0, 3000.0]),
            ],
        };
        let expected = "\
## Memory: servers

| MB     | 10           | 100           |
|--------|--------------|---------------|
| nginx  | 10.0         | 2000          |
| nowait | 5.0 (× 0.50) | 3000 (× 1.50) |
";
        assert_eq!(result.table(), expected);
    }
}
