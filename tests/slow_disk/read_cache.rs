//! `read_cache`: what was read once from the disk leaves the page cache, what is read again stays, however it
//! is sent.

use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nowait_testkit::http2::Http2;
use nowait_testkit::http3::Http3;
use nowait_testkit::slow_disk::{DiskImage, ImageFormat, ImageOptions, Quiet, evict, quiet};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server, skip};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const MIB: usize = 1 << 20;

/// Files of up to this size always stay.
const SMALL: usize = 64 * 1024;

/// Makes one test per file system and driver of each function `fn(&mut Site)`.
macro_rules! on_every_disk {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            use nowait_testkit::Driver::{Epoll, IoUring};
            use nowait_testkit::slow_disk::ImageFormat::{Btrfs, Ext4, Xfs};

            #[test]
            fn ext4_epoll() {
                super::on(Ext4, Epoll, super::$name);
            }
            #[test]
            fn xfs_io_uring() {
                super::on(Xfs, IoUring, super::$name);
            }
            // It has no RWF_DONTCACHE: pages are dropped behind the reader.
            #[test]
            fn btrfs_epoll() {
                super::on(Btrfs, Epoll, super::$name);
            }
        })*
    };
}

on_every_disk!(
    the_second_read_stays,
    ways_and_versions,
    sizes_around_bounds,
    ranges,
    settings,
    what_others_use_stays,
);

/// A server with files on a disk of its own. Fields are dropped in order: the server goes before its disk.
struct Site {
    server: Server,
    certificates: RootCertStore,
    image: DiskImage,
    format: ImageFormat,
    _quiet: Quiet,
}

const LOCATIONS: &str = "
    location /copied/ { sendfile off; }
    location /chunks/ { sendfile_max_chunk 16k; }
    location /on/ { read_cache on; }
    location /off/ { read_cache off; }";

const HTTP: &str = "
    sendfile on;
    resident_files off;
    read_cache auto;
    server { listen 127.0.0.1:%%PORT%%; root %%DISK%%; LOCATIONS }
    server { listen 127.0.0.1:%%PORT_1%%; http2 on; root %%DISK%%; LOCATIONS }
    ssl_certificate 'data:CERTIFICATE';
    ssl_certificate_key 'data:KEY';
    server { listen 127.0.0.1:%%PORT_2%% ssl; listen 127.0.0.1:%%PORT_2%% quic; root %%DISK%%; LOCATIONS }";

fn on(format: ImageFormat, driver: Driver, test: impl Fn(&mut Site)) {
    let options = ImageOptions { format, size: 256 << 20, ..ImageOptions::default() };
    let Some(image) = DiskImage::or_skip(options) else { return };
    let quiet = quiet();
    let own = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let mut certificates = RootCertStore::empty();
    certificates.add(own.cert.der().clone()).unwrap();
    let http = HTTP
        .replace("LOCATIONS", LOCATIONS)
        .replace("CERTIFICATE", &own.cert.pem())
        .replace("KEY", &own.signing_key.serialize_pem());
    let server = Server::of(Binary::under_test(env!("CARGO_BIN_EXE_nowait")))
        .driver(driver)
        .workers(1)
        .variable("DISK", image.path().display())
        .http(&http)
        // On a busy machine, a process that has been killed may take a moment to be gone.
        .allow_log("was killed but cannot end while a disk does not answer")
        .start();
    if driver == Driver::IoUring && !server.log().contains("\"io_uring\"") {
        skip("io_uring", "the server does not use io_uring here");
        return;
    }
    let mut site = Site { server, certificates, image, format, _quiet: quiet };
    test(&mut site);
    assert_eq!(site.server.stop().code(), Some(0));
}

/// How a file is asked for.
#[derive(Clone, Copy, Debug)]
enum Way {
    Plain,
    Tls,
    Http2,
    Http3,
}

impl Site {
    /// Writes a file that is not in memory.
    fn write(&self, name: &str, size: usize) -> (PathBuf, Vec<u8>) {
        let content: Vec<u8> = format!("{name}|").bytes().cycle().take(size).collect();
        let path = self.image.write(name, &content);
        // A file system may still hold a page that it has just written.
        until("no page in memory", PATIENCE, || {
            evict(&path).unwrap();
            (cached_pages(&path) == 0).then_some(())
        });
        (path, content)
    }

    fn get(&self, way: Way, name: &str) -> Vec<u8> {
        let target = format!("/{name}");
        match way {
            Way::Plain => self.server.get(&target).body,
            Way::Tls => self.get_by_tls(&target),
            Way::Http2 => Http2::to_port(self.server.port_n(1)).get(&target).body,
            Way::Http3 => Http3::to_port(self.server.port_n(2)).get(&target).body,
        }
    }

    fn get_by_tls(&self, target: &str) -> Vec<u8> {
        let config = ClientConfig::builder()
            .with_root_certificates(self.certificates.clone())
            .with_no_client_auth();
        let name = "localhost".try_into().unwrap();
        let connection = ClientConnection::new(Arc::new(config), name).unwrap();
        let socket = TcpStream::connect(("127.0.0.1", self.server.port_n(2))).unwrap();
        let mut stream = StreamOwned::new(connection, socket);
        write!(stream, "GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(head)
    }

    fn assert_right(&self, way: Way, name: &str, content: &[u8]) {
        assert!(self.get(way, name) == content, "{way:?} {name}");
    }
}

/// How much of a file is in the page cache, in percent.
#[track_caller]
fn resident(path: &Path) -> u64 {
    let pages = std::fs::metadata(path).unwrap().len().div_ceil(4096);
    100 * cached_pages(path) / pages
}

#[track_caller]
fn cached_pages(path: &Path) -> u64 {
    let file = File::open(path).unwrap();
    nowait_sys::fs::cachestat(file.as_fd(), 0, 0).unwrap().cached
}

/// Little is left. A page that was in use just when it was to be dropped stays.
#[track_caller]
fn assert_dropped(path: &Path) {
    let resident = resident(path);
    assert!(resident <= 15, "{}: {resident} % are in memory", path.display());
}

/// Pages that were read ahead for a reader that drops them may be missing.
#[track_caller]
fn assert_kept(path: &Path) {
    let resident = resident(path);
    assert!(resident >= 70, "{}: {resident} % are in memory", path.display());
}

fn the_second_read_stays(site: &mut Site) {
    let (path, content) = site.write("file", 5 * MIB + 77);
    site.assert_right(Way::Plain, "file", &content);
    assert_dropped(&path);
    site.assert_right(Way::Plain, "file", &content);
    assert_kept(&path);
    site.assert_right(Way::Plain, "file", &content);
    assert_eq!(resident(&path), 100);
    // Again, on one connection, after the kernel has dropped it.
    evict(&path).unwrap();
    let mut client = site.server.client();
    for _ in 0..2 {
        assert!(client.get("/file").body == content);
        assert_kept(&path);
    }
}

fn ways_and_versions(site: &mut Site) {
    for way in [Way::Plain, Way::Tls, Way::Http2, Way::Http3] {
        for directory in ["plain", "copied", "chunks"] {
            let name = format!("{directory}/{way:?}");
            let (path, content) = site.write(&name, 2 * MIB + 1);
            site.assert_right(way, &name, &content);
            // Known to fail on a busy machine: without RWF_DONTCACHE, the first small chunk may find pages that look
            // like those of others, and then all stay.
            if (directory, site.format) != ("chunks", ImageFormat::Btrfs) {
                assert_dropped(&path);
            }
            site.assert_right(way, &name, &content);
            site.assert_right(way, &name, &content);
            assert_kept(&path);
        }
    }
}

fn sizes_around_bounds(site: &mut Site) {
    for size in [1, 4096, SMALL - 1, SMALL] {
        let name = format!("small-{size}");
        let (path, content) = site.write(&name, size);
        site.assert_right(Way::Plain, &name, &content);
        assert_eq!(resident(&path), 100, "{name}");
    }
    let large = [SMALL + 1, 2 * SMALL, 2 * SMALL + 1, 512 * 1024, MIB - 1, MIB, MIB + 1, 3 * MIB];
    for size in large {
        for way in [Way::Plain, Way::Http2] {
            let name = format!("large-{way:?}-{size}");
            let (path, content) = site.write(&name, size);
            site.assert_right(way, &name, &content);
            // Of the smallest, a page or two are much.
            assert!(resident(&path) <= 30, "{name}: {} %", resident(&path));
            site.assert_right(way, &name, &content);
            site.assert_right(way, &name, &content);
            assert_kept(&path);
        }
    }
}

fn ranges(site: &mut Site) {
    let (path, content) = site.write("file", 6 * MIB);
    let part = |from: usize, to: usize| {
        let mut client = site.server.client();
        client.send(format!(
            "GET /file HTTP/1.1\r\nHost: localhost\r\nRange: bytes={from}-{}\r\n\r\n",
            to - 1
        ));
        let response = client.response();
        assert_eq!(response.status, 206);
        assert!(response.body == content[from..to], "{from}-{to}");
    };
    // A download in parts is one read.
    for (from, to) in [(0, 700_000), (700_000, 700_001), (700_001, 3 * MIB), (3 * MIB, 6 * MIB)] {
        part(from, to);
    }
    assert_dropped(&path);
    // Only the part that is read again stays.
    for _ in 0..2 {
        part(4 * MIB, 5 * MIB);
    }
    let kept = resident(&path);
    assert!((10..=60).contains(&kept), "{kept} % are in memory");
}

fn settings(site: &mut Site) {
    let (path, content) = site.write("on/file", 2 * MIB);
    site.assert_right(Way::Plain, "on/file", &content);
    assert_eq!(resident(&path), 100);
    let (path, content) = site.write("off/file", 2 * MIB);
    for way in [Way::Plain, Way::Tls, Way::Plain, Way::Http2] {
        site.assert_right(way, "off/file", &content);
        assert_dropped(&path);
    }
}

fn what_others_use_stays(site: &mut Site) {
    for name in ["file", "off/file"] {
        let (path, content) = site.write(name, 2 * MIB);
        assert!(std::fs::read(&path).unwrap() == content);
        assert_eq!(resident(&path), 100);
        for way in [Way::Plain, Way::Tls, Way::Http2, Way::Plain] {
            site.assert_right(way, name, &content);
            assert_eq!(resident(&path), 100, "{name}");
        }
    }
}
