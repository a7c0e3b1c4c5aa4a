//! Errors in a file, or in the times requested by a client.

use std::fmt;

/// The reason why no part of a file can be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mp4Error {
    /// An atom of this many bytes, fewer than its header.
    TooSmall(u64),
    /// An atom of this many bytes, more than there are where it is.
    TooLarge(u64),
    /// An atom with this name is smaller than its fields.
    Fields(&'static str),
    /// A second atom with this name.
    Duplicate(&'static str),
    /// No atoms with this name.
    Missing(&'static str),
    /// The `ftyp` atom has this many bytes, more than [`FTYP_BYTES_MAX`](crate::FTYP_BYTES_MAX).
    Ftyp(u64),
    /// The `moov` atom has this many bytes, more than the caller reads.
    Moov(u64),
    /// More than [`ATOMS_MAX`](crate::ATOMS_MAX) top-level atoms.
    TooMany,
    /// The file ends within an atom.
    Truncated,
    /// The `moov` atom is compressed.
    Compressed,
    /// The start time is after the end of the movie.
    Start,
    /// A time is after the end of the table with this name.
    Out {
        /// `start` or `end`.
        time: &'static str,
        /// Name of the atom, and of its entries.
        table: &'static str,
    },
    /// The chunks of an `stsc` atom are not in order.
    Unordered,
    /// A number that has to be positive is zero: this one.
    Zero(&'static str),
    /// Samples whose sizes add up to more than the file has: those at the `start` or the `end`.
    SampleSizes(&'static str),
    /// A chunk has an offset that is not in the file, or its new offset does not fit.
    ChunkOffset,
    /// There is nothing between the start time and the end time.
    NoData,
}

impl Mp4Error {
    /// As text about this file, in nginx's words.
    pub fn of<'a>(&'a self, file: &'a str) -> impl fmt::Display + 'a {
        ErrorText { error: self, file }
    }
}

struct ErrorText<'a> {
    error: &'a Mp4Error,
    file: &'a str,
}

impl fmt::Display for ErrorText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file;
        match self.error {
            Mp4Error::TooSmall(size) => write!(f, "\"{file}\" mp4 atom is too small:{size}"),
            Mp4Error::TooLarge(size) => write!(f, "\"{file}\" mp4 atom too large:{size}"),
            Mp4Error::Fields(name) => write!(f, "\"{file}\" mp4 {name} atom too small"),
            Mp4Error::Duplicate(name) => write!(f, "duplicate mp4 {name} atom in \"{file}\""),
            Mp4Error::Missing("mdat") => write!(f, "no mp4 mdat atom was found in \"{file}\""),
            Mp4Error::Missing(name) => write!(f, "no mp4 {name} atoms were found in \"{file}\""),
            Mp4Error::Ftyp(size) => write!(f, "\"{file}\" mp4 ftyp atom is too large:{size}"),
            Mp4Error::Moov(size) => write!(
                f,
                "\"{file}\" mp4 moov atom is too large:{size}, you may want to increase \
                 mp4_max_buffer_size"
            ),
            Mp4Error::TooMany => write!(f, "too many mp4 atoms in \"{file}\""),
            Mp4Error::Truncated => write!(f, "\"{file}\" mp4 file truncated"),
            Mp4Error::Compressed => {
                write!(f, "\"{file}\" mp4 compressed moov atom (cmov) is not supported")
            }
            Mp4Error::Start => write!(f, "\"{file}\" mp4 start time exceeds file duration"),
            Mp4Error::Out { time, table } => {
                write!(f, "{time} time is out mp4 {table} in \"{file}\"")
            }
            Mp4Error::Unordered => write!(f, "unordered mp4 stsc chunks in \"{file}\""),
            Mp4Error::Zero(what) => write!(f, "zero {what} in \"{file}\""),
            Mp4Error::SampleSizes(time) => {
                write!(f, "too large mp4 {time} samples size in \"{file}\"")
            }
            Mp4Error::ChunkOffset => write!(f, "too large chunk offset in \"{file}\""),
            Mp4Error::NoData => write!(f, "no data between start time and end time in \"{file}\""),
        }
    }
}
