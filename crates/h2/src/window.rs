//! Flow control (RFC 9113 section 5.2): the two windows of a stream or of the connection.

use crate::frame::WINDOW_MAX;

/// What the peer may send to us. Every byte is in one of three places: it may still be sent (`open`),
/// it has arrived and a caller holds it, or it has been taken and not yet given back (`taken`).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReceiveWindow {
    open: u32,
    taken: u32,
    size: u32,
}

impl ReceiveWindow {
    pub(crate) fn new(size: u32) -> Self {
        ReceiveWindow { open: size, taken: 0, size }
    }

    /// Counts a frame that has arrived; false if it exceeds the window.
    #[must_use]
    pub(crate) fn receive(&mut self, bytes: u32) -> bool {
        match self.open.checked_sub(bytes) {
            Some(open) => {
                self.open = open;
                true
            }
            None => false,
        }
    }

    /// Counts bytes as taken. Returns the increment to announce, once it is worth a frame.
    #[must_use]
    pub(crate) fn give_back(&mut self, bytes: u32) -> Option<u32> {
        self.taken += bytes;
        if self.taken == 0 || self.taken < self.size / 2 { None } else { self.announce() }
    }

    /// Enlarges the window; a smaller size is ignored. Returns the increment to announce.
    #[must_use]
    pub(crate) fn grow(&mut self, size: u32) -> Option<u32> {
        let size = size.min(WINDOW_MAX);
        let more = size.checked_sub(self.size).filter(|&more| more > 0)?;
        self.size = size;
        self.taken += more;
        self.announce()
    }

    fn announce(&mut self) -> Option<u32> {
        let increment = std::mem::take(&mut self.taken);
        self.open += increment;
        Some(increment)
    }

    /// The bytes that may still arrive.
    pub(crate) fn open(&self) -> u32 {
        self.open
    }
}

/// What we may send. "A change to SETTINGS_INITIAL_WINDOW_SIZE can cause the available space in a
/// flow-control window to become negative" (RFC 9113 section 6.9.2).
#[derive(Debug, Clone, Copy)]
pub(crate) struct SendWindow(i32);

impl SendWindow {
    pub(crate) fn new(size: u32) -> Self {
        SendWindow(size.min(WINDOW_MAX) as i32)
    }

    /// The bytes that may be sent.
    pub(crate) fn open(self) -> usize {
        self.0.max(0) as usize
    }

    pub(crate) fn send(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.open());
        self.0 -= bytes as i32;
    }

    /// Changes the window; false if it exceeds 2^31-1, or falls below what any peer can mean.
    #[must_use]
    pub(crate) fn change(&mut self, by: i64) -> bool {
        match i32::try_from(i64::from(self.0) + by) {
            Ok(size) => {
                self.0 = size;
                true
            }
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back_in_halves() {
        let mut window = ReceiveWindow::new(100);
        assert!(window.receive(80));
        assert!(!window.receive(21));
        assert_eq!(window.give_back(49), None);
        assert_eq!(window.give_back(1), Some(50));
        assert_eq!(window.open(), 70);
        assert_eq!(window.grow(50), None);
        assert_eq!(window.give_back(10), None);
        assert_eq!(window.grow(150), Some(60));
        assert_eq!(window.open(), 130);
    }

    #[test]
    fn a_window_of_nothing_grows() {
        let mut window = ReceiveWindow::new(0);
        assert!(!window.receive(1));
        assert_eq!(window.give_back(0), None);
        assert_eq!(window.grow(u32::MAX), Some(WINDOW_MAX));
        assert!(window.receive(WINDOW_MAX));
        assert_eq!(window.give_back(WINDOW_MAX), Some(WINDOW_MAX));
    }

    #[test]
    fn a_send_window_may_be_negative() {
        let mut window = SendWindow::new(10);
        window.send(10);
        assert!(window.change(-10));
        assert_eq!(window.open(), 0);
        assert!(window.change(11));
        assert_eq!(window.open(), 1);
        assert!(!window.change(i64::from(WINDOW_MAX)));
        assert!(window.change(i64::from(WINDOW_MAX) - 1));
    }
}
