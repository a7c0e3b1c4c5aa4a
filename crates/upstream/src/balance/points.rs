//! The ring of `hash … consistent`: 160 points per unit of weight, placed by the CRC of the
//! server's host and port and of the point before (Cache::Memcached::Fast, ketama).

use std::sync::Arc;

use crc32fast::Hasher;

use crate::peer::Peer;

/// Points per unit of weight.
const POINTS: u64 = 160;

/// Points of all servers at most, 32 MB: greater weights are scaled down. No configuration that nginx could
/// handle comes near.
const POINTS_MAX: u64 = 1 << 22;

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct Points {
    /// Hashes in order, each with the number of its server.
    points: Box<[(u32, u32)]>,
    servers: Box<[Box<[u8]>]>,
}

impl Points {
    pub(crate) fn of(peers: &[Arc<Peer>]) -> Points {
        let total: u64 = peers.iter().map(|peer| u64::from(peer.weight)).sum();
        let scale = (total * POINTS).div_ceil(POINTS_MAX).max(1);
        let mut servers: Vec<Box<[u8]>> = Vec::new();
        let mut points = Vec::new();
        for peer in peers {
            let known = servers.iter().position(|name| *name == peer.server_name);
            let server = known.unwrap_or_else(|| {
                servers.push(peer.server_name.clone());
                servers.len() - 1
            });
            let mut base = Hasher::new();
            let (host, port) = split(&peer.server_name);
            [host, b"\0", port].into_iter().for_each(|part| base.update(part));
            let mut previous = 0u32;
            for _ in 0..(u64::from(peer.weight) * POINTS / scale).max(1) {
                let mut point = base.clone();
                point.update(&previous.to_le_bytes());
                previous = point.finalize();
                points.push((previous, server as u32));
            }
        }
        // Where two servers meet, the one that comes first in the configuration has the point.
        points.sort_by_key(|(hash, _)| *hash);
        points.dedup_by_key(|(hash, _)| *hash);
        debug_assert!(points.is_sorted() && points.len() as u64 <= POINTS_MAX + peers.len() as u64);
        Points { points: points.into(), servers: servers.into() }
    }

    /// The server `steps` points after the place of a hash.
    pub(crate) fn server(&self, hash: u32, steps: u32) -> &[u8] {
        let first = self.points.partition_point(|(point, _)| *point < hash);
        let Some((_, server)) =
            self.points.get((first + steps as usize) % self.points.len().max(1))
        else {
            return b"";
        };
        &self.servers[*server as usize]
    }
}

/// Host and port of a server as the configuration names it.
fn split(name: &[u8]) -> (&[u8], &[u8]) {
    if name.len() >= 5 && name[..5].eq_ignore_ascii_case(b"unix:") {
        return (&name[5..], b"");
    }
    match name.iter().rposition(|b| !b.is_ascii_digit()) {
        Some(at) if name[at] == b':' => (&name[..at], &name[at + 1..]),
        _ => (name, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports() {
        assert_eq!(split(b"127.0.0.1:8080"), (&b"127.0.0.1"[..], &b"8080"[..]));
        assert_eq!(split(b"name"), (&b"name"[..], &b""[..]));
        assert_eq!(split(b"[::1]:80"), (&b"[::1]"[..], &b"80"[..]));
        assert_eq!(split(b"unix:/run/x:80"), (&b"/run/x:80"[..], &b""[..]));
        assert_eq!(split(b"12345"), (&b"12345"[..], &b""[..]));
    }
}
