//! The types that directives take, nginx's spellings and limits.

mod number;
mod path;
mod size;
mod time;
mod words;

pub use number::{BoundedNumber, number};
pub use path::{ConfPath, Path};
pub use size::{Buffers, Offset, Size};
pub use time::{Msec, Seconds};
pub use words::{Present, Words};

use crate::field::{Value, ValueError};

/// `on` or `off`, without regard to case.
impl Value for bool {
    fn from_word(text: &[u8]) -> Result<bool, ValueError> {
        if text.eq_ignore_ascii_case(b"on") {
            Ok(true)
        } else if text.eq_ignore_ascii_case(b"off") {
            Ok(false)
        } else {
            Err(ValueError::in_directive("it must be \"on\" or \"off\"")
                .expected("\"on\" or \"off\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        assert_eq!(bool::from_word(b"on"), Ok(true));
        assert_eq!(bool::from_word(b"OFF"), Ok(false));
        for wrong in [&b"yes"[..], b"", b"1", b"on "] {
            assert!(bool::from_word(wrong).is_err());
        }
    }
}
