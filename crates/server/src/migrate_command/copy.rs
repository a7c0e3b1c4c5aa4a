//! Writes the adapted copy of a directory.
//!
//! Called by `nowait migrate -o`. Never follows a link, never overwrites: every file is created
//! again, in directories that this created, or in the empty target. Permissions are kept, owners and
//! groups where allowed; directories below that for files from outside are new. What can't be copied is reported;
//! only a file that belongs to the adaptation makes the whole fail.

use std::collections::{HashMap, HashSet};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Component, Path, PathBuf};

use nowait_migrate::Adaptation;

use crate::log::OsErrorText;

/// Maximum number of files, links and directories.
const ENTRIES_MAX: usize = 50_000;
/// Maximum size of one file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of all files, in bytes.
const BYTES_MAX: u64 = 1 << 30;

/// A finished copy.
#[derive(Debug, Default)]
pub struct Copied {
    /// Files and links.
    pub files: usize,
    /// Files left out, with the reason.
    pub left_out: Vec<String>,
}

/// Checks that a copy may be written to a directory: it does not exist, or is empty.
///
/// # Errors
/// The message for the operator.
pub fn check_target(target: &Path) -> Result<(), String> {
    let shown = target.display();
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(format!("\"{shown}\" is not empty: nothing is overwritten")),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot write to \"{shown}\" {}", OsErrorText(&error))),
    }
}

/// Copies `root` to `target`, with the changes of `adaptation`.
///
/// # Errors
/// The message for the operator.
pub fn copy(root: &Path, target: &Path, adaptation: &Adaptation) -> Result<Copied, String> {
    let failed = |path: &Path, error: io::Error| {
        format!("cannot write \"{}\" {}", path.display(), OsErrorText(&error))
    };
    let root_metadata = fs::metadata(root).map_err(|error| failed(root, error))?;
    // Before the first write.
    count(root)?;
    if !target.exists() {
        if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(|error| failed(parent, error))?;
        }
        // It may hold keys: no other user may read it before the permissions are those of the original. A
        // directory that the operator made keeps its own.
        DirBuilder::new().mode(0o700).create(target).map_err(|error| failed(target, error))?;
        keep_owner(target, &root_metadata);
    }
    let mut copy = Copy {
        root,
        target,
        own: fs::canonicalize(target).map_err(|error| failed(target, error))?,
        texts: adaptation.files.iter().map(|file| (&*file.path, &file.text[..])).collect(),
        written: HashSet::new(),
        bytes: 0,
        done: Copied::default(),
    };
    copy.tree()?;
    for file in &adaptation.files {
        if copy.written.contains(&file.path) {
            continue;
        }
        let path = target.join(&file.path);
        parents(target, &file.path).map_err(|error| failed(&path, error))?;
        write_new(&path, &mut &file.text[..]).map_err(|error| failed(&path, error))?;
        if let Ok(original) = fs::metadata(&file.original) {
            keep_owner(&path, &original);
        }
        copy.done.files += 1;
    }
    Ok(copy.done)
}

struct Copy<'a> {
    root: &'a Path,
    target: &'a Path,
    /// The target without links: it may be inside of the root.
    own: PathBuf,
    /// The changed texts by their paths below the target.
    texts: HashMap<&'a Path, &'a [u8]>,
    written: HashSet<PathBuf>,
    bytes: u64,
    done: Copied,
}

impl Copy<'_> {
    fn tree(&mut self) -> Result<(), String> {
        let mut directories = vec![PathBuf::new()];
        while let Some(directory) = directories.pop() {
            let entries = match fs::read_dir(self.root.join(&directory)) {
                Ok(entries) => entries,
                Err(error) => {
                    self.left_out(&directory, &OsErrorText(&error).to_string());
                    continue;
                }
            };
            for entry in entries {
                let entry = match entry {
                    Ok(entry) => entry,
                    Err(error) => {
                        self.left_out(&directory, &OsErrorText(&error).to_string());
                        continue;
                    }
                };
                let path = directory.join(entry.file_name());
                match self.entry(&path) {
                    Ok(true) => directories.push(path),
                    Ok(false) => {}
                    Err(error) if self.texts.contains_key(&*path) => {
                        return Err(format!(
                            "cannot write \"{}\" {}",
                            self.target.join(&path).display(),
                            OsErrorText(&error)
                        ));
                    }
                    Err(error) => self.left_out(&path, &OsErrorText(&error).to_string()),
                }
            }
        }
        Ok(())
    }

    /// Copies one entry. True for a directory whose entries are to be copied.
    fn entry(&mut self, path: &Path) -> io::Result<bool> {
        let (from, to) = (self.root.join(path), self.target.join(path));
        let metadata = fs::symlink_metadata(&from)?;
        if metadata.is_dir() {
            if fs::canonicalize(&from)? == self.own {
                return Ok(false);
            }
            DirBuilder::new().mode(0o700).create(&to)?;
            keep_owner(&to, &metadata);
            return Ok(true);
        }
        if let Some(text) = self.texts.get(path) {
            // The mode of a link is meaningless.
            let original = fs::metadata(&from)?;
            write_new(&to, &mut &text[..])?;
            keep_owner(&to, &original);
            self.written.insert(path.to_owned());
        } else if metadata.is_symlink() {
            let link = fs::read_link(&from)?;
            std::os::unix::fs::symlink(self.link(path, &link), &to)?;
        } else if !metadata.is_file() {
            self.left_out(path, "(not a regular file)");
            return Ok(false);
        } else if metadata.len() > FILE_BYTES_MAX || self.bytes + metadata.len() > BYTES_MAX {
            self.left_out(path, "(too large)");
            return Ok(false);
        } else {
            self.bytes += metadata.len();
            let mut file = OpenOptions::new().read(true).open(&from)?.take(FILE_BYTES_MAX);
            write_new(&to, &mut file)?;
            keep_owner(&to, &metadata);
        }
        self.done.files += 1;
        Ok(false)
    }

    /// The contents of the copy of a link: what was inside of the original leads inside of the copy,
    /// everything else where it led.
    fn link(&self, path: &Path, link: &Path) -> PathBuf {
        let parent = path.parent().unwrap_or(Path::new(""));
        let real_root = fs::canonicalize(self.root).unwrap_or_else(|_| self.root.to_owned());
        let inside = match link.is_absolute() {
            true => {
                let inside = link.strip_prefix(self.root).or(link.strip_prefix(&real_root)).ok();
                inside.filter(|inside| stays_inside(Path::new(""), inside))
            }
            false if stays_inside(parent, link) => return link.to_owned(),
            false => return self.root.join(parent).join(link),
        };
        match inside {
            Some(inside) => parent.components().map(|_| "..").collect::<PathBuf>().join(inside),
            None => link.to_owned(),
        }
    }

    fn left_out(&mut self, path: &Path, why: &str) {
        /// More are not listed.
        const LISTED_MAX: usize = 1000;
        if self.done.left_out.len() < LISTED_MAX {
            self.done.left_out.push(format!("{} {why}", path.display()));
        }
    }
}

/// Checks the number of files, links and directories; what cannot be read is not counted.
///
/// # Errors
/// There are too many.
fn count(root: &Path) -> Result<(), String> {
    let mut directories = vec![root.to_owned()];
    let mut count = 0;
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok) {
            count += 1;
            if count > ENTRIES_MAX {
                return Err(format!(
                    "\"{}\" has more than {ENTRIES_MAX} files: is this the directory of a \
                     configuration? Nothing was written",
                    root.display()
                ));
            }
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                directories.push(entry.path());
            }
        }
    }
    Ok(())
}

/// Creates the directories of a file below the target, without following links.
fn parents(target: &Path, file: &Path) -> io::Result<()> {
    let mut path = target.to_owned();
    let mut components = file.components();
    components.next_back();
    for component in components {
        let Component::Normal(name) = component else {
            return Err(io::Error::other("would be outside of the copy"));
        };
        path.push(name);
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {}
            Ok(_) => return Err(io::Error::from(io::ErrorKind::NotADirectory)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(&path)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether a relative link in a directory stays below the root.
fn stays_inside(directory: &Path, link: &Path) -> bool {
    let mut depth = 0_usize;
    for component in directory.components().chain(link.components()) {
        match component {
            Component::ParentDir => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return false,
            },
            Component::Normal(_) => depth += 1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    true
}

/// Creates a file, readable to its owner alone.
fn write_new(path: &Path, text: &mut dyn Read) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    io::copy(text, &mut file)?;
    file.flush()
}

/// Gives a copy the owner and the group of its original as far as that is allowed, and then its
/// permissions.
fn keep_owner(path: &Path, original: &fs::Metadata) {
    let (owner, group) = (original.uid(), original.gid());
    if lchown(path, Some(owner), Some(group)).is_err() {
        // A member of the group may give a file to it.
        let _ = lchown(path, None, Some(group));
    }
    let Ok(copy) = fs::symlink_metadata(path) else { return };
    let mode = kept_mode(original.mode(), copy.uid() == owner, copy.gid() == group);
    let _ = fs::set_permissions(path, fs::Permissions::from_mode(mode));
}

/// The permissions of a copy: those of the original, except that another group gets only the permissions of
/// all users, and no user acts as another owner or another group.
fn kept_mode(mode: u32, has_owner: bool, has_group: bool) -> u32 {
    let mode = mode & 0o7777;
    let mode = if has_owner { mode } else { mode & !0o4000 };
    let others = (mode & 0o007) << 3;
    if has_group { mode } else { mode & (0o5707 | others) }
}

#[cfg(test)]
mod tests {
    use nowait_testkit::TempDir;

    use super::*;

    #[test]
    fn files_are_counted_before_one_is_written() {
        let dir = TempDir::new("copy");
        let root = dir.path().join("root");
        fs::create_dir(&root).unwrap();
        let target = dir.path().join("target");
        for n in 0..=ENTRIES_MAX {
            std::os::unix::fs::symlink("x", root.join(n.to_string())).unwrap();
        }
        let adaptation = Adaptation { files: Vec::new(), removed: 0, added: 0, left: Vec::new() };
        let message = copy(&root, &target, &adaptation).unwrap_err();
        assert!(message.contains("more than 50000 files"), "{message}");
        assert!(!target.exists());
        fs::remove_file(root.join("0")).unwrap();
        assert_eq!(count(&root), Ok(()));
    }

    #[test]
    fn another_group_gets_no_more_than_everybody() {
        assert_eq!(kept_mode(0o100_640, true, true), 0o640);
        assert_eq!(kept_mode(0o100_640, false, true), 0o640);
        assert_eq!(kept_mode(0o100_640, false, false), 0o600);
        assert_eq!(kept_mode(0o106_775, false, true), 0o2775);
        assert_eq!(kept_mode(0o106_775, true, false), 0o4755);
    }

    #[test]
    fn files_go_through_no_link() {
        let dir = TempDir::new("copy");
        fs::create_dir_all(dir.path().join("target/real")).unwrap();
        std::os::unix::fs::symlink("..", dir.path().join("target/link")).unwrap();
        let target = dir.path().join("target");
        let check = |file: &str| parents(&target, Path::new(file)).is_ok();
        assert!(check("real/new/deeper/a.conf") && target.join("real/new/deeper").is_dir());
        assert!(!check("link/a.conf") && !check("link/b/a.conf") && !check("real/../../a/b.conf"));
        assert!(!dir.path().join("a").exists() && !dir.path().join("b").exists());
    }

    #[test]
    fn links_that_leave_the_root_are_found() {
        let inside =
            |directory: &str, link: &str| stays_inside(Path::new(directory), Path::new(link));
        assert!(inside("sites-enabled", "../sites-available/x"));
        assert!(inside("", "x/../y"));
        assert!(!inside("sites-enabled", "../../x"));
        assert!(!inside("", "../nginx/x"));
    }
}
