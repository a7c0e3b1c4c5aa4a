//! Entries on a real loop, with real changes.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::*;
use crate::driver::DriverKind;
use crate::pool::{Pool, PoolConfig};
use crate::worker::{self, WorkerConfig, Workers};
use crate::{receive_epoch, sleep};

/// Runs `test` on a loop with a pool, in a directory of its own.
fn on_a_loop<F>(name: &str, test: impl FnOnce(Io, PathBuf) -> F + Send)
where
    F: Future<Output = ()> + 'static,
{
    // Tests share the resident files.
    static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = crate::pool::lock(&ONE);
    // Removes the entries of other tests.
    configure(ResidentLimits { memory: 0, watches: 0 }).unwrap();
    configure(ResidentLimits { memory: 1 << 20, watches: 1000 }).unwrap();
    let dir = std::env::temp_dir().join(format!("nowait-resident-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir).unwrap();
    let dir = dir.canonicalize().unwrap();
    let workers = Workers::new(1).unwrap();
    let config = WorkerConfig::new(0, DriverKind::Epoll);
    let at = dir.clone();
    // A panic ends the task alone.
    let (sender, done) = std::sync::mpsc::channel();
    worker::run(config, &workers, move |_| {
        let mut io = Io::new(Pool::new(PoolConfig {
            name: String::from("test"),
            threads: 4,
            max_queue: 100,
        }));
        io.resident = 4096;
        let running = test(io, at);
        async move {
            running.await;
            sender.send(()).unwrap();
        }
    })
    .unwrap();
    done.try_recv().expect("the test panicked on its loop");
    let _ = fs::remove_dir_all(&dir);
}

/// The number of times that all entries were in doubt, which any mount on the machine causes, too.
fn age() -> u32 {
    ALL.get().unwrap().changes.age()
}

fn bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// As for a request that has just been received.
fn ask(io: &Io, path: &Path) -> Option<Arc<Resident>> {
    receive_epoch::add();
    find(io, bytes(path), Symlinks::Follow)
}

/// Repeats the look-up until there is an entry and no work is pending.
async fn settle(io: &Io, path: &Path) -> Arc<Resident> {
    // Files that change soon after they became resident are left alone for a while.
    asked(io, path, || path_history::forgive(hash(path))).await
}

/// Like [`settle`]; `again` is called before it is asked again.
async fn asked(io: &Io, path: &Path, again: impl Fn()) -> Arc<Resident> {
    let begin = Instant::now();
    loop {
        // Each look-up may have started making an entry.
        let is_pending = ALL.get().is_some_and(|all| !all.making.is_idle());
        if let Some(found) = ask(io, path).filter(|_| !is_pending) {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{} gets no entry", path.display());
        sleep(Duration::from_millis(1)).await;
        again();
    }
}

fn hash(path: &Path) -> u64 {
    forgetful::hash((3u8, bytes(path), Symlinks::Follow))
}

fn content(found: &Resident) -> &[u8] {
    found.file().unwrap().1
}

/// The current state in the file system.
fn truth(path: &Path) -> Option<Vec<u8>> {
    fs::read(path).ok()
}

#[test]
fn no_change_goes_unseen() {
    on_a_loop("changes", |io, dir| async move {
        let site = dir.join("site");
        fs::create_dir_all(dir.join("a/sub")).unwrap();
        fs::create_dir_all(dir.join("b/sub")).unwrap();
        fs::write(dir.join("a/sub/page"), "of a").unwrap();
        fs::write(dir.join("b/sub/page"), "of b").unwrap();
        symlink("a", &site).unwrap();
        let page = site.join("sub/page");
        let other = dir.join("elsewhere");
        type Change<'a> = Box<dyn Fn() + 'a>;
        let real = || fs::canonicalize(&site).unwrap().join("sub/page");
        let relink = |to: &str| {
            symlink(to, dir.join("new")).unwrap();
            fs::rename(dir.join("new"), &site).unwrap();
        };
        let changes: Vec<(&str, Change<'_>)> = vec![
            ("written over", Box::new(|| fs::write(real(), "new content").unwrap())),
            (
                "appended to",
                Box::new(|| {
                    use std::io::Write;
                    let mut file = fs::OpenOptions::new().append(true).open(real()).unwrap();
                    file.write_all(b", longer").unwrap();
                }),
            ),
            (
                "truncated",
                Box::new(|| {
                    fs::OpenOptions::new().write(true).open(real()).unwrap().set_len(3).unwrap();
                }),
            ),
            (
                "renamed over",
                Box::new(|| {
                    fs::write(&other, "renamed").unwrap();
                    fs::rename(&other, real()).unwrap();
                }),
            ),
            ("relinked", Box::new(|| relink("b"))),
            (
                "swapped directories",
                Box::new(|| {
                    fs::rename(dir.join("b"), dir.join("c")).unwrap();
                    fs::rename(dir.join("a"), dir.join("b")).unwrap();
                    fs::rename(dir.join("c"), dir.join("a")).unwrap();
                }),
            ),
            (
                "written by another name",
                Box::new(|| {
                    let _ = fs::remove_file(&other);
                    fs::hard_link(real(), &other).unwrap();
                    fs::write(&other, "by another name").unwrap();
                }),
            ),
            (
                "written through a descriptor that was open before",
                Box::new(|| {
                    use std::os::unix::fs::FileExt;
                    let file = fs::OpenOptions::new().write(true).open(real()).unwrap();
                    file.write_all_at(b"BY", 0).unwrap();
                }),
            ),
            ("removed", Box::new(|| fs::remove_file(real()).unwrap())),
            ("made again", Box::new(|| fs::write(real(), "again").unwrap())),
            (
                "removed with its directory",
                Box::new(|| fs::remove_dir_all(real().parent().unwrap()).unwrap()),
            ),
            (
                "made again with its directory",
                Box::new(|| {
                    let dir = fs::canonicalize(&site).unwrap().join("sub");
                    fs::create_dir(&dir).unwrap();
                    fs::write(dir.join("page"), "in a new directory").unwrap();
                }),
            ),
            ("relinked to nothing", Box::new(|| relink("nothing"))),
            ("relinked by an absolute path", Box::new(|| relink(dir.join("a").to_str().unwrap()))),
        ];
        for round in 0..3 {
            for (name, change) in &changes {
                let before = settle(&io, &page).await;
                let seen = before.file().map(|(_, content)| content.to_vec());
                assert_eq!(seen, truth(&page), "before it is {name}");
                change();
                // At once, as a request that was sent after the change.
                if let Some(found) = ask(&io, &page) {
                    let seen = found.file().map(|(_, content)| content.to_vec());
                    assert_eq!(seen, truth(&page), "{name}, round {round}");
                    assert!(!Arc::ptr_eq(&before, &found), "{name}: the old entry");
                }
            }
        }
    });
}

#[test]
fn permissions_are_those_of_now() {
    on_a_loop("modes", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        settle(&io, &page).await;
        fs::set_permissions(&page, Permissions::from_mode(0o600)).unwrap();
        assert!(ask(&io, &page).is_none(), "the mode of the file has changed");
        settle(&io, &page).await;
        fs::set_permissions(&dir, Permissions::from_mode(0o711)).unwrap();
        assert!(ask(&io, &page).is_none(), "the mode of its directory has changed");
    });
}

#[test]
fn what_concerns_others_changes_nothing() {
    on_a_loop("others", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        let before = settle(&io, &page).await;
        fs::write(dir.join("other"), "text").unwrap();
        fs::remove_file(dir.join("other")).unwrap();
        assert!(Arc::ptr_eq(&before, &ask(&io, &page).unwrap()));
        assert_eq!(content(&before), b"text");
    });
}

#[test]
fn missing_files_and_directories_are_known() {
    on_a_loop("missing", |io, dir| async move {
        let path = dir.join("no/such/file");
        let found = settle(&io, &path).await;
        assert_eq!(found.metadata().unwrap_err().kind(), io::ErrorKind::NotFound);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "now").unwrap();
        assert!(ask(&io, &path).is_none());
        assert_eq!(content(&*settle(&io, &path).await), b"now");
        let parent = settle(&io, path.parent().unwrap()).await;
        assert!(parent.metadata().unwrap().is_dir() && parent.file().is_none());
    });
}

#[test]
fn large_files_are_opened() {
    on_a_loop("large", |io, dir| async move {
        let path = dir.join("large");
        fs::write(&path, vec![b'x'; 5000]).unwrap();
        let refused = snapshot().refused;
        while snapshot().refused == refused {
            assert!(ask(&io, &path).is_none());
            sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
fn memory_is_bounded_and_a_scan_displaces_nothing() {
    on_a_loop("scan", |io, dir| async move {
        configure(ResidentLimits { memory: 20 * 1024, watches: 1000 }).unwrap();
        let path = |n: usize| dir.join(format!("file{n}"));
        for n in 0..200 {
            fs::write(path(n), vec![b'x'; 1000]).unwrap();
        }
        settle(&io, &path(0)).await;
        for _ in 0..40 {
            assert!(ask(&io, &path(0)).is_some());
        }
        for _ in 0..3 {
            for n in 1..200 {
                ask(&io, &path(n));
            }
            sleep(Duration::from_millis(20)).await;
        }
        assert!(ask(&io, &path(0)).is_some(), "in use, and kept");
        assert!(snapshot().bytes <= 20 * 1024, "{:?}", snapshot());
        configure(ResidentLimits { memory: 0, watches: 0 }).unwrap();
        assert!(ask(&io, &path(0)).is_none());
        assert_eq!((snapshot().entries, snapshot().bytes), (0, 0));
    });
}

#[test]
fn what_is_wanted_as_often_displaces_nothing() {
    on_a_loop("equal", |io, dir| async move {
        configure(ResidentLimits { memory: 20 * 1024, watches: 1000 }).unwrap();
        let path = |n: usize| dir.join(format!("file{n}"));
        for n in 0..100 {
            fs::write(path(n), vec![b'x'; 1000]).unwrap();
        }
        let (before, begin) = (snapshot(), Instant::now());
        let mut after = before.clone();
        let mut rounds = 0;
        while rounds < 20 || after.hits == before.hits || after.refused == before.refused {
            for n in 0..100 {
                ask(&io, &path(n));
            }
            sleep(Duration::from_millis(10)).await;
            rounds += 1;
            after = snapshot();
            assert!(begin.elapsed() < Duration::from_secs(60), "{before:?}, then {after:?}");
        }
        assert_eq!(after.evicted, before.evicted);
    });
}

#[test]
fn other_forms_are_kept_and_counted() {
    on_a_loop("forms", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        let found = settle(&io, &page).await;
        let before = age();
        let is_disturbed = || age() != before;
        assert_eq!(found.variant(1), None);
        for how in [1, 1, 2, 3, 4] {
            found.keep_variant(how, b"another form");
        }
        let is_kept = found.variant(1).as_deref() == Some(&b"another form"[..]);
        assert!(is_kept && snapshot().bytes == found.bytes() || is_disturbed());
        assert_eq!(found.variant(4), None, "there are enough");
        // Larger than there is room for.
        let other = settle(&io, &dir).await;
        other.keep_variant(1, &vec![b'x'; 2 << 20]);
        assert_eq!(other.variant(1), None);
        fs::write(&page, "new").unwrap();
        assert!(ask(&io, &page).is_none());
        found.keep_variant(5, b"too late");
        assert!(snapshot().bytes == other.bytes() || is_disturbed(), "{:?}", snapshot());
    });
}

#[test]
fn texts_are_made_once_and_go_with_their_entry() {
    on_a_loop("texts", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        let found = settle(&io, &page).await;
        let of_size = |metadata: &Metadata| [metadata.size.to_string().into(), Bytes::new()];
        assert_eq!(found.texts(of_size).unwrap()[0], "4");
        assert_eq!(found.texts(|_| panic!("made twice")).unwrap()[0], "4");
        fs::write(&page, "another").unwrap();
        let new = settle(&io, &page).await;
        assert_eq!(new.texts(of_size).unwrap()[0], "7");
        // A response with the old state shows its steps.
        assert_eq!(found.texts(of_size).unwrap()[0], "4");
        let directory = settle(&io, &dir).await;
        assert!(directory.texts(|_| panic!("not a file")).is_none());
    });
}

#[test]
fn watches_go_with_their_entries() {
    on_a_loop("watches", |io, dir| async move {
        for n in 0..20 {
            let page = dir.join(format!("dir{n}/page"));
            fs::create_dir_all(page.parent().unwrap()).unwrap();
            fs::write(&page, "text").unwrap();
            settle(&io, &page).await;
        }
        let before = snapshot().watches;
        assert!(before >= 40, "{before}");
        fs::remove_dir_all(&dir).unwrap();
        assert!(ask(&io, &dir.join("dir0/page")).is_none());
        ALL.get().unwrap().changes.clean_up();
        let after = snapshot().watches;
        assert!(after <= before - 40, "{after} of {before}");
    });
}

#[test]
fn lost_reports_drop_everything() {
    on_a_loop("lost", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        settle(&io, &page).await;
        let before = snapshot().overflows;
        ALL.get().unwrap().drop_all();
        assert!(ask(&io, &page).is_none());
        assert_eq!(snapshot().overflows, before + 1);
        settle(&io, &page).await;
    });
}

#[test]
fn files_of_a_lower_layer_are_seen_to_be_copied_up() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    on_a_loop("overlay", |io, dir| async move {
        for layer in ["lower", "upper", "work", "merged"] {
            fs::create_dir(dir.join(layer)).unwrap();
        }
        for name in ["written", "renamed", "removed", "mode"] {
            fs::write(dir.join("lower").join(name), "below").unwrap();
        }
        let merged = dir.join("merged");
        let at = |name: &str| dir.join(name).to_str().unwrap().to_owned();
        let options =
            format!("lowerdir={},upperdir={},workdir={}", at("lower"), at("upper"), at("work"));
        let options = std::ffi::CString::new(options).unwrap();
        if let Err(error) = mount("overlay", &merged, "overlay", MountFlags::empty(), &*options) {
            let reason = format!("overlayfs can't be mounted: {error}");
            return nowait_testkit::skip::skip_rare("overlay", &reason);
        }
        let written = settle(&io, &merged.join("written")).await;
        assert_eq!(content(&written), b"below");
        fs::write(merged.join("written"), "above").unwrap();
        assert!(ask(&io, &merged.join("written")).is_none());
        assert_eq!(content(&*settle(&io, &merged.join("written")).await), b"above");
        // Again, now in the upper layer.
        fs::write(merged.join("written"), "at the top").unwrap();
        assert!(ask(&io, &merged.join("written")).is_none());

        settle(&io, &merged.join("renamed")).await;
        fs::rename(merged.join("written"), merged.join("renamed")).unwrap();
        assert!(ask(&io, &merged.join("renamed")).is_none());

        settle(&io, &merged.join("removed")).await;
        fs::remove_file(merged.join("removed")).unwrap();
        assert!(ask(&io, &merged.join("removed")).is_none());

        settle(&io, &merged.join("mode")).await;
        fs::set_permissions(merged.join("mode"), Permissions::from_mode(0o600)).unwrap();
        assert!(ask(&io, &merged.join("mode")).is_none());
        unmount(&merged, UnmountFlags::DETACH).unwrap();
    });
}

#[test]
fn a_mount_hides_what_was_there() {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    on_a_loop("mounts", |io, dir| async move {
        let page = dir.join("sub/page");
        fs::create_dir(dir.join("sub")).unwrap();
        fs::write(&page, "below").unwrap();
        settle(&io, &page).await;
        if let Err(error) = mount("tmpfs", dir.join("sub"), "tmpfs", MountFlags::empty(), None) {
            return nowait_testkit::skip("root", &format!("tmpfs can't be mounted: {error}"));
        }
        assert!(ask(&io, &page).is_none(), "the mount hides it");
        fs::write(&page, "above").unwrap();
        assert_eq!(content(&*settle(&io, &page).await), b"above");
        unmount(dir.join("sub"), UnmountFlags::DETACH).unwrap();
        assert!(ask(&io, &page).is_none(), "it is visible again");
        assert_eq!(content(&*settle(&io, &page).await), b"below");
    });
}

#[test]
fn no_watch_outlives_its_use() {
    on_a_loop("leaks", |io, dir| async move {
        let page = |n: usize| dir.join(format!("dir{n}/page"));
        let top = dir.join("top");
        fs::write(&top, "text").unwrap();
        for n in 0..20 {
            fs::create_dir(dir.join(format!("dir{n}"))).unwrap();
            fs::write(page(n), "text").unwrap();
        }
        settle(&io, &top).await;
        let changes = &ALL.get().unwrap().changes;
        changes.clean_up();
        let before = snapshot().watches;
        for n in 0..20 {
            settle(&io, &page(n)).await;
        }
        assert_eq!(snapshot().watches, before + 40);
        // The files change and are not requested again; their directories stay unchanged.
        for n in 0..20 {
            fs::write(page(n), "changed").unwrap();
        }
        assert!(ask(&io, &top).is_some());
        changes.clean_up();
        assert_eq!(snapshot().watches, before, "neither files nor directories are watched");
        assert!(changes.is_empty_below(bytes(&dir.join("dir"))));
    });
}

#[test]
fn what_is_displaced_or_replaced_leaves_nothing() {
    on_a_loop("displaced", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        settle(&io, &page).await;
        let all = ALL.get().unwrap();
        let wanted = ResidentQuery {
            hash: hash(&page),
            path: bytes(&page).into(),
            symlinks: Symlinks::Follow,
            size_max: 4096,
            metadata: false,
            is_second: false,
        };
        // Two threads may make the same entry.
        let before = (snapshot().entries, snapshot().bytes, snapshot().watches);
        assert!(matches!(all.admit(&wanted, 2), Admission::Done));
        all.changes.clean_up();
        assert_eq!((snapshot().entries, snapshot().bytes, snapshot().watches), before);
        configure(ResidentLimits { memory: 0, watches: 0 }).unwrap();
        assert_eq!((snapshot().entries, snapshot().watches), (0, 0));
        assert!(all.changes.is_empty_below(b"/"));
    });
}

#[test]
fn a_change_of_very_many_files_drops_everything() {
    on_a_loop("mass", |io, dir| async move {
        configure(ResidentLimits { memory: 1 << 20, watches: 10_000 }).unwrap();
        let site = dir.join("site");
        fs::create_dir(&site).unwrap();
        let page = |n: usize| site.join(format!("page{n}"));
        let begun = age();
        for n in 0..400 {
            fs::write(page(n), n.to_string()).unwrap();
            settle(&io, &page(n)).await;
        }
        let is_disturbed = age() != begun;
        let before = snapshot().overflows;
        fs::rename(&site, dir.join("away")).unwrap();
        for n in 0..400 {
            assert!(ask(&io, &page(n)).is_none(), "page {n} is away");
        }
        assert!(snapshot().overflows > before || is_disturbed);
        fs::rename(dir.join("away"), &site).unwrap();
        assert_eq!(content(&*settle(&io, &page(7)).await), b"7");
        fs::remove_dir_all(&site).unwrap();
        assert!(ask(&io, &page(7)).is_none());
    });
}

#[test]
fn a_flood_of_reports_loses_none() {
    on_a_loop("flood", |io, dir| async move {
        // Long names, so that reports don't fit evenly into what is read at a time.
        let quiet = dir.join("quiet/page");
        let mut noisy = Vec::new();
        for n in 0..4 {
            let page = dir.join(format!("noisy{n}/page"));
            fs::create_dir(page.parent().unwrap()).unwrap();
            fs::write(&page, "text").unwrap();
            settle(&io, &page).await;
            noisy.push(page);
        }
        fs::create_dir(quiet.parent().unwrap()).unwrap();
        fs::write(&quiet, "old").unwrap();
        settle(&io, &quiet).await;
        let overflows = snapshot().overflows;
        // A few more than are taken at a time, in directories that are not left alone for that.
        for n in 0..changes::REPORTS_MAX / 2 + 20 {
            let other = noisy[n % 4].with_file_name("a name of its own length");
            fs::write(&other, "").unwrap();
            fs::remove_file(&other).unwrap();
        }
        fs::write(&quiet, "new").unwrap();
        for _ in 0..4 {
            if let Some(found) = ask(&io, &quiet) {
                assert_eq!(content(&found), b"new");
            }
        }
        assert_eq!(snapshot().overflows, overflows, "the reports were taken, not lost");
    });
}

#[test]
fn a_queue_that_overflows_drops_everything() {
    on_a_loop("overflow", |io, dir| async move {
        let max = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let max: usize = max.trim().parse().unwrap();
        let page = dir.join("page");
        fs::write(&page, "old").unwrap();
        settle(&io, &page).await;
        let before = snapshot().overflows;
        for _ in 0..=max / 2 {
            fs::write(dir.join("other"), "").unwrap();
            fs::remove_file(dir.join("other")).unwrap();
        }
        // The queue has no room for its report.
        fs::write(&page, "new").unwrap();
        for _ in 0..max / changes::REPORTS_MAX + 2 {
            if let Some(found) = ask(&io, &page) {
                assert_eq!(content(&found), b"new");
            }
        }
        assert_eq!(content(&*settle(&io, &page).await), b"new");
        assert!(snapshot().overflows > before, "{:?}", snapshot());
        assert!(take_notice().dropped && !take_notice().dropped, "told once");
    });
}

#[test]
fn the_hotter_path_wins_and_watches_are_bounded() {
    on_a_loop("hotter", |io, dir| async move {
        for n in 0..3 {
            fs::write(dir.join(format!("page{n}")), "text").unwrap();
        }
        let page = |n: usize| dir.join(format!("page{n}"));
        settle(&io, &page(0)).await;
        for _ in 0..5 {
            ask(&io, &page(0));
        }
        // No room for another watch.
        let full = snapshot().watches;
        configure(ResidentLimits { memory: 1 << 20, watches: full }).unwrap();
        let refused = snapshot().refused;
        while snapshot().refused == refused {
            assert!(ask(&io, &page(1)).is_none());
            sleep(Duration::from_millis(1)).await;
        }
        assert!(take_notice().unwatched && !take_notice().unwatched, "told once");
        // Wanted far more often, it displaces the other.
        let begin = Instant::now();
        while ask(&io, &page(1)).is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", snapshot());
            sleep(Duration::from_millis(1)).await;
        }
        assert!(snapshot().watches <= full);
    });
}

#[test]
fn a_path_is_refused_after_its_second_short_life() {
    on_a_loop("short", |io, dir| async move {
        let page = dir.join("page");
        fs::write(&page, "text").unwrap();
        loop {
            let found = asked(&io, &page, || {}).await;
            fs::write(&page, "changed").unwrap();
            assert!(ask(&io, &page).is_none());
            // If the machine's clock stands still, no entry is short-lived.
            let is_short = clock_ms() - found.made_ms < SHORT_LIVED_MS;
            if !found.is_second {
                assert!(!path_history::is_refused(hash(&page)), "changed once");
            } else if is_short {
                assert!(path_history::is_refused(hash(&page)));
                break;
            }
        }
    });
}

#[test]
fn a_change_during_a_walk_is_a_short_life() {
    on_a_loop("race", |_, dir| async move {
        let page = dir.join("page");
        let wanted = |is_second| ResidentQuery {
            hash: hash(&page),
            path: bytes(&page).into(),
            symlinks: Symlinks::Follow,
            size_max: 4096,
            metadata: false,
            is_second,
        };
        Admission::Changed.remember(&wanted(false));
        assert!(!path_history::is_refused(hash(&page)));
        Admission::Changed.remember(&wanted(true));
        assert!(path_history::is_refused(hash(&page)));
    });
}

#[test]
fn a_path_that_needs_more_watches_than_are_free_gets_them() {
    on_a_loop("deep", |io, dir| async move {
        let (shallow, deep) = (dir.join("page"), dir.join("a/b/c/page"));
        fs::create_dir_all(deep.parent().unwrap()).unwrap();
        fs::write(&shallow, "text").unwrap();
        fs::write(&deep, "text").unwrap();
        settle(&io, &shallow).await;
        let many: Vec<_> = (0..3).map(|n| dir.join(format!("page{n}"))).collect();
        for page in &many {
            fs::write(page, "text").unwrap();
            settle(&io, page).await;
        }
        // One is free, four are needed.
        let watches = snapshot().watches + 1;
        configure(ResidentLimits { memory: 1 << 20, watches }).unwrap();
        asked(&io, &deep, || {}).await;
        assert!(snapshot().watches <= watches);
    });
}

#[test]
fn a_path_that_has_to_wait_is_wanted_still() {
    on_a_loop("busy", |io, dir| async move {
        let page = |n: usize| dir.join(format!("page{n}"));
        let all = ALL.get().unwrap();
        settle(&io, &dir).await;
        for n in 0.. {
            fs::write(page(n), "text").unwrap();
            let begin = path_history::tick(clock_ms());
            let others: Vec<_> = (1..=build_set::MAKING_MAX as u64)
                .map(|other| all.making.begin(other).unwrap())
                .collect();
            let made = snapshot().admitted;
            ask(&io, &page(n));
            ask(&io, &page(n));
            drop(others);
            assert!(all.making.is_idle());
            ask(&io, &page(n));
            let is_making = !all.making.is_idle() || snapshot().admitted > made;
            // Counts fade.
            if path_history::tick(clock_ms()) == begin {
                assert!(is_making);
                break;
            }
        }
    });
}
