//! More files than may be resident, of which one in a hundred is in use: what is kept stays within its
//! limits, and a scan of all files displaces none of those in use.

use std::fs;
use std::path::Path;

use nowait_testkit::skip::skip;
use nowait_testkit::wait::until;
use nowait_testkit::{Client, Server};
use serde_json::Value;

use super::{KB, MB, PATIENCE, binary, memory};

/// Files of each directory.
const FILES: usize = 10;

/// Of so many directories, one has a file in use.
const USED_DIRECTORIES: usize = 10;

/// The tree for which the default limits are made; those of a smaller one are in proportion.
const DIRECTORIES: usize = 100_000;
const WATCHES: usize = 32_768;
const MEMORY: u64 = 64 * MB;

/// What is measured beside the entries: what is known of files that are not resident (12 MB), pools that have had
/// more to do, and an allocator that keeps what was given back.
const SLACK: u64 = 22 * MB;

/// A part of memory that an allocator may waste.
const WASTE: u64 = 2;

fn path(directory: usize, file: usize) -> String {
    format!("/{:03}/{:03}/{file}", directory / 1000, directory % 1000)
}

fn content(path: &str) -> String {
    format!("the file {path}")
}

fn write(html: &Path, directories: usize) {
    for directory in 0..directories {
        for file in 0..FILES {
            let path = path(directory, file);
            let at = html.join(&path[1..]);
            if file == 0 {
                fs::create_dir_all(at.parent().unwrap()).unwrap();
            }
            fs::write(at, content(&path)).unwrap();
        }
    }
}

/// Asks for all of these at once.
fn ask(client: &mut Client, paths: &[String]) {
    let request = |path: &String| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n");
    client.send(paths.iter().map(request).collect::<String>());
    for path in paths {
        assert_eq!(client.response().text(), content(path));
    }
}

/// Entries, their bytes, their watches, and how often they were used.
struct ResidentCounts {
    entries: u64,
    bytes: u64,
    watches: u64,
    hits: u64,
    evicted: u64,
}

impl ResidentCounts {
    fn of(server: &Server) -> ResidentCounts {
        let text = server.get("/status/resident_files").text();
        let all: Value = serde_json::from_str(&text).unwrap();
        let number = |name: &str| all[name].as_u64().unwrap_or_else(|| panic!("no {name}: {all}"));
        ResidentCounts {
            entries: number("entries"),
            bytes: number("bytes"),
            watches: number("watches"),
            hits: number("hits"),
            evicted: number("evicted"),
        }
    }
}

/// Serves a tree with so many directories.
fn check(directories: usize) {
    let watches = WATCHES * directories / DIRECTORIES;
    let bytes = MEMORY * directories as u64 / DIRECTORIES as u64;
    let system = fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap();
    if system.trim().parse::<usize>().unwrap() / 2 < watches {
        return skip("watches", "fs.inotify.max_user_watches is too small");
    }
    let server = Server::of(binary())
        .http(&format!(
            "resident_files_watches {watches}; resident_files_memory {}k;
             server {{
                 listen 127.0.0.1:%%PORT%%;
                 root %%DIR%%/html;
                 keepalive_requests 1000000000;
                 location /status/ {{ status_api; }}
             }}",
            bytes / KB
        ))
        .allow_log("are not enough")
        .start();
    write(&server.dir().join("html"), directories);
    let used: Vec<String> =
        (0..directories).step_by(USED_DIRECTORIES).map(|directory| path(directory, 0)).collect();
    let mut client = server.client();
    let before = memory(&server);
    until("files in use that are resident", PATIENCE, || {
        let hits = ResidentCounts::of(&server).hits;
        used.chunks(FILES).for_each(|some| ask(&mut client, some));
        (ResidentCounts::of(&server).hits - hits >= used.len() as u64).then_some(())
    });
    let settled = ResidentCounts::of(&server);

    // A scan that asks for every file once, and one that asks twice, so that each is wanted.
    let mut in_turn = used.iter().cycle();
    let (mut asked, mut most) = (0, 0);
    for times in [1, 2] {
        for directory in 0..directories {
            let of_scan = (0..FILES).map(|file| path(directory, file));
            let mut paths: Vec<String> = of_scan.flat_map(|path| vec![path; times]).collect();
            paths.extend(in_turn.by_ref().take(FILES).cloned());
            asked += FILES as u64;
            ask(&mut client, &paths);
            if directory % (directories / 20) == 0 {
                let now = ResidentCounts::of(&server);
                assert!(now.bytes <= bytes, "{} bytes of {bytes}", now.bytes);
                assert!(now.watches <= watches as u64, "{} watches of {watches}", now.watches);
                most = most.max(now.entries);
            }
        }
    }
    let end = ResidentCounts::of(&server);
    let hits = end.hits - settled.hits;
    let grown = memory(&server).saturating_sub(before);
    eprintln!(
        "{} files, {} in use: {hits} of {asked} requests for those from memory; at most {most} entries, \
         {} evicted; at the end {} entries, {} KB of {} KB, {} watches of {watches}; {} KB more memory",
        directories * FILES,
        used.len(),
        end.evicted,
        end.entries,
        end.bytes / KB,
        bytes / KB,
        end.watches,
        grown / KB,
    );
    assert!(hits >= asked * 95 / 100, "{hits} of {asked} requests were answered from memory");
    assert!(grown <= bytes * WASTE + SLACK, "{grown} bytes more memory");
}

#[test]
fn a_scan_displaces_no_file_in_use() {
    check(DIRECTORIES / 50);
}

/// Writes a million files, and takes minutes; a build in release mode is faster.
#[test]
#[ignore = "writes a million files"]
fn a_scan_of_a_million_files_displaces_none_in_use() {
    check(DIRECTORIES);
}
