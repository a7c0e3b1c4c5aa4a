//! `acme_issuer`, `acme_certificate`, `acme_shared_zone`.
//!
//! A certificate may name an issuer that is defined later, and its server's names follow from the whole
//! block: both are resolved when `http` ends.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use nowait_acme::{Algorithm, ExternalAccount, Identifier, from_base64url};
use nowait_conf::{Contents, Cx, Diagnostic, Msec, Node, Value, Word};
use nowait_front::servers::ServerName;
use nowait_front::tls::files::{self, Passwords};
use nowait_front::tls::https::{Https, Url};
use nowait_http::conf::uri_scope::ServerNames;
use nowait_http::slots::Key;

use super::dns_hook::DnsHook;
use super::state::{AccountKey, Certificate, ChallengeKind, Issuer, IssuerState, Issuers};

nowait_conf::rows! {
    pub static ACME_ROWS, module "acme";

    /// Defines an issuer of certificates that speaks ACME (RFC 8555), such as Let's Encrypt:
    ///
    /// * `uri url;`: the URL of its directory, `https` only. Required.
    /// * `account_key ecdsa[:256|384|521] | rsa[:2048|3072|4096] | file;`: the kind of key to generate for
    ///   the account, with its size in bits (default `ecdsa:256`), or a file with a key.
    /// * `contact url ...;`: where the issuer may send messages. `mailto:` is added to plain addresses. May
    ///   be repeated.
    /// * `challenge http-01 | tls-alpn-01 | dns-01;`: how to prove control of the names (default `http-01`). With
    ///   `http-01` (or `http`), the issuer requests a file from port 80. With `tls-alpn-01` (or `tls-alpn`),
    ///   it makes a TLS handshake on port 443; every listening socket with `ssl` answers, in `http` and
    ///   `stream`. With `dns-01` (or `dns`), it looks for a record in the DNS, which `dns_hook` publishes:
    ///   no port has to be open, and wildcards can be proved, but no addresses.
    /// * `dns_hook program [argument ...];`: the program that publishes records for `dns-01`, and removes
    ///   them. It is called as lego's provider `exec` calls its programs: with the arguments, then `present`
    ///   or `cleanup`, the record's name (`_acme-challenge.example.org.`), and its text. The type is TXT; a
    ///   record of the same name with another text must stay. The program runs as the server's user,
    ///   can't gain privileges (by `sudo`, for example), has 120 seconds, and must exit with 0; otherwise, the
    ///   error log shows the end of its output. After this time, it is ended with all programs that it has
    ///   started. Its environment has `PATH` and what `env` keeps. Relative paths are below the prefix.
    /// * `dns_propagation_delay time;`: the time from the end of `dns_hook` until the issuer is asked to look
    ///   (default `60s`): as long as the slowest of the zone's servers needs.
    /// * `external_account_key id file | data:key;`: binds the account to one that exists at the issuer, by
    ///   a key in base64url.
    /// * `profile name [require];`: the profile of the certificates. Without `require`, it is left out if
    ///   the issuer lacks it; with `require`, nothing is ordered then.
    /// * `preferred_chain name;`: if the issuer offers several chains, use the one whose topmost certificate
    ///   was issued by this common name. By default, the issuer chooses.
    /// * `check_names on | off;`: before a first order by `http-01`, the server itself requests a file from
    ///   port 80 of each name, and the error log names those that do not resolve to it (default `off`).
    /// * `common_name_in_csr on | off;`: also put the first name into the subject of the request (default
    ///   `off`).
    /// * `state_path path | off;`: the directory for the account and the certificates, readable by the
    ///   server's user only (default `acme_NAME` below the prefix). Several instances may share it: one of
    ///   them orders at a time, and each answers `http-01`. With `off`, nothing is kept, and every start
    ///   orders new certificates.
    /// * `accept_terms_of_service;`: agrees to the issuer's terms of service.
    /// * `ssl_trusted_certificate file;`: the authorities that verify the issuer's own certificate, in PEM
    ///   (default: those of the system).
    /// * `ssl_verify on | off;`: whether to verify the issuer's own certificate (default `on`).
    ///
    /// Every server answers challenges, before it looks for a location. The issuer's name is resolved by
    /// the `resolver` of `http`, or as the system does.
    block "acme_issuer" => acme_issuer, in HTTP, take exactly(1), args "name { ... }";
    /// Obtains the server's certificate from this issuer, for the given names and addresses (default: those
    /// of `server_name`). Wildcards at the beginning (`*.example.org`) need the challenge `dns-01`, because no
    /// other can prove them, and regular expressions are refused; `.example.org` counts as `example.org`. `key` is
    /// the kind of the private key, with its size in bits (default `ecdsa:256`).
    ///
    /// The certificate is ordered at the start. It is renewed when the issuer suggests (RFC 9773), otherwise
    /// after about two thirds of its lifetime. `ssl_certificate $acme_certificate;` and
    /// `ssl_certificate_key $acme_certificate_key;` present it, after a renewal without a reload. Until the
    /// first one arrives, handshakes fail. `ssl_certificate_cache` saves reading it for each handshake.
    "acme_certificate" => acme_certificate, in SERVER, take at_least(1), inheritance List, args "issuer [identifier ...] [key=ecdsa[:256|384|521] | key=rsa[:2048|3072|4096]]";
    /// Accepted for compatibility, without effect: certificates and challenges need no shared memory.
    "acme_shared_zone" => acme_shared_zone, in HTTP, take exactly(1), args "zone=name:size";
}

/// The default of `dns_propagation_delay`.
const PROPAGATION: Duration = Duration::from_secs(60);

/// The longest `dns_propagation_delay`.
const PROPAGATION_MAX: Duration = Duration::from_secs(3600);

/// The number of a server's certificate.
pub static NUMBER: Key<usize> = Key::new();

/// `acme_certificate` of a server: its number.
#[derive(Default)]
pub struct CertificateLayer(pub usize);

/// The arguments of `acme_certificate`.
struct CertificateSetting {
    issuer: Word,
    at: nowait_conf::Span,
    algorithm: Algorithm,
    identifiers: Vec<Identifier>,
    is_complete: bool,
}

/// Issuers and certificates until `http` ends.
#[derive(Default)]
pub struct UnresolvedIssuers {
    issuers: Vec<Issuer>,
    given: Vec<CertificateSetting>,
}

impl UnresolvedIssuers {
    /// Whether challenges may have to be answered.
    pub fn has_issuers(&self) -> bool {
        !self.issuers.is_empty()
    }

    /// Issuers with their certificates.
    pub fn resolve(self, cx: &mut Cx<'_>) -> Issuers {
        let Self { issuers, given } = self;
        let mut certificates = Vec::new();
        for one in given {
            let text = one.issuer.lossy();
            let Some(issuer) = issuers.iter().position(|issuer| *issuer.name == *text) else {
                let error = one.issuer.error(format!("no acme_issuer \"{text}\" is defined"));
                cx.report(error.hint("define it by an acme_issuer block in http"));
                certificates.push(Certificate::default());
                continue;
            };
            let is_dns = issuers[issuer].challenge == ChallengeKind::Dns;
            for identifier in &one.identifiers {
                let (error, hint) = match identifier {
                    Identifier::Dns(name) if name.starts_with("*.") && !is_dns => (
                        "wildcards can't be proved by http-01 or tls-alpn-01",
                        "name the complete names, or use the challenge dns-01",
                    ),
                    Identifier::Ip(_) if is_dns => (
                        "addresses can't be proved by dns-01",
                        "use an issuer with the challenge http-01 or tls-alpn-01",
                    ),
                    _ => continue,
                };
                let value = identifier.value();
                let error = Diagnostic::emerg(format!("{error}: \"{value}\""));
                cx.report(error.at(one.at).hint(hint));
            }
            certificates.push(Certificate::new(issuer, one.identifiers, one.algorithm));
        }
        Issuers { all: issuers, certificates }
    }
}

/// Completes a server's certificate by the names of the server that is being resolved.
pub fn complete(cx: &mut Cx<'_>, number: usize) {
    let names = cx.global::<ServerNames>().0.clone();
    let Some(given) = cx.global::<UnresolvedIssuers>().given.get_mut(number) else { return };
    if std::mem::replace(&mut given.is_complete, true) || !given.identifiers.is_empty() {
        return;
    }
    let at = given.at;
    let mut errors = Vec::new();
    for name in &names {
        let plain = match name {
            ServerName::Plain(name) => name.strip_prefix(b".").unwrap_or(name),
            ServerName::Regex { .. } => {
                errors.push("a regular expression in server_name is no name for a certificate");
                continue;
            }
        };
        if plain.is_empty() || plain == b"_" {
            continue;
        }
        match identifier(plain) {
            Ok(one) => given.identifiers.push(one),
            Err(why) => errors.push(why),
        }
    }
    if given.identifiers.is_empty() && errors.is_empty() {
        errors.push("the server has no names for a certificate");
    }
    given.identifiers.sort();
    given.identifiers.dedup();
    for why in errors {
        let error = Diagnostic::emerg(why).at(at);
        cx.report(
            error.hint("name what the certificate is for: acme_certificate ISSUER NAME ...;"),
        );
    }
}

/// The identifiers of a certificate.
fn identifier(text: &[u8]) -> Result<Identifier, &'static str> {
    let text = std::str::from_utf8(text).map_err(|_| "a name for a certificate must be ASCII")?;
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(Identifier::Ip(ip));
    }
    let below = text.strip_prefix("*.");
    let name = below.unwrap_or(text);
    if name.contains('*') || below.is_some_and(|below| !below.contains('.')) {
        return Err("a wildcard in a certificate stands for the first of three labels or more, \
                    such as *.example.org");
    }
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    match text.len() <= 253 && name.split('.').all(is_label) {
        true => Ok(Identifier::Dns(text.to_ascii_lowercase())),
        false => Err("invalid name for a certificate"),
    }
}

fn acme_certificate(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let issuer = node.args.first().cloned().ok_or_else(|| node.arity_error())?;
    let mut given = CertificateSetting {
        issuer,
        at: node.span,
        algorithm: Algorithm::Ecdsa256,
        identifiers: Vec::new(),
        is_complete: false,
    };
    for word in &node.args[1..] {
        if let Some(kind) = word.text.strip_prefix(b"key=") {
            given.algorithm = Algorithm::parse(kind).ok_or_else(|| {
                word.error(format!("unsupported kind of key \"{word}\""))
                    .expected("ecdsa:256, ecdsa:384, ecdsa:521, rsa:2048, rsa:3072 or rsa:4096")
            })?;
            continue;
        }
        let one = identifier(&word.text).map_err(|why| word.error(format!("{why}: \"{word}\"")))?;
        given.identifiers.push(one);
    }
    let all = &mut cx.global::<UnresolvedIssuers>().given;
    all.push(given);
    let number = all.len() - 1;
    cx.layer::<CertificateLayer>().0 = number;
    Ok(())
}

fn acme_shared_zone(_cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let word = node.args.first().ok_or_else(|| node.arity_error())?;
    match word.text.starts_with(b"zone=") {
        true => Ok(()),
        false => Err(node.parameter_error(word)),
    }
}

/// Warns of a program that can't be run.
fn warn_of_program(cx: &mut Cx<'_>, word: &Word, path: &[u8]) {
    let Some(why) = DnsHook::problem(path) else { return };
    let path = String::from_utf8_lossy(path);
    let warning = Diagnostic::warn(format!("the program \"{path}\" of \"dns_hook\" {why}"));
    cx.report(warning.at(word.span).hint("without it, no certificate is ordered"));
}

/// `on` or `off`.
fn switch(word: &Word) -> Result<bool, Diagnostic> {
    match &word.text[..] {
        b"on" => Ok(true),
        b"off" => Ok(false),
        _ => Err(word.error(format!("invalid value \"{word}\"")).expected("\"on\" or \"off\"")),
    }
}

fn acme_issuer(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let name = node.args.first().ok_or_else(|| node.arity_error())?;
    let text = name.lossy().into_owned();
    if text.is_empty() || text.contains('/') {
        return Err(name.error(format!("invalid name of an issuer \"{name}\"")));
    }
    if cx.global::<UnresolvedIssuers>().issuers.iter().any(|known| *known.name == *text) {
        return Err(name.error(format!("duplicate acme_issuer \"{name}\"")));
    }
    let default_path = cx.paths().full(format!("acme_{text}").as_bytes());
    let mut issuer = Issuer {
        name: text.into(),
        uri: String::new(),
        account_key: AccountKey::Generated(Algorithm::Ecdsa256),
        contacts: Vec::new(),
        accepts_terms: false,
        external: None,
        profile: None,
        preferred_chain: None,
        common_name: false,
        challenge: ChallengeKind::Http,
        dns_hook: None,
        dns_propagation_delay: PROPAGATION,
        checks_names: false,
        state_path: Some(default_path),
        https: None,
        shared: Arc::new(IssuerState::default()),
    };
    let (mut trusted, mut verifies) = (None, true);
    let entries = cx.entries(node);
    for entry in &entries {
        let read = setting(cx, &mut issuer, (&mut trusted, &mut verifies), entry);
        cx.accept(read);
    }
    let hook = entries.iter().find(|entry| entry.name == *"dns_hook");
    if let Some(hook) = hook.filter(|_| issuer.challenge != ChallengeKind::Dns) {
        let challenge = issuer.challenge.name();
        let text = format!("\"dns_hook\" has no effect with the challenge {challenge}");
        let warning = Diagnostic::warn(text).at(hook.name.span);
        cx.report(warning.hint("add \"challenge dns-01;\", or remove dns_hook"));
    }
    if issuer.uri.is_empty() {
        return Err(node
            .error(format!("acme_issuer \"{name}\" has no \"uri\""))
            .hint("add the URL of its directory: uri https://...;"));
    }
    if issuer.challenge == ChallengeKind::Dns && issuer.dns_hook.is_none() {
        return Err(node
            .error(format!("acme_issuer \"{name}\" has no \"dns_hook\""))
            .hint("name the program that publishes records: dns_hook /path/of/the/program;"));
    }
    let https = Https::new(cx, trusted.as_ref(), verifies);
    issuer.https = Some(https.map_err(|error| error.or_at(node.name.span))?);
    cx.global::<UnresolvedIssuers>().issuers.push(issuer);
    Ok(())
}

/// One directive of the block.
fn setting(
    cx: &mut Cx<'_>,
    issuer: &mut Issuer,
    (trusted, verifies): (&mut Option<Word>, &mut bool),
    entry: &Node,
) -> Result<(), Diagnostic> {
    let first = || entry.args.first().ok_or_else(|| entry.arity_error());
    let (least, most) = match &entry.name.text[..] {
        b"accept_terms_of_service" => (0, 0),
        b"external_account_key" => (2, 2),
        b"profile" => (1, 2),
        b"contact" | b"dns_hook" => (1, usize::MAX),
        _ => (1, 1),
    };
    if !(least..=most).contains(&entry.args.len()) {
        return Err(entry.arity_error());
    }
    match &entry.name.text[..] {
        b"uri" => {
            let word = first()?;
            let url = word.to_str()?;
            if Url::parse(url).is_none() {
                let error = word.error(format!("invalid URL \"{word}\" of an issuer"));
                return Err(error.expected("a URL that begins with https://"));
            }
            url.clone_into(&mut issuer.uri);
        }
        b"account_key" => {
            let word = first()?;
            issuer.account_key = match Algorithm::parse(&word.text) {
                Some(algorithm) => AccountKey::Generated(algorithm),
                None => {
                    let key = files::private_key(cx, word, &Passwords::default())?;
                    nowait_acme::PrivateKey::from_der(key.der())
                        .map_err(|error| word.error(error.to_string()))?;
                    AccountKey::Given(Contents::new(key.der().to_vec()))
                }
            };
        }
        b"contact" => {
            for word in &entry.args {
                let url = word.to_str()?;
                let scheme = if url.contains(':') { "" } else { "mailto:" };
                issuer.contacts.push(format!("{scheme}{url}"));
            }
        }
        b"challenge" => {
            let word = first()?;
            issuer.challenge = match &word.text[..] {
                b"http-01" | b"http" => ChallengeKind::Http,
                b"tls-alpn-01" | b"tls-alpn" => ChallengeKind::TlsAlpn,
                b"dns-01" | b"dns" => ChallengeKind::Dns,
                _ => {
                    let error = word.error(format!("unsupported challenge \"{word}\""));
                    return Err(error.expected("http-01, tls-alpn-01 or dns-01"));
                }
            };
        }
        b"dns_hook" => {
            if issuer.dns_hook.is_some() {
                return Err(entry.name.error("\"dns_hook\" directive is duplicate"));
            }
            let (program, arguments) =
                entry.args.split_first().ok_or_else(|| entry.arity_error())?;
            let text = |word: &Word| word.to_str().map(str::to_owned);
            let full = cx.paths().full(program.to_str()?.as_bytes());
            warn_of_program(cx, program, &full);
            issuer.dns_hook = Some(DnsHook {
                program: String::from_utf8_lossy(&full).into_owned(),
                arguments: arguments.iter().map(text).collect::<Result<_, _>>()?,
            });
        }
        b"dns_propagation_delay" => {
            let word = first()?;
            let time = Msec::from_word(&word.text).ok().map(Msec::duration);
            let time = time.filter(|time| *time <= PROPAGATION_MAX).ok_or_else(|| {
                word.error(format!("invalid time \"{word}\"")).expected("a time up to 1h")
            })?;
            issuer.dns_propagation_delay = time;
        }
        b"external_account_key" => {
            let (kid, file) = (&entry.args[0], &entry.args[1]);
            let contents = match file.text.strip_prefix(b"data:") {
                Some(data) => Contents::new(data.to_vec()),
                None => Contents::new(files::der(cx, file)?),
            };
            let text = std::str::from_utf8(&contents).unwrap_or_default().trim();
            let key = from_base64url(text).filter(|key| !key.is_empty());
            let key = key.ok_or_else(|| {
                entry.error("invalid external_account_key").expected("a key in base64url")
            })?;
            issuer.external = Some(ExternalAccount { kid: kid.to_str()?.to_owned(), key });
        }
        b"profile" => {
            let require = match entry.args.get(1) {
                None => false,
                Some(word) if *word == *"require" => true,
                Some(word) => return Err(entry.parameter_error(word)),
            };
            issuer.profile = Some((first()?.to_str()?.to_owned(), require));
        }
        b"preferred_chain" => issuer.preferred_chain = Some(first()?.to_str()?.to_owned()),
        b"check_names" => issuer.checks_names = switch(first()?)?,
        b"common_name_in_csr" => issuer.common_name = switch(first()?)?,
        b"state_path" => {
            let word = first()?;
            issuer.state_path = (*word != *"off").then(|| cx.paths().full(&word.text));
        }
        b"accept_terms_of_service" => issuer.accepts_terms = true,
        b"ssl_trusted_certificate" => *trusted = Some(first()?.clone()),
        b"ssl_verify" => *verifies = switch(first()?)?,
        _ => {
            return Err(entry
                .error(format!("unknown directive \"{}\" in \"acme_issuer\"", entry.name))
                .hint("see the reference of acme_issuer for its directives"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers() {
        let dns = |name: &str| Ok(Identifier::Dns(name.to_owned()));
        assert_eq!(identifier(b"Example.org"), dns("example.org"));
        assert_eq!(identifier(b"xn--mnchen-3ya.example"), dns("xn--mnchen-3ya.example"));
        assert_eq!(identifier(b"*.Example.org"), dns("*.example.org"));
        assert_eq!(identifier(b"[::1]"), Ok(Identifier::Ip("::1".parse().unwrap())));
        assert_eq!(identifier(b"192.0.2.1"), Ok(Identifier::Ip("192.0.2.1".parse().unwrap())));
        for bad in [
            "",
            "*",
            "*.",
            "*.test",
            "*.*.example.org",
            "a.*.example.org",
            "*a.example.org",
            "www.*",
            "a..b",
            "a/b",
            "a b",
            "~x",
            "../x",
            "ä.example",
        ] {
            assert!(identifier(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn equal_certificates_share_a_file() {
        let of = |names: &[&str], algorithm| {
            let all = names.iter().map(|name| identifier(name.as_bytes()).unwrap()).collect();
            Certificate::new(0, all, algorithm).file
        };
        let one = of(&["a.test", "b.test"], Algorithm::Ecdsa256);
        assert!(one.starts_with("a.test-") && one.ends_with(".pem"));
        assert_eq!(one, of(&["a.test", "b.test"], Algorithm::Ecdsa256));
        assert_ne!(one, of(&["a.test", "b.test"], Algorithm::Rsa2048));
        assert_ne!(one, of(&["a.test"], Algorithm::Ecdsa256));
        // Related files have longer names, and no name may exceed 255 bytes.
        let long = |last: &str| format!("{}{last}", format!("{}.", "a".repeat(49)).repeat(5));
        let one = of(&[&long("tst")], Algorithm::Ecdsa256);
        assert!(one.len() + ".broken".len() <= 255, "{one}");
        assert_ne!(one, of(&[&long("tet")], Algorithm::Ecdsa256));
    }
}
