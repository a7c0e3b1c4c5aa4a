//! Uploads to a disk that is full: each is refused by itself, and leaves nothing behind.

use std::path::{Path, PathBuf};
use std::process::Command;

use nowait_testkit::skip::skip;
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Server, TempDir};

use crate::stage::{asks_nginx, on_each_driver, server};

/// A small file system.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn or_skip(at: &Path) -> Option<Self> {
        let options = ["-t", "tmpfs", "-o", "size=512k,mode=1777", "tmpfs"];
        let output = Command::new("mount").args(options).arg(at).output();
        if output.is_ok_and(|output| output.status.success()) {
            return Some(Self(at.to_owned()));
        }
        skip("root", "only root may mount");
        None
    }

    fn files(&self) -> usize {
        fn count(directory: &Path) -> usize {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries
                .map(|entry| match entry.file_type() {
                    Ok(kind) if kind.is_dir() => count(&entry.path()),
                    _ => 1,
                })
                .sum()
        }
        count(&self.0)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// The status of an upload of so many bytes.
fn upload(server: &Server, path: &str, length: usize) -> u16 {
    let mut client = server.client();
    client.send(format!("PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n"));
    // The server may refuse before it has everything.
    let _ = std::io::Write::write_all(&mut client.stream(), &vec![b'x'; length]);
    client.response().status
}

#[test]
fn uploads_that_do_not_fit() {
    // nginx responds with 500.
    if asks_nginx() {
        return;
    }
    let dir = TempDir::new("full");
    let Some(disk) = SmallDisk::or_skip(dir.path()) else { return };
    let at = dir.path().display();
    let builder = server(&format!(
        "client_max_body_size 10m; client_body_buffer_size 8k; client_body_temp_path {at}/temp;
         location /dav/ {{ root {at}; dav_methods PUT; create_full_put_path on; }}
         location /proxied {{ proxy_pass http://127.0.0.1:1; }}"
    ))
    .allow_log("No space left on device")
    .allow_log("connect() failed");
    on_each_driver(&builder, |server| {
        for path in ["/dav/large", "/proxied"] {
            assert_eq!(upload(server, path, 2 << 20), 507, "{path}");
            until("no file to be left", PATIENCE, || (disk.files() == 0).then_some(()));
        }
        // Others are served meanwhile, and afterwards.
        assert_eq!(upload(server, "/dav/small", 100_000), 201);
        assert_eq!(upload(server, "/proxied", 100_000), 502);
        until("its file", PATIENCE, || (disk.files() == 1).then_some(()));
        std::fs::remove_file(dir.path().join("dav/small")).unwrap();
    });
}
