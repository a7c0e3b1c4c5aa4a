//! File operations on real file systems.

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
    block_on(async {
        mkdir_parents(&io, &path("a/b/file"), 0o755).await.unwrap();
        let file = create(&io, &path("a/b/tmp"), &CreateOptions::default()).await.unwrap();
        file.write_at(&io, 0, vec!["hello ".into(), "world".into()]).await.unwrap();
        file.sync(&io, false).await.unwrap();
        rename(&io, &path("a/b/tmp"), &path("a/b/file")).await.unwrap();
        let options = OpenOptions { prefetch: 100, ..OpenOptions::default() };
        let file = open(&io, &path("a/b/file"), &options).await.unwrap();
        assert_eq!(file.size(), 11);
        assert_eq!(&file.head()[..], b"hello world");
        assert_eq!(&file.read_at(&io, 6, 100).await.unwrap()[..], b"world");
        assert_eq!(stat(&io, &path("a/b"), Symlinks::Follow).await.unwrap().kind, Kind::Directory);
        let options = ReadDirOptions { entries_max: 10, metadata: true };
        let listing = read_dir(&io, &path("a/b"), &options).await.unwrap();
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
