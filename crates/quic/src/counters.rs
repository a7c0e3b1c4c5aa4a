//! Counters of a process, for its status page and its tests: one for each bound, and for what peers did wrong.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters, shared by all workers.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: AtomicU64,)*
        }

        impl Counters {
            /// All of them, with their names.
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Datagrams received.
    datagrams_received,
    /// Datagrams sent.
    datagrams_sent,
    /// Datagrams that belong to no connection, or are no packets.
    datagrams_dropped,
    /// Datagrams handed over to another worker.
    datagrams_forwarded,
    /// Datagrams dropped because the queue to another worker was full.
    forward_queue_full,
    /// Datagrams passed to another server process.
    datagrams_passed,
    /// Datagrams dropped because the inbox of another server process was full.
    pass_queue_full,
    /// Datagrams taken from another server process.
    datagrams_taken,
    /// Datagrams dropped because a handshake's queue was full.
    handshake_queue_full,
    /// Datagrams dropped because the socket's queue for sending was full.
    send_queue_full,
    /// First packets dropped because too many handshakes were in progress.
    handshakes_full,
    /// Hellos that were malformed, too long, or spread over too many datagrams.
    hellos_refused,
    /// Retry packets sent.
    retries_sent,
    /// First packets answered by an error: with a token of a Retry packet that is not valid (any more), or with too short a
    /// destination.
    first_packets_refused,
    /// Version Negotiation packets and stateless resets sent.
    stateless_sent,
    /// Handshakes completed.
    handshakes,
    /// Handshakes that failed.
    handshakes_failed,
    /// Connections that moved to another address of their peer.
    migrations,
    /// Times that segmentation offload was refused and switched off.
    gso_refused,
    /// Connections closed by the application protocol: too many frames without effect.
    floods_of_frames,
    /// The same: too many streams that were opened to be reset.
    floods_of_resets,
    /// The same: too many insertions into a table of fields.
    floods_of_insertions,
    /// The same: too many bytes of incomplete or waiting heads.
    floods_of_sections,
    /// The same: what this side has to say is not read.
    floods_unread,
    /// Connections ended by a panic of this program.
    panics,
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, number: u64) {
        counter.fetch_add(number, Ordering::Relaxed);
    }
}
