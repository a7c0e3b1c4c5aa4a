//! Datagrams with their local address, as received or to be sent from.
//!
//! Called by the runtime's drivers for UDP sockets. A socket bound to a wildcard address receives
//! datagrams for every address of the machine, and a response must be sent from the address that
//! the request was sent to: IP_PKTINFO and IPV6_PKTINFO carry this address.
//!
//! Ownership argument for the unsafe code: every pointer that is handed to the kernel is to a local
//! value or a slice of the caller's that outlives the call; the kernel keeps none of them. Addresses
//! and control data are read with the lengths that the kernel returned, which are checked.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::SocketAddrAny;

/// Room for the control data of one datagram: one IPV6_PKTINFO with some margin.
const CONTROL_BYTES: usize = 128;

/// Control data, aligned as its headers have to be.
#[repr(C, align(16))]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// A datagram that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDatagram {
    /// Bytes that were written to the buffer.
    pub len: usize,
    /// It was longer than the buffer; the rest is lost.
    pub truncated: bool,
    /// The sender, if it has an IP address.
    pub from: Option<SocketAddr>,
    /// The address that it was sent to, if [`set_packet_info`] was called on the socket.
    pub local: Option<IpAddr>,
}

/// Makes [`receive`] report the local address of each datagram. An IPv6 socket that also accepts
/// IPv4 reports it as a mapped address.
///
/// # Errors
/// The kernel's.
pub fn set_packet_info(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let (level, option) = match ipv6 {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
        false => (libc::IPPROTO_IP, libc::IP_PKTINFO),
    };
    let value = 1i32;
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

/// Receives a datagram into `buffer`, without waiting.
///
/// # Errors
/// `WouldBlock` when there is none; otherwise the kernel's, such as a refusal of an earlier
/// datagram.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<ReceivedDatagram> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all-zero is a valid `msghdr`: null pointers and lengths of 0.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_name = name.as_mut_ptr().cast();
    message.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = CONTROL_BYTES as _;
    let len = loop {
        // SAFETY: `message` points to a name, one slice and control data that outlive the call.
        let len = unsafe {
            libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT)
        };
        match usize::try_from(len) {
            Ok(len) => break len,
            Err(_) => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    };
    // SAFETY: zeroed at first, and what the kernel has written is a socket address: initialized.
    let name = unsafe { name.assume_init() };
    Ok(ReceivedDatagram {
        len: len.min(buffer.len()),
        truncated: message.msg_flags & libc::MSG_TRUNC != 0,
        from: inet_of(&name, message.msg_namelen),
        local: local_of(&message),
    })
}

/// The address written by the kernel.
pub(crate) fn inet_of(name: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
    let place: *const libc::sockaddr_storage = name;
    match i32::from(name.ss_family) {
        libc::AF_INET if len as usize >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: a `sockaddr_storage` has room for and is aligned as every socket address, and
            // the family says which one it is.
            let inet = unsafe { *place.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(inet.sin_addr.s_addr));
            Some(SocketAddr::from((ip, u16::from_be(inet.sin_port))))
        }
        libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let inet = unsafe { *place.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(inet.sin6_addr.s6_addr);
            let port = u16::from_be(inet.sin6_port);
            let (flow, scope) = (inet.sin6_flowinfo, inet.sin6_scope_id);
            Some(std::net::SocketAddrV6::new(ip, port, flow, scope).into())
        }
        _ => None,
    }
}

/// The local address in the control data of a message that was received.
fn local_of(message: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the message's control data are those that the kernel has written, with their length.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: the kernel's headers lie within the control data, aligned.
        let (level, kind, len) =
            unsafe { ((*header).cmsg_level, (*header).cmsg_type, (*header).cmsg_len as usize) };
        // SAFETY: computes an address within the control data.
        let data = unsafe { libc::CMSG_DATA(header) };
        let has = |bytes: usize| {
            // SAFETY: a computation only.
            len >= unsafe { libc::CMSG_LEN(bytes as u32) } as usize
        };
        if (level, kind) == (libc::IPPROTO_IP, libc::IP_PKTINFO)
            && has(size_of::<libc::in_pktinfo>())
        {
            // SAFETY: the length says that the whole struct is there; it may be unaligned.
            let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
            return Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
        }
        if (level, kind) == (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO)
            && has(size_of::<libc::in6_pktinfo>())
        {
            // SAFETY: as above.
            let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
            return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
        }
        // SAFETY: as for the first one.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    None
}

/// Sends a datagram whole, without waiting: to `to` or to the connected peer; from `local` or from
/// an address that the kernel chooses.
///
/// # Errors
/// `WouldBlock` when the socket's buffer is full; otherwise the kernel's.
pub fn send(
    socket: impl AsFd,
    data: &[u8],
    to: Option<SocketAddr>,
    local: Option<IpAddr>,
) -> io::Result<()> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut slice = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: all-zero is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let name = to.map(SocketAddrAny::from);
    if let Some(name) = &name {
        message.msg_name = name.as_ptr().cast_mut().cast();
        message.msg_namelen = name.addr_len();
    }
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    if let Some(local) = local {
        push_local(&mut message, &mut control, local);
    }
    loop {
        // SAFETY: `message` points to a name, one slice and control data that outlive the call; the
        // kernel only reads them.
        let sent = unsafe {
            libc::sendmsg(
                socket.as_fd().as_raw_fd(),
                &raw const message,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        };
        if sent >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => {}
            error => return Err(error),
        }
    }
}

/// Writes the local address into the control data of a message to be sent.
fn push_local(message: &mut libc::msghdr, control: &mut ControlBuffer, local: IpAddr) {
    fn put<T>(
        message: &mut libc::msghdr,
        control: &mut ControlBuffer,
        level: i32,
        kind: i32,
        info: T,
    ) {
        let bytes = size_of::<T>() as u32;
        message.msg_control = (&raw mut *control).cast();
        // SAFETY: a computation only.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(bytes) } as _;
        // SAFETY: the control data has room for this one header and its data (asserted below), is
        // aligned for the header, and is borrowed here alone.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = level;
            (*header).cmsg_type = kind;
            (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
            libc::CMSG_DATA(header).cast::<T>().write_unaligned(info);
        }
    }
    const _: () = assert!(size_of::<libc::in6_pktinfo>() + 64 <= CONTROL_BYTES);
    match local {
        IpAddr::V4(ip) => {
            let address = libc::in_addr { s_addr: u32::from(ip).to_be() };
            let info = libc::in_pktinfo {
                ipi_ifindex: 0,
                ipi_spec_dst: address,
                ipi_addr: libc::in_addr { s_addr: 0 },
            };
            put(message, control, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        IpAddr::V6(ip) => {
            let address = libc::in6_addr { s6_addr: ip.octets() };
            let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
            put(message, control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    /// Sends from a client to a wildcard socket at `ip`, and replies from the address used.
    fn exchange(wildcard: &str, ip: &str) {
        let server = UdpSocket::bind((wildcard, 0)).unwrap();
        server.set_nonblocking(true).unwrap();
        let address = server.local_addr().unwrap();
        set_packet_info(&server, address.is_ipv6()).unwrap();
        let mut buffer = [0; 4];
        let error = receive(&server, &mut buffer).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        let ip: IpAddr = ip.parse().unwrap();
        let client = UdpSocket::bind((if ip.is_ipv4() { "127.0.0.1" } else { "::1" }, 0)).unwrap();
        client.connect((ip, address.port())).unwrap();
        client.send(b"abcdef").unwrap();
        let received = receive(&server, &mut buffer).unwrap();
        assert_eq!((received.len, received.truncated), (4, true));
        assert_eq!(received.from, Some(client.local_addr().unwrap()));
        assert_eq!(received.local, Some(ip));
        send(&server, b"yes", received.from, received.local).unwrap();
        // The client is connected: it only receives from the address it sent to.
        client.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        assert_eq!(client.recv(&mut buffer).unwrap(), 3);
    }

    #[test]
    fn an_answer_comes_from_the_address_that_was_asked() {
        exchange("0.0.0.0", "127.0.0.1");
        exchange("0.0.0.0", "127.0.0.2");
        if UdpSocket::bind("[::1]:0").is_ok() {
            exchange("::", "::1");
        }
    }

    #[test]
    fn without_packet_info_nothing_is_known() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        send(&client, b"", Some(server.local_addr().unwrap()), None).unwrap();
        let received = receive(&server, &mut [0; 4]).unwrap();
        assert_eq!((received.len, received.truncated, received.local), (0, false, None));
        client.connect(server.local_addr().unwrap()).unwrap();
        send(&client, b"x", None, None).unwrap();
    }
}
