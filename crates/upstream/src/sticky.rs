//! The data of `sticky`: IDs of peers, and the sessions that were learnt.

use std::hash::RandomState;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use data_encoding::HEXLOWER;
use hashlink::LinkedHashMap;
use md5::{Digest, Md5};

use crate::conf::LearnConf;

/// Size charged to the zone per session: nginx has about 8000 in a megabyte.
const SESSION_BYTES: u64 = 128;

/// The ID of a peer without `route`: the MD5 sum of its address, as in nginx.
pub(crate) fn sid_of(name: &str) -> Box<[u8]> {
    HEXLOWER.encode(&Md5::digest(name.as_bytes())).into_bytes().into()
}

/// Sessions and the IDs of their servers.
#[derive(Debug)]
pub(crate) struct Sessions {
    zone: Bytes,
    timeout_ms: u64,
    max: usize,
    known: Mutex<StickySessions>,
}

#[derive(Debug, Default)]
struct StickySessions {
    /// In the order of their last use.
    sessions: LinkedHashMap<[u8; 16], Session, RandomState>,
}

#[derive(Debug)]
struct Session {
    sid: Box<[u8]>,
    /// The time of its last use.
    last: u64,
}

impl Sessions {
    pub(crate) fn new(conf: &LearnConf) -> Sessions {
        Sessions {
            zone: conf.zone.clone(),
            timeout_ms: conf.timeout.0,
            max: (conf.size / SESSION_BYTES) as usize,
            known: Mutex::default(),
        }
    }

    /// Whether the sessions of another generation may be taken over.
    pub(crate) fn is_like(&self, other: &Sessions) -> bool {
        self.zone == other.zone && self.timeout_ms == other.timeout_ms && self.max == other.max
    }

    /// The ID of the server of a session.
    pub(crate) fn lookup(&self, session: &[u8], now: u64) -> Option<Box<[u8]>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.expire(now, self.timeout_ms);
        known.sessions.get(&key(session)).map(|session| session.sid.clone())
    }

    /// Notes the use of a session. An unknown one is added only if it was just created.
    pub(crate) fn learn(&self, session: &[u8], sid: &[u8], created: bool, now: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.expire(now, self.timeout_ms);
        let key = key(session);
        if let Some(session) = known.sessions.to_back(&key) {
            if *session.sid != *sid {
                session.sid = sid.into();
            }
            session.last = now;
        } else if created {
            if known.sessions.len() >= self.max.max(1) {
                known.sessions.pop_front();
            }
            known.sessions.insert(key, Session { sid: sid.into(), last: now });
            debug_assert!(known.sessions.len() <= self.max.max(1), "it grows by one at a time");
        }
    }
}

fn key(session: &[u8]) -> [u8; 16] {
    Md5::digest(session).into()
}

impl StickySessions {
    /// Removes expired sessions.
    fn expire(&mut self, now: u64, timeout_ms: u64) {
        while let Some((_, session)) = self.sessions.front()
            && now.saturating_sub(session.last) >= timeout_ms
        {
            self.sessions.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sessions(max: usize) -> Sessions {
        Sessions { zone: Bytes::new(), timeout_ms: 100, max, known: Mutex::default() }
    }

    #[test]
    fn ids() {
        // printf 127.0.0.1:8080 | md5sum
        assert_eq!(&*sid_of("127.0.0.1:8080"), b"5958c386bf5e9109ac10d2a628645aea".as_slice());
    }

    #[test]
    fn sessions_are_learnt_and_forgotten() {
        let known = sessions(10);
        known.learn(b"s", b"a", false, 1000);
        assert_eq!(known.lookup(b"s", 1000), None);
        known.learn(b"s", b"a", true, 1000);
        assert_eq!(known.lookup(b"s", 1050).as_deref(), Some(&b"a"[..]));
        known.learn(b"s", b"b", false, 1080);
        assert_eq!(known.lookup(b"s", 1150).as_deref(), Some(&b"b"[..]));
        assert_eq!(known.lookup(b"s", 1180), None);
    }

    #[test]
    fn the_oldest_goes_when_there_is_no_room() {
        let known = sessions(2);
        for (n, name) in [b"1", b"2", b"3"].into_iter().enumerate() {
            known.learn(name, b"a", true, 1000 + n as u64);
        }
        assert_eq!(known.lookup(b"1", 1003), None);
        assert!(known.lookup(b"2", 1003).is_some() && known.lookup(b"3", 1003).is_some());
    }

    #[test]
    fn a_use_makes_the_other_session_the_oldest() {
        let known = sessions(2);
        known.learn(b"1", b"a", true, 1000);
        known.learn(b"2", b"a", true, 1001);
        known.learn(b"1", b"a", false, 1002);
        known.learn(b"3", b"a", true, 1003);
        assert_eq!(known.lookup(b"2", 1003), None);
        assert!(known.lookup(b"1", 1003).is_some() && known.lookup(b"3", 1003).is_some());
    }
}
