//! `nowait top`: shows a running server in a terminal, from the report of `status_api`.
//!
//! Called by `tools`. [`status_client`] fetches reports, [`sheets`] makes tables of two of them, and the tables are
//! shown on a [`screen`] or printed as text. Only reads; no server runs in this process.

mod numbers;
mod screen;
mod sheet;
mod sheets;
mod status_client;
mod view;

use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use nowait_front::log::escape;

use crate::output;
use sheets::Sample;
use status_client::StatusUrl;

/// The location of the documentation's example.
const URL: &str = "http://127.0.0.1:9145/status/";

/// Seconds between two reports.
const INTERVAL_S: f64 = 1.0;

/// The command with its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    url: StatusUrl,
    interval: Duration,
    once: bool,
    json: bool,
}

/// The command line of `top`.
pub fn arguments() -> Command {
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
    };
    Command::new("top")
        .about("Show what a running server does: findings, disks, pools, caches, upstreams, loops, events")
        .after_help(
            "The server needs a location with \"status_api\":\n\n    \
             server { listen 127.0.0.1:9145; location /status/ { status_api; } }\n\n\
             Keys: Tab or 1-9 choose a table, arrows scroll, s sorts by the next column, r reverses, p pauses, q quits.",
        )
        .arg(
            Arg::new("url")
                .value_name("URL")
                .value_hint(ValueHint::Url)
                .default_value(URL)
                .value_parser(|text: &str| text.parse::<StatusUrl>())
                .help("Location with status_api; http://USER:PASSWORD@HOST:PORT/PATH/ or unix:SOCKET:/PATH/"),
        )
        .arg(
            Arg::new("interval")
                .short('d')
                .long("interval")
                .value_name("SECONDS")
                .default_value("1")
                .value_parser(interval)
                .help("Seconds between two reports, from 0.2 to 60"),
        )
        .arg(flag("once", "Print the tables of one interval as text"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .conflicts_with("once")
                .help("Print one report as JSON"),
        )
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.2..=60.0).contains(seconds));
    seconds.ok_or_else(|| "expected a number from 0.2 to 60".to_owned())
}

impl Top {
    /// The command of these arguments.
    pub fn of(matches: &ArgMatches) -> Top {
        let url = matches.get_one::<StatusUrl>("url").cloned();
        let seconds = matches.get_one::<f64>("interval").copied().unwrap_or(INTERVAL_S);
        Top {
            url: url.expect("clap gives the default value"),
            interval: Duration::from_secs_f64(seconds),
            once: matches.get_flag("once"),
            json: matches.get_flag("json"),
        }
    }

    /// Runs it; returns the exit code.
    ///
    /// # Errors
    /// No report can be had, or the terminal can't be used.
    pub fn run(self) -> Result<u8, String> {
        if self.json {
            let report = self.url.fetch()?;
            output::print(&format!("{}\n", escape::json_text(&format!("{report:#}"))))?;
        } else if self.once {
            output::print(&self.text()?)?;
        } else {
            screen::run(&self.url, self.interval)?;
        }
        Ok(0)
    }

    /// The tables of one interval.
    fn text(&self) -> Result<String, String> {
        let first = self.url.fetch()?;
        std::thread::sleep(self.interval);
        let second = self.url.fetch()?;
        let sample = Sample::new(second, Some(&first));
        let sheets = sheets::all(&sample);
        let texts: Vec<String> = sheets.iter().map(sheet::Sheet::text).collect();
        Ok(texts.join("\n"))
    }
}
