//! A directory as an archive: its tree is listed first, so that the length is known; files are then read one by one, as
//! the client takes them.
//!
//! Called by the handler. No symbolic link below the directory is followed, and none is archived. What changes
//! meanwhile can't change the length: of a file that has grown, the first part is sent; one that has shrunk, or
//! cannot be opened any more, ends the connection.

use std::io;

use bytes::Bytes;
use nowait_http::directories::ENTRIES_MAX;
use nowait_http::log::Level;
use nowait_http::request::Request;
use nowait_http::response::{BodyError, BodySource, LocalFuture, Part};
use nowait_runtime::fs::{self, File, FileKind, Io, Name, OpenOptions, ReadDirOptions, Symlinks};
use nowait_runtime::pool;

use super::archive::{self, ArchiveFormat, Member};
use super::listing::listed;
use super::sort::natural;

/// Bytes of a file that are read at once.
const PIECE_BYTES: usize = 64 << 10;

/// Directories within each other, at most; deeper ones are left out.
const DEPTH_MAX: usize = 64;

/// More entries are sorted and measured in a pool.
const SMALL_ENTRIES: usize = 256;

/// The tree below a directory.
pub struct Tree {
    /// The directory, with a slash at its end.
    root: Vec<u8>,
    /// Length of the archive's own directory in the names of members.
    prefix: usize,
    members: Vec<Member>,
}

/// The reason why there is no archive.
pub enum TreeError {
    /// The directory can't be read, or the queue of the pool is full.
    Unreadable(io::Error),
    /// It has more entries than are archived.
    TooLarge,
}

impl From<io::Error> for TreeError {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

impl Tree {
    /// Lists a directory, whose members are below `prefix` in the archive. What the server may not read is left out, as
    /// are hidden names.
    ///
    /// # Errors
    /// [`TreeError`]
    pub async fn read(request: &Request, root: Name, prefix: &[u8]) -> Result<Tree, TreeError> {
        let io = request.io();
        let client = request.client().number;
        let symlinks = Symlinks::Deny { from: root.path.len() };
        let prefix = [prefix, b"/"].concat();
        let mut tree = Tree { root: root.path.clone(), prefix: prefix.len(), members: Vec::new() };
        // Relative names, and their depths.
        let mut left = vec![(Vec::new(), 0)];
        while let Some((inner, depth)) = left.pop() {
            let name = match depth {
                0 => root.clone(),
                _ => Name { path: [&tree.root[..], &inner].concat(), symlinks },
            };
            let entries_max = ENTRIES_MAX.saturating_sub(tree.members.len());
            let options = ReadDirOptions { entries_max, metadata: true };
            let listing = match fs::read_dir(&io, &name, &options).await {
                Ok(listing) => listing,
                Err(error) if depth == 0 => return Err(TreeError::Unreadable(error)),
                Err(error) => {
                    tree.left_out(request, &inner, &error);
                    continue;
                }
            };
            if listing.truncated {
                return Err(TreeError::TooLarge);
            }
            let mut entries = listing.entries;
            if entries.len() <= SMALL_ENTRIES {
                entries.sort_by(|a, b| natural(&a.name, &b.name));
            } else {
                let sort = move || {
                    entries.sort_by(|a, b| natural(&a.name, &b.name));
                    entries
                };
                entries = pool::blocking(&io.pool, sort).await.map_err(io::Error::from)?;
            }
            let mut directories = Vec::new();
            for entry in entries.into_iter().filter(|entry| listed(&entry.name)) {
                let Some(metadata) = entry.metadata else { continue };
                let mut below = [&inner[..], &entry.name].concat();
                match (entry.kind, metadata.kind) {
                    (FileKind::Directory, FileKind::Directory) if depth < DEPTH_MAX => {
                        below.push(b'/');
                        tree.add(&prefix, &below, 0, metadata.mtime);
                        directories.push((below, depth + 1));
                    }
                    (FileKind::File, FileKind::File) => {
                        let path = [&tree.root[..], &below].concat();
                        let options = OpenOptions { symlinks, prefetch: 0 };
                        match fs::open_for(&io, client, &path, &options).await {
                            Ok(file) => {
                                let found = file.metadata();
                                tree.add(&prefix, &below, found.size, found.mtime);
                            }
                            Err(error) => tree.left_out(request, &below, &error),
                        }
                    }
                    _ => {}
                }
            }
            left.extend(directories.into_iter().rev());
        }
        Ok(tree)
    }

    fn add(&mut self, prefix: &[u8], below: &[u8], size: u64, mtime: i64) {
        let name = [prefix, below].concat();
        self.members.push(Member { name, size, mtime });
    }

    fn left_out(&self, request: &Request, below: &[u8], error: &io::Error) {
        let path = [&self.root[..], below].concat();
        let (path, errno) = (String::from_utf8_lossy(&path), nowait_http::files::errno(error));
        request.log(
            Level::Warn,
            format_args!("open() \"{path}\" failed {errno}, the archive lacks it"),
        );
    }

    /// The archive, and its length in bytes.
    ///
    /// # Errors
    /// The queue of the pool is full.
    pub async fn body(self, format: ArchiveFormat, io: Io) -> io::Result<(ArchiveBody, u64)> {
        let (tree, length) = match self.members.len() {
            0..=SMALL_ENTRIES => {
                let length = archive::length(format, &self.members);
                (self, length)
            }
            _ => {
                let measure = move || {
                    let length = archive::length(format, &self.members);
                    (self, length)
                };
                pool::blocking(&io.pool, measure).await?
            }
        };
        let checksums = Vec::with_capacity(tree.members.len());
        let next = Next::Head(0);
        Ok((ArchiveBody { tree, format, io, next, offset: 0, checksums, directory: 0 }, length))
    }
}

/// An archive that is sent.
pub struct ArchiveBody {
    tree: Tree,
    format: ArchiveFormat,
    io: Io,
    next: Next,
    /// Bytes sent.
    offset: u64,
    /// Of a `zip`: the checksum and the offset of each member so far.
    checksums: Vec<(u32, u64)>,
    /// Where the directory of a `zip` begins.
    directory: u64,
}

/// The next piece.
enum Next {
    /// The head of a member.
    Head(usize),
    /// The rest of its content.
    Content {
        member: usize,
        file: File,
        at: u64,
        checksum: crc32fast::Hasher,
    },
    /// An entry of the directory at the end of a `zip`.
    Entry(usize),
    End,
    Nothing,
}

impl ArchiveBody {
    async fn piece(&mut self) -> Result<Option<Bytes>, BodyError> {
        let piece = match &mut self.next {
            Next::Head(member) if *member == self.tree.members.len() => {
                self.directory = self.offset;
                self.next = match self.format {
                    ArchiveFormat::Tar => Next::End,
                    ArchiveFormat::Zip => Next::Entry(0),
                };
                return Ok(Some(Bytes::new()));
            }
            Next::Head(number) => {
                let number = *number;
                let member = &self.tree.members[number];
                let mut piece = member.head(self.format);
                let next = match member.name.ends_with(b"/") {
                    true => {
                        piece.extend(member.tail(self.format, 0));
                        Next::Head(number + 1)
                    }
                    false => {
                        let file = self.open(number).await?;
                        let checksum = crc32fast::Hasher::new();
                        Next::Content { member: number, file, at: 0, checksum }
                    }
                };
                // The checksum of a file is known later.
                self.checksums.push((0, self.offset));
                self.next = next;
                piece.into()
            }
            Next::Content { member, file, at, checksum } => {
                let (number, size) = (*member, self.tree.members[*member].size);
                let left = size - *at;
                if left > 0 {
                    let wanted = usize::try_from(left).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
                    let piece =
                        file.read_at(&self.io, *at, wanted).await.map_err(BodyError::File)?;
                    if piece.is_empty() {
                        return Err(BodyError::Truncated);
                    }
                    *at += piece.len() as u64;
                    if self.format == ArchiveFormat::Zip {
                        checksum.update(&piece);
                    }
                    piece
                } else {
                    let checksum = checksum.clone().finalize();
                    if let Some(last) = self.checksums.last_mut() {
                        last.0 = checksum;
                    }
                    self.next = Next::Head(number + 1);
                    self.tree.members[number].tail(self.format, checksum).into()
                }
            }
            Next::Entry(number) => {
                let mut piece = Vec::new();
                while piece.len() < PIECE_BYTES && *number < self.checksums.len() {
                    let (checksum, offset) = self.checksums[*number];
                    piece.extend(self.tree.members[*number].zip_entry(checksum, offset));
                    *number += 1;
                }
                if piece.is_empty() {
                    self.next = Next::End;
                }
                piece.into()
            }
            Next::End => {
                let count = self.tree.members.len() as u64;
                self.next = Next::Nothing;
                archive::end(self.format, count, self.directory, self.offset).into()
            }
            Next::Nothing => return Ok(None),
        };
        self.offset += piece.len() as u64;
        Ok(Some(piece))
    }

    async fn open(&self, number: usize) -> Result<File, BodyError> {
        let below = &self.tree.members[number].name[self.tree.prefix..];
        let path = [&self.tree.root[..], below].concat();
        let symlinks = Symlinks::Deny { from: self.tree.root.len() };
        let options = OpenOptions { symlinks, prefetch: PIECE_BYTES };
        let opened = fs::open_for(&self.io, self.io.client, &path, &options).await;
        let file = opened.map_err(BodyError::File)?;
        match file.metadata().kind {
            FileKind::File if file.size() >= self.tree.members[number].size => Ok(file),
            _ => Err(BodyError::Truncated),
        }
    }
}

impl BodySource for ArchiveBody {
    fn next(&mut self) -> LocalFuture<'_, Result<Option<Part>, BodyError>> {
        Box::pin(async move {
            loop {
                match self.piece().await? {
                    Some(piece) if piece.is_empty() => {}
                    piece => return Ok(piece.map(Part::Bytes)),
                }
            }
        })
    }

    fn is_urgent(&self) -> bool {
        false
    }
}
