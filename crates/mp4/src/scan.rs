//! The top-level atoms of a file.

use std::ops::Range;

use crate::Mp4Error;
use crate::atom::{self, HEADER, HEADER_64, Header};

/// Maximum number of bytes of the `ftyp` atom's data.
pub const FTYP_BYTES_MAX: u64 = 1024;

/// Maximum number of top-level atoms that precede what is needed of a file.
///
/// Each may need a read from a disk. Files have a handful.
pub const ATOMS_MAX: usize = 1024;

/// The positions of a file's parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The `ftyp` atom with its header; empty if there is none.
    pub ftyp: Vec<u8>,
    /// The data of the `moov` atom.
    pub moov: Range<u64>,
    /// The data of the `mdat` atom.
    pub mdat: Range<u64>,
    /// Bytes of the whole file.
    pub size: u64,
    /// The `moov` atom precedes the content: players can begin while they receive the file as it is.
    pub moov_first: bool,
}

/// The next need of a [`Scan`], or its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanStep {
    /// It continues with the bytes of the file from here on: this many at least, unless the file ends.
    Read {
        /// Position in the file.
        offset: u64,
        /// Number of bytes, at most [`FTYP_BYTES_MAX`] and a header.
        len: usize,
    },
    /// It is complete.
    Found(Layout),
}

/// A search for the top-level atoms of a file.
#[derive(Debug)]
pub struct Scan {
    size: u64,
    moov_bytes_max: u64,
    /// Position of the next atom.
    offset: u64,
    /// Number of atoms before it.
    atoms: usize,
    ftyp: Vec<u8>,
    moov: Option<Range<u64>>,
    mdat: Option<Range<u64>>,
    /// The last request.
    asked: Option<(u64, usize)>,
}

impl Scan {
    /// Of a file with this many bytes. Larger `moov` atoms are refused.
    pub fn new(size: u64, moov_bytes_max: u64) -> Self {
        Self {
            size,
            moov_bytes_max,
            offset: 0,
            atoms: 0,
            ftyp: Vec::new(),
            moov: None,
            mdat: None,
            asked: None,
        }
    }

    /// Continues with the bytes of the file from position `at` on.
    ///
    /// # Errors
    /// [`Mp4Error`]: the file can't be used.
    pub fn step(&mut self, at: u64, bytes: &[u8]) -> Result<ScanStep, Mp4Error> {
        loop {
            if let (Some(moov), Some(mdat)) = (&self.moov, &self.mdat) {
                return Ok(ScanStep::Found(Layout {
                    ftyp: std::mem::take(&mut self.ftyp),
                    moov_first: moov.start < mdat.start,
                    moov: moov.clone(),
                    mdat: mdat.clone(),
                    size: self.size,
                }));
            }
            if self.offset >= self.size {
                return Err(Mp4Error::Missing(if self.moov.is_none() { "trak" } else { "mdat" }));
            }
            if self.atoms == ATOMS_MAX {
                return Err(Mp4Error::TooMany);
            }
            let window = self.offset.checked_sub(at).and_then(|from| usize::try_from(from).ok());
            let window = window.and_then(|from| bytes.get(from..)).unwrap_or_default();
            let Some(header) = Header::read(window)? else { return self.read(HEADER_64) };
            let left = self.size - self.offset;
            // ISO/IEC 14496-12 4.2: "If size is 0, then this box is the last one in the file". nginx
            // differs: it ignores it.
            let size = header.size.unwrap_or(left);
            if size > left {
                return Err(Mp4Error::TooLarge(size));
            }
            let data = self.offset + header.len as u64..self.offset + size;
            match &header.name {
                b"ftyp" => {
                    let len = data.end.saturating_sub(data.start);
                    let whole = usize::try_from(size).ok().filter(|_| len <= FTYP_BYTES_MAX);
                    let whole = whole.ok_or(Mp4Error::Ftyp(len))?;
                    if !self.ftyp.is_empty() {
                        return Err(Mp4Error::Duplicate("ftyp"));
                    }
                    let Some(atom) = window.get(..whole) else { return self.read(whole) };
                    let content = atom.get(header.len..).unwrap_or_default();
                    atom::plain(&mut self.ftyp, b"ftyp", content)?;
                }
                b"moov" => {
                    let len = data.end.saturating_sub(data.start);
                    if len > self.moov_bytes_max {
                        return Err(Mp4Error::Moov(len));
                    }
                    if self.moov.replace(data).is_some() {
                        return Err(Mp4Error::Duplicate("moov"));
                    }
                }
                b"mdat" if self.mdat.replace(data.clone()).is_some() => {
                    return Err(Mp4Error::Duplicate("mdat"));
                }
                _ => {}
            }
            self.offset += size;
            self.atoms += 1;
        }
    }

    /// Asks for bytes, once.
    fn read(&mut self, len: usize) -> Result<ScanStep, Mp4Error> {
        let left = usize::try_from(self.size - self.offset).unwrap_or(usize::MAX);
        let wanted = (self.offset, len.min(left));
        if left < HEADER || self.asked.replace(wanted) == Some(wanted) {
            return Err(Mp4Error::Truncated);
        }
        Ok(ScanStep::Read { offset: wanted.0, len: wanted.1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(name: &str, data: &[u8]) -> Vec<u8> {
        let size = u32::try_from(8 + data.len()).unwrap().to_be_bytes();
        [&size[..], name.as_bytes(), data].concat()
    }

    fn wide(name: &str, data: &[u8]) -> Vec<u8> {
        let size = (16 + data.len() as u64).to_be_bytes();
        [&[0, 0, 0, 1], name.as_bytes(), &size, data].concat()
    }

    /// What is found when it reads this many bytes at once, but what it needs.
    fn scan(file: &[u8], at_once: usize) -> Result<Layout, Mp4Error> {
        let mut scan = Scan::new(file.len() as u64, 100);
        let mut window = 0..0;
        loop {
            match scan.step(window.start as u64, &file[window.clone()])? {
                ScanStep::Found(layout) => return Ok(layout),
                ScanStep::Read { offset, len } => {
                    let start = usize::try_from(offset).unwrap();
                    window = start..(start + len.max(at_once)).min(file.len());
                }
            }
        }
    }

    #[test]
    fn atoms_are_found_in_any_order() {
        let parts = [atom("ftyp", b"isom"), atom("moov", b"12345"), atom("free", &[0; 50])];
        let mdat = atom("mdat", b"content");
        for at_once in [0, 20, 1000] {
            let found = scan(&[&parts.concat()[..], &mdat].concat(), at_once).unwrap();
            assert_eq!((found.moov, found.mdat, found.moov_first), (20..25, 91..98, true));
            assert_eq!(found.ftyp, parts[0]);
            let found = scan(&[&mdat, &parts[2][..], &parts[1]].concat(), at_once).unwrap();
            assert_eq!((found.moov, found.mdat, found.moov_first), (81..86, 8..15, false));
            assert!(found.ftyp.is_empty());
        }
    }

    #[test]
    fn sizes_have_64_bits_or_extend_to_the_end() {
        let file = [wide("ftyp", b"isom"), wide("moov", b"12"), wide("mdat", b"content")].concat();
        let found = scan(&file, 0).unwrap();
        assert_eq!((found.moov, found.mdat), (36..38, 54..61));
        assert_eq!(found.ftyp, atom("ftyp", b"isom"));
        let mut mdat = atom("mdat", b"content");
        mdat[3] = 0;
        let file = [atom("moov", b"12345"), mdat].concat();
        assert_eq!(scan(&file, 0).unwrap().mdat, 21..28);
    }

    #[test]
    fn broken_files_are_refused() {
        let (moov, mdat) = (&atom("moov", b"12345")[..], &atom("mdat", b"content")[..]);
        let many = atom("free", b"").repeat(ATOMS_MAX);
        for (file, error) in [
            (vec![], Mp4Error::Missing("trak")),
            (mdat.to_vec(), Mp4Error::Missing("trak")),
            (moov.to_vec(), Mp4Error::Missing("mdat")),
            ([moov, moov].concat(), Mp4Error::Duplicate("moov")),
            ([mdat, mdat].concat(), Mp4Error::Duplicate("mdat")),
            (atom("ftyp", b"").repeat(2), Mp4Error::Duplicate("ftyp")),
            (atom("moov", &[0; 101]), Mp4Error::Moov(101)),
            (atom("ftyp", &[0; 1025]), Mp4Error::Ftyp(1025)),
            ([&many[..], moov, mdat].concat(), Mp4Error::TooMany),
            ([moov, &mdat[..14]].concat(), Mp4Error::TooLarge(15)),
            ([moov, &mdat[..7]].concat(), Mp4Error::Truncated),
            (wide("mdat", b"")[..15].to_vec(), Mp4Error::Truncated),
            (b"\0\0\0\x07free".to_vec(), Mp4Error::TooSmall(7)),
            (b"\0\0\0\x01free\0\0\0\0\0\0\0\x0f".to_vec(), Mp4Error::TooSmall(15)),
            ([&b"\0\0\0\x01free"[..], &[255; 8]].concat(), Mp4Error::TooLarge(u64::MAX)),
        ] {
            for at_once in [0, 20, 100_000] {
                assert_eq!(scan(&file, at_once), Err(error.clone()));
            }
        }
        // The file has shrunk.
        let mut scan = Scan::new(100, 100);
        let read = scan.step(0, &[]);
        assert_eq!(read, Ok(ScanStep::Read { offset: 0, len: 16 }));
        assert_eq!(scan.step(0, &[]), Err(Mp4Error::Truncated));
    }
}
