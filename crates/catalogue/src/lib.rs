//! What is known of directives beyond the tables of the program: all of nginx's ([`unsupported`]), those of
//! third-party modules and other products ([`elsewhere`]), and those that differ somewhat ([`differs`]).
//!
//! [`find`] is the catalogue that the reader of configurations asks about names that no table has. The
//! pages of the reference and `nowait migrate` look further. Facts only: a row of the
//! [`Registry`](nowait_conf::Registry) always wins.
#![forbid(unsafe_code)]

pub mod differs;
pub mod elsewhere;
mod page;
pub mod unsupported;

use nowait_conf::{Context, Missing};

pub use page::page;

/// What is known of a directive that no table has.
pub fn find(name: &[u8], context: Context) -> Option<Missing> {
    if let Some(entry) = unsupported::find(name, context) {
        return Some(Missing {
            origin: entry.module,
            contexts: entry.contexts,
            reason: Some(entry.reason),
            advice: unsupported::advice(entry.module),
        });
    }
    let origin = elsewhere::find(name)?;
    Some(Missing {
        origin: origin.name,
        contexts: Context::NONE,
        reason: None,
        advice: Some(origin.advice),
    })
}
