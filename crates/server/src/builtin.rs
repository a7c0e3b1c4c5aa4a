//! The built-in configuration, which serves a directory, and files for `include mime.types` if none are
//! installed.
//!
//! Used by `main` for `nowait serve` and for a start without a configuration. The configuration is an
//! ordinary text; there is no second code path for serving.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nowait_conf::{Contents, Disk, Files};
use nowait_sys::user;

use crate::domain::{self, Domain};
use crate::request_lines::RequestLines;

/// The default port.
pub const PORT: u16 = 8080;

/// Directives of the main context, each with its arguments.
const MAIN: &[(&str, &str)] =
    &[("daemon", "off"), ("worker_processes", "auto"), ("error_log", "stderr warn")];

/// The `http` block up to the server.
const HTTP: &str = "\
events {}
http {
    default_type application/octet-stream;
    autoindex_format page;
    error_page_format page;
    types {
        text/html html htm;
        text/plain txt log conf ini toml yaml yml rs c h py sh;
        text/css css;
        text/csv csv;
        text/markdown md;
        text/xml xml;
        text/javascript js mjs;
        application/json json map;
        application/pdf pdf;
        application/wasm wasm;
        application/gzip gz tgz;
        application/zip zip;
        application/zstd zst;
        font/ttf ttf;
        font/woff woff;
        font/woff2 woff2;
        image/avif avif;
        image/gif gif;
        image/jpeg jpg jpeg;
        image/png png;
        image/svg+xml svg svgz;
        image/webp webp;
        image/x-icon ico;
        audio/flac flac;
        audio/mpeg mp3;
        audio/ogg ogg oga;
        audio/wav wav;
        video/mp4 mp4 m4v;
        video/webm webm;
        video/x-matroska mkv;
    }
";

/// Values of `Host` that are always allowed: the name of this machine, IP addresses (which no site can
/// claim), and an empty value (old programs).
const LOCAL_NAMES: &str =
    r#""" localhost *.localhost "~^[0-9]+(\.[0-9]+){3}$" "~^\[[0-9a-f:.]+\]$""#;

/// The response to other names.
const STRANGE: &str = "This server answers to localhost and to IP addresses only. The option --host of nowait serve \
                       allows another name.\n";

/// A name for [`Serve::hosts`], in lower case.
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

/// A directory to serve without a configuration, and the addresses to serve it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serve {
    /// The directory, as given.
    pub directory: PathBuf,
    /// Addresses to listen on; if empty, the loopback addresses.
    pub addresses: Vec<SocketAddr>,
    /// Also serve names that begin with a dot.
    pub hidden: bool,
    /// Follow symbolic links out of the directory, and to hidden names.
    pub follow_links: bool,
    /// Names that `Host` may have. If there are any, or if only this machine reaches the server, requests
    /// for names besides these, `localhost` and addresses are refused.
    pub hosts: Vec<String>,
    /// A public site with a certificate.
    pub domain: Option<Domain>,
}

impl Default for Serve {
    fn default() -> Serve {
        Serve {
            directory: PathBuf::from("."),
            addresses: loopback(PORT),
            hidden: false,
            follow_links: false,
            hosts: Vec::new(),
            domain: None,
        }
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

impl Serve {
    /// The configuration; the prefix is the directory. Directives that `globals` (`-g`) sets are
    /// left out.
    pub fn configuration(&self, globals: Option<&str>) -> String {
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
        text.push_str(HTTP);
        text.push_str(&RequestLines::of_output().directives());
        let ssl = if self.domain.is_some() { " ssl" } else { "" };
        let own = self.domain.as_ref();
        text.push_str(&own.map(|own| own.blocks(&self.addresses)).unwrap_or_default());
        text.push_str(&self.strangers());
        text.push_str("    server {\n");
        for address in &self.addresses {
            text.push_str(&format!("        listen {address}{ssl};\n"));
        }
        text.push_str(&own.map(Domain::directives).unwrap_or_default());
        if self.checks_host() {
            text.push_str(&format!("        server_name {LOCAL_NAMES}"));
            self.hosts.iter().for_each(|host| text.push_str(&format!(" {host}")));
            text.push_str(";\n");
        }
        text.push_str("        root .;\n        autoindex on;\n");
        if !self.follow_links {
            let hidden = if self.hidden { "" } else { " hidden" };
            text.push_str(&format!("        disable_symlinks outside{hidden};\n"));
        }
        if !self.hidden {
            // Repositories, passwords of tools, histories. Directory listings never show such
            // names.
            text.push_str("        location ~ /\\. { return 404; }\n");
        }
        text.push_str("    }\n}\n");
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

    /// The text shown at a terminal. `directory` is the full path.
    pub fn greeting(&self, directory: &Path) -> String {
        let mut text = format!("Serving {} at", directory.display());
        if let Some(domain) = &self.domain {
            let end = "Press Ctrl-C to stop.";
            return format!("{text} {}\n{end}", domain.greeting(&self.addresses));
        }
        let mut is_first = true;
        for address in &self.addresses {
            // "localhost" stands for both loopback addresses.
            let host = match address.ip() {
                ip if ip.is_loopback() && ip.is_ipv6() && self.addresses.len() > 1 => continue,
                IpAddr::V4(Ipv4Addr::LOCALHOST) => "localhost".to_owned(),
                IpAddr::V4(ip) => ip.to_string(),
                IpAddr::V6(ip) => format!("[{ip}]"),
            };
            let separator = if is_first { " " } else { ", " };
            text.push_str(&format!("{separator}http://{host}:{}/", address.port()));
            is_first = false;
        }
        text.push_str("\nPress Ctrl-C to stop. \"nowait -h\" shows how to configure it.");
        text
    }

    /// The user of root's server process, if it is not `nobody`: private keys need one of their own.
    fn own_user(&self) -> Option<&'static str> {
        self.domain.as_ref().and_then(|_| domain::server_user())
    }

    /// A warning for a start as root.
    pub fn warnings(&self, directory: &Path) -> Vec<String> {
        if user::effective_uid() != 0 {
            return Vec::new();
        }
        let user = self.own_user().unwrap_or("nobody");
        let mut warnings =
            vec![format!("[warn] started as root: files are read as user \"{user}\"")];
        let others_may = |path: &Path, bits: u32| {
            std::fs::metadata(path).map_or(true, |metadata| metadata.mode() & bits == bits)
        };
        let is_open = others_may(directory, 0o5)
            && directory.ancestors().all(|ancestor| others_may(ancestor, 0o1));
        if !is_open {
            warnings.push(format!(
                "[warn] \"{}\" may not be readable by \"{user}\"; start nowait as the owner of the \
                 directory",
                directory.display()
            ));
        }
        warnings
    }
}

/// Files of the repository's `conf` that configurations include.
const INCLUDED: &[(&str, &[u8])] = &[
    ("mime.types", include_bytes!("../../../conf/mime.types")),
    ("fastcgi.conf", include_bytes!("../../../conf/fastcgi.conf")),
    ("fastcgi_params", include_bytes!("../../../conf/fastcgi_params")),
    ("scgi_params", include_bytes!("../../../conf/scgi_params")),
    ("uwsgi_params", include_bytes!("../../../conf/uwsgi_params")),
];

/// The disk plus the built-in files.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithBuiltIn;

impl Files for WithBuiltIn {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Disk.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        Disk.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
    }

    // nginx differs: it installs the files beside its configuration, and fails without them.
    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        let name = path.file_name()?;
        INCLUDED.iter().find(|(known, _)| name == *known).map(|(_, text)| *text)
    }
}

/// The configuration of [`Serve`] as a file, with the disk for the files that it names.
#[derive(Clone, Debug)]
pub struct BuiltinFile {
    /// The path of the file.
    pub path: PathBuf,
    /// The contents.
    pub text: String,
}

impl Files for BuiltinFile {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        if path == self.path {
            return Ok(self.text.clone().into_bytes());
        }
        Disk.read(path)
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        Disk.read_named(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
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
    fn globals_replace_what_is_built_in() {
        let serve = Serve::default();
        assert!(serve.configuration(None).starts_with("daemon off;\nworker_processes auto;\n"));
        let text = serve.configuration(Some("worker_processes 2;daemon on;"));
        assert!(!text.contains("daemon") && !text.contains("worker_processes"), "{text}");
        assert!(text.contains("error_log stderr warn;"), "{text}");
        assert!(!Serve { hidden: true, ..serve }.configuration(None).contains("404"));
    }

    #[test]
    fn hosts_are_checked_where_no_stranger_reaches() {
        let checks = |addresses: &[&str], hosts: &[&str]| {
            let addresses = addresses.iter().map(|text| text.parse().unwrap()).collect();
            let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
            let text = Serve { addresses, hosts, ..Serve::default() }.configuration(None);
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
        let public = Serve {
            domain: Some(Domain {
                names: vec!["example.org".to_owned()],
                email: None,
                accepts_terms: false,
                state: domain::state(&issuer).unwrap(),
                issuer,
                authorities: None,
                plain: Vec::new(),
            }),
            ..Serve::default()
        };
        let has_user = user::account("nowait").unwrap().is_some();
        assert_eq!(public.configuration(None).contains("user nowait;\n"), has_user);
        assert!(!public.configuration(Some("user root;")).contains("user nowait;"));
        assert!(!Serve::default().configuration(None).contains("user nowait;"));
    }

    #[test]
    fn a_greeting_names_every_address() {
        let serve = |addresses: &[&str]| Serve {
            addresses: addresses.iter().map(|text| text.parse().unwrap()).collect(),
            ..Serve::default()
        };
        let greeting = |addresses: &[&str]| {
            let text = serve(addresses).greeting(Path::new("/srv"));
            text.lines().next().unwrap().to_owned()
        };
        assert_eq!(
            greeting(&["127.0.0.1:8080", "[::1]:8080"]),
            "Serving /srv at http://localhost:8080/"
        );
        assert_eq!(
            greeting(&["192.0.2.1:80", "[::]:81"]),
            "Serving /srv at http://192.0.2.1:80/, http://[::]:81/"
        );
    }
}
