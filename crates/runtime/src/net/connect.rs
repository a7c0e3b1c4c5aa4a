//! Establishing connections.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::net::{self, SocketAddrAny, SocketFlags, SocketType, sockopt};

use super::{Address, Stream};
use crate::driver::Role;
use crate::local;

/// Options for connecting.
#[derive(Debug, Clone)]
pub struct ConnectOptions<'a> {
    /// Maximum time until the connection is established.
    pub timeout: Duration,
    /// Local address; its port may be 0.
    pub bind: Option<&'a Address>,
    /// The local address need not belong to this machine (IP_TRANSPARENT).
    pub transparent: bool,
    /// SO_KEEPALIVE
    pub keepalive: bool,
    /// TCP_NODELAY
    pub nodelay: bool,
    /// SO_RCVBUF in bytes; zero: the kernel's choice.
    pub receive_buffer: u32,
    /// SO_SNDBUF in bytes; zero: the kernel's choice.
    pub send_buffer: u32,
}

impl ConnectOptions<'_> {
    /// With a timeout, and with TCP_NODELAY set.
    pub fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            bind: None,
            transparent: false,
            keepalive: false,
            nodelay: true,
            receive_buffer: 0,
            send_buffer: 0,
        }
    }
}

/// The reason why connecting failed. Each variant names the failed call, for logs.
#[derive(Debug)]
pub enum ConnectError {
    /// `socket()`: descriptors or memory have run out.
    Socket(io::Error),
    /// An option could not be set.
    Option(&'static str, io::Error),
    /// `bind()` to the local address.
    Bind(io::Error),
    /// `connect()`, at once or later.
    Connect(io::Error),
    /// The timeout has expired.
    TimedOut,
}

impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> io::Error {
        match error {
            ConnectError::Socket(error)
            | ConnectError::Option(_, error)
            | ConnectError::Bind(error)
            | ConnectError::Connect(error) => error,
            ConnectError::TimedOut => io::ErrorKind::TimedOut.into(),
        }
    }
}

impl Stream {
    /// Connects to an address.
    ///
    /// # Errors
    /// `TimedOut` after `timeout`; errors reported by the network.
    pub async fn connect(address: &Address, timeout: Duration) -> io::Result<Stream> {
        let options = ConnectOptions { nodelay: false, ..ConnectOptions::new(timeout) };
        Ok(Stream::connect_with(address, &options).await?)
    }

    /// Connects to an address.
    ///
    /// # Errors
    /// [`ConnectError`]
    pub async fn connect_with(
        address: &Address,
        options: &ConnectOptions<'_>,
    ) -> Result<Stream, ConnectError> {
        let any = address.to_any().map_err(ConnectError::Connect)?;
        let fd = open(&any, SocketType::STREAM, options)?;
        let local = local::current();
        let connected = local.driver.borrow_mut().connect(fd.as_fd(), &any);
        let connected = connected.map_err(|error| ConnectError::Connect(error.into()))?;
        let role = if connected { Role::Stream } else { Role::Connecting };
        let stream = Stream::attach(&local, fd, role, false).map_err(ConnectError::Socket)?;
        if !connected {
            let writable = crate::time::timeout(options.timeout, stream.writable()).await;
            writable.map_err(|_| ConnectError::TimedOut)?.map_err(ConnectError::Connect)?;
            let outcome = sockopt::socket_error(stream.fd()).and_then(|outcome| outcome);
            outcome.map_err(|error| ConnectError::Connect(error.into()))?;
        }
        Ok(stream)
    }
}

/// A socket that is ready to connect.
pub(super) fn open(
    to: &SocketAddrAny,
    kind: SocketType,
    options: &ConnectOptions<'_>,
) -> Result<OwnedFd, ConnectError> {
    let family = to.address_family();
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(family, kind, flags, None);
    let fd = fd.map_err(|error| ConnectError::Socket(error.into()))?;
    if options.keepalive {
        let set = sockopt::set_socket_keepalive(&fd, true);
        set.map_err(|error| ConnectError::Option("SO_KEEPALIVE", error.into()))?;
    }
    if options.receive_buffer > 0 {
        let set = sockopt::set_socket_recv_buffer_size(&fd, options.receive_buffer as usize);
        set.map_err(|error| ConnectError::Option("SO_RCVBUF", error.into()))?;
    }
    if options.send_buffer > 0 {
        let set = sockopt::set_socket_send_buffer_size(&fd, options.send_buffer as usize);
        set.map_err(|error| ConnectError::Option("SO_SNDBUF", error.into()))?;
    }
    if family == net::AddressFamily::UNIX {
        return Ok(fd);
    }
    if options.nodelay && kind == SocketType::STREAM {
        let set = sockopt::set_tcp_nodelay(&fd, true);
        set.map_err(|error| ConnectError::Option("TCP_NODELAY", error.into()))?;
    }
    if let Some(bind) = options.bind {
        let inet = bind.inet();
        if options.transparent {
            let ipv6 = inet.is_some_and(|inet| inet.is_ipv6());
            let set = nowait_sys::connect::set_transparent(&fd, ipv6);
            set.map_err(|error| ConnectError::Option("IP_TRANSPARENT", error))?;
        }
        if inet.is_some_and(|inet| inet.port() == 0) {
            // Only saves ports.
            let _ = nowait_sys::connect::set_bind_no_port(&fd);
        }
        let any = bind.to_any().map_err(ConnectError::Bind)?;
        net::bind(&fd, &any).map_err(|error| ConnectError::Bind(error.into()))?;
    }
    Ok(fd)
}
