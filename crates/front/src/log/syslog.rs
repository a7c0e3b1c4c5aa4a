//! Syslog in nginx's form: RFC 3164 lines in UDP or Unix datagrams.
//!
//! [`SyslogOptions::parse`] reads `syslog:server=…,facility=…,severity=…,tag=…,nohostname`; names are
//! resolved then, while blocking is allowed. [`SyslogSocket`] sends from the log writer's threads without
//! blocking; lines that the receiver cannot take are lost, as with any datagram.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use super::Level;

/// Longest tag (RFC 3164 section 4.1.3).
const TAG_MAX: usize = 32;
/// The default tag. It is nginx's, because operators' filters expect it.
pub const DEFAULT_TAG: &str = "nginx";
/// The port when none is configured.
pub const DEFAULT_PORT: u16 = 514;

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];
const LOCAL7: u8 = 23;

/// The server's address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SyslogServer {
    /// UDP.
    Udp(SocketAddr),
    /// A Unix datagram socket.
    Unix(PathBuf),
}

/// The parsed argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SyslogOptions {
    /// The server's address.
    pub server: SyslogServer,
    /// The server as configured, for messages.
    pub server_text: String,
    /// 0 to 23.
    pub facility: u8,
    /// For access logs; error lines carry their own level.
    pub severity: Level,
    /// The program name on every line.
    pub tag: String,
    /// The host name on every line, unless `nohostname`.
    pub hostname: Option<String>,
}

/// The reason why the argument is refused, in nginx's wording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyslogError {
    /// No `server=`.
    NoServer,
    /// A parameter twice.
    Duplicate(&'static str),
    /// Not a facility.
    Facility(String),
    /// Not a severity.
    Severity(String),
    /// A tag of more than 32 bytes.
    TagTooLong,
    /// A tag with other characters than letters, digits and `_`.
    TagCharacters,
    /// Not a parameter.
    Parameter(String),
    /// An address that cannot be used, and why.
    Address(&'static str, String),
}

impl fmt::Display for SyslogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SyslogError::NoServer => f.write_str("no syslog server specified"),
            SyslogError::Duplicate(what) => write!(f, "duplicate syslog \"{what}\""),
            SyslogError::Facility(text) => write!(f, "unknown syslog facility \"{text}\""),
            SyslogError::Severity(text) => write!(f, "unknown syslog severity \"{text}\""),
            SyslogError::TagTooLong => write!(f, "syslog tag length exceeds {TAG_MAX}"),
            SyslogError::TagCharacters => {
                f.write_str("syslog \"tag\" only allows alphanumeric characters and underscore")
            }
            SyslogError::Parameter(text) => write!(f, "unknown syslog parameter \"{text}\""),
            SyslogError::Address(why, text) => write!(f, "{why} in syslog server \"{text}\""),
        }
    }
}

impl std::error::Error for SyslogError {}

/// Finds the address of a host name; the first of several.
pub type Resolve<'a> = &'a dyn Fn(&str, u16) -> Option<SocketAddr>;

/// The system's resolver. Blocks: for reading the configuration only.
pub fn system_resolver(host: &str, port: u16) -> Option<SocketAddr> {
    std::net::ToSocketAddrs::to_socket_addrs(&(host, port)).ok()?.next()
}

impl SyslogOptions {
    /// Reads what follows `syslog:`. `hostname` is this machine's.
    pub fn parse(
        text: &str,
        hostname: &str,
        resolve: Resolve<'_>,
    ) -> Result<SyslogOptions, SyslogError> {
        let (mut server, mut facility, mut severity, mut tag) = (None, None, None, None);
        let mut with_hostname = true;
        for parameter in text.split(',') {
            if let Some(value) = parameter.strip_prefix("server=") {
                let address = parse_server(value, resolve)?;
                set(&mut server, (address, value.to_owned()), "server")?;
            } else if let Some(value) = parameter.strip_prefix("facility=") {
                let code = FACILITIES.iter().position(|name| *name == value);
                let code = code.ok_or_else(|| SyslogError::Facility(value.to_owned()))?;
                set(&mut facility, code as u8, "facility")?;
            } else if let Some(value) = parameter.strip_prefix("severity=") {
                let level = Level::from_name(value.as_bytes());
                let level = level.ok_or_else(|| SyslogError::Severity(value.to_owned()))?;
                set(&mut severity, level, "severity")?;
            } else if let Some(value) = parameter.strip_prefix("tag=") {
                check_tag(value)?;
                set(&mut tag, value.to_owned(), "tag")?;
            } else if parameter == "nohostname" {
                with_hostname = false;
            } else {
                return Err(SyslogError::Parameter(parameter.to_owned()));
            }
        }
        let (server, server_text) = server.ok_or(SyslogError::NoServer)?;
        Ok(SyslogOptions {
            server,
            server_text,
            facility: facility.unwrap_or(LOCAL7),
            severity: severity.unwrap_or(Level::Info),
            tag: tag.unwrap_or_else(|| DEFAULT_TAG.to_owned()),
            hostname: with_hostname.then(|| hostname.to_owned()),
        })
    }

    /// Appends `<PRI>Mmm dd hh:mm:ss host tag: `. `time` is [`super::time::Stamps::syslog`].
    pub fn push_header(&self, out: &mut Vec<u8>, severity: Level, time: &str) {
        let priority = u32::from(self.facility) * 8 + (severity as u32 - 1);
        let header = match &self.hostname {
            Some(hostname) => format!("<{priority}>{time} {hostname} {}: ", self.tag),
            None => format!("<{priority}>{time} {}: ", self.tag),
        };
        out.extend_from_slice(header.as_bytes());
    }
}

fn set<T>(slot: &mut Option<T>, value: T, name: &'static str) -> Result<(), SyslogError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(SyslogError::Duplicate(name)),
    }
}

fn check_tag(tag: &str) -> Result<(), SyslogError> {
    if tag.len() > TAG_MAX {
        return Err(SyslogError::TagTooLong);
    }
    if !tag.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(SyslogError::TagCharacters);
    }
    Ok(())
}

/// `unix:path`, `address`, `address:port`, `[v6]`, `[v6]:port`, `host`, `host:port`.
fn parse_server(text: &str, resolve: Resolve<'_>) -> Result<SyslogServer, SyslogError> {
    let refuse = |why| SyslogError::Address(why, text.to_owned());
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err(refuse("no path in the unix domain socket"));
        }
        return Ok(SyslogServer::Unix(path.into()));
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return match address.port() {
            0 => Err(refuse("invalid port")),
            _ => Ok(SyslogServer::Udp(address)),
        };
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse() {
        return Ok(SyslogServer::Udp(SocketAddr::new(ip, DEFAULT_PORT)));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => {
            let port = port.parse().ok().filter(|&port| port != 0);
            (host, port.ok_or_else(|| refuse("invalid port"))?)
        }
        None => (text, DEFAULT_PORT),
    };
    if host.is_empty() {
        return Err(refuse("no host"));
    }
    resolve(host, port).map(SyslogServer::Udp).ok_or_else(|| refuse("host not found"))
}

/// A connected socket, made when first needed and again after an error.
#[derive(Debug)]
pub struct SyslogSocket {
    server: SyslogServer,
    open: Option<OpenSocket>,
}

#[derive(Debug)]
enum OpenSocket {
    Udp(UdpSocket),
    Unix(UnixDatagram),
}

impl SyslogSocket {
    /// A socket that is not connected yet.
    pub fn new(server: SyslogServer) -> SyslogSocket {
        SyslogSocket { server, open: None }
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// The kernel's; the next call reconnects.
    pub fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let open = match self.open.take() {
            Some(open) => open,
            None => connect(&self.server)?,
        };
        let sent = match &open {
            OpenSocket::Udp(socket) => socket.send(datagram),
            OpenSocket::Unix(socket) => socket.send(datagram),
        };
        // Any error except a full receiver requires a new socket.
        match sent {
            Ok(_) => self.open = Some(open),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.open = Some(open);
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

fn connect(server: &SyslogServer) -> io::Result<OpenSocket> {
    match server {
        SyslogServer::Udp(address) => {
            let any: SocketAddr = match address {
                SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
                SocketAddr::V6(_) => ([0u16; 8], 0).into(),
            };
            let socket = UdpSocket::bind(any)?;
            socket.set_nonblocking(true)?;
            socket.connect(address)?;
            Ok(OpenSocket::Udp(socket))
        }
        SyslogServer::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.connect(path)?;
            Ok(OpenSocket::Unix(socket))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SyslogOptions, SyslogError> {
        let resolve = |host: &str, port| {
            (host == "logs.example").then(|| SocketAddr::from(([192, 0, 2, 1], port)))
        };
        SyslogOptions::parse(text, "box", &resolve)
    }

    #[test]
    fn all_parameters() {
        let options =
            parse("server=127.0.0.1:1514,facility=mail,severity=warn,tag=my_1,nohostname").unwrap();
        assert_eq!(options.server, SyslogServer::Udp("127.0.0.1:1514".parse().unwrap()));
        assert_eq!(
            (options.facility, options.severity, &options.tag[..], options.hostname.clone()),
            (2, Level::Warn, "my_1", None)
        );
        let mut out = Vec::new();
        options.push_header(&mut out, Level::Error, "Nov  6 08:49:37");
        assert_eq!(out, b"<19>Nov  6 08:49:37 my_1: ");
    }

    #[test]
    fn defaults_and_addresses() {
        let udp = |text: &str| match parse(&format!("server={text}")).unwrap().server {
            SyslogServer::Udp(address) => address.to_string(),
            SyslogServer::Unix(path) => path.display().to_string(),
        };
        assert_eq!(udp("127.0.0.1"), "127.0.0.1:514");
        assert_eq!(udp("[::1]"), "[::1]:514");
        assert_eq!(udp("[::1]:99"), "[::1]:99");
        assert_eq!(udp("logs.example"), "192.0.2.1:514");
        assert_eq!(udp("logs.example:99"), "192.0.2.1:99");
        assert_eq!(udp("unix:/dev/log"), "/dev/log");
        let options = parse("server=127.0.0.1").unwrap();
        let mut out = Vec::new();
        options.push_header(&mut out, options.severity, "Nov  6 08:49:37");
        assert_eq!(out, b"<190>Nov  6 08:49:37 box nginx: ");
    }

    #[test]
    fn refusals_have_nginx_wording() {
        for (text, message) in [
            ("tag=x", "no syslog server specified"),
            ("", "unknown syslog parameter \"\""),
            ("server=127.0.0.1,server=127.0.0.1", "duplicate syslog \"server\""),
            ("server=127.0.0.1,tag=a,tag=b", "duplicate syslog \"tag\""),
            ("facility=x", "unknown syslog facility \"x\""),
            ("severity=warning", "unknown syslog severity \"warning\""),
            ("tag=123456789012345678901234567890123", "syslog tag length exceeds 32"),
            ("tag=a-b", "syslog \"tag\" only allows alphanumeric characters and underscore"),
            ("x=y", "unknown syslog parameter \"x=y\""),
            ("server=nowhere", "host not found in syslog server \"nowhere\""),
            ("server=127.0.0.1:0", "invalid port in syslog server \"127.0.0.1:0\""),
            ("server=a:99999", "invalid port in syslog server \"a:99999\""),
            ("server=unix:", "no path in the unix domain socket in syslog server \"unix:\""),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message, "{text}");
        }
    }

    #[test]
    fn sends_and_recovers() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut socket = SyslogSocket::new(SyslogServer::Udp(receiver.local_addr().unwrap()));
        socket.send(b"one").unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);

        let path = std::env::temp_dir().join(format!("nowait-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let mut socket = SyslogSocket::new(SyslogServer::Unix(path.clone()));
        assert!(socket.send(b"lost").is_err());
        let receiver = UnixDatagram::bind(&path).unwrap();
        socket.send(b"two").unwrap();
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);
        drop(receiver);
        std::fs::remove_file(&path).unwrap();
        assert!(socket.send(b"lost").is_err());
    }
}
