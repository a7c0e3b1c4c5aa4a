//! The formats of archives: heads and ends of files stored without compression, as pure functions, so that the length
//! of an archive is known before any file is read.
//!
//! Used by [`super::archive_body`]. `tar` is that of POSIX with GNU's long names and large sizes; `zip` that of
//! PKWARE's APPNOTE 6.3 with Zip64 where it is needed.

use std::borrow::Cow;

use nowait_message::http_date::Civil;

/// The format of an archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveFormat {
    /// `tar`
    Tar,
    /// `zip`
    Zip,
}

/// A file or directory of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name in the archive; that of a directory ends in a slash.
    pub name: Vec<u8>,
    /// Bytes; 0 for directories.
    pub size: u64,
    /// Modification time, Unix seconds.
    pub mtime: i64,
}

/// Size of a block of `tar`.
const BLOCK: usize = 512;

/// The largest number of 32 bits, which stands for one in a Zip64 field.
const MAX_32: u64 = u32::MAX as u64;

/// Version of the format that a reader has to know: directories, and Zip64.
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;

/// The checksum follows the content; the name is UTF-8 (4.4.4).
const FOLLOWS: u16 = 1 << 3;
const UTF8: u16 = 1 << 11;

impl Member {
    fn is_directory(&self) -> bool {
        self.name.ends_with(b"/")
    }

    fn mode(&self) -> u32 {
        if self.is_directory() { 0o755 } else { 0o644 }
    }

    /// What precedes the content.
    pub fn head(&self, format: ArchiveFormat) -> Vec<u8> {
        match format {
            ArchiveFormat::Tar => self.tar_head(),
            ArchiveFormat::Zip => self.zip_head(),
        }
    }

    /// What follows the content.
    pub fn tail(&self, format: ArchiveFormat, checksum: u32) -> Vec<u8> {
        match format {
            ArchiveFormat::Tar => vec![0; padding(self.size)],
            ArchiveFormat::Zip if self.is_directory() => Vec::new(),
            ArchiveFormat::Zip => {
                let mut out = b"PK\x07\x08".to_vec();
                out.extend_from_slice(&checksum.to_le_bytes());
                for _ in 0..2 {
                    match self.is_large() {
                        true => out.extend_from_slice(&self.size.to_le_bytes()),
                        false => out.extend_from_slice(&low_32(self.size).to_le_bytes()),
                    }
                }
                out
            }
        }
    }

    fn tar_head(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let stored = &self.name[..self.name.len().min(100)];
        if self.name.len() > stored.len() {
            let len = self.name.len() as u64 + 1;
            push_header(&mut out, b"././@LongLink", b'L', len, (0o644, 0));
            out.extend_from_slice(&self.name);
            out.push(0);
            out.resize(out.len() + padding(len), 0);
        }
        let kind = if self.is_directory() { b'5' } else { b'0' };
        push_header(&mut out, stored, kind, self.size, (self.mode(), self.mtime));
        out
    }

    /// Whether the size needs a Zip64 field.
    fn is_large(&self) -> bool {
        self.size >= MAX_32
    }

    fn flags(&self) -> u16 {
        let utf8 = if std::str::from_utf8(&self.name).is_ok() { UTF8 } else { 0 };
        utf8 | if self.is_directory() { 0 } else { FOLLOWS }
    }

    /// Fields common to both heads of a file, from the flags on.
    fn zip_common(&self, out: &mut Vec<u8>, checksum: u32) {
        let time = Civil::from_unix(self.mtime);
        // From 1980 to 2107; readers take the exact time from the field for it.
        let year = u16::try_from(time.year.clamp(1980, 2107) - 1980).unwrap_or_default();
        let part = |number: u32| u16::try_from(number).unwrap_or_default();
        push_16(out, self.flags());
        push_16(out, 0);
        push_16(out, part(time.hour) << 11 | part(time.minute) << 5 | (part(time.second) / 2));
        push_16(out, year << 9 | part(time.month) << 5 | part(time.day));
        out.extend_from_slice(&checksum.to_le_bytes());
        for _ in 0..2 {
            out.extend_from_slice(&low_32(self.size).to_le_bytes());
        }
        push_16(out, u16::try_from(self.name.len()).unwrap_or(u16::MAX));
    }

    /// Extra field: the modification time in UTC.
    fn zip_time(&self) -> [u8; 9] {
        let seconds = u32::try_from(self.mtime.clamp(0, i64::from(i32::MAX))).unwrap_or_default();
        let [a, b, c, d] = seconds.to_le_bytes();
        [b'U', b'T', 5, 0, 1, a, b, c, d]
    }

    fn zip_head(&self) -> Vec<u8> {
        let mut out = b"PK\x03\x04".to_vec();
        push_16(&mut out, if self.is_large() { VERSION_64 } else { VERSION });
        self.zip_common(&mut out, 0);
        let mut extra = self.zip_time().to_vec();
        if self.is_large() {
            push_zip64(&mut extra, &[self.size, self.size]);
        }
        push_16(&mut out, u16::try_from(extra.len()).unwrap_or_default());
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
        out
    }

    /// The entry of the directory at the end of a `zip`. `offset` is that of the head.
    pub fn zip_entry(&self, checksum: u32, offset: u64) -> Vec<u8> {
        let mut large = Vec::new();
        if self.is_large() {
            large.extend_from_slice(&[self.size, self.size]);
        }
        if offset >= MAX_32 {
            large.push(offset);
        }
        let mut extra = self.zip_time().to_vec();
        if !large.is_empty() {
            push_zip64(&mut extra, &large);
        }
        let mut out = b"PK\x01\x02".to_vec();
        let version = if large.is_empty() { VERSION } else { VERSION_64 };
        // Made by Unix: the upper half of the attributes is the mode.
        push_16(&mut out, 3 << 8 | version);
        push_16(&mut out, version);
        self.zip_common(&mut out, checksum);
        push_16(&mut out, u16::try_from(extra.len()).unwrap_or_default());
        // Comment, disk, attributes of text.
        out.extend_from_slice(&[0; 6]);
        let kind = if self.is_directory() { 0o040_000 } else { 0o100_000 };
        let dos = if self.is_directory() { 0x10 } else { 0 };
        out.extend_from_slice(&((kind | self.mode()) << 16 | dos).to_le_bytes());
        out.extend_from_slice(&low_32(offset).to_le_bytes());
        out.extend_from_slice(&self.name);
        out.extend_from_slice(&extra);
        out
    }
}

/// The end of an archive. Of a `zip`: the number of entries, and where their directory begins and ends.
pub fn end(format: ArchiveFormat, count: u64, from: u64, to: u64) -> Vec<u8> {
    if format == ArchiveFormat::Tar {
        return vec![0; 2 * BLOCK];
    }
    let mut out = Vec::new();
    let size = to - from;
    if count >= u64::from(u16::MAX) || size >= MAX_32 || from >= MAX_32 {
        out.extend_from_slice(b"PK\x06\x06");
        out.extend_from_slice(&44_u64.to_le_bytes());
        push_16(&mut out, VERSION_64);
        push_16(&mut out, VERSION_64);
        out.extend_from_slice(&[0; 8]);
        for number in [count, count, size, from] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend_from_slice(b"PK\x06\x07\0\0\0\0");
        out.extend_from_slice(&to.to_le_bytes());
        out.extend_from_slice(&1_u32.to_le_bytes());
    }
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    for _ in 0..2 {
        push_16(&mut out, u16::try_from(count).unwrap_or(u16::MAX));
    }
    out.extend_from_slice(&low_32(size).to_le_bytes());
    out.extend_from_slice(&low_32(from).to_le_bytes());
    push_16(&mut out, 0);
    out
}

/// The length of an archive, in bytes.
pub fn length(format: ArchiveFormat, members: &[Member]) -> u64 {
    let mut length = 0;
    let mut directory = 0;
    for member in members {
        let offset = length;
        let around = member.head(format).len() + member.tail(format, 0).len();
        length += around as u64 + member.size;
        if format == ArchiveFormat::Zip {
            directory += member.zip_entry(0, offset).len() as u64;
        }
    }
    let end = end(format, members.len() as u64, length, length + directory).len();
    length + directory + end as u64
}

/// Bytes that fill the last block of `tar`.
fn padding(size: u64) -> usize {
    let block = BLOCK as u64;
    usize::try_from(size.next_multiple_of(block) - size).unwrap_or_default()
}

fn push_16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn low_32(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Extra field: numbers beyond 32 bits.
fn push_zip64(extra: &mut Vec<u8>, numbers: &[u64]) {
    push_16(extra, 1);
    push_16(extra, u16::try_from(8 * numbers.len()).unwrap_or_default());
    numbers.iter().for_each(|number| extra.extend_from_slice(&number.to_le_bytes()));
}

/// A header of `tar`: name, kind, size, and mode with time.
fn push_header(out: &mut Vec<u8>, name: &[u8], kind: u8, size: u64, (mode, mtime): (u32, i64)) {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    let octal = |number: u64| Cow::from(format!("{number:011o}").into_bytes());
    put(0, name);
    put(100, format!("{mode:07o}").as_bytes());
    put(108, b"0000000");
    put(116, b"0000000");
    // GNU: a number that does not fit into 11 digits is binary, behind a byte with the highest bit.
    put(
        124,
        &match size {
            0..0o100_000_000_000 => octal(size),
            _ => [&[0x80, 0, 0, 0][..], &size.to_be_bytes()].concat().into(),
        },
    );
    put(136, &octal(u64::try_from(mtime).unwrap_or_default() & 0o77_777_777_777));
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar  \0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&block);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, size: u64) -> Member {
        Member { name: name.into(), size, mtime: 784_111_777 }
    }

    #[test]
    fn headers_of_tar_have_a_checksum() {
        let head = member("d/a", 5).head(ArchiveFormat::Tar);
        assert_eq!(head.len(), BLOCK);
        let mut blank = head.clone();
        blank[148..156].fill(b' ');
        let sum: u32 = blank.iter().map(|byte| u32::from(*byte)).sum();
        assert_eq!(&head[148..155], format!("{sum:06o}\0").as_bytes());
        assert_eq!(&head[124..136], b"00000000005\0");
        assert_eq!(member("a", 5).tail(ArchiveFormat::Tar, 0).len(), 507);
        assert_eq!(member("a", 512).tail(ArchiveFormat::Tar, 0).len(), 0);
        let long = member(&"x".repeat(101), 0).head(ArchiveFormat::Tar);
        assert_eq!((long.len(), long[156]), (3 * BLOCK, b'L'));
        let large = member("a", 8 << 30).head(ArchiveFormat::Tar);
        assert_eq!(large[124..136], [0x80, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0]);
    }

    #[test]
    fn zip64_is_used_only_where_it_is_needed() {
        let zip = ArchiveFormat::Zip;
        let (small, large) = (member("a", MAX_32 - 1), member("a", MAX_32));
        assert_eq!(large.head(zip).len() - small.head(zip).len(), 20);
        assert_eq!((small.tail(zip, 1).len(), large.tail(zip, 1).len()), (16, 24));
        assert_eq!(small.zip_entry(1, MAX_32).len() - small.zip_entry(1, 0).len(), 12);
        assert_eq!(end(zip, 65_534, 0, 9).len(), 22);
        assert_eq!((end(zip, 65_535, 0, 9).len(), end(zip, 1, MAX_32, MAX_32 + 9).len()), (98, 98));
        assert!(member("d/", 0).tail(zip, 0).is_empty());
    }
}
