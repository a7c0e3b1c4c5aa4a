//! Logs whose path has variables: the file of each line is determined when it is written.
//!
//! Runs on a thread of the log writer. Without `open_log_file_cache`, a file is opened for every
//! batch of lines and closed again. With it, descriptors stay open as in nginx: at most `max`, the
//! least recently used being closed first; only from the `min_uses`-th use on; rechecked every
//! `valid` for whether the path still names the same file; closed after `inactive`.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::hash::RandomState;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use hashlink::LinkedHashMap;

use super::{Level, LogReport, OsError};

/// The `open_log_file_cache` directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenFileCache {
    /// Maximum number of open files; the least recently used one is closed first. At least 1.
    pub max: usize,
    /// A file is closed after this time without a write.
    pub inactive: Duration,
    /// Minimum number of uses before a descriptor is kept.
    pub min_uses: u32,
    /// How long the path is assumed to still name the open file.
    pub valid: Duration,
}

/// Length of a record's head: three 32-bit lengths.
pub(super) const HEAD: usize = 12;

/// The head of a record, which path, root and line follow.
pub(super) fn record_head(path: &[u8], root: &[u8], line: &[u8]) -> Option<[u8; HEAD]> {
    let mut head = [0; HEAD];
    for (slot, part) in head.chunks_exact_mut(4).zip([path, root, line]) {
        slot.copy_from_slice(&u32::try_from(part.len()).ok()?.to_le_bytes());
    }
    Some(head)
}

/// Splits the first record off.
pub(super) fn next_record<'a>(bytes: &mut &'a [u8]) -> Option<[&'a [u8]; 3]> {
    let (head, mut rest) = bytes.split_at_checked(HEAD)?;
    let mut parts = [&b""[..]; 3];
    for (part, length) in parts.iter_mut().zip(head.chunks_exact(4)) {
        let length = u32::from_le_bytes([length[0], length[1], length[2], length[3]]);
        (*part, rest) = rest.split_at_checked(length as usize)?;
    }
    *bytes = rest;
    Some(parts)
}

#[derive(Debug)]
struct OpenPath {
    /// Kept open once `uses` reached `min_uses`.
    file: Option<File>,
    uses: u32,
    used: Instant,
    checked: Instant,
}

#[derive(Debug)]
pub(super) struct PathFiles {
    cache: Option<OpenFileCache>,
    /// In the order of their last use.
    entries: LinkedHashMap<Vec<u8>, OpenPath, RandomState>,
}

impl PathFiles {
    pub fn new(cache: Option<OpenFileCache>) -> PathFiles {
        PathFiles { cache, entries: LinkedHashMap::default() }
    }

    /// Closes all files, so that the next lines go to the files that the paths name then.
    pub fn reopen(&mut self) {
        self.entries.clear();
    }

    /// Writes a batch of records.
    pub fn write(&mut self, mut records: &[u8], reporter: &dyn LogReport) {
        let now = Instant::now();
        self.forget_inactive(now);
        let mut together = Vec::new();
        let mut record = next_record(&mut records);
        while let Some([path, root, line]) = record {
            together.clear();
            together.extend_from_slice(line);
            record = next_record(&mut records);
            while let Some([_, _, line]) = record.filter(|next| next[0] == path && next[1] == root)
            {
                together.extend_from_slice(line);
                record = next_record(&mut records);
            }
            self.write_to(path, root, &together, now, reporter);
        }
    }

    fn write_to(
        &mut self,
        path: &[u8],
        root: &[u8],
        lines: &[u8],
        now: Instant,
        to: &dyn LogReport,
    ) {
        let root = Path::new(OsStr::from_bytes(root));
        let path_name = Path::new(OsStr::from_bytes(path));
        // A request for a host that does not exist must not create files of its choosing.
        if !root.as_os_str().is_empty() {
            let tested = match std::fs::metadata(root) {
                Ok(found) if found.is_dir() => Ok(()),
                Ok(_) => Err(io::Error::from_raw_os_error(20 /* ENOTDIR */)),
                Err(error) => Err(error),
            };
            if let Err(error) = tested {
                let (root, error) = (root.display(), OsError(&error));
                to.report(Level::Error, format_args!("testing \"{root}\" existence failed{error}"));
                return;
            }
        }
        let written = self.file(path, path_name, now);
        let (file, keep) = match written {
            Ok(found) => found,
            Err(error) => {
                let (path, error) = (path_name.display(), OsError(&error));
                to.report(Level::Crit, format_args!("open() \"{path}\" failed{error}"));
                return;
            }
        };
        if let Err(error) = (&file).write_all(lines) {
            let (path, error) = (path_name.display(), OsError(&error));
            to.report(Level::Alert, format_args!("write() to \"{path}\" failed{error}"));
        }
        if keep && let Some(entry) = self.entries.get_mut(path) {
            entry.file = Some(file);
        }
    }

    /// The file of a path, and whether to keep it open.
    fn file(&mut self, path: &[u8], name: &Path, now: Instant) -> io::Result<(File, bool)> {
        let Some(cache) = self.cache else { return Ok((open(name)?, false)) };
        if self.entries.to_back(path).is_none() && self.entries.len() >= cache.max {
            self.entries.pop_front();
        }
        let entry = self.entries.entry(path.to_vec()).or_insert(OpenPath {
            file: None,
            uses: 0,
            used: now,
            checked: now,
        });
        entry.uses = entry.uses.saturating_add(1);
        entry.used = now;
        let keep = entry.uses >= cache.min_uses;
        let fresh = now.duration_since(entry.checked) < cache.valid;
        if let Some(file) = entry.file.take()
            && (fresh || is_at(&file, name))
        {
            if !fresh {
                entry.checked = now;
            }
            return Ok((file, keep));
        }
        entry.checked = now;
        match open(name) {
            Ok(file) => Ok((file, keep)),
            Err(error) => {
                self.entries.remove(path);
                Err(error)
            }
        }
    }

    fn forget_inactive(&mut self, now: Instant) {
        if let Some(cache) = self.cache {
            self.entries.retain(|_, entry| now.duration_since(entry.used) < cache.inactive);
        }
    }
}

/// Whether the path still names the open file.
fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(theirs)) => (ours.dev(), ours.ino()) == (theirs.dev(), theirs.ino()),
        _ => false,
    }
}

/// Opens a log for appending, creating it with mode 0644.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o644).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Reports(Mutex<Vec<String>>);

    impl LogReport for Reports {
        fn report(&self, level: Level, message: fmt::Arguments<'_>) {
            self.0.lock().unwrap().push(format!("[{level}] {message}"));
        }
    }

    fn records(list: &[(&str, &str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        for (path, root, line) in list {
            let parts = [path.as_bytes(), root.as_bytes(), line.as_bytes()];
            out.extend_from_slice(&record_head(parts[0], parts[1], parts[2]).unwrap());
            out.extend_from_slice(&parts.concat());
        }
        out
    }

    fn directory(name: &str) -> String {
        let path = std::env::temp_dir().join(format!("nowait-paths-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn records_survive_and_garbage_ends_quietly() {
        let bytes = records(&[("a", "r", "line\n"), ("", "", "")]);
        let mut rest = &bytes[..];
        assert_eq!(next_record(&mut rest), Some([&b"a"[..], b"r", b"line\n"]));
        assert_eq!(next_record(&mut rest), Some([&b""[..]; 3]));
        assert_eq!(next_record(&mut rest), None);
        let mut torn = &bytes[..HEAD + 2];
        assert_eq!(next_record(&mut torn), None);
    }

    #[test]
    fn lines_go_to_their_files() {
        let dir = directory("plain");
        let (a, b) = (format!("{dir}/a"), format!("{dir}/b"));
        let reports = Reports::default();
        let mut files = PathFiles::new(None);
        files.write(&records(&[(&a, "", "1\n"), (&a, "", "2\n"), (&b, &dir, "3\n")]), &reports);
        files.write(&records(&[(&a, "", "4\n")]), &reports);
        assert_eq!(std::fs::read_to_string(&a).unwrap(), "1\n2\n4\n");
        assert_eq!(std::fs::read_to_string(&b).unwrap(), "3\n");
        let missing = format!("{dir}/no/c");
        let root = format!("{dir}/no");
        files.write(&records(&[(&missing, "", "5\n"), (&b, &root, "6\n"), (&b, &a, "")]), &reports);
        assert_eq!(
            *reports.0.lock().unwrap(),
            [
                format!("[crit] open() \"{missing}\" failed (2: No such file or directory)"),
                format!(
                    "[error] testing \"{root}\" existence failed (2: No such file or directory)"
                ),
                format!("[error] testing \"{a}\" existence failed (20: Not a directory)"),
            ]
        );
        assert_eq!(std::fs::read_to_string(&b).unwrap(), "3\n");
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn the_cache_keeps_what_is_used_often_enough() {
        let base = directory("cache");
        let (dir, moved) = (format!("{base}/dir"), format!("{base}/moved"));
        std::fs::create_dir(&dir).unwrap();
        let reports = Reports::default();
        let minute = Duration::from_secs(60);
        let cache = OpenFileCache { max: 3, inactive: minute, min_uses: 2, valid: minute };
        let mut files = PathFiles::new(Some(cache));
        let mut log = |name: &str, line: &str| {
            files.write(&records(&[(&format!("{dir}/{name}"), "", line)]), &reports);
        };
        for name in ["lru", "lru", "once", "first", "first", "second", "second"] {
            log(name, "a\n");
        }
        std::fs::rename(&dir, &moved).unwrap();
        for name in ["lru", "once", "first", "second"] {
            log(name, "b\n");
        }
        let read = |name: &str| std::fs::read_to_string(format!("{moved}/{name}")).unwrap();
        assert_eq!(read("lru"), "a\na\n");
        assert_eq!(read("once"), "a\n");
        assert_eq!(read("second"), "a\na\nb\n");
        std::fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn a_replaced_file_is_noticed_after_valid() {
        let dir = directory("valid");
        let path = format!("{dir}/log");
        let reports = Reports::default();
        let minute = Duration::from_secs(60);
        for (valid, expected) in [(Duration::ZERO, Some("b\n")), (minute, None)] {
            let cache = OpenFileCache { max: 3, inactive: minute, min_uses: 1, valid };
            let mut files = PathFiles::new(Some(cache));
            files.write(&records(&[(&path, "", "a\n")]), &reports);
            std::fs::remove_file(&path).unwrap();
            files.write(&records(&[(&path, "", "b\n")]), &reports);
            assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), expected);
            files.reopen();
            files.write(&records(&[(&path, "", "c\n")]), &reports);
            assert!(std::fs::read_to_string(&path).unwrap().ends_with("c\n"));
            std::fs::remove_file(&path).unwrap();
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
