//! `nowait connections URL`: the clients of a running server and what each waits for, from its `connections_api`.
//!
//! Called by `main`.

use std::io::{self, Write};
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use nowait_front::log::escape;
use serde_json::Value;

use crate::api_client::ApiUrl;

/// Time for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionsCommand {
    url: ApiUrl,
    json: bool,
    limit: u32,
}

/// The command for the parser.
pub fn command() -> Command {
    Command::new("connections")
        .about("Show the clients of a running server and what each waits for")
        .arg(
            Arg::new("url")
                .value_name("URL")
                .required(true)
                .value_parser(|text: &str| text.parse::<ApiUrl>())
                .help(
                    "The location with \"connections_api\"; http://USER:PASSWORD@HOST:PORT/PATH or unix:SOCKET:/PATH",
                ),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object per connection"),
        )
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("NUMBER")
                .default_value("500")
                .value_parser(clap::value_parser!(u32).range(1..=2000))
                .help("At most so many of each worker"),
        )
}

impl ConnectionsCommand {
    /// The command that was parsed.
    pub fn of(matches: &ArgMatches) -> ConnectionsCommand {
        let url: &ApiUrl = matches.get_one("url").expect("the parser requires it");
        ConnectionsCommand {
            url: url.clone(),
            json: matches.get_flag("json"),
            limit: matches.get_one("limit").copied().unwrap_or(500),
        }
    }

    /// Shows the connections.
    ///
    /// # Errors
    /// The text to print.
    pub fn run(&self) -> Result<(), String> {
        let url = &self.url;
        let page = url.get(&[("limit", &self.limit.to_string())], TIMEOUT);
        let page = page.map_err(|error| format!("[error] {url}: {error}"))?;
        if page.status != 200 {
            return Err(format!("[error] {url} is answered with {}", page.status));
        }
        let content: Value = serde_json::from_slice(&page.body).unwrap_or_default();
        let Some(connections) = content["connections"].as_array() else {
            return Err(format!("[error] {url} is no location with \"connections_api\""));
        };
        match self.print(connections, &content) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
                Err(format!("[error] {error}"))
            }
            _ => Ok(()),
        }
    }

    fn print(&self, connections: &[Value], content: &Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            for connection in connections {
                writeln!(out, "{}", escape::json_text(&connection.to_string()))?;
            }
            return out.flush();
        }
        writeln!(
            out,
            "{:>9} {:>3} {:<39} {:<8} {:>8} {:>6} {:>9} {:>9} STATE",
            "NUMBER", "W", "CLIENT", "PROTOCOL", "AGE", "REQ", "RECEIVED", "SENT"
        )?;
        for connection in connections {
            writeln!(out, "{}", line(connection))?;
        }
        if content["has_more"] == true {
            writeln!(out, "(there are more; --limit shows up to 2000 of each worker)")?;
        }
        if let Some(silent) = content["silent_workers"].as_u64().filter(|silent| *silent > 0) {
            writeln!(out, "({silent} workers have not answered)")?;
        }
        out.flush()
    }
}

/// A connection for people.
fn line(connection: &Value) -> String {
    let number = |name: &str| connection[name].as_u64();
    let size = |name: &str| number(name).map_or_else(|| "-".to_owned(), bytes);
    let text = |value: &Value| escape::line(value.as_str().unwrap_or_default()).into_owned();
    let tls = if connection["tls"] == true { "s" } else { "" };
    let mut line = format!(
        "{:>9} {:>3} {:<39} {:<8} {:>8} {:>6} {:>9} {:>9} {}",
        number("number").unwrap_or_default(),
        number("worker").unwrap_or_default(),
        text(&connection["client"]),
        format!("{}{tls}", text(&connection["protocol"]).replace("HTTP/", "h")),
        time(number("age_ms").unwrap_or_default()),
        number("requests").unwrap_or_default(),
        size("received"),
        size("sent"),
        text(&connection["state"]),
    );
    if let Some(idle) = number("idle_ms") {
        line.push_str(&format!(" for {}", time(idle)));
    }
    for request in connection["in_progress"].as_array().into_iter().flatten() {
        let elapsed = time(request["elapsed_ms"].as_u64().unwrap_or_default());
        line.push_str(&format!(", {} for {elapsed}", text(&request["request"])));
    }
    line
}

/// A time of milliseconds.
fn time(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms}ms"),
        1000..60_000 => format!("{}.{}s", ms / 1000, ms % 1000 / 100),
        60_000..3_600_000 => format!("{}m{:02}s", ms / 60_000, ms / 1000 % 60),
        _ => format!("{}h{:02}m", ms / 3_600_000, ms / 60_000 % 60),
    }
}

/// A number of bytes.
fn bytes(count: u64) -> String {
    match count {
        0..10_000 => count.to_string(),
        10_000..10_240_000 => format!("{}k", count / 1024),
        10_240_000..10_485_760_000 => format!("{}m", count >> 20),
        _ => format!("{}g", count >> 30),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines() {
        let line = line(&json!({
            "number": 17, "worker": 1, "client": "192.0.2.1", "protocol": "HTTP/1.1", "tls": true,
            "age_ms": 61_500, "requests": 3, "received": 512, "sent": 123_456_789, "idle_ms": null,
            "state": "client",
            "in_progress": [{ "request": "GET /\u{1b}a", "elapsed_ms": 1234, "waits_for": "client" }],
        }));
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..8], ["17", "1", "192.0.2.1", "h1.1s", "1m01s", "3", "512", "117m"]);
        assert!(line.ends_with(" client, GET /\\x1Ba for 1.2s"), "{line}");
    }

    #[test]
    fn arguments() {
        let parse = |arguments: &[&str]| {
            command()
                .no_binary_name(true)
                .try_get_matches_from(arguments)
                .map(|m| ConnectionsCommand::of(&m))
        };
        assert!(
            parse(&["http://a/c", "--json", "--limit=7"])
                .is_ok_and(|asked| asked.json && asked.limit == 7)
        );
        assert!(parse(&[]).is_err() && parse(&["a"]).is_err());
    }
}
