//! How many packets are lost lately.
//!
//! Called by the controller.

/// Bytes after which what was before counts half.
const MEMORY_BYTES: f64 = 512.0 * 1024.0;

/// Bytes that have arrived, and that were lost.
#[derive(Clone, Debug, Default)]
pub(super) struct LossShare {
    acked: f64,
    lost: f64,
}

impl LossShare {
    pub(super) fn acked(&mut self, bytes: f64) {
        self.acked += bytes;
        if self.acked + self.lost > MEMORY_BYTES {
            self.acked /= 2.0;
            self.lost /= 2.0;
        }
    }

    pub(super) fn lost(&mut self, bytes: f64) {
        self.lost += bytes;
    }

    /// The share of what was lost.
    pub(super) fn share(&self) -> f64 {
        self.lost / (self.acked + self.lost).max(1.0)
    }
}
