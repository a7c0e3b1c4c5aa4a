//! The slow disk proven against itself: it does what a disk does, when the test says.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use nowait_testkit::slow_disk::{
    DiskImage, DiskOptions, EIO, ImageOptions, Latency, Ops, SlowDisk, evict,
};

#[test]
fn passes_everything_through() {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let root = disk.path();
    fs::create_dir(root.join("dir")).unwrap();
    fs::write(root.join("dir/a"), "hello").unwrap();
    assert_eq!(fs::read(disk.backing().join("dir/a")).unwrap(), b"hello");

    let mut file = OpenOptions::new().read(true).append(true).open(root.join("dir/a")).unwrap();
    file.write_all(b", world").unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello, world");
    file.set_len(5).unwrap();
    file.sync_all().unwrap();

    fs::rename(root.join("dir/a"), root.join("b")).unwrap();
    assert_eq!(fs::read(root.join("b")).unwrap(), b"hello");
    assert!(fs::metadata(root.join("dir/a")).is_err());
    std::os::unix::fs::symlink("b", root.join("link")).unwrap();
    assert_eq!(fs::read(root.join("link")).unwrap(), b"hello");
    let mut names: Vec<_> = fs::read_dir(&root)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["b", "dir", "link"]);

    // An open file outlives its name.
    fs::remove_file(root.join("b")).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    assert!(fs::read(root.join("link")).is_err());
    fs::remove_dir(root.join("dir")).unwrap();
    assert_eq!(fs::metadata(root.join("dir")).unwrap_err().raw_os_error(), Some(2));
}

#[test]
fn a_gate_holds_each_kind_and_no_other() {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let root = disk.path();
    type Act = fn(&std::path::Path) -> std::io::Result<()>;
    let acts: [(Ops, Act); 9] = [
        (Ops::LOOKUP, |root| fs::metadata(root.join("file")).map(drop)),
        (Ops::GETATTR, |root| File::open(root.join("file"))?.metadata().map(drop)),
        (Ops::OPEN, |root| File::open(root.join("file")).map(drop)),
        (Ops::READ, |root| fs::read(root.join("file")).map(drop)),
        (Ops::WRITE, |root| fs::write(root.join("file"), "x")),
        (Ops::CREATE, |root| File::create(root.join("new")).map(drop)),
        (Ops::MKDIR, |root| fs::create_dir(root.join("dir"))),
        (Ops::RENAME, |root| fs::rename(root.join("new"), root.join("newer"))),
        (Ops::UNLINK, |root| fs::remove_file(root.join("newer"))),
    ];
    for (ops, act) in acts {
        disk.write_cold("file", "content");
        let gate = disk.hold(ops);
        let root = root.clone();
        let actor = thread::spawn(move || act(&root));
        gate.wait_waiting(1);
        assert!(!actor.is_finished(), "{ops:?}");
        gate.open();
        actor.join().unwrap().unwrap_or_else(|e| panic!("{ops:?}: {e}"));
    }
}

#[test]
fn any_number_of_operations_wait_side_by_side() {
    const N: usize = 100;
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    for n in 0..N {
        disk.write_cold(&format!("cold/{n}"), n.to_string());
    }
    disk.write_cold("hot/file", "hot");
    let gate = disk.hold(Ops::READ.under("cold"));
    let readers: Vec<_> = (0..N)
        .map(|n| {
            let path = disk.path().join(format!("cold/{n}"));
            thread::spawn(move || fs::read_to_string(path).unwrap())
        })
        .collect();
    gate.wait_waiting(N);
    assert_eq!(fs::read(disk.path().join("hot/file")).unwrap(), b"hot");
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    gate.open();
    for (n, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.join().unwrap(), n.to_string());
    }
}

#[test]
fn errors_come_out_as_errors() {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let path = disk.write_cold("file", "content");
    disk.fail(Ops::READ, EIO);
    assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), Some(EIO));
    disk.heal();
    assert_eq!(fs::read(&path).unwrap(), b"content");
    let gate = disk.hold(Ops::OPEN);
    let opener = thread::spawn(move || File::open(path).map(drop));
    gate.wait_waiting(1);
    gate.fail(EIO);
    assert_eq!(opener.join().unwrap().unwrap_err().raw_os_error(), Some(EIO));
}

#[test]
fn latency_is_taken_and_caches_spare_it() {
    const LATENCY: Duration = Duration::from_millis(50);
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let path = disk.write_cold("file", "content");
    let file = File::open(&path).unwrap();
    disk.delay(Ops::READ, Latency::from(LATENCY));
    let mut byte = [0];
    let began = Instant::now();
    file.read_exact_at(&mut byte, 0).unwrap();
    assert!(began.elapsed() >= LATENCY);
    let reads = disk.seen(Ops::READ);
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(disk.seen(Ops::READ), reads, "the second read came from the page cache");
    evict(&path).unwrap();
    file.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(disk.seen(Ops::READ), reads + 1, "after eviction it is cold again");
}

#[test]
fn dropping_a_hung_disk_frees_who_waits() {
    let Some(disk) = SlowDisk::or_skip(DiskOptions::default()) else { return };
    let path = disk.write_cold("file", "content");
    let gate = disk.hold(Ops::READ);
    let reader = thread::spawn(move || fs::read(path));
    gate.wait_waiting(1);
    let mount_point = disk.path();
    drop(disk);
    // With its content or with an error, but it comes back.
    let _ = reader.join().unwrap();
    assert!(!mount_point.exists());
    drop(gate);
}

#[test]
fn ext4_is_cold_after_mounting_and_hot_after_reading() {
    let Some(mut image) = DiskImage::or_skip(ImageOptions::default()) else { return };
    let path = image.write("dir/file", vec![7; 100_000]);
    image.make_cold();
    let before = image.disk().seen(Ops::READ);
    fs::metadata(&path).unwrap();
    let names = image.disk().seen(Ops::READ);
    assert!(names > before, "names and inodes are read from the disk");
    assert_eq!(fs::read(&path).unwrap(), vec![7; 100_000]);
    let content = image.disk().seen(Ops::READ);
    assert!(content > names, "data is read from the disk");
    assert_eq!(fs::read(&path).unwrap().len(), 100_000);
    assert_eq!(image.disk().seen(Ops::READ), content, "nothing is read twice");
}

#[test]
fn ext4_waits_for_its_disk_and_serves_what_is_cached() {
    const N: usize = 20;
    let Some(mut image) = DiskImage::or_skip(ImageOptions::default()) else { return };
    let hot = image.write("hot/file", "hot");
    let cold: Vec<_> =
        (0..N).map(|n| image.write(&format!("cold/{n}"), vec![n as u8; 300_000])).collect();
    image.make_cold();
    assert_eq!(fs::read(&hot).unwrap(), b"hot");
    for path in &cold {
        fs::metadata(path).unwrap();
    }
    let gate = image.hold();
    let readers: Vec<_> =
        cold.into_iter().map(|path| thread::spawn(move || fs::read(path).unwrap())).collect();
    gate.wait_waiting(N);
    assert_eq!(fs::read(&hot).unwrap(), b"hot");
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    gate.open();
    for (n, reader) in readers.into_iter().enumerate() {
        assert_eq!(reader.join().unwrap(), vec![n as u8; 300_000]);
    }
}

#[test]
fn synchronous_ext4_writes_wait_for_the_disk() {
    let Some(image) =
        DiskImage::or_skip(ImageOptions { synchronous: true, ..ImageOptions::default() })
    else {
        return;
    };
    let path = image.write("file", "old");
    let gate = image.hold();
    let writer = {
        let path = path.clone();
        thread::spawn(move || fs::write(path, "new"))
    };
    gate.wait_waiting(1);
    assert!(!writer.is_finished());
    gate.open();
    writer.join().unwrap().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
}

#[test]
fn ext4_reports_a_broken_disk() {
    let Some(mut image) = DiskImage::or_skip(ImageOptions::default()) else { return };
    let path = image.write("file", vec![1; 5000]);
    image.make_cold();
    let file = File::open(&path).unwrap();
    image.disk().fail(Ops::READ, EIO);
    let mut byte = [0];
    assert_eq!(file.read_at(&mut byte, 0).unwrap_err().raw_os_error(), Some(EIO));
    image.disk().heal();
    file.read_exact_at(&mut byte, 0).unwrap();
}

#[test]
fn a_fragmented_file_needs_its_map_first() {
    let Some(mut image) = DiskImage::or_skip(ImageOptions::default()) else { return };
    let path = image.write_fragmented("file", &vec![1; 200 * 4096]);
    image.make_cold();
    let file = File::open(&path).unwrap();
    let opened = image.disk().seen(Ops::READ);
    let mut byte = [0];
    file.read_exact_at(&mut byte, 0).unwrap();
    assert!(image.disk().seen(Ops::READ) >= opened + 2, "the extent map and the data");
}
