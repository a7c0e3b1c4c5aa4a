//! The subcommands, which nginx lacks: their names, arguments and help.
//!
//! Called by `main` before the options are parsed: nginx's command line (`cli`) takes no words, so
//! a first argument that names a command cannot mean anything else. Parsing is done by `clap`;
//! nothing is executed here.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use clap::builder::OsStringValueParser;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, ValueHint, value_parser};

use crate::builtin::{self, Serve};
use crate::cli::CommandLine;
use crate::command_hints::SIGNALS;
use crate::domain::{self, Domain, Issuer};
use crate::generate::GeneratedText;
use crate::health_command::HealthCommand;
use crate::tools;
use crate::wire::{PurgeKind, PurgeOrder};

/// A parsed subcommand.
#[derive(Debug)]
pub enum Subcommand {
    /// `serve`
    Serve(Serve),
    /// `reference`: a page, a directive or a variable.
    Reference(String),
    /// `cache purge`: the objects to purge, and the server.
    Purge(PurgeOrder, CommandLine),
    /// `check-health`: whether a server answers.
    CheckHealth(HealthCommand),
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
    serve().get_arguments().any(|argument| argument.get_long() == Some(option))
}

fn command() -> Command {
    Command::new("nowait")
        .no_binary_name(true)
        .bin_name("nowait")
        .subcommand_required(true)
        .subcommand(serve())
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

fn serve() -> Command {
    Command::new("serve")
        .about("Serve a directory, on this machine only unless --listen says otherwise")
        .arg(
            Arg::new("directory")
                .value_name("DIR")
                .default_value(".")
                .value_parser(value_parser!(PathBuf))
                .help("Directory to serve"),
        )
        .arg(
            Arg::new("listen")
                .long("listen")
                .short('l')
                .value_name("ADDRESS[:PORT]")
                .action(ArgAction::Append)
                .help("Address to listen on, such as 0.0.0.0 or [::]:8000; may be repeated"),
        )
        .arg(
            Arg::new("port")
                .long("port")
                .short('p')
                .value_name("PORT")
                .value_parser(value_parser!(u16).range(1..))
                .help("Port for addresses that name none [default: 8080; 443 with --domain]"),
        )
        .arg(
            Arg::new("hidden")
                .long("hidden")
                .action(ArgAction::SetTrue)
                .help("Serve files and directories whose names begin with a dot"),
        )
        .arg(
            Arg::new("follow-links")
                .long("follow-links")
                .action(ArgAction::SetTrue)
                .help("Follow symbolic links out of the directory, and to hidden names"),
        )
        .arg(
            Arg::new("host")
                .long("host")
                .value_name("NAME")
                .action(ArgAction::Append)
                .conflicts_with("domain")
                .help(
                    "Answer to this name, to localhost and to IP addresses only; may be repeated",
                ),
        )
        .args(domain_arguments())
}

/// The arguments of a public site.
fn domain_arguments() -> [Arg; 8] {
    let option = |name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name(value).help(help).help_heading("Public sites")
    };
    let flag = |name: &'static str, help: &'static str| {
        let arg = Arg::new(name).long(name).action(ArgAction::SetTrue).help(help);
        arg.requires("domain").help_heading("Public sites")
    };
    [
        option(
            "domain",
            "NAME[,NAME]",
            "Serve HTTPS for these names, with an automatic certificate",
        )
        .action(ArgAction::Append)
        .value_delimiter(','),
        option("email", "ADDRESS", "Address for messages of the issuer").requires("domain"),
        flag("accept-terms", "Agree to the issuer's terms of service"),
        flag("staging", "Let's Encrypt's issuer for experiments, which no browser trusts")
            .conflicts_with("issuer"),
        option("issuer", "URL", "ACME directory of another issuer than Let's Encrypt")
            .requires("domain"),
        option("issuer-ca", "FILE", "Authorities to check the issuer's own certificate with")
            .requires("issuer")
            .value_parser(value_parser!(PathBuf)),
        option("http-port", "PORT", "Port whose requests are redirected to HTTPS [default: 80]")
            .requires("domain")
            .value_parser(value_parser!(u16).range(1..)),
        option("state", "DIR", "Directory for the account and the certificates")
            .requires("domain")
            .value_parser(value_parser!(PathBuf)),
    ]
}

fn purge() -> Command {
    let option = |letter: char, name: &'static str, value: &'static str, help: &'static str| {
        Arg::new(name)
            .short(letter)
            .value_name(value)
            .value_parser(OsStringValueParser::new())
            .help(help)
    };
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
        .arg(option('c', "file", "FILE", "Configuration file of the server"))
        .arg(option('p', "path", "PATH", "Prefix path of the server"))
        .arg(option('e', "log", "FILE", "Error log file"))
        .arg(option('g', "globals", "DIRECTIVES", "Global directives"))
}

fn asked(matches: &ArgMatches) -> Result<Subcommand, clap::Error> {
    match matches.subcommand() {
        Some(("serve", matches)) => serve_of(matches).map(Subcommand::Serve),
        Some(("reference", matches)) => Ok(Subcommand::Reference(text(matches, "name"))),
        Some(("check-health", matches)) => Ok(Subcommand::CheckHealth(
            matches.get_one::<HealthCommand>("url").cloned().unwrap_or_default(),
        )),
        Some(("generate", matches)) => {
            let name = text(matches, "text");
            let known = GeneratedText::NAMES.iter().find(|(known, _)| *known == name);
            let (_, text) = known.expect("the parser allows these names only");
            Ok(Subcommand::Generate(*text))
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

fn serve_of(matches: &ArgMatches) -> Result<Serve, clap::Error> {
    let is_public = matches.contains_id("domain");
    if is_public && !cfg!(feature = "acme") {
        let why = "this program was built without the Cargo feature \"acme\"";
        return Err(invalid(&text(matches, "domain"), "domain", why));
    }
    let default_port = if is_public { domain::PORTS.0 } else { builtin::PORT };
    let port = matches.get_one("port").copied().unwrap_or(default_port);
    let mut addresses = Vec::new();
    for address in matches.get_many::<String>("listen").into_iter().flatten() {
        let found = builtin::addresses(address, port);
        addresses.extend(found.map_err(|why| invalid(address, "listen", &why))?);
    }
    if addresses.is_empty() {
        addresses = if is_public { domain::everywhere(port) } else { builtin::loopback(port) };
    }
    let domain = is_public.then(|| domain_of(matches, &addresses)).transpose()?;
    let directory = matches.get_one::<PathBuf>("directory").cloned().unwrap_or_default();
    let mut hosts = Vec::new();
    for host in matches.get_many::<String>("host").into_iter().flatten() {
        hosts.push(builtin::host(host).map_err(|why| invalid(host, "host", &why))?);
    }
    let [hidden, follow_links] = ["hidden", "follow-links"].map(|name| matches.get_flag(name));
    Ok(Serve { directory, addresses, hidden, follow_links, hosts, domain })
}

fn invalid(value: &str, option: &str, why: &str) -> clap::Error {
    let text = format!("invalid value '{value}' for '--{option}': {why}\n");
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, text)
}

fn domain_of(matches: &ArgMatches, addresses: &[SocketAddr]) -> Result<Domain, clap::Error> {
    let text = |name: &str| matches.get_one::<String>(name);
    let issuer = match text("issuer") {
        Some(url) => Issuer::at(url).map_err(|why| invalid(url, "issuer", &why))?,
        None if matches.get_flag("staging") => Issuer::staging(),
        None => Issuer::lets_encrypt(),
    };
    let mut names = Vec::new();
    for given in matches.get_many::<String>("domain").into_iter().flatten() {
        let name = domain::name(given, &issuer).map_err(|why| invalid(given, "domain", &why))?;
        if !names.contains(&name) {
            names.push(name);
        }
        if names.len() > domain::NAMES_MAX {
            let why = format!("a certificate is for {} names at most", domain::NAMES_MAX);
            return Err(invalid(given, "domain", &why));
        }
    }
    let email = text("email")
        .map(|given| domain::email(given).map_err(|why| invalid(given, "email", &why)));
    let path = |name: &str| -> Result<Option<PathBuf>, clap::Error> {
        let given = matches.get_one::<PathBuf>(name);
        let full = given.map(|path| {
            std::path::absolute(path)
                .map_err(|why| invalid(&path.display().to_string(), name, &why.to_string()))
        });
        full.transpose()
    };
    let state = match path("state")? {
        Some(path) => path,
        None => domain::state(&issuer).map_err(|why| {
            clap::Error::raw(clap::error::ErrorKind::ValueValidation, format!("{why}\n"))
        })?,
    };
    let port = matches.get_one("http-port").copied().unwrap_or(domain::PORTS.1);
    let mut plain: Vec<SocketAddr> = Vec::new();
    for address in addresses {
        let own = SocketAddr::new(address.ip(), port);
        if addresses.contains(&own) {
            return Err(invalid(&port.to_string(), "http-port", "HTTPS is served there"));
        }
        if !plain.contains(&own) {
            plain.push(own);
        }
    }
    Ok(Domain {
        names,
        email: email.transpose()?,
        accepts_terms: matches.get_flag("accept-terms"),
        issuer,
        authorities: path("issuer-ca")?,
        plain,
        state,
    })
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
    let options = CommandLine {
        conf: value("file"),
        prefix: value("path"),
        error_log: value("log"),
        globals: value("globals"),
        ..CommandLine::default()
    };
    Subcommand::Purge(order, options)
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

    // Without the feature, `--domain` is refused.
    #[cfg(feature = "acme")]
    #[test]
    fn serving() {
        let serve = |line: &str| match asked_by(line) {
            Some(Ok(Subcommand::Serve(serve))) => serve,
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(serve("serve"), Serve::default());
        let given = serve("serve /srv --port 81 --listen 0.0.0.0 -l [::]:82 --hidden");
        assert_eq!(given.directory, PathBuf::from("/srv"));
        let addresses: Vec<_> = given.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["0.0.0.0:81", "[::]:82"]);
        assert!(given.hidden);
        let public = serve("serve /srv --domain Example.org,www.example.org --accept-terms");
        let domain = public.domain.unwrap();
        assert_eq!(domain.names, ["example.org", "www.example.org"]);
        assert!(domain.accepts_terms && domain.issuer == Issuer::lets_encrypt());
        assert_eq!(domain.plain[0].to_string(), "0.0.0.0:80");
        assert_eq!(public.addresses[0].to_string(), "0.0.0.0:443");
        let own = "serve --domain a --issuer https://ca.test/dir --state /s -l 127.0.0.1:444 \
                   --http-port 81";
        let own = serve(own).domain.unwrap();
        assert_eq!((own.plain[0].port(), own.state), (81, PathBuf::from("/s")));
        for wrong in [
            "serve --domain",
            "serve --domain a",
            "serve --domain *.example.org",
            "serve --domain _",
            "serve --domain example.org --issuer http://a/",
            "serve --domain example.org --issuer https:///dir",
            "serve --domain example.org --issuer https://a/ --staging",
            "serve --domain example.org --email x",
            "serve --domain example.org --port 80",
            "serve --domain example.org --issuer-ca ca.pem",
            "serve --email a@b",
            "serve --accept-terms",
            "serve --staging",
        ] {
            assert!(asked_by(wrong).unwrap().is_err(), "{wrong}");
        }
        let names = |count| {
            let names: Vec<_> = (0..count).map(|number| format!("a{number}.test")).collect();
            asked_by(&format!("serve --domain {}", names.join(","))).unwrap()
        };
        assert!(names(100).is_ok());
        assert!(names(101).unwrap_err().to_string().contains("100 names at most"));
        for wrong in ["serve a b", "serve --listen 80", "serve --port 0", "serve --lisen ::"] {
            assert!(asked_by(wrong).unwrap().is_err(), "{wrong}");
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
