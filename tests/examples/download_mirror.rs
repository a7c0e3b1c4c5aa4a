//! `examples/download-mirror.conf`: listings, resumed downloads, limits and what is to be watched.

use nowait_testkit::Server;

use super::curl::{curl, is_installed};
use super::{content, example};

const BYTES: usize = 3 << 20;

fn mirror(text: &str) -> Server {
    example(text)
        .file("log/kept", "")
        .file("srv/mirror/iso/disk.iso", content(BYTES))
        .file("srv/mirror/iso/SHA256SUMS", "sums")
        .file("srv/mirror/archive/old/a.tar", "old")
        .allow_log("limiting")
        .start()
}

const TEXT: &str = include_str!("../../examples/download-mirror.conf");

#[test]
fn download_mirror() {
    let server = mirror(TEXT);
    let listing = server.get("/iso/").text();
    assert!(listing.contains("disk.iso</a>") && listing.contains(" 3M"), "{listing}");
    let json: serde_json::Value =
        serde_json::from_slice(&server.get("/api/listing/iso/").body).unwrap();
    let names: Vec<&str> =
        json.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["SHA256SUMS", "disk.iso"]);
    assert!(server.get("/iso/disk.iso").body == content(BYTES));
    assert_eq!(server.get("/archive/old/a.tar").text(), "old");
    assert!(server.get("/archive/old/").text().contains("a.tar"));
    // Listings come in bursts of twenty.
    let statuses: Vec<u16> = (0..30).map(|_| server.get("/iso/").status).collect();
    assert!(statuses.contains(&200) && statuses.contains(&429), "{statuses:?}");
    assert_eq!(server.get("/iso/SHA256SUMS").status, 200);
    let status: serde_json::Value = serde_json::from_slice(&server.get("/status").body).unwrap();
    assert!(status.to_string().contains("disk_1"), "{status}");
    assert!(server.get("/metrics").text().ends_with("# EOF\n"));
    assert!(server.quit().success());
}

#[test]
fn four_downloads_at_once() {
    // So slow that none ends before the test does.
    let text = TEXT.replace("limit_rate_after 16m;", "limit_rate_after 1k;");
    let server =
        mirror(&text.replace("default  4m;", "default  1k;").replace("0        4m;", "0 1k;"));
    let mut clients: Vec<_> = (0..4).map(|_| server.client()).collect();
    for client in &mut clients {
        client.send_get("/iso/disk.iso");
        assert!(!client.read_some(100).is_empty());
    }
    assert_eq!(server.get("/iso/SHA256SUMS").status, 429);
    // Listings are not counted as downloads.
    assert_eq!(server.get("/iso/").status, 200);
    drop(clients);
    server.stop();
}

#[test]
fn download_mirror_with_curl() {
    if !is_installed() {
        return;
    }
    let server = mirror(TEXT);
    let port = server.port();
    let url = "http://mirror.example/iso/disk.iso";
    // A download that broke off is resumed.
    let part = server.write("part", &content(BYTES)[..1_000_000]);
    let part = part.display().to_string();
    let rest = curl(port, url, &["--continue-at", "-", "--output", &part]);
    assert_eq!(rest.status, 206);
    assert!(std::fs::read(&part).unwrap() == content(BYTES));
    let range = curl(port, url, &["--range", "2097152-2097161"]);
    assert_eq!(range.content, content(BYTES)[2_097_152..2_097_162]);
    assert_eq!(curl(port, "http://mirror.example/iso", &["--location"]).status, 200);
    assert_eq!(curl(port, url, &["--head"]).header("Content-Length"), Some("3145728"));
    assert!(server.quit().success());
}
