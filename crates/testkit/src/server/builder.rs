//! Describing a server under test (program, configuration text, files), and starting it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use super::{Server, read_lossy};
use crate::ports::free_port;
use crate::temp::TempDir;
use crate::wait::{PATIENCE, try_until};

/// Number of start attempts when other processes take a port in the meantime.
const STARTS_MAX: usize = 5;

/// The product that a program belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    Nowait,
    Nginx,
}

/// A server program.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
    kind: Product,
}

impl Binary {
    /// Nowait, at `env!("CARGO_BIN_EXE_nowait")` in an integration test, or the build of it named by
    /// `NOWAIT_TESTS_PROGRAM`.
    pub fn nowait(path: impl Into<PathBuf>) -> Binary {
        let other = std::env::var_os("NOWAIT_TESTS_PROGRAM");
        Binary { path: other.map_or_else(|| path.into(), PathBuf::from), kind: Product::Nowait }
    }

    /// Nowait at this path, no matter what the environment says.
    pub fn exactly(path: impl Into<PathBuf>) -> Binary {
        Binary { path: path.into(), kind: Product::Nowait }
    }

    /// Where the program is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The program for tests of Nowait: Nowait itself, or the nginx named by `NOWAIT_TESTS_BINARY`,
    /// to compare its behaviour.
    pub fn under_test(nowait: impl Into<PathBuf>) -> Binary {
        match std::env::var_os("NOWAIT_TESTS_BINARY") {
            Some(path) => Binary { path: path.into(), kind: Product::Nginx },
            None => Binary::nowait(nowait),
        }
    }

    /// The installed nginx, if any.
    pub fn nginx() -> Option<Binary> {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths)
            .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
            .map(|dir| dir.join("nginx"))
            .find(|path| path.is_file())
            .map(|path| Binary { path, kind: Product::Nginx })
    }

    pub(super) fn kind(&self) -> Product {
        self.kind
    }

    /// Whether this is nginx, which lacks Nowait's additional directives.
    pub fn is_nginx(&self) -> bool {
        self.kind == Product::Nginx
    }

    /// A command that runs the program, for tests of its command line.
    pub fn command(&self) -> Command {
        Command::new(&self.path)
    }
}

/// Value of the directive `use`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// The server's choice.
    Default,
    Epoll,
    /// Ignored for nginx, which does not support it.
    IoUring,
}

/// The configuration before its placeholders are filled in.
#[derive(Clone, Debug)]
pub(super) struct Template {
    /// The whole text, if the test provided one.
    whole: Option<String>,
    main: String,
    events: String,
    http: String,
    driver: Driver,
    workers: usize,
    guard: bool,
    master_process: bool,
    variables: BTreeMap<String, String>,
}

impl Template {
    pub(super) fn set_http(&mut self, text: &str) {
        self.http = text.to_owned();
    }

    pub(super) fn set_workers(&mut self, workers: usize) {
        self.workers = workers;
    }

    pub(super) fn set_driver(&mut self, driver: Driver) {
        self.driver = driver;
    }

    /// The text with every placeholder filled in. `ports` grows as needed.
    pub(super) fn render(&self, binary: &Binary, dir: &Path, ports: &mut Vec<u16>) -> String {
        let mut text = match &self.whole {
            Some(whole) => whole.clone(),
            None => format!(
                "%%MAIN%%\nevents {{\n%%EVENTS%%\n}}\nhttp {{\n%%HTTP%%\n{}\n}}\n",
                self.http
            ),
        };
        text = text.replace("%%MAIN%%", &self.main_text());
        text = text.replace("%%EVENTS%%", &self.events_text(binary));
        // Compiled-in paths may belong to an installed server or not exist.
        text = text.replace("%%HTTP%%", &http_text(binary));
        for (name, value) in &self.variables {
            text = text.replace(&format!("%%{name}%%"), value);
        }
        text = text.replace("%%DIR%%", &dir.display().to_string());
        text = text.replace("%%PORT%%", "%%PORT_0%%");
        for n in 0.. {
            let name = format!("%%PORT_{n}%%");
            if !text.contains(&name) && n > 0 {
                break;
            }
            if ports.len() <= n {
                ports.push(free_port());
            }
            text = text.replace(&name, &ports[n].to_string());
        }
        text
    }

    fn main_text(&self) -> String {
        let mut text = String::from("daemon off;\npid %%DIR%%/nginx.pid;\n");
        // Writing to a String can't fail.
        let _ = writeln!(text, "error_log %%DIR%%/error.log info;");
        let _ = writeln!(text, "worker_processes {};", self.workers);
        if !self.master_process {
            text.push_str("master_process off;\n");
        }
        text.push_str(unprivileged_user());
        text.push_str(&self.main);
        text
    }

    fn events_text(&self, binary: &Binary) -> String {
        let mut text = String::new();
        if !self.events.contains("worker_connections") {
            text.push_str("worker_connections 2048;\n");
        }
        match (self.driver, binary.kind) {
            (Driver::Epoll, _) => text.push_str("use epoll;\n"),
            (Driver::IoUring, Product::Nowait) => text.push_str("use io_uring;\n"),
            (Driver::IoUring, Product::Nginx) | (Driver::Default, _) => {}
        }
        if self.guard && binary.kind == Product::Nowait {
            text.push_str("event_loop_guard strict;\n");
        }
        text.push_str(&self.events);
        text
    }
}

/// Faults that every server may report, from `NOWAIT_TESTS_ALLOW_LOG`, separated by `|`: what an
/// emulated kernel lacks, or what a slow machine causes.
fn allowed_everywhere() -> Vec<String> {
    let texts = std::env::var("NOWAIT_TESTS_ALLOW_LOG").unwrap_or_default();
    texts.split('|').filter(|text| !text.is_empty()).map(str::to_owned).collect()
}

fn http_text(binary: &Binary) -> String {
    let mut text = String::from(
        "access_log %%DIR%%/access.log;\nclient_body_temp_path %%DIR%%/client_body_temp;\n",
    );
    if binary.is_nginx() {
        for name in ["proxy", "fastcgi", "uwsgi", "scgi"] {
            let _ = writeln!(text, "{name}_temp_path %%DIR%%/{name}_temp;");
        }
    }
    text
}

/// The `user` directive, with an account that exists on every system.
fn unprivileged_user() -> &'static str {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    if !rustix::process::geteuid().is_root() {
        ""
    } else if groups.lines().any(|line| line.starts_with("nobody:")) {
        "user nobody;\n"
    } else {
        "user nobody nogroup;\n"
    }
}

/// Describes a server; [`ServerBuilder::start`] runs it.
#[derive(Clone, Debug)]
pub struct ServerBuilder {
    binary: Binary,
    template: Template,
    files: Vec<(String, Vec<u8>)>,
    environment: Vec<(String, OsString)>,
    allowed: Vec<String>,
}

/// Why a server did not start.
#[derive(Debug)]
pub struct StartFailure {
    /// The exit status; `None` if it ran but did not listen in time.
    pub status: Option<ExitStatus>,
    pub stderr: String,
    pub log: String,
}

impl ServerBuilder {
    pub(super) fn new(binary: Binary) -> ServerBuilder {
        ServerBuilder {
            binary,
            template: Template {
                whole: None,
                main: String::new(),
                events: String::new(),
                http: String::new(),
                driver: Driver::Default,
                workers: 1,
                guard: true,
                master_process: true,
                variables: BTreeMap::new(),
            },
            files: Vec::new(),
            environment: Vec::new(),
            allowed: allowed_everywhere(),
        }
    }

    /// Contents of the `http` block, in which `%%PORT%%`, `%%PORT_1%%`…, `%%DIR%%` and names passed
    /// to [`ServerBuilder::variable`] are replaced.
    pub fn http(mut self, text: &str) -> Self {
        self.template.set_http(text);
        self
    }

    /// Directives of the main level, after those written by the kit.
    pub fn main(mut self, text: &str) -> Self {
        self.template.main = text.to_owned();
        self
    }

    /// Directives of the `events` block, after those written by the kit.
    pub fn events(mut self, text: &str) -> Self {
        self.template.events = text.to_owned();
        self
    }

    /// The whole configuration. `%%MAIN%%`, `%%EVENTS%%` and `%%HTTP%%` stand for the text that the
    /// kit would write at the main level, in `events` and in `http`.
    pub fn config(mut self, text: &str) -> Self {
        self.template.whole = Some(text.to_owned());
        self
    }

    /// Replaces `%%NAME%%` by `value`, which may contain other placeholders' values.
    pub fn variable(mut self, name: &str, value: impl ToString) -> Self {
        self.template.variables.insert(name.to_owned(), value.to_string());
        self
    }

    /// Runs another program.
    pub fn binary(mut self, binary: Binary) -> Self {
        self.binary = binary;
        self
    }

    /// Value of `use`.
    pub fn driver(mut self, driver: Driver) -> Self {
        self.template.driver = driver;
        self
    }

    /// Value of `worker_processes`; default: 1.
    pub fn workers(mut self, n: usize) -> Self {
        self.template.workers = n;
        self
    }

    /// Controls whether `event_loop_guard strict;` is written; default: yes.
    pub fn guard(mut self, on: bool) -> Self {
        self.template.guard = on;
        self
    }

    /// Value of `master_process`; default: on.
    pub fn master_process(mut self, on: bool) -> Self {
        self.template.master_process = on;
        self
    }

    /// Adds a file below the server's directory.
    pub fn file(mut self, relative: &str, content: impl AsRef<[u8]>) -> Self {
        self.files.push((relative.to_owned(), content.as_ref().to_vec()));
        self
    }

    /// Sets a variable of the program's environment.
    pub fn environment(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Tolerates log lines that contain `text`.
    pub fn allow_log(mut self, text: &str) -> Self {
        self.allowed.push(text.to_owned());
        self
    }

    /// Starts it and waits until it listens.
    ///
    /// # Panics
    /// If it does not; the message contains all its output.
    #[track_caller]
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(failure) => panic!(
                "the server doesn't start ({:?})\n--- stderr\n{}\n--- error log\n{}",
                failure.status, failure.stderr, failure.log
            ),
        }
    }

    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// The output, if it exited or did not listen in time.
    ///
    /// # Panics
    /// If the machine lacks the prerequisites of a start (directory, program).
    #[track_caller]
    pub fn try_start(self) -> Result<Server, StartFailure> {
        let mut attempt = 1;
        loop {
            match self.start_once() {
                Err(failure) if attempt < STARTS_MAX && failure.port_was_taken() => attempt += 1,
                result => return result,
            }
        }
    }

    #[track_caller]
    fn start_once(&self) -> Result<Server, StartFailure> {
        let dir = TempDir::new("server");
        for (relative, content) in &self.files {
            dir.write(relative, content);
        }
        let mut ports = Vec::new();
        let text = self.template.render(&self.binary, dir.path(), &mut ports);
        dir.write("nginx.conf", text);
        let child = spawn(&self.binary, dir.path(), &self.environment);
        let mut server = Server {
            binary: self.binary.clone(),
            template: self.template.clone(),
            dir,
            child,
            exited: None,
            ports,
            allowed: self.allowed.clone(),
            checked: false,
        };
        let ready = try_until(PATIENCE, || {
            if server.try_exit().is_some() {
                return Some(false);
            }
            server.listens().then_some(true)
        });
        if ready == Some(true) {
            return Ok(server);
        }
        server.checked = true;
        Err(StartFailure { status: server.try_exit(), stderr: server.stderr(), log: server.log() })
    }
}

impl StartFailure {
    fn port_was_taken(&self) -> bool {
        [&self.stderr, &self.log].iter().any(|text| text.contains("Address already in use"))
    }
}

impl Server {
    /// Whether it has written its pid file and accepts connections.
    fn listens(&self) -> bool {
        let pid = read_lossy(&self.dir().join("nginx.pid"));
        pid.trim().parse::<u32>().is_ok()
            && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())).is_ok()
    }
}

#[track_caller]
fn spawn(binary: &Binary, dir: &Path, environment: &[(String, OsString)]) -> Child {
    let create =
        |name: &str| File::create(dir.join(name)).unwrap_or_else(|e| panic!("create {name}: {e}"));
    binary
        .command()
        .arg("-p")
        .arg(dir)
        .arg("-c")
        .arg(dir.join("nginx.conf"))
        .arg("-e")
        .arg(dir.join("error.log"))
        .stdin(Stdio::null())
        .stdout(create("stdout"))
        .stderr(create("stderr"))
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .process_group(0)
        .spawn()
        .unwrap_or_else(|e| panic!("start {}: {e}", binary.path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_in_the_placeholders() {
        let builder = Server::of(Binary::nowait("/nonexistent"))
            .driver(Driver::IoUring)
            .variable("ROOT", "%%DIR%%/www")
            .http(
                "server { listen 127.0.0.1:%%PORT%%; listen 127.0.0.1:%%PORT_1%%; root %%ROOT%%; }",
            );
        let mut ports = vec![7];
        let text = builder.template.render(&builder.binary, Path::new("/d"), &mut ports);
        assert_eq!(ports.len(), 2);
        assert!(text.contains("listen 127.0.0.1:7;"), "{text}");
        assert!(text.contains("root /d/www;"), "{text}");
        assert!(text.contains("use io_uring;"), "{text}");
        assert!(text.contains("event_loop_guard strict;"), "{text}");
        assert!(!text.contains("%%"), "{text}");
    }

    #[test]
    fn nginx_is_spared_our_directives() {
        let binary = Binary { path: "/nonexistent".into(), kind: Product::Nginx };
        let builder = Server::of(binary).driver(Driver::IoUring);
        let text = builder.template.render(&builder.binary, Path::new("/d"), &mut Vec::new());
        assert!(!text.contains("guard") && !text.contains("io_uring"), "{text}");
    }
}
