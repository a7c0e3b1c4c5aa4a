//! What is there without any file: the configuration that serves the current directory, and the
//! types that `include mime.types` finds when nobody installed such a file.

use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{Disk, Files};

/// The port that is served then.
pub const PORT: u16 = 8080;

/// The text. It goes the way of every other configuration; the prefix is the current directory.
pub const CONFIGURATION: &str = "\
daemon off;
master_process off;
worker_processes auto;
error_log stderr warn;
events {}
http {
    access_log off;
    default_type application/octet-stream;
    types {
        text/html html htm;
        text/plain txt log conf ini toml yaml yml rs c h py sh;
        text/css css;
        text/csv csv;
        text/markdown md;
        text/xml xml;
        text/javascript js mjs;
        application/json json map;
        application/pdf pdf;
        application/wasm wasm;
        application/gzip gz tgz;
        application/zip zip;
        application/zstd zst;
        font/ttf ttf;
        font/woff woff;
        font/woff2 woff2;
        image/avif avif;
        image/gif gif;
        image/jpeg jpg jpeg;
        image/png png;
        image/svg+xml svg svgz;
        image/webp webp;
        image/x-icon ico;
        audio/flac flac;
        audio/mpeg mp3;
        audio/ogg ogg oga;
        audio/wav wav;
        video/mp4 mp4 m4v;
        video/webm webm;
        video/x-matroska mkv;
    }
    server {
        listen 8080;
        root .;
        autoindex on;
    }
}
";

/// `conf/mime.types` of the repository.
const MIME_TYPES: &[u8] = include_bytes!("../../../conf/mime.types");

/// The disk, and the files that are built in.
#[derive(Clone, Copy, Debug, Default)]
pub struct WithBuiltIn;

impl Files for WithBuiltIn {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        Disk.read(path)
    }

    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Disk.glob(pattern)
    }

    // nginx differs: it installs the file beside its configuration, and fails without it.
    fn fallback(&self, path: &Path) -> Option<&'static [u8]> {
        (path.file_name()? == "mime.types").then_some(MIME_TYPES)
    }
}

/// What a person at the terminal wants to know.
pub fn greeting(directory: &Path) -> String {
    format!(
        "nowait serves {} at http://localhost:{PORT}/\n\
         Press Ctrl-C to stop. To configure it: nowait -c nginx.conf (nowait -h shows more).",
        directory.display()
    )
}
