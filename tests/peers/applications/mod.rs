//! Applications by FastCGI, uwsgi and SCGI, and memcached: PHP-FPM with WordPress and phpMyAdmin, uWSGI
//! with Django, an SCGI server of Python, memcached itself.

mod django;
mod memcached;
mod php;
mod phpmyadmin;
mod scgi;
mod uwsgi;
mod visitor;
mod wordpress;

use std::fmt::Write as _;
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use nowait_testkit::ports::free_port;
use nowait_testkit::{Binary, Client, Server, ServerBuilder, TempDir};

use crate::stage::{Background, program, skipped, succeed};

/// Bytes of the uploads.
const UPLOAD_BYTES: usize = 100 << 20;

fn site(http: &str) -> ServerBuilder {
    Server::of(Binary::nowait(env!("CARGO_BIN_EXE_nowait"))).http(http)
}

/// Content that differs from place to place.
fn content() -> Vec<u8> {
    (0..UPLOAD_BYTES).map(|n| (n / 7 * 31 % 251) as u8).collect()
}

/// RFC 1950.
fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    for byte in bytes {
        a = (a + u32::from(*byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    b << 16 | a
}

/// What the applications respond with when asked for something large.
fn large() -> String {
    (0..1000u32).fold(String::new(), |mut text, n| {
        let letter = char::from(b'a' + (n % 26) as u8);
        // Writing to a string cannot fail.
        let _ = write!(text, "{}", String::from(letter).repeat(10_000));
        text
    })
}

/// Uploads the content, with its length or in chunks.
#[track_caller]
fn uploads(client: &mut Client, path: &str, content: &[u8], expected: &str, ways: &[bool]) {
    for &chunked in ways {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n");
        let kind = "Content-Type: application/octet-stream\r\n";
        if chunked {
            client.send(format!("{head}{kind}Transfer-Encoding: chunked\r\n\r\n"));
            for piece in content.chunks(1 << 20) {
                client.send(format!("{:x}\r\n", piece.len()));
                client.send(piece);
                client.send("\r\n");
            }
            client.send("0\r\n\r\n");
        } else {
            client.send(format!("{head}{kind}Content-Length: {}\r\n\r\n", content.len()));
            client.send(content);
        }
        assert_eq!(client.response().text(), expected, "chunked: {chunked}");
    }
}

/// Whether a file of a Debian package is there; says which package is missing.
fn is_installed(file: &str, package: &str) -> bool {
    let found = Path::new(file).exists();
    if !found {
        skipped(&format!("{package} is not installed"));
    }
    found
}

/// Whether the tests run as root.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

/// Lets every user enter, read and, where `writes`, write below a directory.
fn open_up(dir: &Path, writes: bool) {
    let mode = if writes { "a+rwX" } else { "a+rX" };
    succeed(Command::new("chmod").args(["-R", mode]).arg(dir));
}

/// Copies a directory as it is, and what its links point to.
fn copy(from: &str, to: &Path) {
    succeed(Command::new("cp").args(["-rL", from]).arg(to));
}

/// PHP-FPM, whose name may end with its version.
fn php_fpm() -> Option<Command> {
    let versions = ["php-fpm", "php-fpm8.5", "php-fpm8.4", "php-fpm8.3", "php-fpm8.2"];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = |name: &&str| std::env::split_paths(&path).any(|dir| dir.join(name).is_file());
    program(versions.into_iter().find(installed).unwrap_or("php-fpm"))
}

/// Whether PHP can talk to MariaDB.
fn has_mysqli() -> bool {
    let Some(mut php) = php_fpm() else { return false };
    let found = succeed(php.arg("-m")).lines().any(|name| name == "mysqli");
    if !found {
        skipped("php-mysql is not installed");
    }
    found
}

/// A pool of PHP-FPM.
struct FpmPool {
    fpm: Background,
    port: u16,
    start: Command,
}

impl FpmPool {
    /// Starts PHP-FPM with so many processes and further lines of its configuration. `own`: with the
    /// settings and extensions of the system; none otherwise.
    fn start(dir: &TempDir, children: usize, own: bool, lines: &str) -> Option<FpmPool> {
        let port = free_port();
        let mut start = FpmPool::command(dir, &format!("127.0.0.1:{port}"), children, lines)?;
        if !own {
            start.arg("-n");
        }
        Some(FpmPool { fpm: Background::serve(&mut start, port), port, start })
    }

    /// The command that starts PHP-FPM listening there.
    fn command(dir: &TempDir, listen: &str, children: usize, lines: &str) -> Option<Command> {
        let mut start = php_fpm()?;
        let fpm = format!(
            "[global]\nerror_log = {0}/fpm.log\nprocess_control_timeout = 20s\n[www]\n\
             listen = {listen}\nuser = nobody\ngroup = nogroup\npm = static\n\
             pm.max_children = {children}\n\
             php_admin_value[post_max_size] = 200M\n\
             php_admin_value[upload_max_filesize] = 200M\n\
             php_admin_value[upload_tmp_dir] = {0}/tmp\nphp_admin_value[display_errors] = 0\n\
             php_admin_value[log_errors] = 1\n{lines}\n",
            dir.path().display()
        );
        dir.write("fpm.conf", fpm);
        dir.write("tmp/.keep", "");
        open_up(&dir.path().join("tmp"), true);
        start.args(["-F", "-y"]).arg(dir.path().join("fpm.conf"));
        Some(start)
    }

    /// Ends it with all its processes, and starts it again.
    fn restart(&mut self) {
        self.fpm.end();
        self.fpm = Background::serve(&mut self.start, self.port);
    }
}

/// A database server of the test.
struct Database {
    _server: Background,
    socket: PathBuf,
    _dir: TempDir,
}

impl Database {
    /// Starts MariaDB, and has it execute these statements.
    fn start(statements: &str) -> Option<Database> {
        let (mut install, mut server) = (program("mariadb-install-db")?, program("mariadbd")?);
        let dir = TempDir::new("peers-database");
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let data = format!("--datadir={}/data", dir.path().display());
        install.args(["--no-defaults", "--auth-root-authentication-method=normal"]).arg(&data);
        install.args(["--skip-test-db", "--innodb-log-file-size=4M"]);
        server.args(["--no-defaults", "--skip-networking", "--skip-log-bin"]).arg(&data);
        server.args(["--innodb-log-file-size=4M", "--innodb-buffer-pool-size=32M"]);
        if is_root() {
            // The user of the package.
            install.arg("--user=mysql");
            server.arg("--user=mysql");
        }
        succeed(&mut install);
        let socket = dir.path().join("socket");
        server.arg(format!("--socket={}", socket.display()));
        server.arg(format!("--init-file={}", dir.write("init.sql", statements).display()));
        let server = Background::serve_at(&mut server, &socket);
        Some(Database { _server: server, socket, _dir: dir })
    }
}
