//! The head of a request's response, for logs and variables.
//!
//! Kept by [`Request`](crate::request::Request). Before there is a response, it refers to an empty static
//! head, because most requests set the head only once.

use std::ops::{Deref, DerefMut};

use crate::response::Head;

/// The head before there is one.
static NONE: Head = Head::EMPTY;

/// A head that was sent or is about to be sent.
#[derive(Debug, Default, Clone)]
pub struct SentHead(Option<Box<Head>>);

impl SentHead {
    /// Replaces the head.
    pub fn keep(&mut self, head: Box<Head>) {
        if let Some(before) = self.0.replace(head) {
            before.retire();
        }
    }

    /// Clears the head.
    pub fn forget(&mut self) {
        if let Some(head) = self.0.take() {
            head.retire();
        }
    }

    /// Exchanges the head with that of a response; a second call reverts that.
    pub fn swap(&mut self, head: &mut Box<Head>) {
        std::mem::swap(self.0.get_or_insert_with(|| Head::new(0)), head);
    }
}

impl Deref for SentHead {
    type Target = Head;

    fn deref(&self) -> &Head {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for SentHead {
    fn deref_mut(&mut self) -> &mut Head {
        self.0.get_or_insert_with(|| Head::new(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_empty_until_it_is_set() {
        let mut out = SentHead::default();
        assert_eq!(out.status, 0);
        let mut head = Head::new(200);
        out.swap(&mut head);
        assert_eq!((out.status, head.status), (200, 0));
        out.swap(&mut head);
        assert_eq!((out.status, head.status), (0, 200));
        out.keep(head);
        out.add("X", "y");
        assert_eq!((out.status, out.headers.len()), (200, 1));
        out.forget();
        assert_eq!((out.status, out.headers.len()), (0, 0));
        out.status = 499;
        assert_eq!(out.status, 499);
    }
}
