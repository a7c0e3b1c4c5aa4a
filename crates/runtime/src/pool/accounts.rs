//! Recent use of a pool: a decaying account of pool time per client and per file.
//!
//! Used by [`super::queue`], which serves owners that rarely need the pool first. Pure data: the
//! time is an argument. Fixed size: when a set is full, the smallest account is forgotten, and its
//! owner counts as new.

use std::time::Duration;

/// Accounts are halved in this time, so that a burst is forgotten within a minute.
const HALF_LIFE: Duration = Duration::from_secs(5);

/// The highest level: 16 s or more of recent pool time.
pub(super) const LEVEL_MAX: u8 = 15;

/// Sets of [`WAYS`] entries of 16 bytes: 64 KB per pool that has served anything.
const SETS: usize = 1024;
const WAYS: usize = 4;

/// The owner of an account. Clients have small numbers, files random ones; they never collide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Payer {
    Client(u64),
    File(u64),
}

#[derive(Clone, Copy, Default)]
struct Account {
    /// [`Payer::hash`]; 0: unused.
    payer: u64,
    /// Balance at `at`.
    micros: u32,
    /// Milliseconds; wraps around after 49 days, when an account is long forgotten.
    at: u32,
}

/// All accounts of one pool.
#[derive(Default)]
pub(super) struct Accounts {
    /// Empty until the first charge.
    sets: Vec<[Account; WAYS]>,
}

impl Payer {
    /// The finisher of SplitMix64. Never 0.
    fn hash(self) -> u64 {
        let (number, kind) = match self {
            Payer::Client(number) => (number, 0x9E37_79B9_7F4A_7C15),
            Payer::File(number) => (number, 0xD1B5_4A32_D192_ED03),
        };
        let mut z = number.wrapping_add(kind);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)).max(1)
    }
}

impl Account {
    fn owed(&self, now: u32) -> u32 {
        let half_life = HALF_LIFE.as_millis() as u32;
        let idle = now.wrapping_sub(self.at);
        let at_last_half = self.micros.checked_shr(idle / half_life).unwrap_or(0);
        // Between two halvings, linear interpolation is sufficient.
        let part = u64::from(at_last_half / 2) * u64::from(idle % half_life);
        at_last_half - (part / u64::from(half_life)) as u32
    }
}

fn millis(now: Duration) -> u32 {
    now.as_millis() as u32
}

fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

impl Accounts {
    /// How busy `payer` has kept the pool: 0 for less than a millisecond, then one more for each
    /// doubling, up to [`LEVEL_MAX`].
    pub(super) fn level(&self, payer: Payer, now: Duration) -> u8 {
        let hash = payer.hash();
        let Some(set) = self.sets.get(hash as usize % SETS) else { return 0 };
        let account = set.iter().find(|account| account.payer == hash);
        let owed = account.map_or(0, |account| account.owed(millis(now)));
        match (owed / 1000).checked_ilog2() {
            None => 0,
            Some(log) => (log as u8 + 1).min(LEVEL_MAX),
        }
    }

    /// Adds `time` to the account of `payer`.
    pub(super) fn charge(&mut self, payer: Payer, time: Duration, now: Duration) {
        if self.sets.is_empty() {
            self.sets = vec![[Account::default(); WAYS]; SETS];
        }
        let (hash, now) = (payer.hash(), millis(now));
        let set = &mut self.sets[hash as usize % SETS];
        let known = set.iter().position(|account| account.payer == hash);
        let at = known.unwrap_or_else(|| {
            let least = |&at: &usize| set[at].owed(now);
            (0..WAYS).min_by_key(least).unwrap_or(0)
        });
        let owed = if known.is_some() { set[at].owed(now) } else { 0 };
        set[at] = Account { payer: hash, micros: owed.saturating_add(micros(time)), at: now };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn levels_double_and_decay() {
        let mut accounts = Accounts::default();
        let client = Payer::Client(7);
        assert_eq!(accounts.level(client, MS(0)), 0);
        accounts.charge(client, MS(100), MS(1000));
        assert_eq!(accounts.level(client, MS(1000)), 7);
        assert_eq!(accounts.level(Payer::File(7), MS(1000)), 0, "another account");
        assert_eq!(accounts.level(client, MS(1000) + HALF_LIFE), 6);
        assert_eq!(accounts.level(client, MS(1000) + 2 * HALF_LIFE), 5);
        assert_eq!(accounts.level(client, MS(1000) + 7 * HALF_LIFE), 0);
        accounts.charge(client, Duration::from_secs(1 << 30), MS(2000));
        assert_eq!(accounts.level(client, MS(2000)), LEVEL_MAX);
        assert_eq!(accounts.level(client, MS(2000) + 40 * HALF_LIFE), 0);
    }

    #[test]
    fn decay_is_steady() {
        let account = Account { payer: 1, micros: 1_000_000, at: u32::MAX - 3000 };
        let owed: Vec<u32> =
            (0..40).map(|n| account.owed(account.at.wrapping_add(n * 500))).collect();
        assert!(owed.is_sorted_by(|a, b| a > b), "{owed:?}");
        assert_eq!((owed[0], owed[10], owed[20]), (1_000_000, 500_000, 250_000));
    }

    #[test]
    fn the_busiest_are_not_forgotten() {
        let mut accounts = Accounts::default();
        for busy in 0..100 {
            accounts.charge(Payer::Client(busy), MS(1000), MS(0));
        }
        for n in 0..100_000 {
            accounts.charge(Payer::File(n), MS(1), MS(0));
        }
        let known = (0..100).filter(|n| accounts.level(Payer::Client(*n), MS(0)) >= 10).count();
        assert_eq!(known, 100);
        assert_eq!(accounts.sets.len(), SETS);
    }
}
