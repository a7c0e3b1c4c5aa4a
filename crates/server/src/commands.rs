//! The subcommands, which nginx lacks: their names, arguments and help.
//!
//! Called by `main` before the options are parsed: nginx's command line (`cli`) takes no words, so
//! a first argument that names a command cannot mean anything else. Parsing is done by `clap`;
//! nothing is executed here.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use clap::builder::{OsStringValueParser, PossibleValuesParser};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, ValueHint};

use crate::builtin::{Builtin, arguments};
use crate::cli::CommandLine;
use crate::command_hints::SIGNALS;
use crate::connections_command::{self, ConnectionsCommand};
use crate::generate::GeneratedText;
use crate::health_command::HealthCommand;
use crate::log::Level;
use crate::log_command::{self, RequestLogCommand};
use crate::tools;
use crate::wire::{PurgeKind, PurgeOrder};

/// In place of a level: those of the configuration.
const CONFIGURED: &str = "configured";

/// A parsed subcommand.
#[derive(Debug)]
pub enum Subcommand {
    /// `serve`, `proxy`
    Start(Builtin),
    /// `reference`: a page, a directive or a variable.
    Reference(String),
    /// `cache purge`: the objects to purge, and the server.
    Purge(PurgeOrder, CommandLine),
    /// `log-level`: the level of all error logs, or none for the configured ones, and the server.
    LogLevel(Option<Level>, CommandLine),
    /// `check-health`: whether a server answers.
    CheckHealth(HealthCommand),
    /// `log`: recent requests of a server.
    Log(RequestLogCommand),
    /// `connections`: the clients of a server.
    Connections(ConnectionsCommand),
    /// `generate`: a text for the installation.
    Generate(GeneratedText),
    /// `fmt`, `lint`, `migrate`, `explain`
    Tool(tools::ToolCall),
}

/// The exit code for wrong arguments.
const USAGE: u8 = 2;
/// The same of `check-health`: container engines reserve 2.
const USAGE_OF_CHECK: u8 = 1;

/// The exit code for wrong arguments, by the name of the command.
pub fn usage_code(command: Option<OsString>) -> u8 {
    if command.is_some_and(|name| name == "check-health") { USAGE_OF_CHECK } else { USAGE }
}

impl Subcommand {
    /// The exit code if the command fails. For commands that check a configuration, 1 is the result of the
    /// check.
    pub fn failure_code(&self) -> u8 {
        match self {
            Subcommand::Tool(_) => 2,
            _ => 1,
        }
    }
}

/// Parses the arguments after the program's name; `None` if they are nginx's options.
///
/// # Errors
/// The text to print: help, or an error.
pub fn parse(
    arguments: impl IntoIterator<Item = OsString>,
) -> Option<Result<Subcommand, clap::Error>> {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let commands = command();
    let first = arguments.first()?;
    if first != "help" && !commands.get_subcommands().any(|known| first == known.get_name()) {
        return None;
    }
    Some(commands.try_get_matches_from(arguments).and_then(|matches| asked(&matches)))
}

/// The names of the commands.
pub fn names() -> Vec<String> {
    command().get_subcommands().map(|command| command.get_name().to_owned()).collect()
}

/// Whether `serve` has a long option with this name.
pub fn serve_has(option: &str) -> bool {
    arguments::serve().get_arguments().any(|argument| argument.get_long() == Some(option))
}

fn command() -> Command {
    Command::new("nowait")
        .no_binary_name(true)
        .bin_name("nowait")
        .subcommand_required(true)
        .subcommand(arguments::serve())
        .subcommand(arguments::proxy())
        .subcommand(
            Command::new("reference")
                .about("Print the reference: a page, a directive or a variable")
                .arg(Arg::new("name").required(true).value_name("NAME").help(
                    "directives, mistakes, unsupported, variables, or a name such as root or $uri",
                )),
        )
        .subcommand(
            Command::new("cache")
                .about("Work on the caches of the running server")
                .subcommand_required(true)
                .subcommand(purge()),
        )
        .subcommand(log_level())
        .subcommand(
            Command::new("check-health")
                .about(
                    "Ask a server on this machine for a page; succeed if the status is below 400, or, without URL, \
                     below 500",
                )
                .arg(
                    Arg::new("url")
                        .value_name("URL")
                        .value_parser(|text: &str| text.parse::<HealthCommand>())
                        .help("Page [default: http://127.0.0.1:8080/]"),
                ),
        )
        .subcommand(log_command::command())
        .subcommand(connections_command::command())
        .subcommands(tools::commands())
        .subcommand(
            Command::new("generate").about("Print a manual page or completions for a shell").arg(
                Arg::new("text")
                    .required(true)
                    .value_name("TEXT")
                    .value_parser(GeneratedText::NAMES.map(|(name, _)| name)),
            ),
        )
}

/// The whole command line, for manual pages and completions: the commands, and nginx's options.
pub fn command_line() -> Command {
    let flag = |letter: char, name: &'static str, help: &'static str| {
        Arg::new(name).short(letter).action(ArgAction::SetTrue).help(help)
    };
    let option = |letter: char, name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).short(letter).value_name(value).help(help)
    };
    command()
        .no_binary_name(false)
        .subcommand_required(false)
        .disable_help_flag(true)
        .about("Web server and caching reverse proxy whose event loop never waits for a disk")
        .arg(flag('h', "help", "Show the usage and exit"))
        .arg(flag('v', "version", "Show the version and exit"))
        .arg(flag('V', "configure", "Show the version and what is built in, then exit"))
        .arg(flag('t', "test", "Test the configuration and exit; touches nothing"))
        .arg(flag('T', "dump", "Test the configuration, dump it and exit"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print the findings of the test as JSON"),
        )
        .arg(flag('q', "quiet", "Suppress non-error messages during the test"))
        .arg(
            option('s', "signal", "SIGNAL", "Send a signal to the running master process")
                .value_parser(SIGNALS),
        )
        .arg(
            option('p', "prefix", "PREFIX", "Prefix of relative paths")
                .value_hint(ValueHint::DirPath),
        )
        .arg(option('e', "log", "FILE", "Error log file").value_hint(ValueHint::FilePath))
        .arg(option('c', "file", "FILE", "Configuration file").value_hint(ValueHint::FilePath))
        .arg(option('g', "globals", "DIRECTIVES", "Global directives besides those of the file"))
}

/// An option that names the running server.
fn server_option(letter: char, name: &'static str, value: &'static str, help: &'static str) -> Arg {
    Arg::new(name)
        .short(letter)
        .value_name(value)
        .value_parser(OsStringValueParser::new())
        .help(help)
}

/// The options that name the running server.
fn server_options() -> [Arg; 4] {
    [
        server_option('c', "file", "FILE", "Configuration file of the server"),
        server_option('p', "path", "PATH", "Prefix path of the server"),
        server_option('e', "error-log", "FILE", "Error log file"),
        server_option('g', "globals", "DIRECTIVES", "Global directives"),
    ]
}

fn log_level() -> Command {
    Command::new("log-level")
        .about("Set the level of all error logs of the running server, until its next reload")
        .arg(
            Arg::new("level")
                .required(true)
                .value_name("LEVEL")
                .value_parser(PossibleValuesParser::new(
                    Level::ALL.into_iter().map(Level::name).chain([CONFIGURED]),
                ))
                .help(
                    "A level of error_log; \"configured\" restores the levels of the configuration",
                ),
        )
        .args(server_options())
}

fn purge() -> Command {
    Command::new("purge")
        .about("Remove objects from a cache")
        .arg(Arg::new("zone").required(true).value_name("ZONE").help("Name of the keys zone"))
        .arg(
            Arg::new("key")
                .value_name("KEY")
                .value_parser(OsStringValueParser::new())
                .help("Key of the object"),
        )
        .arg(
            Arg::new("prefix")
                .long("prefix")
                .value_name("TEXT")
                .value_parser(OsStringValueParser::new())
                .help("Every object whose key begins with TEXT"),
        )
        .arg(
            Arg::new("tag")
                .long("tag")
                .value_name("TAG")
                .value_parser(OsStringValueParser::new())
                .help("Every object with this tag"),
        )
        .arg(
            Arg::new("all")
                .long("all")
                .action(ArgAction::SetTrue)
                .help("Every object of the cache"),
        )
        .group(ArgGroup::new("what").args(["key", "prefix", "tag", "all"]).required(true))
        .arg(
            Arg::new("soft")
                .long("soft")
                .action(ArgAction::SetTrue)
                .help("Mark the objects as stale instead of removing them"),
        )
        .args(server_options())
}

fn asked(matches: &ArgMatches) -> Result<Subcommand, clap::Error> {
    match matches.subcommand() {
        Some(("serve", matches)) => {
            arguments::serve_of(matches).map(|serve| Subcommand::Start(Builtin::Serve(serve)))
        }
        Some(("proxy", matches)) => {
            arguments::proxy_of(matches).map(|proxy| Subcommand::Start(Builtin::Proxy(proxy)))
        }
        Some(("reference", matches)) => Ok(Subcommand::Reference(text(matches, "name"))),
        Some(("check-health", matches)) => Ok(Subcommand::CheckHealth(
            matches.get_one::<HealthCommand>("url").cloned().unwrap_or_default(),
        )),
        Some(("log", matches)) => RequestLogCommand::of(matches).map(Subcommand::Log),
        Some(("connections", matches)) => {
            Ok(Subcommand::Connections(ConnectionsCommand::of(matches)))
        }
        Some(("generate", matches)) => {
            let name = text(matches, "text");
            let known = GeneratedText::NAMES.iter().find(|(known, _)| *known == name);
            let (_, text) = known.expect("the parser allows these names only");
            Ok(Subcommand::Generate(*text))
        }
        Some(("log-level", matches)) => {
            let level = Level::from_name(text(matches, "level").as_bytes());
            Ok(Subcommand::LogLevel(level, server_of(matches)))
        }
        Some(("cache", matches)) => match matches.subcommand() {
            Some(("purge", matches)) => Ok(purge_of(matches)),
            _ => unreachable!("a subcommand is required"),
        },
        Some((name, matches)) => {
            let tool = tools::parse(name, matches).expect("the parser allows tools that exist");
            tool.map(Subcommand::Tool)
        }
        None => unreachable!("a subcommand is required"),
    }
}

fn text(matches: &ArgMatches, name: &str) -> String {
    matches.get_one::<String>(name).cloned().unwrap_or_default()
}

fn purge_of(matches: &ArgMatches) -> Subcommand {
    let value = |name: &str| matches.get_one::<OsString>(name).cloned();
    let kinds = [("key", PurgeKind::Key), ("prefix", PurgeKind::Prefix), ("tag", PurgeKind::Tag)];
    let (kind, text_of) = kinds
        .into_iter()
        .find_map(|(name, kind)| Some((kind, value(name)?)))
        .unwrap_or((PurgeKind::All, OsString::new()));
    let order = PurgeOrder {
        zone: text(matches, "zone"),
        kind,
        soft: matches.get_flag("soft"),
        text: text_of.into_vec(),
    };
    Subcommand::Purge(order, server_of(matches))
}

/// The running server that the options name.
fn server_of(matches: &ArgMatches) -> CommandLine {
    let value = |name: &str| matches.get_one::<OsString>(name).cloned();
    CommandLine {
        conf: value("file"),
        prefix: value("path"),
        error_log: value("error-log"),
        globals: value("globals"),
        ..CommandLine::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_by(line: &str) -> Option<Result<Subcommand, clap::Error>> {
        parse(line.split_whitespace().map(OsString::from))
    }

    fn purged(line: &str) -> Result<(PurgeKind, bool, String), String> {
        match asked_by(line) {
            Some(Ok(Subcommand::Purge(order, _))) => {
                assert_eq!(order.zone, "one");
                Ok((order.kind, order.soft, String::from_utf8(order.text).unwrap()))
            }
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn commands_are_well_formed() {
        command().debug_assert();
        command_line().debug_assert();
    }

    #[test]
    fn levels_of_logs() {
        let asked = |line: &str| match asked_by(line) {
            Some(Ok(Subcommand::LogLevel(level, options))) => Some((level, options.conf)),
            _ => None,
        };
        assert_eq!(asked("log-level debug"), Some((Some(Level::Debug), None)));
        let file = Some("x.conf".into());
        assert_eq!(asked("log-level -c x.conf configured"), Some((None, file)));
        for wrong in ["log-level", "log-level loud", "log-level debug info"] {
            assert_eq!(asked(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn purges() {
        let key = |text: &str| Ok((PurgeKind::Key, false, text.to_owned()));
        assert_eq!(purged("cache purge one http://a/b"), key("http://a/b"));
        assert_eq!(purged("cache purge -c x.conf -p/dir one k"), key("k"));
        let prefix = Ok((PurgeKind::Prefix, true, "/a".into()));
        assert_eq!(purged("cache purge --soft one --prefix /a"), prefix);
        assert_eq!(purged("cache purge one --tag t"), Ok((PurgeKind::Tag, false, "t".into())));
        assert_eq!(purged("cache purge one --all"), Ok((PurgeKind::All, false, String::new())));
        for wrong in [
            "cache",
            "cache purge",
            "cache purge one",
            "cache purge one a b",
            "cache purge one --all a",
            "cache list one",
            "cache purge one --tag",
        ] {
            assert!(purged(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_are_left_alone() {
        for line in ["", "-t", "-c serve", "stop", "servee"] {
            assert!(asked_by(line).is_none(), "{line}");
        }
        assert!(asked_by("help").unwrap().is_err(), "a text to print");
    }
}
