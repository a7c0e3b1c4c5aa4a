//! Properties of the simulated network: how often it delays, splits and loses.

use std::time::Duration;

/// Properties of the simulated network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// Maximum delay of data in transit.
    pub delay_max: Duration,
    /// Data is split at any byte, and writes are partial.
    pub split: bool,
    /// Bytes that may be in transit or unread, per direction: beyond that, sending waits.
    pub window_bytes: usize,
    /// One in this many sends resets the connection; 0: none.
    pub reset_one_in: u64,
    /// One in this many datagrams is lost, and as many arrive twice; 0: none.
    pub lose_one_in: u64,
}

impl NetworkFaults {
    /// A network without surprises.
    pub const fn fair() -> NetworkFaults {
        let delay_max = Duration::ZERO;
        NetworkFaults {
            delay_max,
            split: false,
            window_bytes: 1 << 20,
            reset_one_in: 0,
            lose_one_in: 0,
        }
    }

    /// Delays, splits and a small window; datagrams are reordered, but none is lost.
    pub const fn rough() -> NetworkFaults {
        let delay_max = Duration::from_millis(50);
        NetworkFaults { delay_max, split: true, window_bytes: 4096, ..NetworkFaults::fair() }
    }

    /// Like [`rough`](NetworkFaults::rough), but connections break, and datagrams are lost and
    /// duplicated.
    pub const fn stormy() -> NetworkFaults {
        NetworkFaults { reset_one_in: 50, lose_one_in: 10, ..NetworkFaults::rough() }
    }
}
