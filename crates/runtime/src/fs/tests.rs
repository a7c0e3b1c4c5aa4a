//! File operations on real file systems.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::open::open_in_pool;
use super::*;
use crate::pool::PoolConfig;
use crate::pool::tests::block_on;

fn io() -> Io {
    Io::new(Pool::new(PoolConfig { name: String::from("test"), threads: 4, max_queue: 100 }))
}

#[test]
fn a_file_lives_and_dies() {
    let io = io();
    let dir = std::env::temp_dir().join(format!("nowait-fs-{}", std::process::id()));
    let dir = dir.to_str().unwrap().to_owned();
    let path = |name: &str| format!("{dir}/{name}").into_bytes();
    let name = |name: &str| Name { path: path(name), symlinks: Symlinks::Follow };
    block_on(async {
        mkdir_parents(&io, &path("a/b/file"), 0o755).await.unwrap();
        let file = create(&io, &path("a/b/tmp"), &CreateOptions::default()).await.unwrap();
        file.write_at(&io, 0, vec!["hello ".into(), "world".into()]).await.unwrap();
        file.sync(&io, false).await.unwrap();
        rename(&io, &path("a/b/tmp"), &path("a/b/file")).await.unwrap();
        let options = OpenOptions { prefetch: 100, ..OpenOptions::default() };
        let file = open(&io, &path("a/b/file"), &options).await.unwrap();
        assert_eq!(file.size(), 11);
        assert_eq!(&file.read_at(&io, 0, 100).await.unwrap()[..], b"hello world");
        assert_eq!(&file.read_at(&io, 6, 100).await.unwrap()[..], b"world");
        let file = open_in_pool(&io, &path("a/b/file"), &options).await.unwrap();
        assert_eq!(&file.read_at(&io, 0, 5).await.unwrap()[..], b"hello");
        assert!(open_in_pool(&io, &path("a/b/none"), &options).await.is_err());
        assert_eq!(
            stat(&io, &path("a/b"), Symlinks::Follow).await.unwrap().kind,
            FileKind::Directory
        );
        let options = ReadDirOptions { entries_max: 10, metadata: true };
        let listing = read_dir(&io, &name("a/b"), &options).await.unwrap();
        assert_eq!(listing.entries.len(), 1);
        assert_eq!(listing.entries[0].metadata.unwrap().size, 11);
        unlink(&io, &path("a/b/file")).await.unwrap();
        for name in ["a/b", "a", ""] {
            remove_dir(&io, &path(name)).await.unwrap();
        }
        let gone = stat(&io, &path("a"), Symlinks::Follow).await.unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
    });
}

/// A directory that is removed with the test.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Dir {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("nowait-fs-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> Vec<u8> {
        self.0.join(name).as_os_str().as_bytes().to_vec()
    }

    fn write(&self, name: &str, content: &[u8]) -> Vec<u8> {
        std::fs::create_dir_all(self.0.join(name).parent().unwrap()).unwrap();
        std::fs::write(self.0.join(name), content).unwrap();
        self.path(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Opens three times: in the pool, then inline where the machine supports it. All must agree.
#[track_caller]
fn open_repeatedly(io: &Io, path: &[u8], symlinks: Symlinks) -> io::Result<Metadata> {
    let options = OpenOptions { symlinks, prefetch: 0 };
    let results: Vec<_> = (0..3)
        .map(|_| block_on(open(io, path, &options)).map(|file| *file.metadata()))
        .chain((0..3).map(|_| block_on(stat(io, path, symlinks))))
        .collect();
    for result in &results {
        match (result, &results[0]) {
            (Ok(this), Ok(first)) => assert_eq!(this, first),
            (Err(this), Err(first)) => assert_eq!(this.raw_os_error(), first.raw_os_error()),
            (this, first) => panic!("{this:?} after {first:?}"),
        }
    }
    results.into_iter().next_back().unwrap()
}

#[test]
fn kinds_are_told_and_nothing_blocks() {
    let (io, dir) = (io(), Dir::new());
    dir.write("file", b"content");
    rustix::fs::mkfifoat(CWD, dir.path("fifo"), Mode::RWXU).unwrap();
    let kind = |name: &str| {
        open_repeatedly(&io, &dir.path(name), Symlinks::Follow).map(|metadata| metadata.kind)
    };
    assert_eq!(kind("file").unwrap(), FileKind::File);
    assert_eq!(kind("fifo").unwrap(), FileKind::Fifo, "without waiting for a writer");
    assert_eq!(kind("").unwrap(), FileKind::Directory);
    assert_eq!(kind("nothing").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(kind("file/below").unwrap_err().kind(), io::ErrorKind::NotADirectory);
    assert_eq!(kind("a\0b").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(inline::is_supported(), "a strange path says nothing of the kernel");
    assert_eq!(kind(&"x".repeat(300)).unwrap_err().kind(), io::ErrorKind::InvalidFilename);
    let directory = block_on(open(&io, &dir.path(""), &OpenOptions::default())).unwrap();
    let error = block_on(directory.read_at(&io, 0, 10)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
}

#[test]
fn links_are_followed_as_far_as_allowed() {
    let (io, dir) = (io(), Dir::new());
    dir.write("real/file", b"content");
    symlink("real", dir.0.join("link")).unwrap();
    symlink("file", dir.0.join("real/alias")).unwrap();
    symlink("loop", dir.0.join("loop")).unwrap();
    let from = dir.0.as_os_str().len();
    let below_link = from + "/link".len();
    let open = |name: &str, symlinks| {
        open_repeatedly(&io, &dir.path(name), symlinks).map_err(|error| error.raw_os_error())
    };
    let looped = Some(rustix::io::Errno::LOOP.raw_os_error());
    for name in ["real/file", "link/file", "real/alias", "link/alias"] {
        assert!(open(name, Symlinks::Follow).is_ok(), "{name}");
        assert!(open(name, Symlinks::IfNotOwner { from: 0 }).is_ok(), "{name}: all is ours");
        let is_real = name == "real/file";
        assert_eq!(open(name, Symlinks::Deny { from: 0 }).is_ok(), is_real, "{name}");
        assert_eq!(open(name, Symlinks::Deny { from }).is_ok(), is_real, "{name}");
    }
    assert!(open("link/file", Symlinks::Deny { from: below_link }).is_ok(), "the link is trusted");
    assert_eq!(open("link/alias", Symlinks::Deny { from: below_link }).unwrap_err(), looped);
    assert_eq!(
        open("link/file", Symlinks::Deny { from: below_link - 1 }).unwrap_err(),
        looped,
        "half a name is not trusted"
    );
    assert_eq!(open("loop", Symlinks::Follow).unwrap_err(), looped);
    if rustix::process::geteuid().is_root() {
        let uid = |uid| Some(rustix::fs::Uid::from_raw(uid));
        let link = dir.path("real/alias");
        rustix::fs::chownat(CWD, link, uid(1), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
        let strangers = open("real/alias", Symlinks::IfNotOwner { from });
        assert_eq!(strangers.unwrap_err(), looped);
        assert!(open("link/file", Symlinks::IfNotOwner { from }).is_ok());
    }
}

#[test]
fn links_stay_inside() {
    let (io, dir) = (io(), Dir::new());
    dir.write("top/real/file", b"content");
    dir.write("top/.hidden/file", b"content");
    dir.write("topless/file", b"content");
    let top = dir.0.join("top");
    let link = |to: &str, name: &str| symlink(to, top.join(name)).unwrap();
    link("real", "inside");
    link("../file", "real/loop");
    link(top.join("real/file").to_str().unwrap(), "absolute");
    link("../topless/file", "outside");
    link("/etc/passwd", "passwd");
    link("..", "up");
    link("../top/real", "back");
    link(".hidden/file", "hidden");
    link(".", "same");
    link("nowhere", "dangling");
    symlink("top", dir.0.join("above")).unwrap();
    // (name, whether it may be opened: by default, if hidden names are served)
    for (name, expected) in [
        ("real/file", (true, true)),
        ("inside/file", (true, true)),
        ("inside/", (true, true)),
        ("absolute", (true, true)),
        ("absolute/", (false, false)),
        ("back/file", (true, true)),
        ("same/same/real/file", (true, true)),
        ("same", (true, true)),
        ("outside", (false, false)),
        ("passwd", (false, false)),
        ("up", (false, false)),
        ("up/topless/file", (false, false)),
        ("up/top/real/file", (true, true)),
        ("hidden", (false, true)),
        ("dangling", (false, false)),
    ] {
        // The directory itself may be reached by a link.
        for below in ["top", "above"] {
            let from = dir.path(below).len();
            let open = |hidden| {
                let path = dir.path(&format!("{below}/{name}"));
                open_repeatedly(&io, &path, Symlinks::Inside { from, hidden }).is_ok()
            };
            assert_eq!((open(false), open(true)), expected, "{below}/{name}");
        }
    }
}

#[test]
fn a_link_that_is_turned_leads_to_the_new_place() {
    let (io, dir) = (io(), Dir::new());
    dir.write("1/file", b"first");
    dir.write("2/file", b"second");
    let turn = |to: &str| {
        symlink(to, dir.0.join("next")).unwrap();
        std::fs::rename(dir.0.join("next"), dir.0.join("current")).unwrap();
    };
    for (to, size) in [("1", 5), ("2", 6), ("1", 5)] {
        turn(to);
        let found = open_repeatedly(&io, &dir.path("current/file"), Symlinks::Follow).unwrap();
        assert_eq!(found.size, size);
    }
}

#[test]
fn permission_is_asked_for_each_time() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may read everything");
        return;
    }
    let (io, dir) = (io(), Dir::new());
    let path = dir.write("file", b"content");
    assert!(open_repeatedly(&io, &path, Symlinks::Follow).is_ok());
    let secret = std::fs::Permissions::from_mode(0o000);
    std::fs::set_permissions(dir.0.join("file"), secret).unwrap();
    let refused = block_on(open(&io, &path, &OpenOptions::default())).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
fn every_way_of_reading_yields_the_same() {
    let dir = Dir::new();
    let content: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let path = dir.write("file", &content);
    let plain = io();
    let ways = [
        plain.clone(),
        Io { aio: Aio::Blocking, ..plain.clone() },
        Io { open_in_pool: false, ..plain.clone() },
        Io { directio: Some(1), ..plain.clone() },
        Io { directio: Some(1), directio_alignment: 64 * 1024, ..plain.clone() },
        Io { read_ahead: 1, ..plain },
    ];
    for io in ways {
        for prefetch in [0, 1000, 1 << 20] {
            let options = OpenOptions { prefetch, ..OpenOptions::default() };
            let file = block_on(open(&io, &path, &options)).unwrap();
            for (offset, len) in [(0, 10), (0, 300_000), (999, 2), (4095, 70_000), (299_999, 9)] {
                let got = block_on(file.read_at(&io, offset, len)).unwrap();
                let from = offset as usize;
                let to = (from + len).min(content.len());
                assert_eq!(got, content[from..to], "{io:?} {prefetch} {offset} {len}");
            }
            assert!(block_on(file.read_at(&io, 300_000, 10)).unwrap().is_empty());
        }
    }
}

#[test]
fn a_full_pool_refuses() {
    let dir = Dir::new();
    let path = dir.write("file", b"content");
    let pool = Pool::new(PoolConfig { name: String::from("tiny"), threads: 1, max_queue: 1 });
    let io = Io::new(pool.clone());
    let (release, wait) = std::sync::mpsc::channel::<()>();
    let (started, is_started) = std::sync::mpsc::channel();
    let running = crate::pool::blocking(&pool, move || {
        started.send(()).unwrap();
        let _ = wait.recv();
    });
    is_started.recv().unwrap();
    let queued = crate::pool::blocking(&pool, || ());
    let error = block_on(read(&io, &path, 100)).unwrap_err();
    let overflow = crate::pool::PoolError::of(&error).expect("an error of the pool");
    assert_eq!(overflow.to_string(), "thread pool \"tiny\" queue overflow: 1 tasks waiting");
    drop(release);
    block_on(running).unwrap();
    block_on(queued).unwrap();
    assert_eq!(&block_on(read(&io, &path, 100)).unwrap()[..], b"content");
}

#[test]
fn listings_are_bounded() {
    let (io, dir) = (io(), Dir::new());
    for n in 0..20 {
        dir.write(&format!("file{n}"), b"x");
    }
    symlink("nowhere", dir.0.join("file0-link")).unwrap();
    let name = |name: &str| Name { path: dir.path(name), symlinks: Symlinks::Follow };
    let list = |entries_max| {
        let options = ReadDirOptions { entries_max, metadata: true };
        block_on(read_dir(&io, &name(""), &options)).unwrap()
    };
    assert_eq!((list(5).entries.len(), list(5).truncated), (5, true));
    let mut reader = block_on(DirReader::open(&io, &dir.path(""))).unwrap();
    let mut names = Vec::new();
    loop {
        let options = ReadDirOptions { entries_max: 6, metadata: false };
        let listing = block_on(reader.next(&io, &options)).unwrap();
        names.extend(listing.entries.into_iter().map(|entry| entry.name));
        if !listing.truncated {
            break;
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 21, "every entry once, over four listings");
    let inside = Symlinks::Inside { from: dir.path("").len() - 1, hidden: true };
    let below = Name { path: dir.path(""), symlinks: inside };
    symlink("file1", dir.0.join("file1-link")).unwrap();
    symlink("/etc/passwd", dir.0.join("passwd")).unwrap();
    let options = ReadDirOptions { entries_max: 100, metadata: true };
    let listing = block_on(read_dir(&io, &below, &options)).unwrap();
    assert_eq!(listing.entries.len(), 22, "the link that leads out is left out");
    let is_file = |entry: &ListingEntry| entry.metadata.unwrap().is_file();
    let link = listing.entries.iter().find(|entry| entry.name == b"file1-link").unwrap();
    assert!(is_file(link) && link.kind == FileKind::Symlink);
    std::fs::remove_file(dir.0.join("file1-link")).unwrap();
    std::fs::remove_file(dir.0.join("passwd")).unwrap();
    let all = list(21);
    assert_eq!((all.entries.len(), all.truncated), (21, false));
    let link = all.entries.iter().find(|entry| entry.name == b"file0-link").unwrap();
    assert_eq!(link.metadata.unwrap().kind, FileKind::Symlink, "it leads nowhere");
    let options = ReadDirOptions { entries_max: 5, metadata: false };
    let error = block_on(read_dir(&io, &name("file1"), &options)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
}

#[test]
fn a_file_becomes_visible_whole() {
    let (io, dir) = (io(), Dir::new());
    let (temp, path) = (dir.path("sub/temp"), dir.path("sub/place/file"));
    let modes = PutModes { file: 0o600, dir: 0o700 };
    let put = |content: &'static str| block_on(put(&io, &temp, &path, vec![content.into()], modes));
    let first = put("first").unwrap();
    let second = put("second").unwrap();
    assert_ne!(first.ino, second.ino);
    assert_eq!(&block_on(read(&io, &path, 100)).unwrap()[..], b"second");
    assert_eq!(block_on(read(&io, &temp, 100)).unwrap_err().kind(), io::ErrorKind::NotFound);

    let write = |expected: &Metadata| block_on(patch(&io, &path, expected, 3, "X".into()));
    assert_eq!(write(&first).unwrap(), Patched::Replaced);
    assert_eq!(write(&second).unwrap(), Patched::Done);
    assert_eq!(&block_on(read(&io, &path, 100)).unwrap()[..], b"secXnd");

    let file = block_on(create(&io, &temp, &CreateOptions::default())).unwrap();
    block_on(file.write_at(&io, 4, vec!["body".into()])).unwrap();
    assert_eq!(&block_on(file.read_at(&io, 4, 10)).unwrap()[..], b"body", "while it is written");
    block_on(file.publish(&io, "head".into(), &temp, &path, 0o700)).unwrap();
    assert_eq!(&block_on(read(&io, &path, 100)).unwrap()[..], b"headbody");
}

#[test]
fn exclusive_creation_refuses_what_exists() {
    let (io, dir) = (io(), Dir::new());
    let path = dir.write("file", b"content");
    let error = block_on(create(&io, &path, &CreateOptions::default())).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let options = CreateOptions { exclusive: false, append: true, ..CreateOptions::default() };
    let file = block_on(create(&io, &path, &options)).unwrap();
    block_on(file.write_at(&io, 0, vec!["more".into()])).unwrap();
    assert_eq!(&block_on(read(&io, &path, 100)).unwrap()[..], b"contentmore");
    assert_eq!(block_on(read(&io, &path, 5)).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
    let path = Path::new(std::ffi::OsStr::from_bytes(&path)).to_owned();
    assert_eq!(std::fs::read(path).unwrap(), b"contentmore");
}

/// On network file systems, unlocking may wait for a dead server.
#[test]
fn locks_are_released_in_the_pool() {
    let pool = Pool::new(PoolConfig { name: String::from("test"), threads: 1, max_queue: 100 });
    let (io, others, dir) = (Io::new(pool.clone()), io(), Dir::new());
    let path = dir.path("lock");
    let is_locked = || block_on(lock(&others, &path, 0o600)).unwrap().is_none();
    let own = || block_on(lock(&io, &path, 0o600)).unwrap().expect("no other task has it");
    let held = own();
    assert!(is_locked());
    let (finish, finished) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let busy = crate::pool::blocking(&pool, move || {
        drop(begin);
        let _ = finished.recv();
    });
    let _ = begun.recv();
    drop(held);
    assert!(is_locked(), "the only thread is busy");
    drop(finish);
    block_on(busy).unwrap();
    block_on(own().release());
    assert!(!is_locked());
}
