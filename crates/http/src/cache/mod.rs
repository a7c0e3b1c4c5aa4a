//! Caching of responses: nginx's rules, and with `proxy_cache_rfc9111 on;` RFC 9111 in full.
//!
//! Protocol modules call [`serve`] instead of the engine when a cache is configured. The
//! `nowait-cache` crate decides where objects are stored and how files are reached; this module
//! decides which responses are stored, how long they are valid and what a client gets.
//!
//! | | |
//! |---|---|
//! | nginx's rules of validity | [`validity`] |
//! | the strict rules | [`control`], [`targeted`], [`reply`], [`storing`], [`freshness`], [`updating`] |
//! | variants | [`vary`] |
//! | stored metadata of an object | [`meta`], `decoded` |
//! | the steps of a request | `serve`, `find`, `fetch`, `filling`, `hit` |
//! | streaming growing objects, and continuing when the disk fails | `along`, `kept`, `rest` |
//! | protocols of origins | [`origin`] |
//! | purging | [`purge`] |
//! | `$upstream_cache_status`, `Cache-Status` | [`status`] |

mod along;
pub mod control;
mod decoded;
mod fetch;
mod filling;
mod find;
pub mod freshness;
mod hit;
mod kept;
pub mod meta;
pub mod origin;
pub mod purge;
pub mod reply;
mod rest;
mod serve;
pub mod state;
pub mod status;
pub mod storing;
pub mod targeted;
pub mod updating;
pub mod validity;
pub mod vary;
pub mod zone;

pub use serve::{serve, try_serve};

/// Runs a property with as many random inputs, the same in every run.
#[cfg(test)]
pub(crate) fn random_cases(count: usize, mut check: impl FnMut(&mut Random)) {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..count {
        check(&mut random);
    }
}

/// A small generator of numbers for tests (xorshift64*).
#[cfg(test)]
pub(crate) struct Random(u64);

#[cfg(test)]
impl Random {
    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}
