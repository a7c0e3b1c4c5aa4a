//! `nowait explain URL`: how the configuration handles a request.
//!
//! Called by `main`. The way of the request is that of `nowait_http::explain`, which runs the server's
//! own code; this makes the request from the command line, and adds places and reasons from the
//! directives (`explain_command/reasons.rs`, `settings.rs`), and shows it (`answer.rs`). Nothing is sent, and
//! nothing written.

mod answer;
mod reasons;
mod settings;
mod streams;
mod url;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint, value_parser};
use nowait_http::explain::{Question, explain};

use self::answer::{ExplainReport, ExplainedRequest};
use self::url::Url;
use crate::cli::CommandLine;
use crate::config;
use crate::config_path::ConfigPath;
use crate::log::complain;
use crate::output;

/// The arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explain {
    /// The URL as given.
    text: String,
    url: Url,
    method: String,
    fields: Vec<(String, String)>,
    from: IpAddr,
    options: CommandLine,
    json: bool,
}

/// The client's port, which no user can know.
const CLIENT_PORT: u16 = 50_000;

/// The request was explained.
const EXPLAINED: u8 = 0;
/// The configuration is invalid, or the request reaches no server of `http`.
const REFUSED: u8 = 1;

/// The command line of `explain`.
pub fn arguments() -> Command {
    let option = |letter: char, name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .value_name(value)
            .value_parser(OsStringValueParser::new())
            .help(help)
    };
    Command::new("explain")
        .about("Show what a request would meet; nothing is sent")
        .after_help(
            "The exit code is 0 if the request was explained, 1 if the configuration is invalid or no \
             server of \"http\" gets the request, 2 for wrong arguments.",
        )
        .arg(
            Arg::new("url")
                .required(true)
                .value_name("URL")
                .help("http://HOST[:PORT]/PATH, https://..., or a path at the first socket"),
        )
        .arg(
            Arg::new("field")
                .short('H')
                .value_name("NAME: VALUE")
                .action(ArgAction::Append)
                .help("Field of the request; may be repeated"),
        )
        .arg(
            Arg::new("method")
                .short('X')
                .value_name("METHOD")
                .default_value("GET")
                .help("Method of the request"),
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("ADDRESS")
                .value_parser(value_parser!(IpAddr))
                .help("Address of the client; 127.0.0.1 without it"),
        )
        .arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print JSON"))
        .arg(option('c', "file", "FILE", "Configuration file").value_hint(ValueHint::FilePath))
        .arg(option('p', "path", "PREFIX", "Prefix of relative paths"))
        .arg(option('g', "globals", "DIRECTIVES", "Global directives"))
}

impl Explain {
    /// The parsed command line.
    ///
    /// # Errors
    /// An invalid URL or header field.
    pub fn of(matches: &ArgMatches) -> Result<Explain, clap::Error> {
        let invalid = |text: String| clap::Error::raw(ErrorKind::ValueValidation, text + "\n");
        let text = |name: &str| matches.get_one::<String>(name).cloned().unwrap_or_default();
        let value = |name: &str| matches.get_one::<OsString>(name).cloned();
        let url = text("url");
        let parsed =
            Url::parse(&url).map_err(|why| invalid(format!("invalid URL '{url}': {why}")))?;
        let mut fields = Vec::new();
        for field in matches.get_many::<String>("field").into_iter().flatten() {
            let Some((name, value)) = field.split_once(':').filter(|(name, _)| is_token(name))
            else {
                return Err(invalid(format!(
                    "invalid value '{field}' for '-H': expected NAME: VALUE"
                )));
            };
            if value.contains(|letter: char| letter.is_control() && letter != '\t') {
                return Err(invalid(format!("control characters in the value of '-H {name}'")));
            }
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
        let method = text("method");
        if !is_token(&method) {
            return Err(invalid(format!("invalid method '{method}'")));
        }
        Ok(Explain {
            text: url,
            url: parsed,
            method,
            fields,
            from: matches.get_one("from").copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            options: CommandLine {
                conf: value("file"),
                prefix: value("path"),
                globals: value("globals"),
                ..CommandLine::default()
            },
            json: matches.get_flag("json"),
        })
    }

    /// Explains the request, and returns the exit code.
    ///
    /// # Errors
    /// There is no configuration, or the text can't be printed.
    pub fn run(&self) -> Result<u8, String> {
        let place = ConfigPath::find(&self.options)?;
        if place.builtin.is_some() {
            return Err(place.no_configuration());
        }
        let (tree, settings, plan) = match config::with_tree(&place) {
            Ok(valid) => valid,
            Err(refused) => {
                output::print_error(&refused.rendered);
                return Ok(REFUSED);
            }
        };
        let pools: Vec<String> = settings.pools.iter().map(|pool| pool.name.clone()).collect();
        let Url { tls, host, port, port_given, target } = self.url.clone();
        let question = Question {
            tls,
            host,
            port,
            port_given,
            target,
            method: self.method.clone(),
            fields: self.fields.clone(),
            from: SocketAddr::new(self.from, CLIENT_PORT),
        };
        let asked = ExplainedRequest { method: &self.method, url: &self.text, from: self.from };
        let (http, stream) = plan.into_parts();
        let explanation = match explain(http, &pools, &question) {
            Ok(explanation) => explanation,
            Err(message) => {
                let of_stream = streams::describe(&stream, &tree, &question);
                complain(&of_stream.unwrap_or(message));
                return Ok(REFUSED);
            }
        };
        let registry = config::registry();
        let conf_file = &place.conf_file;
        let answer =
            ExplainReport { asked, conf_file, tree: &tree, registry, explanation: &explanation };
        let text = if self.json { format!("{:#}\n", answer.json()) } else { answer.text() };
        output::print(&text).map(|()| EXPLAINED)
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_checked() {
        let parsed = |line: &[&str]| {
            arguments().try_get_matches_from(line).and_then(|matches| Explain::of(&matches))
        };
        let given = ["explain", "-H", "A: b", "-X", "PUT", "--from", "::1", "http://a/"];
        let given = parsed(&given).unwrap();
        assert_eq!(given.fields, [("A".to_owned(), "b".to_owned())]);
        assert_eq!((given.method.as_str(), given.from.to_string()), ("PUT", "::1".to_owned()));
        for wrong in [
            &["explain"][..],
            &["explain", "-H", "no colon", "http://a/"],
            &["explain", "-H", "a: b\rc", "http://a/"],
            &["explain", "-X", "A B", "http://a/"],
            &["explain", "--from", "x", "http://a/"],
        ] {
            assert!(parsed(wrong).is_err(), "{wrong:?}");
        }
    }
}
