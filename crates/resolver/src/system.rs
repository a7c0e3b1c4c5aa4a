//! The system's configuration: `/etc/hosts`, `/etc/resolv.conf`, and whether IPv6 is available.
//!
//! Read in a pool when first needed; checked again after [`CHECK`], and reread when changed. The
//! parsers do not touch files and are fuzzed.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nowait_runtime::pool::{Pool, blocking};

use crate::name::DomainName;

/// Minimum interval between checks of the files.
pub const CHECK: Duration = Duration::from_secs(5);

/// Validity of an address from the hosts file.
pub const HOSTS_VALID: Duration = Duration::from_secs(30);

/// Maximum number of bytes read of each file; the rest is ignored.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Maximum number of name servers taken from `/etc/resolv.conf`. glibc: 3 (MAXNS).
const SERVERS_MAX: usize = 8;

/// Maximum number of `search` domains. glibc's limit was 6 for a long time.
const SEARCH_MAX: usize = 8;

/// Paths of the files.
#[derive(Clone, Debug)]
pub struct Paths {
    pub hosts: PathBuf,
    pub resolv_conf: PathBuf,
    /// Lists this machine's IPv6 addresses.
    pub if_inet6: PathBuf,
}

impl Default for Paths {
    fn default() -> Paths {
        Paths {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            if_inet6: "/proc/net/if_inet6".into(),
        }
    }
}

/// Contents of the files.
#[derive(Debug, Default)]
pub struct SystemFiles {
    pub hosts: Hosts,
    pub conf: ResolvConf,
    /// There is an IPv6 address besides the loopback's: as with AI_ADDRCONFIG of getaddrinfo(3),
    /// IPv6 addresses are queried only then.
    pub ipv6: bool,
}

/// Reads the files, in a pool.
#[derive(Debug)]
pub struct System {
    pool: Mutex<Pool>,
    paths: Paths,
    state: Mutex<SystemState>,
}

#[derive(Debug, Default)]
struct SystemState {
    known: Option<Arc<SystemFiles>>,
    stamps: [Stamp; 2],
    checked: Option<Instant>,
}

/// Identity and version of a file: device, inode, size, time of change.
type Stamp = Option<(u64, u64, u64, i64, i64)>;

impl System {
    pub fn new(pool: Pool, paths: Paths) -> System {
        System { pool: Mutex::new(pool), paths, state: Mutex::default() }
    }

    pub fn set_pool(&self, pool: Pool) {
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = pool;
    }

    /// The contents of the files, no older than [`CHECK`]. Unreadable files count as empty; if the
    /// pool's queue is full, the previous contents stay.
    pub async fn known(&self) -> Arc<SystemFiles> {
        let now = nowait_runtime::now();
        let (known, stamps) = {
            let mut state = self.lock();
            if let (Some(known), Some(checked)) = (&state.known, state.checked)
                && now.saturating_duration_since(checked) < CHECK
            {
                return known.clone();
            }
            // Meanwhile, other tasks use the previous contents.
            if state.known.is_some() {
                state.checked = Some(now);
            }
            (state.known.clone(), state.stamps)
        };
        let paths = self.paths.clone();
        let first = known.is_none();
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let read = blocking(&pool, move || {
            let now = [stamp(&paths.hosts), stamp(&paths.resolv_conf)];
            (first || now != stamps).then(|| (now, read(&paths)))
        });
        let Ok(read) = read.await else { return known.unwrap_or_default() };
        let mut state = self.lock();
        state.checked = Some(now);
        if let Some((stamps, read)) = read {
            state.stamps = stamps;
            state.known = Some(Arc::new(read));
        }
        state.known.clone().or(known).unwrap_or_default()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SystemState> {
        // Plain data, valid after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn stamp(path: &Path) -> Stamp {
    let data = fs::metadata(path).ok()?;
    Some((data.dev(), data.ino(), data.len(), data.mtime(), data.mtime_nsec()))
}

fn read(paths: &Paths) -> SystemFiles {
    let text = |path: &Path| {
        let mut text = Vec::new();
        // An unreadable file counts as empty.
        let _ =
            fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_end(&mut text));
        text
    };
    SystemFiles {
        hosts: Hosts::parse(&text(&paths.hosts)),
        conf: ResolvConf::parse(&text(&paths.resolv_conf)),
        ipv6: has_ipv6(&text(&paths.if_inet6)),
    }
}

/// Lines of `/proc/net/if_inet6`: address, index, prefix, scope, flags, device. Scope 10 (hex) is
/// the loopback.
fn has_ipv6(text: &[u8]) -> bool {
    lines(text).any(|mut words| words.nth(3).is_some_and(|scope| scope != b"10"))
}

/// `/etc/hosts`: addresses of names, hosts(5).
#[derive(Debug, Default)]
pub struct Hosts(HashMap<DomainName, Vec<IpAddr>>);

impl Hosts {
    /// Lines that cannot be parsed are ignored.
    pub fn parse(text: &[u8]) -> Hosts {
        let mut hosts = HashMap::<DomainName, Vec<IpAddr>>::new();
        for mut words in lines(text) {
            let address =
                words.next().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
            let Some(address) = address else { continue };
            for name in words.filter_map(DomainName::new) {
                let addresses = hosts.entry(name).or_default();
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        Hosts(hosts)
    }

    /// Addresses of a name, IPv4 first. `localhost` and names below it are the loopback even
    /// without an entry (RFC 6761, section 6.3).
    pub fn find(&self, name: &DomainName) -> Option<Vec<IpAddr>> {
        if let Some(addresses) = self.0.get(name) {
            let (mut first, rest): (Vec<_>, Vec<_>) = addresses.iter().partition(|ip| ip.is_ipv4());
            first.extend(rest);
            return Some(first);
        }
        let top = name.labels().last().unwrap_or_default();
        (top == b"localhost").then(|| vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()])
    }
}

/// `/etc/resolv.conf`: the system's resolver settings, resolv.conf(5).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvConf {
    pub servers: Vec<SocketAddr>,
    /// Domains appended to names.
    pub search: Vec<DomainName>,
    /// Names with at least this many dots are first tried unchanged.
    pub ndots: usize,
    /// Time limit for each server.
    pub timeout: Duration,
    /// Number of attempts per server.
    pub attempts: usize,
    /// Servers take turns at being first.
    pub rotate: bool,
}

impl Default for ResolvConf {
    fn default() -> ResolvConf {
        ResolvConf {
            servers: Vec::new(),
            search: Vec::new(),
            ndots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
            rotate: false,
        }
    }
}

impl ResolvConf {
    /// Options that cannot be parsed are ignored. Without a server, the default is one on this
    /// machine, as in resolv.conf(5).
    pub fn parse(text: &[u8]) -> ResolvConf {
        let mut conf = ResolvConf::default();
        for mut words in lines(text) {
            match words.next() {
                Some(b"nameserver") if conf.servers.len() < SERVERS_MAX => {
                    conf.servers.extend(words.next().and_then(server));
                }
                // The last one wins.
                Some(b"search" | b"domain") => {
                    conf.search = words.filter_map(DomainName::new).take(SEARCH_MAX).collect();
                }
                Some(b"options") => words.for_each(|word| conf.option(word)),
                _ => {}
            }
        }
        if conf.servers.is_empty() {
            conf.servers.push((Ipv4Addr::LOCALHOST, 53).into());
        }
        conf
    }

    /// The limits are those of resolv.conf(5).
    fn option(&mut self, word: &[u8]) {
        let number = |name: &[u8], least: u64, most: u64| {
            let digits = word.strip_prefix(name)?.strip_prefix(b":")?;
            let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
            Some(number.clamp(least, most))
        };
        if let Some(ndots) = number(b"ndots", 0, 15) {
            self.ndots = ndots as usize;
        } else if let Some(seconds) = number(b"timeout", 1, 30) {
            self.timeout = Duration::from_secs(seconds);
        } else if let Some(attempts) = number(b"attempts", 1, 5) {
            self.attempts = attempts as usize;
        } else if word == b"rotate" {
            self.rotate = true;
        }
    }

    /// The names to query, in this order, for the given `name`; `absolute`: it ended with a dot.
    pub fn candidates(&self, name: &DomainName, absolute: bool) -> Vec<DomainName> {
        if absolute {
            return vec![name.clone()];
        }
        let below = |domain: &DomainName| {
            DomainName::new(&[name.as_bytes(), b".", domain.as_bytes()].concat())
        };
        let mut names: Vec<DomainName> = self.search.iter().filter_map(below).collect();
        let dots = name.labels().count() - 1;
        if dots >= self.ndots {
            names.insert(0, name.clone());
        } else {
            names.push(name.clone());
        }
        names
    }
}

/// The address of a server. A scope (`%eth0`) is dropped: it would have to be looked up.
fn server(word: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(word).ok()?;
    let ip: IpAddr = text.split('%').next()?.parse().ok()?;
    Some((ip, 53).into())
}

/// The words of each line, without comments.
fn lines(text: &[u8]) -> impl Iterator<Item = impl Iterator<Item = &[u8]>> {
    text.split(|byte| *byte == b'\n').map(|line| {
        let end = line.iter().position(|byte| matches!(byte, b'#' | b';')).unwrap_or(line.len());
        line[..end].split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DomainName {
        DomainName::new(text.as_bytes()).unwrap()
    }

    #[test]
    fn hosts_are_read_as_the_system_does() {
        let text = b"# names\n127.0.0.1 localhost Me.example\n::1\tlocalhost # six\n\
            192.0.2.1  a b\n192.0.2.1 a\n2001:db8::1 a\nnonsense a\n\n192.0.2.9";
        let hosts = Hosts::parse(text);
        let find = |text: &str| {
            let found = hosts.find(&name(text));
            found.map(|found| found.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(find("a").as_deref(), Some("192.0.2.1 2001:db8::1"));
        assert_eq!(find("ME.EXAMPLE").as_deref(), Some("127.0.0.1"));
        assert_eq!(find("localhost").as_deref(), Some("127.0.0.1 ::1"));
        assert_eq!(find("x.localhost").as_deref(), Some("127.0.0.1 ::1"));
        assert_eq!(find("c"), None);
    }

    #[test]
    fn resolv_conf_is_read_as_the_system_does() {
        let conf = ResolvConf::parse(
            b"; us\nnameserver 192.0.2.53\nnameserver fe80::1%eth0 # here\nnameserver x\n\
              search one.example two.example\noptions ndots:2 timeout:99 attempts:0 rotate edns0\n",
        );
        assert_eq!(conf.servers, ["192.0.2.53:53", "[fe80::1]:53"].map(|s| s.parse().unwrap()));
        assert_eq!(conf.search, [name("one.example"), name("two.example")]);
        assert_eq!((conf.ndots, conf.timeout.as_secs(), conf.attempts), (2, 30, 1));
        assert!(conf.rotate);
        assert_eq!(ResolvConf::parse(b"").servers, ["127.0.0.1:53".parse().unwrap()]);
    }

    #[test]
    fn search_domains_come_before_or_after_the_name() {
        let conf = ResolvConf::parse(b"search s.example\noptions ndots:2");
        let names = |text: &str, absolute| -> Vec<String> {
            let names = conf.candidates(&name(text), absolute);
            names.iter().map(DomainName::to_string).collect()
        };
        assert_eq!(names("a.b", false), ["a.b.s.example", "a.b"]);
        assert_eq!(names("a.b.c", false), ["a.b.c", "a.b.c.s.example"]);
        assert_eq!(names("a", true), ["a"]);
    }

    #[test]
    fn ipv6_needs_more_than_a_loopback() {
        let lo = b"00000000000000000000000000000001 01 80 10 80       lo\n";
        let eth = b"fe800000000000000000000000000001 02 40 20 80     eth0\n";
        assert!(!has_ipv6(b"") && !has_ipv6(lo) && has_ipv6(&[&lo[..], eth].concat()));
    }
}
