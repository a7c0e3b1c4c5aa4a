//! What is known of directives beyond the tables of the program: all of nginx's ([`unsupported`]), those of
//! third-party modules and other products ([`elsewhere`]), those that differ somewhat ([`differs`]), and those
//! of parts that a build can leave out ([`features`]).
//!
//! The configuration reader calls [`find`] for names that no table has. The reference pages and
//! `nowait migrate` use the other functions. Facts only: a row of the
//! [`Registry`](nowait_conf::Registry) always wins.
#![forbid(unsafe_code)]

pub mod differs;
pub mod elsewhere;
pub mod features;
mod page;
pub mod unsupported;

use nowait_conf::{Absence, Context, MissingDirective};

pub use page::page;

/// The entry of a directive that no table has.
pub fn find(name: &[u8], context: Context) -> Option<MissingDirective> {
    if let Some(feature) = features::find(name) {
        return Some(MissingDirective {
            origin: feature.origin,
            contexts: Context::NONE,
            absence: Absence::LeftOut { feature: feature.name },
            advice: Some(feature.advice),
        });
    }
    if let Some(entry) = unsupported::find(name, context) {
        return Some(MissingDirective {
            origin: entry.module,
            contexts: entry.contexts,
            absence: Absence::Unsupported(entry.reason),
            advice: unsupported::advice(entry.module),
        });
    }
    let origin = elsewhere::find(name)?;
    Some(MissingDirective {
        origin: origin.name,
        contexts: Context::NONE,
        absence: Absence::Unknown,
        advice: Some(origin.advice),
    })
}
