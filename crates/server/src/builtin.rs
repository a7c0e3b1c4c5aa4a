//! The configuration used when there is none: serve the current directory.

/// The port that is served then.
pub const PORT: u16 = 8080;

/// The text. It goes the way of every other configuration; the prefix is the current directory.
pub const CONFIGURATION: &str = concat!(
    "daemon off;
master_process off;
worker_processes auto;
error_log stderr warn;
events {}
http {
    access_log off;
    server {
        listen 8080;
        root .;
        autoindex on;
    }
}
"
);

/// What a person at the terminal wants to know.
pub fn greeting(directory: &std::path::Path) -> String {
    format!(
        "nowait serves {} at http://localhost:{PORT}/\n\
         Press Ctrl-C to stop. To configure it: nowait -c nginx.conf (nowait -h shows more).",
        directory.display()
    )
}
