//! A datagram on its way to another process, as bytes: what is known of it, then its content.
//!
//! ```text
//! version (1) | ECN (1) | from (23) | local (23) | listening socket (23) | content
//! address: family (1: 0, 4 or 6) | IP (16) | port (2) | scope (4)
//! ```
//!
//! Both ends may be different versions of the program: what is not understood is dropped.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use bytes::BytesMut;
use nowait_sys::listen::ListenAddress;

use crate::datagram::Datagram;

const VERSION: u8 = 1;

const ADDRESS_BYTES: usize = 23;

/// Bytes before the content.
pub(super) const HEAD_BYTES: usize = 2 + 3 * ADDRESS_BYTES;

/// The largest parcel: a datagram has no more than 65,535 bytes.
pub(super) const PARCEL_BYTES_MAX: usize = HEAD_BYTES + 65_535;

/// What precedes the content. `None`: the socket does not listen for datagrams.
pub(super) fn encode(datagram: &Datagram, listen: &ListenAddress) -> Option<[u8; HEAD_BYTES]> {
    let mut head = [0; HEAD_BYTES];
    head[0] = VERSION;
    head[1] = datagram.ecn;
    let local = datagram.local.map(|ip| SocketAddr::new(ip, 0));
    let addresses = [Some(datagram.from), local, Some(listen.inet()?)];
    for (place, address) in head[2..].chunks_exact_mut(ADDRESS_BYTES).zip(addresses) {
        put(place, address);
    }
    Some(head)
}

/// A datagram, and the address of its listening socket. `None`: malformed.
pub(super) fn decode(parcel: &[u8]) -> Option<(Datagram, SocketAddr)> {
    let (head, content) = parcel.split_at_checked(HEAD_BYTES)?;
    if head[0] != VERSION {
        return None;
    }
    let address = |index: usize| take(&head[2 + index * ADDRESS_BYTES..][..ADDRESS_BYTES]);
    let (from, listen) = (address(0)?, address(2)?);
    let local = address(1).map(|local| local.ip());
    Some((Datagram { data: BytesMut::from(content), from, local, ecn: head[1] }, listen))
}

fn put(place: &mut [u8], address: Option<SocketAddr>) {
    let Some(address) = address else { return };
    match address.ip() {
        IpAddr::V4(ip) => {
            place[0] = 4;
            place[1..5].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            place[0] = 6;
            place[1..17].copy_from_slice(&ip.octets());
        }
    }
    place[17..19].copy_from_slice(&address.port().to_be_bytes());
    if let SocketAddr::V6(address) = address {
        place[19..23].copy_from_slice(&address.scope_id().to_be_bytes());
    }
}

fn take(place: &[u8]) -> Option<SocketAddr> {
    let port = u16::from_be_bytes(*place.get(17..)?.first_chunk()?);
    match place[0] {
        4 => {
            let ip: [u8; 4] = *place[1..].first_chunk()?;
            Some(SocketAddr::new(Ipv4Addr::from(ip).into(), port))
        }
        6 => {
            let ip: [u8; 16] = *place[1..].first_chunk()?;
            let scope = u32::from_be_bytes(*place.get(19..)?.first_chunk()?);
            Some(SocketAddrV6::new(Ipv6Addr::from(ip), port, 0, scope).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_survive_the_way() {
        for (from, local, listen) in [
            ("192.0.2.1:1000", None, "0.0.0.0:443"),
            ("[2001:db8::1]:65535", Some("2001:db8::2"), "[::]:443"),
            ("[fe80::1%3]:7", Some("fe80::2"), "[::]:443"),
            ("192.0.2.1:1", Some("192.0.2.2"), "192.0.2.2:1"),
        ] {
            let datagram = Datagram {
                data: BytesMut::from("content"),
                from: from.parse().unwrap(),
                local: local.map(|ip: &str| ip.parse().unwrap()),
                ecn: 2,
            };
            let address = ListenAddress::Udp(listen.parse().unwrap());
            let mut parcel = encode(&datagram, &address).unwrap().to_vec();
            parcel.extend_from_slice(&datagram.data);
            let (got, at) = decode(&parcel).unwrap();
            assert_eq!((got.from, got.local, got.ecn), (datagram.from, datagram.local, 2));
            assert_eq!(got.data, datagram.data);
            assert_eq!(at, listen.parse().unwrap());
            for len in 0..HEAD_BYTES {
                assert!(decode(&parcel[..len]).is_none());
            }
            // Another version, and no address.
            for at in [0, 2, 2 + 2 * ADDRESS_BYTES] {
                let mut other = parcel.clone();
                other[at] = 9;
                assert!(decode(&other).is_none());
            }
        }
        let unix = ListenAddress::Unix("/x".into());
        let from = "192.0.2.1:1".parse().unwrap();
        let datagram = Datagram { data: BytesMut::new(), from, local: None, ecn: 0 };
        assert!(encode(&datagram, &unix).is_none());
    }
}
