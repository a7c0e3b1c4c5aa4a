//! How many at once: `limit_conn`. nginx: `ngx_http_limit_conn_module`.
//!
//! Counts the requests in work per key. Called by the preaccess phase; a request holds a [`Held`]
//! per limit until it has ended. Never waits.

use std::sync::Arc;

use super::zone::{Full, Place, Zone};

/// Charged to each key of a zone besides its length, as in nginx: an address of either kind takes
/// 64 bytes.
const FIXED: u64 = 36;

/// The counts of a zone: the pins of each key.
pub type Counts = Zone<()>;

/// Makes the counts of a zone of this many bytes.
pub fn counts(bytes: u64) -> Arc<Counts> {
    Arc::new(Zone::new(bytes, FIXED))
}

/// A request is counted as long as this exists.
#[derive(Debug)]
pub struct Held {
    counts: Arc<Counts>,
    /// Taken by `drop` only.
    place: Option<Place>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(place) = self.place.take() {
            self.counts.unpin_and_forget(place);
        }
    }
}

/// Why a request is not counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// There are as many already.
    TooMany,
    /// There was no room for its key.
    Full,
}

/// Counts a request, if there are less than `most` with this key.
///
/// # Errors
/// [`Refused`].
pub fn hold(counts: &Arc<Counts>, key: &[u8], most: u32) -> Result<Held, Refused> {
    let visited = counts.visit(
        key,
        |()| false,
        |entry| {
            let free = entry.pins < most;
            entry.pins += u32::from(free);
            free
        },
    );
    match visited {
        Ok((place, true)) => Ok(Held { counts: counts.clone(), place: Some(place) }),
        Ok((_, false)) => Err(Refused::TooMany),
        Err(Full) => Err(Refused::Full),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_at_once() {
        let counts = counts(32 * 1024);
        let first = hold(&counts, b"a", 2).unwrap();
        let second = hold(&counts, b"a", 2).unwrap();
        assert_eq!(hold(&counts, b"a", 2).err(), Some(Refused::TooMany));
        let other = hold(&counts, b"b", 1).unwrap();
        drop(first);
        let third = hold(&counts, b"a", 2).unwrap();
        drop((second, third, other));
        assert!(counts.is_empty());
    }

    #[test]
    fn nobody_is_pushed_out() {
        let counts = counts(32 * 1024);
        let held: Vec<Held> =
            (0..512_u32).map(|n| hold(&counts, &n.to_be_bytes(), 1).unwrap()).collect();
        assert_eq!(hold(&counts, b"more", 1).err(), Some(Refused::Full));
        drop(held);
        assert!(hold(&counts, b"more", 1).is_ok());
    }
}
