//! Heads of responses for the next requests: the memory of those that were read serves again.
//!
//! Taken and given back by the codec; per worker.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use nowait_h1::ResponseHead;

/// So many unused heads a worker keeps at most; a large one does not keep its memory.
const SPARE_MAX: usize = 64;

thread_local! {
    #[expect(clippy::vec_box, reason = "handed out as boxes")]
    static SPARE: RefCell<Vec<Box<ResponseHead>>> = const { RefCell::new(Vec::new()) };
}

/// An empty head at first; its memory is kept when it is dropped.
pub(super) struct SpareHead {
    /// `None` only while it is dropped.
    head: Option<Box<ResponseHead>>,
}

impl SpareHead {
    pub(super) fn take() -> Self {
        let head = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        Self { head: Some(head) }
    }
}

impl Deref for SpareHead {
    type Target = ResponseHead;

    fn deref(&self) -> &ResponseHead {
        self.head.as_ref().expect("there until it is dropped")
    }
}

impl DerefMut for SpareHead {
    fn deref_mut(&mut self) -> &mut ResponseHead {
        self.head.as_mut().expect("there until it is dropped")
    }
}

impl Drop for SpareHead {
    fn drop(&mut self) {
        let Some(mut head) = self.head.take() else { return };
        head.recycle();
        // The thread may be ending.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < SPARE_MAX {
                spare.push(head);
            }
        });
    }
}
