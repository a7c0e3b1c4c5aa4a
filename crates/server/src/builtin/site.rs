//! What every built-in site has: the addresses where it listens, the names that it answers to, and its
//! certificate.
//!
//! Used by [`super::serve`], whose configuration these directives are a part of.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};

use nowait_sys::user;

use super::account::Account;
use super::domain::{self, Domain};
use super::reachable::Urls;
use super::request_lines::RequestLines;

/// The default port.
pub const PORT: u16 = 8080;

/// Directives of the main context, each with its arguments.
const MAIN: &[(&str, &str)] =
    &[("daemon", "off"), ("worker_processes", "auto"), ("error_log", "stderr warn")];

/// Values of `Host` that are always allowed: the name of this machine, IP addresses (which no site can
/// claim), and an empty value (old programs).
const LOCAL_NAMES: &str =
    r#""" localhost *.localhost "~^[0-9]+(\.[0-9]+){3}$" "~^\[[0-9a-f:.]+\]$""#;

/// The response to other names.
const STRANGE: &str = "This server answers to localhost and to IP addresses only. The option --host allows another \
                       name.\n";

/// A name for [`Site::hosts`], in lower case.
///
/// # Errors
/// The reason why the name is invalid.
pub fn host(text: &str) -> Result<String, String> {
    let name = text.to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let labels = name.strip_prefix("*.").unwrap_or(&name);
    match !name.is_empty()
        && labels.bytes().all(is_plain)
        && labels.split('.').all(|l| !l.is_empty())
    {
        true => Ok(name),
        false => Err("expected a name such as box.example or *.example, without port".to_owned()),
    }
}

/// Where a site is, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Addresses to listen on.
    pub addresses: Vec<SocketAddr>,
    /// Names that `Host` may have. If there are any, or if only this machine reaches the server, requests
    /// for names besides these, `localhost` and addresses are refused.
    pub hosts: Vec<String>,
    /// A public site with a certificate.
    pub domain: Option<Domain>,
    /// Those who may come in; if there are none, everybody.
    pub accounts: Vec<Account>,
}

impl Default for Site {
    fn default() -> Site {
        Site { addresses: loopback(PORT), hosts: Vec::new(), domain: None, accounts: Vec::new() }
    }
}

/// Both loopback addresses, or only IPv4's where there is no IPv6.
pub fn loopback(port: u16) -> Vec<SocketAddr> {
    let mut addresses = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))];
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        addresses.push(SocketAddr::from((Ipv6Addr::LOCALHOST, port)));
    }
    addresses
}

/// An address with or without a port: `0.0.0.0`, `[::]:8000`, `::1`, `localhost:8000`.
///
/// # Errors
/// Why the address is invalid.
pub fn addresses(text: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![address]);
    }
    if let Ok(ip) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    match text.strip_prefix("localhost").map(|rest| rest.strip_prefix(':')) {
        Some(Some(own)) => {
            own.parse().map(loopback).map_err(|_| format!("\"{own}\" is not a port"))
        }
        Some(None) if text == "localhost" => Ok(loopback(port)),
        _ if text.parse::<u16>().is_ok() => {
            Err(format!("it needs an address; \"--port {text}\" sets the port"))
        }
        _ => Err("expected an address such as 0.0.0.0, [::]:8000 or localhost".to_owned()),
    }
}

impl Site {
    /// The directives of the main context, without those that `globals` (`-g`) sets.
    pub fn main_directives(&self, globals: Option<&str>) -> String {
        let is_given = |name: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            globals.is_some_and(|text| text.split(|c| !is_word(c)).any(|word| word == name))
        };
        let mut text = String::new();
        let mut main = |name: &str, arguments: &str| {
            if !is_given(name) {
                text.push_str(&format!("{name} {arguments};\n"));
            }
        };
        for (name, arguments) in MAIN {
            main(name, arguments);
        }
        // A process that may read everything must not face clients: root's server process becomes
        // another user, by default "nobody". Other users need no second process.
        if user::effective_uid() != 0 {
            main("master_process", "off");
        } else if let Some(user) = self.own_user() {
            main("user", user);
        }
        text
    }

    /// Directives of the `http` block: the lines about requests, the issuer, and servers besides the site's.
    pub fn http_directives(&self) -> String {
        let mut text = RequestLines::of_output().directives();
        text.push_str(
            &self.domain.as_ref().map(|own| own.blocks(&self.addresses)).unwrap_or_default(),
        );
        text.push_str(&self.strangers());
        text
    }

    /// Directives of the site's own server.
    pub fn server_directives(&self) -> String {
        let mut text = String::new();
        let transports: &[&str] = if self.domain.is_some() { &[" ssl", " quic"] } else { &[""] };
        for address in &self.addresses {
            for transport in transports {
                text.push_str(&format!("        listen {address}{transport};\n"));
            }
        }
        text.push_str(&self.domain.as_ref().map(Domain::directives).unwrap_or_default());
        if self.checks_host() {
            text.push_str(&format!("        server_name {LOCAL_NAMES}"));
            self.hosts.iter().for_each(|host| text.push_str(&format!(" {host}")));
            text.push_str(";\n");
        }
        if !self.accounts.is_empty() {
            text.push_str("        auth_basic nowait;\n");
            self.accounts.iter().for_each(|account| text.push_str(&account.directive()));
        }
        text
    }

    /// Whether `Host` has to be a known name. A web site can let its own name resolve to a loopback
    /// address (DNS rebinding), and could then read the files in a visitor's browser. A public server
    /// needs no such protection, and may have names that are unknown here.
    fn checks_host(&self) -> bool {
        let is_local = self.addresses.iter().all(|address| address.ip().is_loopback());
        self.domain.is_none() && (is_local || !self.hosts.is_empty())
    }

    /// The server for other names.
    fn strangers(&self) -> String {
        if !self.checks_host() {
            return String::new();
        }
        let listens = self.addresses.iter();
        let listens = listens.map(|address| format!("        listen {address} default_server;\n"));
        format!(
            "    server {{\n{}        server_name _;\n        default_type text/plain;\n        return 421 \"{STRANGE}\";\n    }}\n",
            listens.collect::<String>()
        )
    }

    /// The addresses of the site and passwords that were generated, for a terminal.
    pub fn greeting(&self) -> String {
        let mut text = match &self.domain {
            Some(domain) => domain.greeting(&self.addresses),
            None => Urls::of(&self.addresses).text(RequestLines::of_output()),
        };
        for Account { name, generated, .. } in &self.accounts {
            if let Some(password) = generated {
                text.push_str(&format!("\nUser \"{name}\", password \"{password}\""));
            }
        }
        text
    }

    /// Whether only programs on this machine reach the site.
    pub fn is_local(&self) -> bool {
        self.addresses.iter().all(|address| address.ip().is_loopback())
    }

    /// Warnings for a terminal.
    pub fn warnings(&self) -> Vec<String> {
        if self.accounts.is_empty() || self.is_local() || self.domain.is_some() {
            return Vec::new();
        }
        vec![
            "[warn] without --domain, passwords and files are not encrypted on their way through the network"
                .to_owned(),
        ]
    }

    /// The user of root's server process, if it is not `nobody`: private keys need one of their own.
    pub fn own_user(&self) -> Option<&'static str> {
        self.domain.as_ref().and_then(|_| domain::server_user())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port_or_get_one() {
        let check = |text: &str| addresses(text, 81).map(|all| all[0].to_string());
        for (text, address) in [
            ("0.0.0.0", "0.0.0.0:81"),
            ("192.0.2.1:8000", "192.0.2.1:8000"),
            ("::", "[::]:81"),
            ("[::1]", "[::1]:81"),
            ("[::]:8000", "[::]:8000"),
            ("localhost", "127.0.0.1:81"),
            ("localhost:82", "127.0.0.1:82"),
        ] {
            assert_eq!(check(text), Ok(address.to_owned()));
        }
        for wrong in
            ["8000", "", "example.org", "localhost:x", "localhosts", "1.2.3.4:99999", "a;b"]
        {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn hosts_are_checked_where_no_stranger_reaches() {
        let checks = |addresses: &[&str], hosts: &[&str]| {
            let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let text = Site { addresses, hosts, ..Site::default() }.http_directives();
            text.contains("return 421")
        };
        assert!(checks(&["127.0.0.1:80", "[::1]:80", "127.3.2.1:80"], &[]));
        assert!(!checks(&["127.0.0.1:80", "0.0.0.0:81"], &[]) && !checks(&["192.0.2.1:80"], &[]));
        assert!(checks(&["0.0.0.0:81"], &["box.example"]));
        for good in ["box", "Box.Example", "*.box.example", "a-b_c.example"] {
            assert_eq!(host(good), Ok(good.to_ascii_lowercase()));
        }
        for wrong in ["", ".", "*", "*.", "a..b", "box:80", "a b", "a;b", "~x", "[::1]", "\"", "$x"]
        {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }

    /// Certificates have private keys, which other programs of `nobody` could read.
    #[test]
    fn keys_have_a_user_of_their_own() {
        if user::effective_uid() != 0 {
            return;
        }
        let issuer = domain::Issuer::lets_encrypt();
        let public = Site {
            domain: Some(Domain {
                names: vec!["example.org".to_owned()],
                email: None,
                accepts_terms: false,
                state: domain::state(&issuer).unwrap(),
                issuer,
                authorities: None,
                plain: Vec::new(),
            }),
            ..Site::default()
        };
        let has_user = user::account("nowait").unwrap().is_some();
        assert_eq!(public.main_directives(None).contains("user nowait;\n"), has_user);
        assert!(!public.main_directives(Some("user root;")).contains("user nowait;"));
        assert!(!Site::default().main_directives(None).contains("user nowait;"));
    }
}
