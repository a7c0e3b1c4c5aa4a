//! `nowait log [EXPRESSION] URL`: recent requests of a server with all their times, from its `requests_api`.
//!
//! The server selects them; this program shows them. Called by `main`.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use clap::{Arg, ArgAction, ArgMatches, Command};
use nowait_front::log::escape;
use nowait_sys::localtime::LocalTime;
use serde_json::Value;

use crate::api_client::ApiUrl;

/// Time between two requests with `--follow`.
const PAUSE: Duration = Duration::from_millis(500);

/// Time for a response.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Requests in a response with `--follow`, but for the first: as many as the server gives.
const FOLLOWED_MAX: u32 = 10_000;

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLogCommand {
    expression: String,
    url: ApiUrl,
    follow: bool,
    json: bool,
    limit: u32,
}

/// The command for the parser.
pub fn command() -> Command {
    Command::new("log")
        .about("Show recent requests of a running server with all their times")
        .after_help(
            "An EXPRESSION selects requests: status >= 500 or disk_wait > 100ms\n\n\
             Fields: status, method, uri, host, server, location, client, protocol, connection,\n\
             connection_requests, worker, bytes, request_bytes, upstream, cache, pool; and times:\n\
             request_time (or time), receive_time, queue_time, connect_time, header_time,\n\
             upstream_time, pool_wait, disk_time, disk_wait, response_time, sending_time.\n\
             Operators: = != < <= > >= ~ ~* !~ !~* and or not ( ). Times: us ms s m h; sizes: k m g.",
        )
        .arg(
            Arg::new("words")
                .value_names(["EXPRESSION", "URL"])
                .num_args(1..=2)
                .required(true)
                .help(
                    "What to select [default: all], and the location with \"requests_api\": \
                     http://USER:PASSWORD@HOST:PORT/PATH or unix:SOCKET:/PATH",
                ),
        )
        .arg(
            Arg::new("follow")
                .long("follow")
                .short('f')
                .action(ArgAction::SetTrue)
                .help("Go on with new requests until interrupted"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print one JSON object per request; times in microseconds"),
        )
        .arg(
            Arg::new("limit")
                .long("limit")
                .value_name("NUMBER")
                .default_value("100")
                .value_parser(clap::value_parser!(u32).range(1..=10_000))
                .help("At most so many of the last requests; --follow shows all that come later"),
        )
}

impl RequestLogCommand {
    /// The command that was parsed.
    ///
    /// # Errors
    /// The URL is none.
    pub fn of(matches: &ArgMatches) -> Result<RequestLogCommand, clap::Error> {
        let words: Vec<&String> = matches.get_many("words").into_iter().flatten().collect();
        let (expression, url) = match words[..] {
            [url] => ("", url),
            [expression, url] => (&**expression, url),
            _ => unreachable!("the parser allows one or two"),
        };
        let url = url.parse().map_err(|error| {
            command().error(clap::error::ErrorKind::ValueValidation, format!("{url}: {error}"))
        })?;
        Ok(RequestLogCommand {
            expression: expression.to_owned(),
            url,
            follow: matches.get_flag("follow"),
            json: matches.get_flag("json"),
            limit: matches.get_one("limit").copied().unwrap_or(100),
        })
    }

    /// Shows the requests.
    ///
    /// # Errors
    /// The text to print.
    pub fn run(&self) -> Result<(), String> {
        let mut after: Option<String> = None;
        loop {
            let limit = if after.is_some() { FOLLOWED_MAX } else { self.limit }.to_string();
            let mut arguments = vec![("limit", &*limit), ("filter", &*self.expression)];
            arguments.extend(after.as_deref().map(|after| ("after", after)));
            let page = self.fetch(&arguments)?;
            match self.print(&page, after.is_some()) {
                Ok(()) => {}
                // The reader has seen enough.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(format!("[error] {error}")),
            }
            if !self.follow {
                return Ok(());
            }
            after = page["next"].as_str().map(str::to_owned);
            thread::sleep(PAUSE);
        }
    }

    fn fetch(&self, arguments: &[(&str, &str)]) -> Result<Value, String> {
        let url = &self.url;
        let page =
            url.get(arguments, TIMEOUT).map_err(|error| format!("[error] {url}: {error}"))?;
        let content = serde_json::from_slice::<Value>(&page.body);
        match (page.status, content) {
            (200, Ok(content)) if content["requests"].is_array() => Ok(content),
            (200, _) => Err(format!("[error] {url} is no location with \"requests_api\"")),
            (400, Ok(content)) if content["error"]["message"].is_string() => {
                Err(self.describe(&content["error"]))
            }
            (status, _) => Err(format!("[error] {url} is answered with {status}")),
        }
    }

    /// A fault of the expression, with its place.
    fn describe(&self, error: &Value) -> String {
        let message = escape::line(error["message"].as_str().unwrap_or_default());
        if error["argument"] != "filter" {
            return format!("[error] {message}");
        }
        let at = error["at"].as_u64().and_then(|at| usize::try_from(at).ok()).unwrap_or(0);
        let before = self.expression.get(..at).unwrap_or(&self.expression);
        let indent = " ".repeat(before.chars().count());
        format!("[error] {message}\n  {}\n  {indent}^", self.expression)
    }

    fn print(&self, page: &Value, goes_on: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if goes_on {
            write!(io::stderr(), "{}", notes(page))?;
        }
        for request in page["requests"].as_array().into_iter().flatten() {
            match self.json {
                true => writeln!(out, "{}", escape::json_text(&request.to_string()))?,
                false => writeln!(out, "{}", line(request))?,
            }
        }
        out.flush()
    }
}

/// Lines about requests that came since the last response, but are not in this one.
fn notes(page: &Value) -> String {
    let reasons = [
        ("missed", "overwritten before they were read"),
        ("left_out", "left out: too many at once"),
    ];
    let counts = reasons.map(|(name, reason)| (page[name].as_u64().unwrap_or_default(), reason));
    let lost = counts.into_iter().filter(|(count, _)| *count > 0);
    lost.map(|(count, reason)| format!("({count} requests were {reason})\n")).collect()
}

/// A request for people: what took no time is left out.
fn line(request: &Value) -> String {
    let text = |name: &str| escape::line(request[name].as_str().unwrap_or_default()).into_owned();
    let ended_ms = request["ended_ms"].as_u64().unwrap_or_default();
    let seconds = i64::try_from(ended_ms / 1000).unwrap_or_default();
    let LocalTime { hour, minute, second, .. } = LocalTime::at(seconds);
    let mut line = format!(
        "{hour:02}:{minute:02}:{second:02}.{:03} {} {} {} {}{} {}",
        ended_ms % 1000,
        text("client"),
        request["status"],
        text("method"),
        text("host"),
        text("uri"),
        time(&request["times_us"]["request_time"]),
    );
    const TIMES: [(&str, &str); 8] = [
        ("receive_time", "receive"),
        ("queue_time", "queue"),
        ("connect_time", "connect"),
        ("upstream_time", "upstream"),
        ("pool_wait", "pool_wait"),
        ("disk_time", "disk"),
        ("response_time", "response"),
        ("sending_time", "sending"),
    ];
    for (name, label) in TIMES {
        let value = &request["times_us"][name];
        if value.as_u64() > Some(0) {
            line.push_str(&format!(" {label}={}", time(value)));
        }
    }
    for name in ["pool", "upstream", "cache"] {
        let value = text(name);
        if !value.is_empty() {
            line.push_str(&format!(" {name}={value}"));
        }
    }
    line
}

/// A time of microseconds.
fn time(value: &Value) -> String {
    match value.as_u64().unwrap_or_default() {
        us @ 0..1000 => format!("{us}us"),
        us @ 1000..1_000_000 => format!("{}.{}ms", us / 1000, us % 1000 / 100),
        us => format!("{}.{:03}s", us / 1_000_000, us % 1_000_000 / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parse(arguments: &[&str]) -> Result<RequestLogCommand, clap::Error> {
        let matches = command().no_binary_name(true).try_get_matches_from(arguments)?;
        RequestLogCommand::of(&matches)
    }

    #[test]
    fn arguments() {
        let log = parse(&["status=500", "http://a/r", "--follow", "--json"]).unwrap();
        assert_eq!(
            (&*log.expression, log.follow, log.json, log.limit),
            ("status=500", true, true, 100)
        );
        assert_eq!(parse(&["http://a/r", "--limit", "5"]).unwrap().limit, 5);
        for wrong in
            [&[][..], &["status=500"], &["a", "b", "http://a/"], &["http://a/", "--limit=0"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn lines() {
        let request = json!({
            "ended_ms": 1_700_000_000_007_u64, "client": "192.0.2.1", "status": 502, "method": "GET",
            "host": "a.test", "uri": "/\u{1b}[2J", "upstream": "10.0.0.1:80", "cache": "", "pool": "",
            "times_us": { "request_time": 1_234_567, "upstream_time": 12_345, "disk_time": 7, "pool_wait": 0 },
        });
        let line = line(&request);
        let (_, rest) = line.split_once('.').unwrap();
        assert_eq!(
            rest,
            "007 192.0.2.1 502 GET a.test/\\x1B[2J 1.234s upstream=12.3ms disk=7us upstream=10.0.0.1:80"
        );
    }

    #[test]
    fn what_is_not_shown_is_counted() {
        let notes = |missed: u64, left_out: u64| {
            super::notes(&json!({ "missed": missed, "left_out": left_out }))
        };
        assert_eq!(notes(0, 0), "");
        assert_eq!(notes(3, 0), "(3 requests were overwritten before they were read)\n");
        assert!(notes(3, 7).ends_with("read)\n(7 requests were left out: too many at once)\n"));
    }

    #[test]
    fn faults_point_at_their_place() {
        let log = parse(&["ä and statsu", "http://a/r"]).unwrap();
        let said = log.describe(&json!({ "argument": "filter", "at": 7, "message": "unknown" }));
        assert_eq!(said, "[error] unknown\n  ä and statsu\n        ^");
    }
}
