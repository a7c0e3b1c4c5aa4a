//! The size limits of a head, counted as nginx counts them.
//!
//! nginx reads a head into one buffer of `client_header_buffer_size`, then into at most N buffers
//! of `large_client_header_buffers N SIZE`; a line never spans two buffers, its beginning is moved
//! to the next one. Nowait keeps a head in one piece of memory, and the budget only reproduces
//! these limits: the same heads are rejected, at the same byte, with the same status.

/// Size limits of a head, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// `client_header_buffer_size`.
    pub header_buffer: u32,
    /// The number of `large_client_header_buffers`.
    pub large_buffers: u32,
    /// The size of one of `large_client_header_buffers`: no line may be longer.
    pub large_buffer: u32,
    /// `max_headers`: fields in a head.
    pub headers_max: u16,
    /// `ignore_invalid_headers`: drop fields whose name has odd characters instead of keeping them.
    pub ignore_invalid_headers: bool,
    /// `underscores_in_headers`: `_` is not an odd character.
    pub underscores_in_headers: bool,
    /// Control characters other than CR, LF and NUL pass in field values.
    pub control_characters: bool,
    /// `ICY 200 OK`, with which SHOUTcast servers begin their responses, is a status line.
    pub icy: bool,
}

impl Default for Limits {
    /// nginx's defaults.
    fn default() -> Self {
        Limits {
            header_buffer: 1024,
            large_buffers: 4,
            large_buffer: 8192,
            headers_max: 1000,
            ignore_invalid_headers: true,
            underscores_in_headers: false,
            control_characters: false,
            icy: false,
        }
    }
}

impl Limits {
    /// Limits for the head of an upstream's response that must fit in one buffer of `size` bytes
    /// (`proxy_buffer_size`). Control characters in values pass, and so do odd characters in names, as
    /// they do in nginx: the operator has chosen the upstream and often can't change it.
    pub fn one_buffer(size: u32) -> Self {
        Limits {
            header_buffer: size,
            large_buffers: 0,
            large_buffer: size,
            ignore_invalid_headers: false,
            underscores_in_headers: true,
            control_characters: true,
            ..Limits::default()
        }
    }
}

/// The remaining budget of a head's buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Budget {
    /// Free bytes in the current buffer.
    free: u32,
    /// Large buffers not yet taken.
    spare: u32,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Budget { free: limits.header_buffer, spare: limits.large_buffers }
    }

    /// The longest next line that fits, terminator included. A line that has not ended by then is
    /// too long.
    #[inline]
    pub(crate) fn line_max(&self, limits: &Limits) -> usize {
        // nginx takes a new buffer when the current one is full, unless what has to be moved to
        // it fills a large buffer already.
        if self.spare == 0 || self.free >= limits.large_buffer {
            self.free as usize
        } else {
            limits.large_buffer as usize
        }
    }

    /// Whether any lines of together `len` bytes fit, and more bytes after them.
    #[inline]
    pub(crate) fn is_enough_for(&self, len: usize) -> bool {
        // Then no line needs another buffer, and several may be counted as one.
        len < self.free as usize
    }

    /// Counts a line of `len` bytes, at most [`Budget::line_max`].
    #[inline]
    pub(crate) fn take(&mut self, limits: &Limits, len: usize) {
        let len = len as u32;
        if len <= self.free {
            self.free -= len;
        } else {
            self.spare = self.spare.saturating_sub(1);
            self.free = limits.large_buffer.saturating_sub(len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Limits {
        Limits { header_buffer: 16, large_buffers: 2, large_buffer: 32, ..Limits::default() }
    }

    #[test]
    fn a_line_moves_whole_to_the_next_buffer() {
        let limits = small();
        let mut budget = Budget::new(&limits);
        assert_eq!(budget.line_max(&limits), 32);
        budget.take(&limits, 10); // 6 left in the first
        budget.take(&limits, 30); // moved: 2 left in the second
        assert_eq!(budget, Budget { free: 2, spare: 1 });
        budget.take(&limits, 32); // third, full
        assert_eq!(budget.line_max(&limits), 0);
    }

    #[test]
    fn a_first_buffer_above_the_large_size_is_the_limit_itself() {
        let limits = Limits { header_buffer: 64, ..small() };
        let mut budget = Budget::new(&limits);
        assert_eq!(budget.line_max(&limits), 64);
        budget.take(&limits, 40);
        assert_eq!(budget.line_max(&limits), 32);
    }
}
