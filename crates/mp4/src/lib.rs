//! Parts of MP4 files by time (ISO/IEC 14496-12), without sockets, files, clocks or threads.
//!
//! A part is a new beginning, made of the file's own `ftyp` and of a shortened `moov`, and a range of
//! the file, which follows it unchanged:
//! - [`Scan`] finds the top-level atoms and says which bytes of the file it needs next;
//! - [`cut`] makes the beginning from the content of the `moov` atom.
//!
//! The work is linear in the size of the `moov` atom, whose largest size the caller chooses; memory is at
//! most four times that size. What a file contains decides nothing else.
//!
//! nginx: `ngx_http_mp4_module`. As there, only atoms that players need are kept: metadata (`udta`,
//! `meta`) and edit lists of the file are dropped.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod atom;
mod chunks;
mod cut;
mod error;
mod samples;
mod scan;
mod track;

pub use cut::{Clip, MovieHead, cut, duration_ms};
pub use error::Mp4Error;
pub use scan::{ATOMS_MAX, FTYP_BYTES_MAX, Layout, Scan, ScanStep};
