//! A public site without a configuration: `nowait serve --domain`, with a certificate of its own and the
//! redirect from HTTP.
//!
//! Made by `commands`, used by `builtin`, which writes the configuration. Certificates are the business of
//! `acme_issuer`; there is no second way to obtain them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Component, Path, PathBuf};

use nowait_front::tls::https::Url;
use nowait_sys::user;

/// The ports of HTTPS and HTTP.
pub const PORTS: (u16, u16) = (443, 80);

/// Maximum number of names of a certificate: public issuers certify no more.
pub const NAMES_MAX: usize = 100;

/// Maximum length of a name, and of its parts between dots (RFC 1035, 2.3.4).
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// The user that the packages create. Unlike `nobody`, it runs no other programs, which could read the
/// keys.
const USER: &str = "nowait";

/// The state directory for root: accounts and certificates.
const STATE: &str = "/var/lib/nowait/acme";

/// An issuer of certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    /// The name, also that of the directory of its state.
    pub name: String,
    /// The URL of its directory.
    pub url: String,
    /// Serves names of the public DNS only.
    is_public: bool,
}

impl Issuer {
    /// Let's Encrypt.
    pub fn lets_encrypt() -> Self {
        Self {
            name: "letsencrypt".to_owned(),
            url: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
            is_public: true,
        }
    }

    /// Let's Encrypt for experiments: no client trusts it.
    pub fn staging() -> Self {
        Self {
            name: "letsencrypt-staging".to_owned(),
            url: "https://acme-staging-v02.api.letsencrypt.org/directory".to_owned(),
            is_public: true,
        }
    }

    /// Another one.
    ///
    /// # Errors
    /// The reason why the URL is invalid.
    pub fn at(url: &str) -> Result<Self, String> {
        let is_safe = |byte: u8| !b"\"'\\;{}$".contains(&byte);
        let is_good = Url::parse(url).is_some_and(|parsed| !parsed.host.starts_with('.'));
        let rest = url.strip_prefix("https://").filter(|_| is_good && url.bytes().all(is_safe));
        let rest = rest.ok_or_else(|| match url.starts_with("http://") {
            true => "issuers are asked by HTTPS alone: the URL has to begin with https://",
            false => "expected the URL of an ACME directory, such as https://ca.example/dir",
        })?;
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
        let name = host.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        Ok(Self { name, url: url.to_owned(), is_public: false })
    }
}

/// The options `--domain` and those that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// The names; the first one stands for the site.
    pub names: Vec<String>,
    /// The contact address for the issuer.
    pub email: Option<String>,
    /// The operator agrees to the issuer's terms of service.
    pub accepts_terms: bool,
    /// The issuer of certificates.
    pub issuer: Issuer,
    /// Authorities that verify the issuer's own certificate.
    pub authorities: Option<PathBuf>,
    /// The address that redirects HTTP to HTTPS.
    pub plain: Vec<SocketAddr>,
    /// The directory of the issuer's state.
    pub state: PathBuf,
}

/// A name for a certificate, in lower case.
///
/// # Errors
/// The reason why the argument is invalid.
pub fn name(text: &str, issuer: &Issuer) -> Result<String, String> {
    let refused = |why: &str| Err(why.to_owned());
    let text = text.to_ascii_lowercase();
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(&text);
    if bare.parse::<IpAddr>().is_ok() {
        return refused("expected a name such as example.org, not an address");
    }
    if text.contains('*') {
        return refused(
            "names with wildcards need a configuration and a certificate from elsewhere",
        );
    }
    if !text.is_ascii() {
        return refused("expected ASCII: bücher.example is written xn--bcher-kva.example");
    }
    if text.len() > NAME_BYTES_MAX || text.split('.').any(|label| label.len() > LABEL_BYTES_MAX) {
        return Err(format!(
            "a name has {NAME_BYTES_MAX} characters at most, and {LABEL_BYTES_MAX} between two dots"
        ));
    }
    let is_label = |label: &str| {
        label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && label.bytes().any(|b| b.is_ascii_alphanumeric())
    };
    if !text.split('.').all(is_label) {
        return refused("expected a name such as example.org");
    }
    if issuer.is_public && !text.contains('.') {
        return refused(
            "public issuers certify complete names, such as example.org; --issuer names one of your own",
        );
    }
    Ok(text)
}

/// The user for root's server process, if the system has a better one than `nobody`.
pub fn server_user() -> Option<&'static str> {
    user::account(USER).ok().flatten().map(|_| USER)
}

/// Checks an e-mail address.
///
/// # Errors
/// The reason why the argument is invalid.
pub fn email(text: &str) -> Result<String, String> {
    let is_safe = |byte: u8| byte.is_ascii_graphic() && !b"\"'\\;{}$#,".contains(&byte);
    match text.bytes().all(is_safe)
        && text.split_once('@').is_some_and(|(a, b)| !a.is_empty() && !b.is_empty())
    {
        true => Ok(text.to_owned()),
        false => Err("expected an address such as you@example.org".to_owned()),
    }
}

/// Every address of this machine, at a port.
pub fn everywhere(port: u16) -> Vec<SocketAddr> {
    let mut addresses = vec![SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        addresses.push(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    }
    addresses
}

/// The state directory of an issuer: for root the system's, for other users their own.
///
/// # Errors
/// The user has no such directory.
pub fn state(issuer: &Issuer) -> Result<PathBuf, String> {
    if user::effective_uid() == 0 {
        return Ok(Path::new(STATE).join(&issuer.name));
    }
    let variable =
        |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")));
    let data = data.ok_or("there is no place for certificates: name a directory by --state")?;
    Ok(data.join("nowait/acme").join(&issuer.name))
}

/// A word of the configuration.
pub fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// `:8443`; nothing for the default port.
fn port_of(addresses: &[SocketAddr], default: u16) -> String {
    match addresses.first().map(SocketAddr::port) {
        Some(port) if port != default => format!(":{port}"),
        _ => String::new(),
    }
}

/// The canonical form of a path whose last directories may not exist yet.
fn destination(path: &Path) -> PathBuf {
    let existing = path.ancestors().find_map(|ancestor| {
        let found = std::fs::canonicalize(ancestor).ok()?;
        Some((found, path.strip_prefix(ancestor).ok()?))
    });
    let Some((mut found, missing)) = existing else { return path.to_owned() };
    for component in missing.components() {
        match component {
            Component::ParentDir => {
                found.pop();
            }
            other => found.push(other),
        }
    }
    // Behind "missing/..", there may be links.
    match missing.components().any(|component| component == Component::ParentDir) {
        true => destination(&found),
        false => found,
    }
}

impl Domain {
    /// Creates the directory of the state and those above it, unless it would be served: the directory
    /// `served` (canonical) is, with names that begin with a dot if there is a `true` beside it. `owner`: the user of the server
    /// process, to whom the master will give the state; `None`: its own.
    ///
    /// # Errors
    /// The message to print. Nothing was created if the place is unsuitable.
    pub fn make_place(
        &self,
        served: Option<(&Path, bool)>,
        owner: Option<u32>,
    ) -> Result<(), String> {
        use std::os::unix::fs::{DirBuilderExt, MetadataExt};
        let shown = |path: &Path, why: &str| {
            Err(format!("[emerg] \"{}\" {why}; --state names another directory", path.display()))
        };
        let is_hidden = |path: &Path, hidden: bool| {
            use std::os::unix::ffi::OsStrExt;
            !hidden && path.iter().any(|name| name.as_bytes().starts_with(b"."))
        };
        let state = &self.state;
        let is_served = |(directory, hidden): (&Path, bool)| {
            destination(state).strip_prefix(directory).is_ok_and(|path| !is_hidden(path, hidden))
        };
        if served.is_some_and(is_served) {
            let why = "is in the served directory: anybody could download the keys";
            return shown(state, why);
        }
        let failed = |path: &Path, error: std::io::Error| {
            shown(path, &format!("cannot be created for certificates: {error}"))
        };
        if let Ok(metadata) = std::fs::metadata(state) {
            let others = owner.filter(|owner| *owner != metadata.uid());
            let is_empty = || std::fs::read_dir(state).is_ok_and(|mut all| all.next().is_none());
            return match metadata.is_dir() {
                false => shown(state, "is not a directory"),
                true => match others.filter(|_| !is_empty()) {
                    None => Ok(()),
                    Some(owner) => shown(
                        state,
                        &format!(
                            "belongs to another user than the server's and is not empty; \"chown -R \
                             {owner}\" gives it to the server"
                        ),
                    ),
                },
            };
        }
        // The user of the server process has to pass through root's directories.
        let mode = if user::effective_uid() == 0 { 0o755 } else { 0o700 };
        let parent = state.parent().unwrap_or(state);
        let mut builder = std::fs::DirBuilder::new();
        match builder.recursive(true).mode(mode).create(parent) {
            Ok(()) => {}
            Err(error) => return failed(parent, error),
        }
        let made = std::fs::DirBuilder::new().mode(0o700).create(state);
        made.or_else(|error| failed(state, error))
    }

    /// The issuer and the servers besides that of the directory, as a part of `http`. `secure`: where
    /// HTTPS is served.
    pub fn blocks(&self, secure: &[SocketAddr]) -> String {
        let Self { names, issuer: Issuer { name, url, .. }, .. } = self;
        let mut text = format!("    acme_issuer {name} {{\n        uri {url};\n");
        if let Some(email) = &self.email {
            text.push_str(&format!("        contact {email};\n"));
        }
        if self.accepts_terms {
            text.push_str("        accept_terms_of_service;\n");
        }
        if let Some(file) = &self.authorities {
            text.push_str(&format!(
                "        ssl_trusted_certificate {};\n",
                quoted(&file.to_string_lossy())
            ));
        }
        text.push_str(&format!(
            "        state_path {};\n        check_names on;\n    }}\n",
            quoted(&self.state.to_string_lossy())
        ));
        let listens = |addresses: &[SocketAddr], parameters: &str| -> String {
            let lines = addresses.iter();
            lines.map(|address| format!("        listen {address}{parameters};\n")).collect()
        };
        // Other names, which have no certificate.
        let port = port_of(secure, PORTS.0);
        let to = |host: &str| format!("        return 301 https://{host}{port}$request_uri;\n");
        let default = listens(&self.plain, " default_server");
        text.push_str(&format!("    server {{\n{default}{}    }}\n", to(&names[0])));
        let own = format!("{}        server_name {};\n", listens(&self.plain, ""), names.join(" "));
        text.push_str(&format!("    server {{\n{own}{}    }}\n", to("$host")));
        let default = ["ssl", "quic"]
            .map(|transport| listens(secure, &format!(" {transport} default_server")))
            .concat();
        text.push_str(&format!(
            "    server {{\n{default}        ssl_reject_handshake on;\n    }}\n"
        ));
        text
    }

    /// Directives of the directory's server.
    pub fn directives(&self) -> String {
        let Self { names, issuer, .. } = self;
        format!(
            "        server_name {};\n        http2 on;\n        acme_certificate {};\n        \
             ssl_certificate $acme_certificate;\n        \
             ssl_certificate_key $acme_certificate_key;\n        ssl_certificate_cache max=2;\n",
            names.join(" "),
            issuer.name,
        )
    }

    /// The address of the site, and the options.
    pub fn greeting(&self, secure: &[SocketAddr]) -> String {
        let port = port_of(secure, PORTS.0);
        let urls: Vec<_> = self.names.iter().map(|name| format!("https://{name}{port}/")).collect();
        let (urls, state) = (urls.join(", "), self.state.display());
        let port = port_of(&self.plain, PORTS.1);
        format!(
            "{urls}\nRequests to http://{}{port}/ are redirected. The certificate comes from {} and is \
             kept in {state}.{}",
            self.names[0],
            self.issuer.url,
            if self.accepts_terms {
                ""
            } else {
                "\nA first certificate needs --accept-terms: read the issuer's terms of service, and start \
                 again with this option to agree to them."
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_issuers_certify() {
        let own = Issuer::at("https://ca.example:14000/dir").unwrap();
        assert_eq!(own.name, "ca.example_14000");
        assert_eq!(name("Example.ORG", &Issuer::staging()).as_deref(), Ok("example.org"));
        assert_eq!(name("localhost", &own).as_deref(), Ok("localhost"));
        let long = "a".repeat(64);
        let all = format!("{}test", "a.".repeat(125));
        for (bad, why) in [
            ("", "expected a name such as"),
            ("a..b", "expected a name such as"),
            ("a.test.", "expected a name such as"),
            ("https://a.test/", "expected a name such as"),
            ("a.test:443", "expected a name such as"),
            ("a;b", "expected a name such as"),
            ("a b", "expected a name such as"),
            ("-{}", "expected a name such as"),
            ("_", "expected a name such as"),
            ("a.-", "expected a name such as"),
            ("*.example.org", "wildcards need"),
            ("192.0.2.1", "not an address"),
            ("2001:db8::1", "not an address"),
            ("[::1]", "not an address"),
            ("ä.example", "expected ASCII"),
            (&long, "63 between two dots"),
            (&all, "253 characters at most"),
        ] {
            let said = name(bad, &own).unwrap_err();
            assert!(said.contains(why), "{bad}: {said}");
        }
        assert!(name(&all[1..], &own).unwrap_err().contains("expected a name such as"));
        assert!(name(&all[2..], &own).is_ok());
        assert!(name("localhost", &Issuer::lets_encrypt()).unwrap_err().contains("--issuer"));
        assert!(Issuer::at("http://a/").unwrap_err().contains("begin with https://"));
        for bad in [
            "",
            "https://",
            "ca.example",
            "https://a/ b",
            "https:///dir",
            "https://u@h/dir",
            "https://../dir",
            "https://a:x/dir",
            "https://a/$b",
        ] {
            assert!(Issuer::at(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_of_mail_are_words() {
        assert_eq!(email("you@example.org").as_deref(), Ok("you@example.org"));
        for bad in ["", "you", "@", "a@", "@b", "a@b;", "a@b c", "a\"@b"] {
            assert!(email(bad).is_err(), "{bad}");
        }
    }

    fn with_state(state: PathBuf) -> Domain {
        Domain {
            names: vec!["example.org".to_owned()],
            email: None,
            accepts_terms: false,
            issuer: Issuer::lets_encrypt(),
            authorities: None,
            plain: Vec::new(),
            state,
        }
    }

    #[test]
    fn keys_are_not_served() {
        let dir = nowait_testkit::TempDir::new("place");
        let top = std::fs::canonicalize(dir.path()).unwrap();
        dir.write("site/index.html", "");
        std::os::unix::fs::symlink("site", top.join("link")).unwrap();
        let site = top.join("site");
        let make = |state: &str, hidden| {
            with_state(top.join(state)).make_place(Some((&site, hidden)), None)
        };
        for (state, hidden) in [
            ("site", false),
            ("site/state", false),
            ("site/a/b/state", false),
            ("link/state", false),
            ("other/../link/state", false),
            ("other/x/../../site/state", false),
            ("site/.state", true),
        ] {
            let error = make(state, hidden).unwrap_err();
            assert!(error.contains("is in the served directory"), "{state}: {error}");
        }
        assert_eq!(std::fs::read_dir(&site).unwrap().count(), 1);
        assert_eq!(std::fs::read_dir(&top).unwrap().count(), 2);
        for state in ["site/.local/state", "site2/state", "other/a/state", "site/../state"] {
            assert_eq!(make(state, false), Ok(()), "{state}");
            assert!(top.join(state).is_dir(), "{state}");
        }
    }

    #[test]
    fn nothing_of_others_is_given_away() {
        let dir = nowait_testkit::TempDir::new("place");
        dir.write("full/file", "");
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        let own = user::effective_uid();
        let make = |state: &str, owner| {
            let domain = with_state(dir.path().join(state));
            domain.make_place(None, owner)
        };
        for (state, owner, expected) in [
            ("full/file", None, "is not a directory; --state names another directory"),
            ("full", Some(own + 1), "is not empty; \"chown -R "),
            ("full/file/state", None, "cannot be created for certificates"),
        ] {
            let error = make(state, owner).unwrap_err();
            assert!(error.contains(expected), "{state}: {error}");
        }
        for (state, owner) in [("full", Some(own)), ("full", None), ("empty", Some(own + 1))] {
            assert_eq!(make(state, owner), Ok(()), "{state}");
        }
    }

    #[test]
    fn a_greeting_says_what_is_missing() {
        let mut domain = with_state(PathBuf::from("/state"));
        assert!(domain.greeting(&[]).contains("\nA first certificate needs --accept-terms: read"));
        domain.accepts_terms = true;
        assert!(!domain.greeting(&[]).contains("--accept-terms"));
    }
}
