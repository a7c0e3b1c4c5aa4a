//! Every way to change a file while it is resident: a client that asks afterwards gets what is there now.

use std::cell::Cell;
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nowait_testkit::http2::Http2;
use nowait_testkit::slow_disk::{DiskImage, ImageFormat, ImageOptions};
use nowait_testkit::{Client, Response, Server, ServerBuilder, skip, wait};

use crate::stage::{on_each_driver, send, server};

/// The steps of a change, in a directory where `now` links to `one`, and `one/sub` and `two/sub` have a
/// `page` each. Clients ask after every step.
type ChangeSteps = &'static [(&'static str, fn(&Path))];

const CHANGES: &[ChangeSteps] = &[
    &[("written over", |dir| fs::write(page(dir), "of another length").unwrap())],
    &[("written over by the same length", |dir| fs::write(page(dir), "ONE").unwrap())],
    &[
        ("written in place", |dir| open(dir).write_all_at(b"O", 0).unwrap()),
        ("truncated", |dir| open(dir).set_len(1).unwrap()),
        ("extended", |dir| open(dir).set_len(5).unwrap()),
        ("emptied", |dir| open(dir).set_len(0).unwrap()),
    ],
    &[("appended to", |dir| {
        let mut file = OpenOptions::new().append(true).open(page(dir)).unwrap();
        file.write_all(b", longer").unwrap();
    })],
    &[("copied over", |dir| run("cp", &[dir.join("two/sub/page"), page(dir)]))],
    &[("renamed over", |dir| fs::rename(dir.join("two/sub/page"), page(dir)).unwrap())],
    &[("renamed over by a link to itself", |dir| {
        fs::rename(page(dir), dir.join("aside")).unwrap();
        symlink("page", page(dir)).unwrap();
    })],
    &[
        ("removed", |dir| fs::remove_file(page(dir)).unwrap()),
        ("made again", |dir| fs::write(page(dir), "again").unwrap()),
        ("replaced by a directory", |dir| {
            fs::remove_file(page(dir)).unwrap();
            fs::create_dir(page(dir)).unwrap();
        }),
    ],
    &[
        ("relinked", |dir| relink(dir, "two")),
        ("relinked by an absolute path", |dir| relink(dir, dir.join("one").to_str().unwrap())),
        ("relinked to nothing", |dir| relink(dir, "nothing")),
        ("relinked by a detour", |dir| relink(dir, "one/../two")),
    ],
    &[("swapped with another directory", |dir| {
        fs::rename(dir.join("one"), dir.join("three")).unwrap();
        fs::rename(dir.join("two"), dir.join("one")).unwrap();
        fs::rename(dir.join("three"), dir.join("two")).unwrap();
    })],
    &[("moved with its directory into another", |dir| {
        fs::rename(dir.join("one/sub"), dir.join("two/old")).unwrap();
        fs::rename(dir.join("two/sub"), dir.join("one/sub")).unwrap();
    })],
    &[("removed with its directory", |dir| fs::remove_dir_all(dir.join("one")).unwrap())],
    &[
        ("unreadable", |dir| mode(&page(dir), 0o000)),
        ("readable", |dir| mode(&page(dir), 0o644)),
        ("in a closed directory", |dir| mode(&dir.join("one"), 0o700)),
        ("in an open directory", |dir| mode(&dir.join("one"), 0o755)),
    ],
    &[
        ("linked", |dir| fs::hard_link(page(dir), dir.join("other")).unwrap()),
        ("written by the other name", |dir| fs::write(dir.join("other"), "of other").unwrap()),
    ],
    &[("touched", |dir| run("touch", &["--date=2001-01-01", text(&page(dir))]))],
];

const MOUNTS: &[ChangeSteps] = &[
    &[
        ("mounted over", |dir| {
            run("mount", &["-t", "tmpfs", "none", text(&dir.join("one/sub"))]);
        }),
        ("written above", |dir| fs::write(page(dir), "above").unwrap()),
        ("unmounted", |dir| run("umount", &["-l", text(&dir.join("one/sub"))])),
    ],
    &[
        ("another file is bound there", |dir| {
            run("mount", &["--bind", text(&dir.join("two/sub/page")), text(&page(dir))]);
        }),
        ("that is changed", |dir| fs::write(dir.join("two/sub/page"), "changed").unwrap()),
        ("that is removed", |dir| unmount(&dir.join("one/sub/page"))),
    ],
    &[
        ("another directory is bound there", |dir| {
            run("mount", &["--bind", text(&dir.join("two")), text(&dir.join("one"))]);
        }),
        ("a file in it is changed", |dir| fs::write(dir.join("two/sub/page"), "2").unwrap()),
        ("it is gone", |dir| unmount(&dir.join("one"))),
    ],
];

const REFLINKS: &[ChangeSteps] = &[
    &[("cloned over", |dir| {
        let from = dir.join("two/sub/page");
        run("cp", &["--reflink=always", text(&from), text(&page(dir))]);
    })],
    &[("replaced by a clone", |dir| {
        let (from, to) = (dir.join("two/sub/page"), dir.join("clone"));
        run("cp", &["--reflink=always", text(&from), text(&to)]);
        fs::rename(to, page(dir)).unwrap();
    })],
];

fn page(dir: &Path) -> std::path::PathBuf {
    dir.join("one/sub/page")
}

fn open(dir: &Path) -> fs::File {
    OpenOptions::new().write(true).open(page(dir)).unwrap()
}

fn mode(path: &Path, bits: u32) {
    fs::set_permissions(path, Permissions::from_mode(bits)).unwrap();
}

fn relink(dir: &Path, to: &str) {
    symlink(to, dir.join("new")).unwrap();
    fs::rename(dir.join("new"), dir.join("now")).unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn run(program: &str, args: &[impl AsRef<std::ffi::OsStr>]) {
    let status = Command::new(program).args(args).status().unwrap();
    assert!(status.success(), "{program}: {status}");
}

/// Unmounts as soon as no file below is open, as one may be for a moment behind a response.
fn unmount(dir: &Path) {
    wait::until("the mount to be unused", wait::PATIENCE, || {
        Command::new("umount").arg(dir).status().unwrap().success().then_some(())
    });
}

/// Connections to several workers, by both versions of HTTP.
struct Clients {
    http1: Vec<Client>,
    http2: Vec<Http2>,
}

impl Clients {
    fn new(server: &Server) -> Clients {
        Clients {
            http1: (0..3).map(|_| server.client()).collect(),
            http2: (0..2).map(|_| Http2::to_port(server.port())).collect(),
        }
    }

    /// One response per connection, and one more to a pipelined request.
    fn ask(&mut self, target: &str) -> Vec<Response> {
        let mut responses: Vec<_> = self.http1.iter_mut().map(|c| c.get(target)).collect();
        responses.extend(self.http2.iter_mut().map(|client| client.get(target)));
        let first = &mut self.http1[0];
        send(first, target, &[]);
        send(first, target, &[]);
        responses.extend([first.response(), first.response()]);
        responses
    }
}

/// What must not be outdated.
fn essence(response: &Response) -> (u16, String, Option<&str>, Option<&str>) {
    let text = if response.status == 200 { response.text() } else { String::new() };
    (response.status, text, response.header("etag"), response.header("last-modified"))
}

fn hits(server: &Server) -> u64 {
    let all = server.get("/status/resident_files").text();
    serde_json::from_str::<serde_json::Value>(&all).unwrap()["hits"].as_u64().unwrap()
}

/// A server of this directory; below `/off/`, every file is opened.
fn site(root: &str) -> ServerBuilder {
    server(&format!(
        "http2 on; keepalive_requests 1000000; location /status/ {{ status_api; }}
         location /on/ {{ alias {root}/; }} location /off/ {{ alias {root}/; resident_files off; }}"
    ))
    .workers(2)
    .file("html/empty", "")
}

/// Makes changes below a directory of this name in `root`; returns how many concerned files in memory.
fn check(server: &Server, root: &Path, name: &str, changes: &[ChangeSteps]) -> usize {
    // The mounts of one test put everything in doubt for the others.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut clients = Clients::new(server);
    let mut from_memory = 0;
    for (number, change) in changes.iter().enumerate() {
        // Each with paths of its own: files that change all the time are not resident.
        let dir = root.join(format!("{name}/{number}"));
        for (part, content) in [("one", "one"), ("two", "two, and longer")] {
            fs::create_dir_all(dir.join(part).join("sub")).unwrap();
            fs::write(dir.join(part).join("sub/page"), content).unwrap();
        }
        symlink("one", dir.join("now")).unwrap();
        let _mounts = Mounts(&dir);
        let target = |place: &str| format!("/{place}/{name}/{number}/now/sub/page");
        // Other mounts may delay that for so long that the test doesn't wait for it.
        let seen = wait::try_until(Duration::from_secs(3), || {
            let before = hits(server);
            clients.ask(&target("on"));
            (hits(server) > before).then_some(())
        });
        from_memory += usize::from(seen.is_some());
        for (step, make) in *change {
            make(&dir);
            let responses = clients.ask(&target("on"));
            let now = server.get(&target("off"));
            for response in &responses {
                assert_eq!(essence(response), essence(&now), "{step}");
            }
            // Perhaps resident again, and to be changed once more.
            (0..3).for_each(|_| drop(clients.ask(&target("on"))));
        }
    }
    eprintln!("{name}: {from_memory} of {} from memory", changes.len());
    from_memory
}

/// What a failed test has left mounted in a directory.
struct Mounts<'a>(&'a Path);

impl Drop for Mounts<'_> {
    fn drop(&mut self) {
        for place in ["one/sub/page", "one/sub", "one"] {
            if std::thread::panicking() {
                let _ = Command::new("umount").arg("-l").arg(self.0.join(place)).output();
            }
        }
    }
}

/// Whether this process may mount; tells if not.
pub fn may_mount() -> bool {
    let uid = Command::new("id").arg("-u").output().unwrap().stdout;
    let is_root = uid.starts_with(b"0\n");
    if !is_root {
        skip("root", "only root may mount");
    }
    is_root
}

#[test]
fn no_change_is_missed() {
    on_each_driver(&site("%%DIR%%/html"), |server| {
        let from_memory = check(server, &server.dir().join("html"), "tree", CHANGES);
        assert!(from_memory > 0);
    });
}

#[test]
fn no_mount_is_missed() {
    if !may_mount() {
        return;
    }
    on_each_driver(&site("%%DIR%%/html"), |server| {
        check(server, &server.dir().join("html"), "tree", MOUNTS);
    });
}

#[test]
fn other_file_systems_report_as_much() {
    for format in [ImageFormat::Xfs, ImageFormat::Btrfs] {
        let options = ImageOptions { format, ..ImageOptions::default() };
        let Some(disk) = DiskImage::or_skip(options) else { continue };
        let drivers = Cell::new(0);
        on_each_driver(&site(text(disk.path())), |server| {
            drivers.set(drivers.get() + 1);
            for (name, changes) in [("plain", CHANGES), ("reflinks", REFLINKS)] {
                check(server, disk.path(), &format!("{name}{}", drivers.get()), changes);
            }
        });
    }
}
