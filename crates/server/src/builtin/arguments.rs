//! The arguments of the commands that need no configuration, and what they ask for.
//!
//! Called by `commands`. Nothing is executed here.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};

use super::account::{self, Account};
use super::domain::{self, Domain, Issuer};
use super::proxy::{Origin, Proxy};
use super::serve::{Serve, Uploads};
use super::site::{self, Site};

/// `nowait serve`
pub fn serve() -> Command {
    Command::new("serve")
        .about("Serve a directory, on this machine only unless --listen says otherwise")
        .arg(
            Arg::new("directory")
                .value_name("DIR")
                .default_value(".")
                .value_parser(value_parser!(PathBuf))
                .help("Directory to serve"),
        )
        .args(site_arguments())
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
            Arg::new("spa")
                .long("spa")
                .action(ArgAction::SetTrue)
                .help("Answer requests for what does not exist by index.html"),
        )
        .arg(
            Arg::new("upload")
                .long("upload")
                .action(ArgAction::SetTrue)
                .conflicts_with("spa")
                .help("Let clients add files, by PUT and in the page; they replace none"),
        )
        .arg(
            Arg::new("overwrite")
                .long("overwrite")
                .action(ArgAction::SetTrue)
                .requires("upload")
                .help("Let uploads replace files"),
        )
        .args(domain_arguments())
}

/// `nowait proxy`
pub fn proxy() -> Command {
    Command::new("proxy")
        .about("Pass requests to a server, from this machine only unless --listen or --domain says otherwise")
        .arg(
            Arg::new("origin")
                .value_name("URL")
                .required(true)
                .help("Server, such as http://127.0.0.1:3000, or a port of this machine"),
        )
        .args(site_arguments())
        .arg(
            Arg::new("insecure")
                .long("insecure")
                .action(ArgAction::SetTrue)
                .help("Do not verify the certificate of an https:// server"),
        )
        .args(domain_arguments())
}

/// The arguments of every site.
fn site_arguments() -> [Arg; 4] {
    [
        Arg::new("listen")
            .long("listen")
            .short('l')
            // Of other programs that serve a directory.
            .aliases(["address", "bind"])
            .value_name("ADDRESS[:PORT]")
            .action(ArgAction::Append)
            .help("Address to listen on, such as 0.0.0.0 or [::]:8000; may be repeated"),
        Arg::new("port")
            .long("port")
            .short('p')
            .value_name("PORT")
            .value_parser(value_parser!(u16).range(1..))
            .help("Port for addresses that name none [default: 8080; 443 with --domain]"),
        Arg::new("host")
            .long("host")
            .value_name("NAME")
            .action(ArgAction::Append)
            .conflicts_with("domain")
            .help("Answer to this name, to localhost and to IP addresses only; may be repeated"),
        auth(),
    ]
}

fn auth() -> Arg {
    Arg::new("auth").long("auth").value_name("NAME[:PASSWORD]").action(ArgAction::Append).help(
        "Require this user's password, by default that of $NOWAIT_PASSWORD or a generated one; may be \
         repeated",
    )
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

/// The site that the arguments ask for.
///
/// # Errors
/// The text to print.
pub fn serve_of(matches: &ArgMatches) -> Result<Serve, clap::Error> {
    let site = site_of(matches)?;
    let directory = matches.get_one::<PathBuf>("directory").cloned().unwrap_or_default();
    let [hidden, follow_links, single_page] =
        ["hidden", "follow-links", "spa"].map(|name| matches.get_flag(name));
    let uploads = match (matches.get_flag("upload"), matches.get_flag("overwrite")) {
        (false, _) => None,
        (true, _) if !cfg!(feature = "dav") => {
            let text =
                "--upload needs the Cargo feature \"dav\", which this program was built without\n";
            return Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, text));
        }
        (true, false) => Some(Uploads::New),
        (true, true) => Some(Uploads::Replacing),
    };
    Ok(Serve { site, directory, hidden, follow_links, single_page, uploads })
}

/// The proxy that the arguments ask for.
///
/// # Errors
/// The text to print.
pub fn proxy_of(matches: &ArgMatches) -> Result<Proxy, clap::Error> {
    let site = site_of(matches)?;
    let text = matches.get_one::<String>("origin").map(String::as_str).unwrap_or_default();
    let refused = |why: &str| {
        let text = format!("invalid value '{text}' for '<URL>': {why}\n");
        clap::Error::raw(clap::error::ErrorKind::ValueValidation, text)
    };
    let origin = Origin::parse(text).map_err(|why| refused(&why))?;
    if origin.is_at(&site.addresses) {
        return Err(refused("the proxy itself listens there; --port chooses another port for it"));
    }
    Ok(Proxy { site, origin, insecure: matches.get_flag("insecure") })
}

/// Where a site is, and for whom.
fn site_of(matches: &ArgMatches) -> Result<Site, clap::Error> {
    let is_public = matches.contains_id("domain");
    if is_public && !cfg!(feature = "acme") {
        let why = "this program was built without the Cargo feature \"acme\"";
        return Err(invalid(
            &matches.get_one::<String>("domain").cloned().unwrap_or_default(),
            "domain",
            why,
        ));
    }
    let default_port = if is_public { domain::PORTS.0 } else { site::PORT };
    let port = matches.get_one("port").copied().unwrap_or(default_port);
    let mut addresses = Vec::new();
    for address in matches.get_many::<String>("listen").into_iter().flatten() {
        let found = site::addresses(address, port);
        addresses.extend(found.map_err(|why| invalid(address, "listen", &why))?);
    }
    if addresses.is_empty() {
        addresses = if is_public { domain::everywhere(port) } else { site::loopback(port) };
    }
    let domain = is_public.then(|| domain_of(matches, &addresses)).transpose()?;
    let mut hosts = Vec::new();
    for host in matches.get_many::<String>("host").into_iter().flatten() {
        hosts.push(site::host(host).map_err(|why| invalid(host, "host", &why))?);
    }
    let mut accounts: Vec<Account> = Vec::new();
    for text in matches.get_many::<String>("auth").into_iter().flatten() {
        // Messages do not repeat passwords.
        let shown = text.split(':').next().unwrap_or_default();
        let account = Account::new(text, std::env::var(account::VARIABLE).ok())
            .map_err(|why| invalid(shown, "auth", &why))?;
        if accounts.iter().any(|known| known.name == account.name) {
            return Err(invalid(shown, "auth", "this user was given before"));
        }
        accounts.push(account);
    }
    Ok(Site { addresses, hosts, domain, accounts })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_by(line: &str) -> Result<Serve, clap::Error> {
        let words = line.split_whitespace();
        serve().try_get_matches_from(words).and_then(|matches| serve_of(&matches))
    }

    // Without the feature, `--domain` is refused.
    #[cfg(feature = "acme")]
    #[test]
    fn serving() {
        let serve = |line: &str| asked_by(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        assert_eq!(serve("serve"), Serve::default());
        let given = serve("serve /srv --port 81 --listen 0.0.0.0 -l [::]:82 --hidden");
        assert_eq!(given.directory, PathBuf::from("/srv"));
        let addresses: Vec<_> = given.site.addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["0.0.0.0:81", "[::]:82"]);
        assert!(given.hidden);
        let public = serve("serve /srv --domain Example.org,www.example.org --accept-terms");
        let domain = public.site.domain.unwrap();
        assert_eq!(domain.names, ["example.org", "www.example.org"]);
        assert!(domain.accepts_terms && domain.issuer == Issuer::lets_encrypt());
        assert_eq!(domain.plain[0].to_string(), "0.0.0.0:80");
        assert_eq!(public.site.addresses[0].to_string(), "0.0.0.0:443");
        let own = "serve --domain a --issuer https://ca.test/dir --state /s -l 127.0.0.1:444 \
                   --http-port 81";
        let own = serve(own).site.domain.unwrap();
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
            assert!(asked_by(wrong).is_err(), "{wrong}");
        }
        let names = |count| {
            let names: Vec<_> = (0..count).map(|number| format!("a{number}.test")).collect();
            asked_by(&format!("serve --domain {}", names.join(",")))
        };
        assert!(names(100).is_ok());
        assert!(names(101).unwrap_err().to_string().contains("100 names at most"));
        for wrong in ["serve a b", "serve --listen 80", "serve --port 0", "serve --lisen ::"] {
            assert!(asked_by(wrong).is_err(), "{wrong}");
        }
    }
}
