//! User files, and the worker's cache of them.
//!
//! Called by [`super::finish`]. A file is read in the thread pool. The cached text is used while a stat
//! shows the same identity, size and times.

use std::cell::RefCell;
use std::hash::RandomState;
use std::io;

use bytes::Bytes;
use hashlink::LinkedHashMap;
use nowait_http::request::Request;
use nowait_http::slots::Key;
use nowait_runtime::fs::{self, Stamp, Symlinks};
use nowait_runtime::pool::PoolError;

use super::password::{self, Check};

/// Larger files are rejected.
const FILE_BYTES_MAX: usize = 16 << 20;

/// Larger files are read for each request.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of files cached by a worker; the least recently used file is dropped first.
const KEPT_FILES_MAX: usize = 16;

/// Files up to this size are searched on the loop, which takes some microseconds.
const SEARCHED_AT_ONCE_MAX: usize = 16 << 10;

/// Number of entries examined to find the most common format of a file.
const EXAMINED_MAX: usize = 32;

/// The reason why a file can't be used.
#[derive(Debug)]
pub(super) enum LoadError {
    /// The file does not exist: the operator's fault, or a variable contains a wrong name.
    Missing(io::Error),
    /// The file can't be read: the operator's fault.
    Failed(io::Error),
    /// The queue of the thread pool is full: high load, or a slow disk.
    Overflow(PoolError),
}

impl From<io::Error> for LoadError {
    fn from(error: io::Error) -> Self {
        match PoolError::of(&error) {
            Some(overflow) => Self::Overflow(overflow.clone()),
            None if error.kind() == io::ErrorKind::NotFound => Self::Missing(error),
            None => Self::Failed(error),
        }
    }
}

/// The text of a user file.
#[derive(Clone, Debug)]
pub(super) struct UserFile(Bytes);

/// Files read by a worker, the most recently used file last.
#[derive(Default)]
pub(crate) struct UserFiles(LinkedHashMap<Bytes, (Stamp, UserFile), RandomState>);

impl UserFiles {
    fn find(&mut self, path: &[u8], stamp: Stamp) -> Option<UserFile> {
        let (known, file) = self.0.to_back(path)?;
        if *known == stamp {
            return Some(file.clone());
        }
        self.0.remove(path);
        None
    }

    fn keep(&mut self, path: Bytes, stamp: Stamp, file: &UserFile) {
        self.0.insert(path, (stamp, file.clone()));
        if self.0.len() > KEPT_FILES_MAX {
            self.0.pop_front();
        }
    }
}

/// The files of a worker that were used last.
static FILES: Key<RefCell<UserFiles>> = Key::new();

/// Loads the current content of a file.
///
/// # Errors
/// [`LoadError`].
pub(super) async fn load(request: &Request, path: &Bytes) -> Result<UserFile, LoadError> {
    if path.contains(&0) {
        return Err(LoadError::Missing(io::Error::from(io::ErrorKind::NotFound)));
    }
    let io = request.io().for_client(request.client().number);
    let stamp = fs::stat_only(&io, path, Symlinks::Follow).await?.stamp();
    let files = request.exchange().services().state.of(&FILES);
    if let Some(stamp) = stamp
        && let Some(file) = files.borrow_mut().find(path, stamp)
    {
        return Ok(file);
    }
    let file = UserFile(fs::read(&io, path, FILE_BYTES_MAX).await?);
    if let Some(stamp) = stamp
        && file.0.len() <= KEPT_BYTES_MAX
    {
        files.borrow_mut().keep(path.clone(), stamp, &file);
    }
    Ok(file)
}

impl UserFile {
    /// Users given by lines of such a file.
    pub(super) fn of_lines<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        Self(lines.collect::<Vec<_>>().concat().into())
    }

    /// Whether there is an entry for this user.
    pub(super) fn has(&self, user: &[u8]) -> bool {
        self.entry(user).is_some()
    }

    /// Checks a password.
    pub(super) fn check(&self, user: &[u8], password: &[u8]) -> Check {
        if let Some(entry) = self.entry(user) {
            return password::check(entry, password);
        }
        // The time must not reveal whether the user exists.
        if let Some(entry) = self.usual_entry() {
            password::check(entry, password);
        }
        Check::Unknown
    }

    /// Checks a password if that takes almost no time.
    pub(super) fn check_at_once(&self, user: &[u8], password: &[u8]) -> Option<Check> {
        if self.0.len() > SEARCHED_AT_ONCE_MAX {
            return None;
        }
        match self.entry(user) {
            Some(entry) if password::is_slow(entry) => None,
            Some(entry) => Some(password::check(entry, password)),
            None => match self.usual_entry() {
                Some(entry) if password::is_slow(entry) => None,
                _ => Some(Check::Unknown),
            },
        }
    }

    /// A password whose verification takes as long as most: the first with the most common format and cost
    /// among the first [`EXAMINED_MAX`] entries.
    fn usual_entry(&self) -> Option<&[u8]> {
        let mut kinds: Vec<(&[u8], &[u8], usize)> = Vec::new();
        for entry in self.0.split(|&b| b == b'\n').filter_map(any_entry).take(EXAMINED_MAX) {
            let kind = password::kind(entry);
            match kinds.iter_mut().find(|(known, ..)| *known == kind) {
                Some((.., count)) => *count += 1,
                None => kinds.push((kind, entry, 1)),
            }
        }
        let most = kinds.iter().map(|(.., count)| *count).max()?;
        kinds.iter().find(|(.., count)| *count == most).map(|(_, entry, _)| *entry)
    }

    /// The encrypted password of a user: the text after the user's name and its colon, up to
    /// another colon, in the first line for this user.
    fn entry(&self, user: &[u8]) -> Option<&[u8]> {
        self.0.split(|&b| b == b'\n').find_map(|line| {
            if matches!(line.first(), Some(b'#' | b'\r')) {
                return None;
            }
            let entry = line.strip_prefix(user)?.strip_prefix(b":")?;
            entry.split(|b| matches!(b, b'\r' | b':')).next()
        })
    }
}

/// The encrypted password in a line, for any user.
fn any_entry(line: &[u8]) -> Option<&[u8]> {
    if matches!(line.first(), Some(b'#' | b'\r')) {
        return None;
    }
    let colon = line.iter().position(|&b| b == b':')?;
    line[colon + 1..].split(|b| matches!(b, b'\r' | b':')).next().filter(|entry| !entry.is_empty())
}

#[cfg(test)]
mod tests {
    use nowait_runtime::fs::Metadata;

    use super::*;

    #[test]
    fn entries_are_found() {
        let text = b"# a:x\n#b:y\nuser:{PLAIN}one:more\r\nuser:{PLAIN}two\n\nu:\nlast:{PLAIN}p";
        let file = UserFile(Bytes::from_static(text));
        let entry = |user: &str| file.entry(user.as_bytes()).map(|e| str::from_utf8(e).unwrap());
        assert_eq!(entry("user"), Some("{PLAIN}one"));
        assert_eq!(entry("u"), Some(""));
        assert_eq!(entry("last"), Some("{PLAIN}p"));
        for missing in ["b", "#b", "a", "use", "users", ""] {
            assert_eq!(entry(missing), None, "{missing}");
        }
        assert_eq!(file.check_at_once(b"last", b"p"), Some(Check::Right));
        assert_eq!(file.check_at_once(b"user", b"two"), Some(Check::Wrong));
        assert_eq!(file.check_at_once(b"nobody", b"p"), Some(Check::Unknown));
        assert_eq!(file.check(b"u", b""), Check::Unusable);
    }

    #[test]
    fn unknown_users_cost_what_others_cost() {
        let slow = "$2b$04$abcdefghijklmnopqrstuughE8Ev8uGFaUgY2cNEySvxngrb/Jzdm";
        let costly = slow.replace("$04$", "$05$");
        let file = |text: String| UserFile(Bytes::from(text.into_bytes()));
        let of = |text: String| {
            let file = file(text);
            let usual = file.usual_entry().map(|entry| String::from_utf8_lossy(entry).into_owned());
            let at_once = file.check_at_once(b"nobody", b"p");
            let before = password::checked();
            assert_eq!(file.check(b"nobody", b"p"), Check::Unknown);
            (usual, at_once, password::checked() - before)
        };
        let unknown = Some(Check::Unknown);
        assert_eq!(of("# no users\n\n".into()), (None, unknown, 0));
        let plain = "a:{PLAIN}x\nb:{PLAIN}y".to_owned();
        assert_eq!(of(plain), (Some("{PLAIN}x".into()), unknown, 1));
        assert_eq!(of(format!("a:{slow}\n")), (Some(slow.into()), None, 1));
        // Most users count; of as many, the first.
        let mixed = format!("a:{{PLAIN}}x\nb:{costly}\nc:{slow}:more\r\nd:{costly}\n");
        assert_eq!(of(mixed), (Some(costly), None, 1));
    }

    fn stamp(size: u64) -> Stamp {
        let metadata = Metadata {
            kind: fs::FileKind::File,
            size,
            mtime: 1,
            mtime_nsec: 0,
            ctime: 1,
            ctime_nsec: 0,
            dev: 1,
            ino: 1,
            mode: 0o600,
            uid: 0,
            gid: 0,
            nlink: 1,
            blocks: 8,
        };
        metadata.stamp().unwrap()
    }

    #[test]
    fn a_changed_file_is_forgotten_and_the_oldest_goes() {
        let mut files = UserFiles::default();
        let file = UserFile(Bytes::new());
        files.keep(Bytes::from_static(b"/a"), stamp(1), &file);
        assert!(files.find(b"/a", stamp(1)).is_some());
        assert!(files.find(b"/b", stamp(1)).is_none());
        assert!(files.find(b"/a", stamp(2)).is_none());
        assert!(files.find(b"/a", stamp(1)).is_none());
        for n in 0..=KEPT_FILES_MAX {
            files.keep(format!("/{n}").into(), stamp(1), &file);
        }
        assert!(files.find(b"/0", stamp(1)).is_none());
        assert!(files.find(b"/1", stamp(1)).is_some());
    }
}
