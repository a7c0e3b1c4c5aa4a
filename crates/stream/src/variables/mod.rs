//! Variables of sessions: how a table of them is written, and those of the core. nginx:
//! `ngx_stream_variables.c`.

pub mod complex;
pub mod core;
pub mod upstream;

use std::time::Duration;

use crate::session::Session;

/// A built-in variable: one row of a module's table.
pub type Builtin = nowait_variables::Builtin<Session>;
/// A family of variables with a common prefix: one row of a module's table.
pub type Family = nowait_variables::Family<Session>;

macro_rules! builtin_rows {
    ($($(#[doc = $doc:literal])+ $name:literal => $get:expr;)+) => {
        &[$($crate::variables::Builtin { name: $name, doc: concat!($($doc),+), get: $get }),+]
    };
}
pub(crate) use builtin_rows;

/// Appends a number in decimal.
pub(crate) fn number(n: u64, out: &mut Vec<u8>) -> bool {
    let mut digits = itoa::Buffer::new();
    out.extend_from_slice(digits.format(n).as_bytes());
    true
}

/// Appends a duration as seconds with three decimals.
pub(crate) fn seconds(elapsed: Duration, out: &mut Vec<u8>) -> bool {
    number(elapsed.as_secs(), out);
    out.extend_from_slice(format!(".{:03}", elapsed.subsec_millis()).as_bytes());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let mut out = Vec::new();
        seconds(Duration::from_millis(61_007), &mut out);
        assert_eq!(out, b"61.007");
    }
}
