//! Atoms in memory: their headers, and the tables in them.

use crate::Mp4Error;

/// Bytes of an atom's header.
pub const HEADER: usize = 8;

/// Bytes of a header with a 64-bit size.
pub const HEADER_64: usize = 16;

/// The size of an atom, and where its name and its data are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub name: [u8; 4],
    /// Bytes of the header: 8 or 16.
    pub len: usize,
    /// Bytes of the atom with its header; `None`: it extends to the end.
    pub size: Option<u64>,
}

/// A 32-bit number.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// A 64-bit number.
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Header {
    /// Reads a header; `None` if `bytes` has only a part of it.
    ///
    /// # Errors
    /// [`Mp4Error::TooSmall`]
    pub fn read(bytes: &[u8]) -> Result<Option<Self>, Mp4Error> {
        let (Some(size), Some(name)) = (u32_at(bytes, 0), bytes.get(4..8)) else { return Ok(None) };
        let name = [name[0], name[1], name[2], name[3]];
        let header = match size {
            0 => Self { name, len: HEADER, size: None },
            1 => {
                let Some(size) = u64_at(bytes, HEADER) else { return Ok(None) };
                Self { name, len: HEADER_64, size: Some(size) }
            }
            _ => Self { name, len: HEADER, size: Some(size.into()) },
        };
        match header.size {
            Some(size) if size < header.len as u64 => Err(Mp4Error::TooSmall(size)),
            _ => Ok(Some(header)),
        }
    }
}

/// An atom in another one.
#[derive(Debug, Clone, Copy)]
pub struct Atom<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What follows its header.
    pub data: &'a [u8],
}

/// The atoms in the data of another one.
pub struct Atoms<'a>(pub &'a [u8]);

impl<'a> Iterator for Atoms<'a> {
    type Item = Result<Atom<'a>, Mp4Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.0);
        // In QuickTime files, four zero bytes may end a list of atoms.
        if rest.is_empty() || rest.starts_with(&[0; 4]) {
            return None;
        }
        let header = match Header::read(rest) {
            Ok(Some(header)) => header,
            Ok(None) => return Some(Err(Mp4Error::Truncated)),
            Err(error) => return Some(Err(error)),
        };
        let size = header.size.unwrap_or(0);
        let Some((atom, rest)) =
            usize::try_from(size).ok().and_then(|at| rest.split_at_checked(at))
        else {
            return Some(Err(Mp4Error::TooLarge(size)));
        };
        self.0 = rest;
        Some(Ok(Atom { name: &atom[4..8], data: &atom[header.len..] }))
    }
}

/// The entries of a table, `N` bytes each.
#[derive(Debug, Clone, Copy)]
pub struct SampleTable<'a, const N: usize>(&'a [[u8; N]]);

impl<'a, const N: usize> SampleTable<'a, N> {
    /// The table in the data of the atom `name`, whose entries are counted at `at`.
    ///
    /// # Errors
    /// [`Mp4Error::Fields`]: there are fewer entries than counted.
    pub fn read(name: &'static str, data: &'a [u8], at: usize) -> Result<Self, Mp4Error> {
        let count = u32_at(data, at).ok_or(Mp4Error::Fields(name))?;
        let (entries, _) = data[at + 4..].as_chunks();
        let entries = usize::try_from(count).ok().and_then(|count| entries.get(..count));
        Ok(Self(entries.ok_or(Mp4Error::Fields(name))?))
    }

    /// All entries.
    pub fn entries(&self) -> &'a [[u8; N]] {
        self.0
    }
}

impl SampleTable<'_, 8> {
    /// The two numbers of an entry.
    pub fn pair(&self, at: usize) -> Option<(u32, u32)> {
        let entry = self.0.get(at)?;
        Some((u32_at(entry, 0)?, u32_at(entry, 4)?))
    }
}

/// Appends an atom whose size is known only when its content was written.
pub fn nested<T>(
    out: &mut Vec<u8>,
    name: &[u8; 4],
    content: impl FnOnce(&mut Vec<u8>) -> Result<T, Mp4Error>,
) -> Result<T, Mp4Error> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(name);
    let result = content(out)?;
    let size = out.len() - at;
    let size = u32::try_from(size).map_err(|_| Mp4Error::Moov(size as u64))?;
    set_u32(out, at, size);
    Ok(result)
}

/// Appends an atom with this data.
pub fn plain(out: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) -> Result<(), Mp4Error> {
    nested(out, name, |out| {
        out.extend_from_slice(data);
        Ok(())
    })
}

/// Appends a table; `start` is what precedes the number of entries. Returns the position of the first one.
pub fn table<const N: usize>(
    out: &mut Vec<u8>,
    name: &[u8; 4],
    start: &[u8],
    entries: &[[u8; N]],
) -> Result<usize, Mp4Error> {
    nested(out, name, |out| {
        out.extend_from_slice(start);
        // Tables come from atoms in memory, so that this many fit.
        let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_be_bytes());
        let at = out.len();
        out.extend_from_slice(entries.as_flattened());
        Ok(at)
    })
}

/// Overwrites a number that is in `out`.
pub fn set_u32(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Overwrites a number that is in `out`.
pub fn set_u64(out: &mut [u8], at: usize, value: u64) {
    out[at..at + 8].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_two_forms() {
        let read = |bytes: &[u8]| Header::read(bytes);
        assert_eq!(read(b"\0\0\0"), Ok(None));
        assert_eq!(read(b"\0\0\0\x08moo"), Ok(None));
        let header = Header { name: *b"moov", len: 8, size: Some(8) };
        assert_eq!(read(b"\0\0\0\x08moov"), Ok(Some(header)));
        assert_eq!(read(b"\0\0\0\x01moov\0\0\0\0\0\0\0"), Ok(None));
        let header = Header { name: *b"moov", len: 16, size: Some(17) };
        assert_eq!(read(b"\0\0\0\x01moov\0\0\0\0\0\0\0\x11"), Ok(Some(header)));
        let header = Header { name: *b"mdat", len: 8, size: None };
        assert_eq!(read(b"\0\0\0\0mdat"), Ok(Some(header)));
        assert_eq!(read(b"\0\0\0\x07moov"), Err(Mp4Error::TooSmall(7)));
        assert_eq!(read(b"\0\0\0\x01moov\0\0\0\0\0\0\0\x0f"), Err(Mp4Error::TooSmall(15)));
    }

    #[test]
    fn lists_end_with_the_data_or_with_a_zero() {
        let names = |data| Atoms(data).map(|atom| atom.map(|a| a.name.to_vec())).collect();
        let list: Result<Vec<_>, _> = names(b"\0\0\0\x09tkhdx\0\0\0\x08mdia");
        assert_eq!(list, Ok(vec![b"tkhd".to_vec(), b"mdia".to_vec()]));
        let list: Result<Vec<_>, _> = names(b"\0\0\0\x08tkhd\0\0\0\0mdia");
        assert_eq!(list, Ok(vec![b"tkhd".to_vec()]));
        let list: Result<Vec<_>, _> = names(b"\0\0\0\x09tkhd");
        assert_eq!(list, Err(Mp4Error::TooLarge(9)));
        let list: Result<Vec<_>, _> = names(b"\0\0\0\x08tkhdx");
        assert_eq!(list, Err(Mp4Error::Truncated));
    }

    #[test]
    fn tables_are_as_long_as_they_say() {
        let entries =
            |data| SampleTable::<4>::read("stss", data, 4).map(|table| table.entries().len());
        assert_eq!(entries(b"\0\0\0\0\0\0\0\x01abcdefgh"), Ok(1));
        assert_eq!(entries(b"\0\0\0\0\0\0\0\x03abcdefgh"), Err(Mp4Error::Fields("stss")));
        assert_eq!(entries(b"\0\0\0\0\xff\xff\xff\xffabcdefgh"), Err(Mp4Error::Fields("stss")));
        assert_eq!(entries(b"\0\0\0\0\0\0\0"), Err(Mp4Error::Fields("stss")));
    }
}
