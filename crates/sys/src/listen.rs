//! Listening sockets with every parameter of nginx's `listen` directive.
//!
//! `http` and `stream` fill [`ListenSpec`] from the configuration, and the master of the `server`
//! crate opens the sockets, as root. Nothing here retries or logs.
//!
//! Ownership argument for the unsafe code: `setsockopt` with a pointer to a local integer and its
//! size; the kernel copies it before it returns.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};

/// nginx's default length of the accept queue.
pub const BACKLOG_DEFAULT: u32 = 511;

/// Buffers of a socket with `quic`, in bytes: at 1 Gbit/s, data of 16 ms each way. The loop may be busy for a while
/// before it receives what came for all connections of its worker, and what finds no room is lost.
pub const QUIC_BUFFER_BYTES: u32 = 2 * 1024 * 1024;

/// IPPROTO_MPTCP (linux/in.h).
const MPTCP: u32 = 262;

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListenAddress {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A Unix-domain stream socket at this path.
    Unix(PathBuf),
    /// UDP over IPv4 or IPv6.
    Udp(SocketAddr),
}

impl ListenAddress {
    /// The IP address and port, regardless of the transport.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            ListenAddress::Inet(address) | ListenAddress::Udp(address) => Some(*address),
            ListenAddress::Unix(_) => None,
        }
    }

    /// Whether the socket accepts connections; otherwise it receives datagrams.
    pub fn is_stream(&self) -> bool {
        !matches!(self, ListenAddress::Udp(_))
    }

    /// Whether it covers all addresses of the machine.
    pub fn is_wildcard(&self) -> bool {
        self.inet().is_some_and(|address| address.ip().is_unspecified())
    }
}

impl fmt::Display for ListenAddress {
    /// In nginx's format: `0.0.0.0:80`, `[::]:80`, `unix:/run/x.sock`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListenAddress::Inet(address) | ListenAddress::Udp(address) => write!(f, "{address}"),
            ListenAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// The `so_keepalive` parameter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keepalive {
    /// Not specified: the system's setting.
    #[default]
    System,
    /// `so_keepalive=off`.
    Off,
    /// `so_keepalive=on` or `so_keepalive=[idle]:[interval]:[count]`; rounded to whole seconds.
    On {
        /// TCP_KEEPIDLE.
        idle: Option<Duration>,
        /// TCP_KEEPINTVL.
        interval: Option<Duration>,
        /// TCP_KEEPCNT.
        count: Option<u32>,
    },
}

/// The configuration of one listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenSpec {
    /// The address.
    pub address: ListenAddress,
    /// `backlog=`: maximum number of connections waiting to be accepted.
    pub backlog: u32,
    /// `reuseport`: one socket per worker.
    pub reuseport: bool,
    /// `deferred`: a connection is reported with its first data (TCP_DEFER_ACCEPT).
    pub deferred: bool,
    /// `fastopen=`: queue length of TCP_FASTOPEN.
    pub fastopen: Option<u32>,
    /// `so_keepalive=`.
    pub keepalive: Keepalive,
    /// `ipv6only=`; nginx's default is on.
    pub ipv6only: bool,
    /// `rcvbuf=`, bytes.
    pub rcvbuf: Option<u32>,
    /// `sndbuf=`, bytes.
    pub sndbuf: Option<u32>,
    /// `multipath`: Multipath TCP.
    pub multipath: bool,
    /// TCP_NODELAY, which accepted connections inherit: saves a call per connection.
    pub nodelay: bool,
    /// `quic`: the datagrams are QUIC's; the buffers of the socket are made large.
    pub quic: bool,
}

impl ListenSpec {
    /// A plain listener at `address`, with nginx's defaults otherwise.
    pub fn new(address: ListenAddress) -> ListenSpec {
        ListenSpec {
            address,
            backlog: BACKLOG_DEFAULT,
            reuseport: false,
            deferred: false,
            fastopen: None,
            keepalive: Keepalive::System,
            ipv6only: true,
            rcvbuf: None,
            sndbuf: None,
            multipath: false,
            nodelay: false,
            quic: false,
        }
    }
}

/// A step of opening a listener failed; displayed in nginx's words, without the reason.
#[derive(Debug)]
pub struct ListenError {
    /// The failed step, for example `bind() to 0.0.0.0:80`.
    pub step: String,
    /// Why it failed.
    pub error: io::Error,
}

impl ListenError {
    fn at(step: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> ListenError {
        let step = step.into();
        move |errno| ListenError { step, error: errno.into() }
    }

    /// Whether the address is in use, so that a later retry may help.
    pub fn is_in_use(&self) -> bool {
        self.error.kind() == io::ErrorKind::AddrInUse
    }
}

/// Opens, binds and listens: non-blocking, closed on exec, SO_REUSEADDR set. Tuning options are
/// applied by [`configure`].
///
/// # Errors
/// The first step that failed.
pub fn open(spec: &ListenSpec) -> Result<OwnedFd, ListenError> {
    let text = spec.address.to_string();
    let socket = create(spec, &text)?;
    if spec.reuseport {
        set_reuseport(&socket, &text)?;
    }
    bind(&socket, spec, &text)?;
    if let ListenAddress::Unix(path) = &spec.address {
        // nginx: everyone may connect; the directories above restrict access.
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::chmod(path, mode)
            .map_err(ListenError::at(format!("chmod() \"{}\"", path.display())))?;
    }
    if spec.address.is_stream() {
        listen(&socket, spec)?;
    } else if spec.address.is_wildcard() {
        crate::datagram::set_packet_info(&socket, spec.address.inet().is_some_and(|a| a.is_ipv6()))
            .map_err(|error| ListenError {
                step: format!("setsockopt(IP_PKTINFO) {text}"),
                error,
            })?;
    }
    Ok(socket)
}

/// Binds to an IP address and closes the socket again, to find out whether [`open`] could. It never
/// listens, and does not join sockets with `reuseport`, so it takes nothing from a running server.
/// Not for Unix-domain sockets, whose bind creates a file.
///
/// # Errors
/// The first step that failed.
pub fn probe(spec: &ListenSpec) -> Result<(), ListenError> {
    let text = spec.address.to_string();
    let socket = create(spec, &text)?;
    bind(&socket, spec, &text)
}

fn create(spec: &ListenSpec, text: &str) -> Result<OwnedFd, ListenError> {
    let (family, protocol) = match &spec.address {
        ListenAddress::Inet(SocketAddr::V4(_)) => (AddressFamily::INET, spec.multipath),
        ListenAddress::Inet(SocketAddr::V6(_)) => (AddressFamily::INET6, spec.multipath),
        ListenAddress::Unix(_) => (AddressFamily::UNIX, false),
        ListenAddress::Udp(SocketAddr::V4(_)) => (AddressFamily::INET, false),
        ListenAddress::Udp(SocketAddr::V6(_)) => (AddressFamily::INET6, false),
    };
    let kind = if spec.address.is_stream() { SocketType::STREAM } else { SocketType::DGRAM };
    let protocol = protocol
        .then(|| std::num::NonZeroU32::new(MPTCP))
        .flatten()
        .map(rustix::net::Protocol::from_raw);
    let socket = rustix::net::socket_with(
        family,
        kind,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        protocol,
    )
    .map_err(ListenError::at(format!("socket() {text}")))?;
    // UDP sockets with this option could share an address, and one of them would receive nothing.
    if spec.address.is_stream() {
        sockopt::set_socket_reuseaddr(&socket, true)
            .map_err(ListenError::at(format!("setsockopt(SO_REUSEADDR) {text}")))?;
    }
    Ok(socket)
}

fn bind(socket: &OwnedFd, spec: &ListenSpec, text: &str) -> Result<(), ListenError> {
    let bound = match &spec.address {
        ListenAddress::Inet(address) | ListenAddress::Udp(address) => {
            if address.is_ipv6() {
                sockopt::set_ipv6_v6only(socket, spec.ipv6only)
                    .map_err(ListenError::at(format!("setsockopt(IPV6_V6ONLY) {text}")))?;
            }
            rustix::net::bind(socket, address)
        }
        ListenAddress::Unix(path) => rustix::net::SocketAddrUnix::new(path.as_path())
            .and_then(|address| rustix::net::bind(socket, &address)),
    };
    bound.map_err(ListenError::at(format!("bind() to {text}")))
}

/// Marks a socket that was opened without `reuseport`, so that others can join it at its address.
///
/// # Errors
/// The kernel's.
pub fn set_reuseport(socket: impl AsFd, text: &str) -> Result<(), ListenError> {
    sockopt::set_socket_reuseport(socket, true)
        .map_err(ListenError::at(format!("setsockopt(SO_REUSEPORT) {text}")))
}

/// Sets (or, on an open listener, changes) the queue length.
///
/// # Errors
/// The kernel's.
pub fn listen(socket: impl AsFd, spec: &ListenSpec) -> Result<(), ListenError> {
    let backlog = i32::try_from(spec.backlog).unwrap_or(i32::MAX);
    rustix::net::listen(socket, backlog)
        .map_err(ListenError::at(format!("listen() to {}, backlog {backlog}", spec.address)))
}

/// Applies the tuning options of a listener: buffers, keep-alive, fast open, deferral. Also used on
/// sockets that a reload keeps; `previous` holds the options they were opened with.
///
/// Returns the failures: none of them keeps the listener from working.
pub fn configure(
    socket: impl AsFd,
    spec: &ListenSpec,
    previous: Option<&ListenSpec>,
) -> Vec<ListenError> {
    let mut failed = Vec::new();
    let text = spec.address.to_string();
    let mut check = |step: String, result: io::Result<()>| {
        if let Err(error) = result {
            failed.push(ListenError { step: format!("setsockopt({step}) {text}"), error });
        }
    };
    let socket = socket.as_fd();
    for (size, option, name) in
        [(spec.rcvbuf, libc::SO_RCVBUF, "SO_RCVBUF"), (spec.sndbuf, libc::SO_SNDBUF, "SO_SNDBUF")]
    {
        if let Some(size) = size {
            check(format!("{name}, {size}"), set(socket, libc::SOL_SOCKET, option, size));
        }
    }
    if spec.quic && previous.is_none() {
        enlarge(socket, spec);
    }
    match spec.keepalive {
        Keepalive::System => {}
        Keepalive::Off => {
            check("SO_KEEPALIVE, 0".into(), set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 0));
        }
        Keepalive::On { idle, interval, count } => {
            check("SO_KEEPALIVE, 1".into(), set(socket, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1));
            let seconds = |time: Duration| u32::try_from(time.as_secs()).unwrap_or(u32::MAX);
            for (value, option, name) in [
                (idle.map(seconds), libc::TCP_KEEPIDLE, "TCP_KEEPIDLE"),
                (interval.map(seconds), libc::TCP_KEEPINTVL, "TCP_KEEPINTVL"),
                (count, libc::TCP_KEEPCNT, "TCP_KEEPCNT"),
            ] {
                if let Some(value) = value {
                    check(
                        format!("{name}, {value}"),
                        set(socket, libc::IPPROTO_TCP, option, value),
                    );
                }
            }
        }
    }
    let ListenAddress::Inet(_) = spec.address else { return failed };
    if let Some(queue) = spec.fastopen {
        check(
            format!("TCP_FASTOPEN, {queue}"),
            set(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, queue),
        );
    }
    if previous.map(|previous| previous.nodelay) != Some(spec.nodelay) {
        let value = u32::from(spec.nodelay);
        check(
            format!("TCP_NODELAY, {value}"),
            set(socket, libc::IPPROTO_TCP, libc::TCP_NODELAY, value),
        );
    }
    if spec.deferred != previous.is_some_and(|previous| previous.deferred) {
        let value = u32::from(spec.deferred);
        check(
            format!("TCP_DEFER_ACCEPT, {value}"),
            set(socket, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, value),
        );
    }
    failed
}

/// Makes the buffers of a socket with `quic` as large as the kernel permits, unless `rcvbuf` or `sndbuf` sets them.
/// Its limits, `net.core.rmem_max` and `wmem_max`, don't apply to the superuser.
fn enlarge(socket: BorrowedFd<'_>, spec: &ListenSpec) {
    let buffers = [
        (spec.rcvbuf, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF),
        (spec.sndbuf, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF),
    ];
    for (given, force, option) in buffers {
        if given.is_none() && set(socket, libc::SOL_SOCKET, force, QUIC_BUFFER_BYTES).is_err() {
            // The kernel takes its limit instead of a larger value, and reports no error.
            let _ = set(socket, libc::SOL_SOCKET, option, QUIC_BUFFER_BYTES);
        }
    }
}

/// Sets the size of a buffer for sending, beyond the limit of `net.core.wmem_max`.
///
/// # Errors
/// `EPERM` for others than the superuser.
pub(crate) fn force_send_buffer(socket: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)
}

/// The bytes that fit into the receive buffer, as they were requested.
///
/// # Errors
/// The kernel's.
pub fn receive_buffer(socket: impl AsFd) -> io::Result<usize> {
    // The kernel doubles what is requested, for its own needs.
    Ok(sockopt::socket_recv_buffer_size(socket)? / 2)
}

fn set(socket: impl AsFd, level: i32, option: i32, value: u32) -> io::Result<()> {
    let value = i32::try_from(value).unwrap_or(i32::MAX);
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The address of an inherited listener; `None` when it is neither a listening stream socket nor a
/// bound UDP socket.
pub fn address_of(socket: impl AsFd) -> Option<ListenAddress> {
    let address = rustix::net::getsockname(&socket).ok()?;
    if sockopt::socket_type(&socket).ok()? == SocketType::DGRAM {
        let inet = SocketAddr::try_from(address).ok()?;
        return (inet.port() != 0).then_some(ListenAddress::Udp(inet));
    }
    if !sockopt::socket_acceptconn(&socket).ok()? {
        return None;
    }
    if let Ok(inet) = SocketAddr::try_from(address.clone()) {
        return Some(ListenAddress::Inet(inet));
    }
    let unix = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = unix.path()?;
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::OsStr::from_bytes(path.to_bytes());
    Some(ListenAddress::Unix(PathBuf::from(path)))
}

/// Whether SO_REUSEPORT is set on the socket.
pub fn is_reuseport(socket: impl AsFd) -> bool {
    sockopt::socket_reuseport(socket).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback(port: u16) -> ListenSpec {
        ListenSpec::new(ListenAddress::Inet(SocketAddr::from(([127, 0, 0, 1], port))))
    }

    #[test]
    fn every_parameter_is_accepted_by_the_kernel() {
        let mut spec = loopback(0);
        spec.reuseport = true;
        spec.deferred = true;
        spec.fastopen = Some(16);
        spec.rcvbuf = Some(65536);
        spec.sndbuf = Some(65536);
        spec.nodelay = true;
        spec.keepalive = Keepalive::On {
            idle: Some(Duration::from_secs(30)),
            interval: Some(Duration::from_secs(5)),
            count: Some(3),
        };
        let socket = open(&spec).unwrap();
        assert!(configure(&socket, &spec, None).is_empty());
        assert!(is_reuseport(&socket));
        let Some(ListenAddress::Inet(bound)) = address_of(&socket) else { panic!("no address") };
        // A second socket joins it.
        spec.address = ListenAddress::Inet(bound);
        open(&spec).unwrap();
    }

    #[test]
    fn udp_sockets_are_bound_and_found_again() {
        let at = |address: &str| ListenSpec::new(ListenAddress::Udp(address.parse().unwrap()));
        let socket = open(&at("127.0.0.1:0")).unwrap();
        let Some(ListenAddress::Udp(bound)) = address_of(&socket) else { panic!("no address") };
        let taken = open(&ListenSpec::new(ListenAddress::Udp(bound))).unwrap_err();
        assert!(taken.is_in_use());
        // A TCP listener at the same address is independent.
        open(&ListenSpec::new(ListenAddress::Inet(bound))).unwrap();
        for wildcard in ["0.0.0.0:0", "[::]:0"] {
            let socket = open(&at(wildcard)).unwrap();
            assert!(configure(&socket, &at(wildcard), None).is_empty());
        }
    }

    #[test]
    fn sockets_of_quic_get_large_buffers() {
        let at = || ListenSpec::new(ListenAddress::Udp("127.0.0.1:0".parse().unwrap()));
        let plain = open(&at()).unwrap();
        let size = |socket: &OwnedFd| receive_buffer(socket).unwrap();
        let quic = open(&at()).unwrap();
        assert!(configure(&quic, &ListenSpec { quic: true, ..at() }, None).is_empty());
        assert!(size(&quic) >= size(&plain));
        let given = open(&at()).unwrap();
        let spec = ListenSpec { quic: true, rcvbuf: Some(65536), ..at() };
        assert!(configure(&given, &spec, None).is_empty());
        assert_eq!(size(&given), 65536);
    }

    #[test]
    fn a_taken_address_is_reported_as_nginx_does() {
        let socket = open(&loopback(0)).unwrap();
        let Some(ListenAddress::Inet(bound)) = address_of(&socket) else { panic!("no address") };
        let error = open(&loopback(bound.port())).unwrap_err();
        assert!(error.is_in_use());
        assert_eq!(error.step, format!("bind() to {bound}"));
    }

    #[test]
    fn a_probe_finds_a_taken_address_and_takes_none() {
        for udp in [false, true] {
            let at = |address| match udp {
                true => ListenSpec::new(ListenAddress::Udp(address)),
                false => ListenSpec::new(ListenAddress::Inet(address)),
            };
            let socket = open(&at(SocketAddr::from(([127, 0, 0, 1], 0)))).unwrap();
            let bound = address_of(&socket).unwrap().inet().unwrap();
            let joining = ListenSpec { reuseport: true, ..at(bound) };
            set_reuseport(&socket, "").unwrap();
            assert!(probe(&joining).unwrap_err().is_in_use());
            drop(socket);
            probe(&at(bound)).unwrap();
            open(&at(bound)).unwrap();
        }
    }

    #[test]
    fn unix_sockets_are_open_to_all() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("nowait-listen-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let spec = ListenSpec::new(ListenAddress::Unix(path.clone()));
        let socket = open(&spec).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o666);
        assert_eq!(address_of(&socket), Some(ListenAddress::Unix(path.clone())));
        std::fs::remove_file(path).unwrap();
    }
}
