//! `nowait proxy`: the configuration of a reverse proxy in front of one server.
//!
//! Used by `main`. Nothing is stored: requests and responses pass through as they arrive, which also suits server-sent
//! events and large uploads.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use nowait_front::tls::https;
use nowait_sys::user;

use super::site::Site;

/// Time for an attempt to find the address family of a server on this machine.
const LOOK: Duration = Duration::from_millis(200);

/// The `http` block up to the site's servers. Lines about the server's health are notices. A server that fails gets
/// requests again as soon as it accepts connections, which is looked at every second.
const HTTP: &str = "\
events {}
http {
    error_log stderr notice;
    error_page_format page;
    client_max_body_size 0;
    map $http_upgrade $proxy_connection { \"\" \"\"; default upgrade; }
";

/// Directives of the location.
const LOCATION: &str = "\
            proxy_http_version 1.1;
            proxy_buffering off;
            proxy_request_buffering off;
            proxy_redirect off;
            proxy_connect_timeout 5s;
            proxy_read_timeout 1h;
            proxy_send_timeout 1h;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection $proxy_connection;
            proxy_set_header X-Forwarded-For $remote_addr;
            proxy_set_header X-Forwarded-Proto $scheme;
            proxy_set_header X-Forwarded-Host $http_host;
            proxy_set_header X-Forwarded-Port $server_port;
            proxy_set_header X-Real-IP $remote_addr;
            proxy_set_header Forwarded \"\";
            health_check type=tcp interval=1s;
";

/// The server behind the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    is_secure: bool,
    /// A name, or an address without brackets.
    host: String,
    port: u16,
}

impl Origin {
    /// Reads `http://HOST[:PORT]`, `https://HOST[:PORT]`, `HOST:PORT`, `:PORT` or `PORT`.
    ///
    /// # Errors
    /// The reason why the argument is invalid.
    pub fn parse(text: &str) -> Result<Origin, String> {
        let expected = || "expected a URL such as http://127.0.0.1:3000".to_owned();
        let (is_secure, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://"))
        {
            (Some(rest), _) => (false, rest),
            (None, Some(rest)) => (true, rest),
            (None, None) if text.contains("://") => return Err(expected()),
            (None, None) => (false, text),
        };
        let has_scheme = rest.len() < text.len();
        let authority = rest.strip_suffix('/').unwrap_or(rest);
        if authority.contains(['/', '?', '#']) {
            return Err("the URL has no path: requests keep theirs".to_owned());
        }
        let default = if is_secure { 443 } else { 80 };
        let read = |port: &str| port.parse::<u16>().ok().filter(|port| *port > 0);
        let is_port = !has_scheme && !authority.is_empty() && read(authority).is_some();
        let (host, port) = if is_port {
            ("localhost", read(authority))
        } else if let Some(bracketed) = authority.strip_prefix('[') {
            let (host, port) = bracketed.split_once(']').ok_or_else(expected)?;
            host.parse::<Ipv6Addr>().map_err(|_| expected())?;
            (
                host,
                if port.is_empty() { Some(default) } else { port.strip_prefix(':').and_then(read) },
            )
        } else {
            match authority.rsplit_once(':') {
                Some((host, port)) => (host, read(port)),
                None if has_scheme => (authority, Some(default)),
                None => return Err(expected()),
            }
        };
        let host = if host.is_empty() && !has_scheme { "localhost" } else { host };
        let is_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let is_address = host.parse::<Ipv6Addr>().is_ok() && authority.starts_with('[');
        let is_host = !host.is_empty() && !host.starts_with('.') && host.bytes().all(is_name);
        match port.filter(|_| is_address || is_host) {
            Some(port) => Ok(Origin { is_secure, host: host.to_ascii_lowercase(), port }),
            None => Err(expected()),
        }
    }

    /// Whether the proxy would pass requests to itself.
    pub fn is_at(&self, addresses: &[SocketAddr]) -> bool {
        let is_here = |ip: IpAddr| match self.host.parse::<IpAddr>() {
            Ok(own) => own == ip || ip.is_unspecified() && own.is_loopback(),
            Err(_) => self.host == "localhost" && (ip.is_loopback() || ip.is_unspecified()),
        };
        addresses.iter().any(|address| address.port() == self.port && is_here(address.ip()))
    }

    /// The host and port for a URL.
    fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }

    /// The servers of the group. `localhost` has two addresses, and most programs listen on one of them.
    fn servers(&self) -> Vec<String> {
        if self.host != "localhost" {
            return vec![self.authority()];
        }
        let both: [SocketAddr; 2] =
            [(Ipv4Addr::LOCALHOST, self.port).into(), (Ipv6Addr::LOCALHOST, self.port).into()];
        let open: Vec<String> = both
            .iter()
            .filter(|address| TcpStream::connect_timeout(address, LOOK).is_ok())
            .map(ToString::to_string)
            .collect();
        // It may start later.
        if open.is_empty() { both.iter().map(ToString::to_string).collect() } else { open }
    }
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}://{}", if self.is_secure { "https" } else { "http" }, self.authority())
    }
}

/// A reverse proxy without a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxy {
    /// Where, and for whom.
    pub site: Site,
    /// The server behind it.
    pub origin: Origin,
    /// Do not verify the server's certificate.
    pub insecure: bool,
}

impl Proxy {
    /// The configuration. Directives that `globals` (`-g`) sets are left out.
    pub fn configuration(&self, globals: Option<&str>) -> String {
        let mut text = self.site.main_directives(globals);
        text.push_str(HTTP);
        text.push_str(&self.site.http_directives());
        text.push_str("    upstream origin {\n        zone origin 64k;\n        keepalive 32;\n");
        for server in self.origin.servers() {
            text.push_str(&format!("        server {server} max_fails=0;\n"));
        }
        text.push_str("    }\n    server {\n");
        text.push_str(&self.site.server_directives());
        let scheme = if self.origin.is_secure { "https" } else { "http" };
        text.push_str(&format!(
            "        location / {{\n            proxy_pass {scheme}://origin;\n{LOCATION}"
        ));
        text.push_str(&self.host_directives());
        if !self.site.accounts.is_empty() {
            // The password is for the proxy alone.
            text.push_str("            proxy_set_header Authorization \"\";\n");
        }
        text.push_str("        }\n    }\n}\n");
        text
    }

    /// The name that the server is asked for: on this machine and in its network the client's, because the server
    /// makes its links with it; by HTTPS the server's own, which it has a certificate for.
    fn host_directives(&self) -> String {
        let Origin { is_secure, host, .. } = &self.origin;
        if !is_secure {
            return "            proxy_set_header Host $http_host;\n".to_owned();
        }
        let authority = match self.origin.port {
            443 => self.origin.authority().trim_end_matches(":443").to_owned(),
            _ => self.origin.authority(),
        };
        let mut text = format!(
            "            proxy_set_header Host {authority};\n            proxy_ssl_server_name on;\n            \
             proxy_ssl_name {host};\n"
        );
        if let Some(bundle) = https::bundle().filter(|_| !self.insecure) {
            text.push_str(&format!(
                "            proxy_ssl_verify on;\n            proxy_ssl_verify_depth 8;\n            \
                 proxy_ssl_trusted_certificate {bundle};\n"
            ));
        }
        text
    }

    /// The text shown at a terminal.
    pub fn greeting(&self) -> String {
        format!(
            "Passing requests to {} at {}\nPress Ctrl-C to stop.",
            self.origin,
            self.site.greeting()
        )
    }

    /// Warnings for a terminal.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = self.site.warnings();
        if self.origin.is_secure && !self.insecure && https::bundle().is_none() {
            warnings.push(
                "[warn] this system has no file of trusted authorities: the server's certificate is not verified"
                    .to_owned(),
            );
        }
        if user::effective_uid() == 0 {
            let user = self.site.own_user().unwrap_or("nobody");
            warnings
                .push(format!("[warn] started as root: requests are served by user \"{user}\""));
        }
        warnings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_urls_or_ports() {
        for (text, expected) in [
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
            ("http://127.0.0.1:3000/", "http://127.0.0.1:3000"),
            ("https://Example.org", "https://example.org:443"),
            ("http://app", "http://app:80"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("http://[::1]", "http://[::1]:80"),
            ("localhost:3000", "http://localhost:3000"),
            (":3000", "http://localhost:3000"),
            ("3000", "http://localhost:3000"),
        ] {
            let origin = Origin::parse(text).map(|origin| origin.to_string());
            assert_eq!(origin.as_deref(), Ok(expected), "{text}");
        }
        for wrong in [
            "",
            "/",
            "http://",
            "http:///x",
            "http://a/b",
            "http://a?b",
            "ftp://a",
            "0",
            "65536",
            "app",
            "http://:80",
            "http://a b",
            "http://a;b",
            "http://$x",
            "http://[::1",
            "http://::1",
            "http://a:",
            "http://u@a:80",
        ] {
            assert!(Origin::parse(wrong).is_err(), "{wrong}: {:?}", Origin::parse(wrong));
        }
    }

    #[test]
    fn a_proxy_in_front_of_itself_is_noticed() {
        let is_at = |origin: &str, address: &str| {
            Origin::parse(origin).unwrap().is_at(&[address.parse().unwrap()])
        };
        assert!(is_at("8080", "127.0.0.1:8080") && is_at("http://127.0.0.1:8080", "0.0.0.0:8080"));
        assert!(
            !is_at("8081", "127.0.0.1:8080") && !is_at("http://192.0.2.1:8080", "0.0.0.0:8080")
        );
    }

    #[test]
    fn secure_origins_are_asked_by_their_own_name() {
        let site = Site::default();
        let proxy = |origin: &str, insecure| {
            let origin = Origin::parse(origin).unwrap();
            Proxy { site: site.clone(), origin, insecure }.configuration(None)
        };
        let plain = proxy("http://192.0.2.1:3000", false);
        assert!(plain.contains("proxy_set_header Host $http_host;") && !plain.contains("_ssl_"));
        let secure = proxy("https://example.org", true);
        assert!(secure.contains("proxy_set_header Host example.org;"), "{secure}");
        assert!(secure.contains("proxy_ssl_name example.org;") && !secure.contains("_verify on"));
        assert!(proxy("https://example.org:8443", false).contains("Host example.org:8443;"));
    }
}
