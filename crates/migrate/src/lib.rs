//! Moving from nginx: the class of every directive of a configuration, and an adapted copy.
//!
//! Sans-IO: files come from a [`ConfigSource`]. [`Survey::take`] reads the main file and all it includes,
//! file by file, and puts every directive into exactly one [`Class`]; [`Survey::refused`] adds what
//! the check of the whole configuration says; [`report`](Survey::report) and
//! [`json`](Survey::json) describe the result; [`Adaptation`] says how the files of a copy differ.
//!
//! Called by `nowait migrate`. The facts about modules are in `nowait_catalogue`. Interprets no values: that is
//! what the check does.
#![forbid(unsafe_code)]

mod adapt;
mod class;
mod error;
mod json;
mod report;
mod survey;

pub use adapt::{Adaptation, Placement};
pub use class::{Class, blocks_to_judge, silent_differences};
pub use error::{Error, Limit};
pub use survey::{ConfigSource, Directive, Site, Survey};
