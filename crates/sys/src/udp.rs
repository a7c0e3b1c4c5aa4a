//! Many datagrams per system call: batches of receives (`recvmmsg`), segments that the kernel joins (GRO) and splits
//! (GSO), with local addresses and ECN marks.
//!
//! Called by the runtime for sockets of QUIC. Whether a path or a network card takes segments is found out by trying;
//! what follows from a refusal is decided by the caller.
//!
//! Ownership argument for the unsafe code: every pointer that is handed to the kernel is to memory of a
//! [`DatagramBatch`], to a local value, or to a slice of the caller's, each of which outlives the call; the kernel
//! keeps none of them. Addresses and control data are read with the lengths that the kernel returned, which are
//! checked.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::SocketAddrAny;

use crate::datagram::{inet_of, set_packet_info};

/// Messages received per call, at most. Each may be a train of segments.
pub const BATCH_MAX: usize = 8;

/// Bytes of a message, at most: the kernel joins segments up to the length of an IP datagram.
const MESSAGE_BYTES: usize = 64 * 1024;

/// Segments of one send, at most (`UDP_MAX_SEGMENTS` of older kernels).
pub const SEGMENTS_MAX: usize = 64;

/// Bytes of one send, at most: the length field of IP counts 65,535, with the headers.
pub const SEND_BYTES_MAX: usize = 65_535 - 48;

/// Room for the control data of a message: packet information, a mark, a segment size, and some more.
const CONTROL_BYTES: usize = 128;

/// The bits of a TOS or traffic class that are the ECN mark (RFC 3168, 5).
const ECN_MASK: u8 = 0b11;

/// Control data, aligned as its headers have to be.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct ControlBuffer([u8; CONTROL_BYTES]);

/// One message of a batch: datagrams of one sender, all of `segment` bytes but for the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Train<'a> {
    /// The datagrams, one behind the other.
    pub data: &'a [u8],
    /// The length of each.
    pub segment: usize,
    /// The sender.
    pub from: SocketAddr,
    /// The address that they were sent to.
    pub local: Option<IpAddr>,
    /// The ECN mark.
    pub ecn: u8,
}

/// Properties of a socket that [`prepare`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpFeatures {
    /// The kernel splits what is sent (`UDP_SEGMENT`).
    pub gso: bool,
    /// The kernel never fragments: the caller finds the size that the path carries.
    pub dont_fragment: bool,
}

/// Sets a socket up for QUIC: local addresses and ECN marks are reported, the kernel joins segments, and does not
/// fragment. What the kernel lacks is left out.
///
/// # Errors
/// The kernel reports no local addresses.
pub fn prepare(socket: impl AsFd, ipv6: bool) -> io::Result<UdpFeatures> {
    let fd = socket.as_fd().as_raw_fd();
    set_packet_info(&socket, ipv6)?;
    let mut dont_fragment =
        set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE);
    // An IPv6 socket that also accepts IPv4 needs both.
    let _ = set(fd, libc::IPPROTO_IP, libc::IP_RECVTOS, 1);
    if ipv6 {
        let _ = set_packet_info(&socket, false);
        let _ = set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1);
        dont_fragment =
            set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE);
    }
    let _ = set(fd, libc::SOL_UDP, libc::UDP_GRO, 1);
    // Setting no segment size changes nothing, and fails where the option is unknown.
    let gso = set(fd, libc::SOL_UDP, libc::UDP_SEGMENT, 0);
    Ok(UdpFeatures { gso, dont_fragment })
}

/// Sets an option; false: the kernel refused.
fn set(fd: i32, level: i32, option: i32, value: i32) -> bool {
    // SAFETY: the pointer and the length describe `value`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            fd,
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    result == 0
}

/// Memory for a batch of messages, and what was received last.
pub struct DatagramBatch {
    memory: Box<[u8]>,
    control: Box<[ControlBuffer; BATCH_MAX]>,
    names: Box<[libc::sockaddr_storage; BATCH_MAX]>,
    trains: Vec<TrainPlace>,
}

/// A message of the batch in its memory.
struct TrainPlace {
    begin: usize,
    len: usize,
    segment: usize,
    from: SocketAddr,
    local: Option<IpAddr>,
    ecn: u8,
}

impl Default for DatagramBatch {
    fn default() -> Self {
        // SAFETY: all-zero is a valid `sockaddr_storage`: bytes and integers.
        let name: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        Self {
            memory: vec![0; BATCH_MAX * MESSAGE_BYTES].into_boxed_slice(),
            control: Box::new([ControlBuffer([0; CONTROL_BYTES]); BATCH_MAX]),
            names: Box::new([name; BATCH_MAX]),
            trains: Vec::with_capacity(BATCH_MAX),
        }
    }
}

impl DatagramBatch {
    /// Receives as many messages as there are, at most [`BATCH_MAX`], without waiting. Returns whether there may be
    /// more. Messages without an IP address, or longer than an IP datagram, are dropped.
    ///
    /// # Errors
    /// `WouldBlock` when there is none; otherwise the kernel's, such as a refusal of an earlier datagram.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<bool> {
        self.trains.clear();
        let mut slices: [libc::iovec; BATCH_MAX] = std::array::from_fn(|n| libc::iovec {
            iov_base: self.memory[n * MESSAGE_BYTES..].as_mut_ptr().cast(),
            iov_len: MESSAGE_BYTES,
        });
        // SAFETY: all-zero is a valid `mmsghdr`: null pointers and lengths of 0.
        let mut messages: [libc::mmsghdr; BATCH_MAX] = unsafe { std::mem::zeroed() };
        for (n, message) in messages.iter_mut().enumerate() {
            let header = &mut message.msg_hdr;
            header.msg_name = (&raw mut self.names[n]).cast();
            header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            header.msg_iov = &raw mut slices[n];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut self.control[n]).cast();
            header.msg_controllen = CONTROL_BYTES as _;
        }
        let received = loop {
            // SAFETY: each message points to a name, a slice and control data of its own in `self`, which outlive
            // the call.
            let received = unsafe {
                libc::recvmmsg(
                    socket.as_fd().as_raw_fd(),
                    messages.as_mut_ptr(),
                    BATCH_MAX as u32,
                    libc::MSG_DONTWAIT as _,
                    std::ptr::null_mut(),
                )
            };
            match usize::try_from(received) {
                Ok(received) => break received,
                Err(_) => match io::Error::last_os_error() {
                    error if error.kind() == io::ErrorKind::Interrupted => {}
                    error => return Err(error),
                },
            }
        };
        for (n, message) in messages.iter().enumerate().take(received) {
            let header = &message.msg_hdr;
            let len = (message.msg_len as usize).min(MESSAGE_BYTES);
            let Some(from) = inet_of(&self.names[n], header.msg_namelen) else { continue };
            if header.msg_flags & libc::MSG_TRUNC != 0 {
                continue;
            }
            let facts = ControlFacts::of(header);
            let segment = facts.segment.filter(|segment| *segment > 0).unwrap_or(len);
            let (local, ecn, begin) = (facts.local, facts.ecn, n * MESSAGE_BYTES);
            self.trains.push(TrainPlace { begin, len, segment, from, local, ecn });
        }
        Ok(received == BATCH_MAX)
    }

    /// Replaces the batch by one datagram that came in another way: in a simulation. It is cut at the length of an
    /// IP datagram.
    pub fn set(&mut self, data: &[u8], from: SocketAddr) {
        let len = data.len().min(MESSAGE_BYTES);
        self.memory[..len].copy_from_slice(&data[..len]);
        self.trains.clear();
        self.trains.push(TrainPlace { begin: 0, len, segment: len, from, local: None, ecn: 0 });
    }

    /// What was received.
    pub fn trains(&self) -> impl Iterator<Item = Train<'_>> {
        self.trains.iter().map(|place| Train {
            data: &self.memory[place.begin..place.begin + place.len],
            segment: place.segment,
            from: place.from,
            local: place.local,
            ecn: place.ecn,
        })
    }
}

/// What control data say.
#[derive(Default)]
struct ControlFacts {
    local: Option<IpAddr>,
    ecn: u8,
    segment: Option<usize>,
}

impl ControlFacts {
    /// Those of a message that was received.
    fn of(message: &libc::msghdr) -> ControlFacts {
        let mut facts = ControlFacts::default();
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
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) if has(size_of::<libc::in_pktinfo>()) => {
                    // SAFETY: the length says that the whole struct is there; it may be unaligned.
                    let info = unsafe { data.cast::<libc::in_pktinfo>().read_unaligned() };
                    let local = Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr));
                    // With both options set, an IPv6 socket reports the mapped address, too.
                    facts.local.get_or_insert(local.into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) if has(size_of::<libc::in6_pktinfo>()) => {
                    // SAFETY: as above.
                    let info = unsafe { data.cast::<libc::in6_pktinfo>().read_unaligned() };
                    facts.local = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                // One byte.
                (libc::IPPROTO_IP, libc::IP_TOS) if has(1) => {
                    // SAFETY: as above.
                    facts.ecn = unsafe { data.read() } & ECN_MASK;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if has(size_of::<i32>()) => {
                    // SAFETY: as above.
                    let class = unsafe { data.cast::<i32>().read_unaligned() };
                    facts.ecn = class as u8 & ECN_MASK;
                }
                (libc::SOL_UDP, libc::UDP_GRO) if has(size_of::<i32>()) => {
                    // SAFETY: as above.
                    let segment = unsafe { data.cast::<i32>().read_unaligned() };
                    facts.segment = usize::try_from(segment).ok();
                }
                _ => {}
            }
            // SAFETY: as for the first one.
            header = unsafe { libc::CMSG_NXTHDR(message, header) };
        }
        facts
    }
}

/// Where datagrams go, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendTrain {
    /// The receiver.
    pub to: SocketAddr,
    /// The local address; `None`: the kernel chooses.
    pub local: Option<IpAddr>,
    /// The ECN mark.
    pub ecn: u8,
    /// The length of each datagram but the last, for the kernel to split; `None`: there is one.
    pub segment: Option<u16>,
}

/// Sends datagrams, without waiting.
///
/// # Errors
/// `WouldBlock` when the socket's buffer is full. `EIO`, `EINVAL` and, with one datagram, `EMSGSIZE` speak against the
/// segments or the size: see the callers.
pub fn send(socket: impl AsFd, data: &[u8], train: SendTrain) -> io::Result<()> {
    let mut control = ControlBuffer([0; CONTROL_BYTES]);
    let mut slice = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: all-zero is a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    let name = SocketAddrAny::from(train.to);
    message.msg_name = name.as_ptr().cast_mut().cast();
    message.msg_namelen = name.addr_len();
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    let mut writer = ControlWriter { control: &mut control, len: 0 };
    writer.put_train(&train);
    let len = writer.len;
    if len > 0 {
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = len as _;
    }
    loop {
        // SAFETY: `message` points to a name, one slice and control data that outlive the call; the kernel only
        // reads them.
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

/// Writes control data, one header behind the other.
struct ControlWriter<'a> {
    control: &'a mut ControlBuffer,
    len: usize,
}

impl ControlWriter<'_> {
    fn put_train(&mut self, train: &SendTrain) {
        match train.local {
            Some(IpAddr::V4(ip)) => {
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: libc::in_addr { s_addr: u32::from(ip).to_be() },
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, info);
            }
            Some(IpAddr::V6(ip)) => {
                let address = libc::in6_addr { s6_addr: ip.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: address, ipi6_ifindex: 0 };
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
            }
            None => {}
        }
        let mark = i32::from(train.ecn & ECN_MASK);
        match train.to.ip().to_canonical() {
            _ if mark == 0 => {}
            IpAddr::V4(_) => self.put(libc::IPPROTO_IP, libc::IP_TOS, mark),
            IpAddr::V6(_) => self.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, mark),
        }
        if let Some(segment) = train.segment {
            self.put(libc::SOL_UDP, libc::UDP_SEGMENT, segment);
        }
    }

    fn put<T: Copy>(&mut self, level: i32, kind: i32, data: T) {
        const HEADER: usize = size_of::<libc::cmsghdr>();
        // SAFETY: computations only.
        let (len, space) = unsafe {
            (
                libc::CMSG_LEN(size_of::<T>() as u32),
                libc::CMSG_SPACE(size_of::<T>() as u32) as usize,
            )
        };
        assert!(self.len + space <= CONTROL_BYTES, "three headers fit");
        // SAFETY: all-zero is a valid `cmsghdr`.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        header.cmsg_level = level;
        header.cmsg_type = kind;
        header.cmsg_len = len as _;
        let place = &mut self.control.0[self.len..self.len + space];
        // SAFETY: `place` has room for the header and, behind it, for the data (asserted above); both are plain
        // data without references, and written unaligned.
        unsafe {
            place.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(header);
            place[HEADER..].as_mut_ptr().cast::<T>().write_unaligned(data);
        }
        self.len += space;
    }
}

/// Raises the buffers of a socket to at least this many bytes, as far as the kernel permits. Returns the sizes
/// reached: for receiving, and for sending.
///
/// # Errors
/// The kernel's.
pub fn raise_buffers(socket: impl AsFd, bytes: usize) -> io::Result<(usize, usize)> {
    let fd = socket.as_fd().as_raw_fd();
    let wanted = i32::try_from(bytes).unwrap_or(i32::MAX);
    let raise = |force: i32, option: i32| {
        let has = get(fd, option)?;
        // The kernel doubles what is set, for its own bookkeeping, and reports that.
        if has / 2 < wanted && !set(fd, libc::SOL_SOCKET, force, wanted) {
            let _ = set(fd, libc::SOL_SOCKET, option, wanted);
        }
        get(fd, option).map(|has| usize::try_from(has / 2).unwrap_or(0))
    };
    Ok((
        raise(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?,
        raise(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?,
    ))
}

/// Reads an option of the socket level.
fn get(fd: i32, option: i32) -> io::Result<i32> {
    let mut value = 0i32;
    let mut len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointers describe `value` and `len`, which outlive the call.
    let result = unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, option, (&raw mut value).cast(), &raw mut len)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn pair(address: &str) -> Option<(UdpSocket, UdpSocket)> {
        let (one, two) = (UdpSocket::bind(address).ok()?, UdpSocket::bind(address).ok()?);
        for socket in [&one, &two] {
            let ipv6 = socket.local_addr().ok()?.is_ipv6();
            assert!(prepare(socket, ipv6).unwrap().dont_fragment);
        }
        Some((one, two))
    }

    /// All datagrams that have arrived.
    fn received(socket: &UdpSocket) -> Vec<(Vec<u8>, SocketAddr, Option<IpAddr>, u8)> {
        let mut batch = DatagramBatch::default();
        let mut all = Vec::new();
        loop {
            let more = match batch.receive(socket) {
                Ok(more) => more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return all,
                Err(error) => panic!("{error}"),
            };
            for Train { data, segment, from, local, ecn } in batch.trains() {
                let datagrams = data.chunks(segment.max(1));
                all.extend(datagrams.map(|data| (data.to_vec(), from, local, ecn)));
            }
            if !more {
                return all;
            }
        }
    }

    #[test]
    fn trains_arrive_whole_with_their_facts() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Some((one, two)) = pair(address) else { continue };
            let to = two.local_addr().unwrap();
            let data: Vec<u8> = (0..3500u32).map(|n| n as u8).collect();
            let train = SendTrain { to, local: Some(to.ip()), ecn: 2, segment: Some(1200) };
            send(&one, &data, train).unwrap();
            send(&one, b"alone", SendTrain { segment: None, ecn: 0, local: None, ..train })
                .unwrap();
            let all = received(&two);
            let lengths: Vec<usize> = all.iter().map(|(data, ..)| data.len()).collect();
            assert_eq!(lengths, [1200, 1200, 1100, 5]);
            let joined: Vec<u8> = all[..3].iter().flat_map(|(data, ..)| data.clone()).collect();
            assert_eq!(joined, data);
            let from = one.local_addr().unwrap();
            assert!(
                all.iter().all(|(_, sender, local, _)| (*sender, *local) == (from, Some(to.ip())))
            );
            assert_eq!(all.iter().map(|(.., ecn)| *ecn).collect::<Vec<_>>(), [2, 2, 2, 0]);
        }
    }

    #[test]
    fn more_than_a_batch_is_announced() {
        let (one, two) = pair("127.0.0.1:0").unwrap();
        let to = two.local_addr().unwrap();
        // Of different lengths, so that the kernel joins none.
        for n in 1..=BATCH_MAX + 1 {
            let train = SendTrain { to, local: None, ecn: 0, segment: None };
            send(&one, &vec![0; n * 3], train).unwrap();
        }
        assert_eq!(received(&two).len(), BATCH_MAX + 1);
    }

    #[test]
    fn a_datagram_that_is_too_long_is_reported() {
        let (one, two) = pair("127.0.0.1:0").unwrap();
        let train = SendTrain { to: two.local_addr().unwrap(), local: None, ecn: 0, segment: None };
        let error = send(&one, &vec![0; 65_530], train).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }

    #[test]
    fn buffers_are_raised() {
        let (one, _) = pair("127.0.0.1:0").unwrap();
        let (receive, send) = raise_buffers(&one, 300_000).unwrap();
        assert!(receive >= 100_000 && send >= 100_000, "{receive} {send}");
    }
}
