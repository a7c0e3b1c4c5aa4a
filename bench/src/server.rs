//! A server under measurement: its configuration text, its start and its end.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::machine::pin;
use crate::peer::{Duty, Peer};
use crate::process;
use crate::tls::Certificate;

/// Where every server listens; one at a time, in a namespace of our own.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18_080);
/// Where the origin behind a proxy listens.
pub const ORIGIN: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 18_081);

const START_TIMEOUT: Duration = Duration::from_secs(20);
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// One way to run one of the programs.
#[derive(Debug, Clone)]
pub struct Variant {
    pub label: String,
    pub side: Side,
    /// Lines for the main block.
    pub main: String,
    /// Lines for the `events` block.
    pub events: String,
    /// Lines for the `http` block.
    pub http: String,
}

impl Variant {
    /// Whether it runs a build of Nowait.
    pub fn is_nowait(&self) -> bool {
        matches!(self.side, Side::Nowait | Side::Against)
    }
}

/// The label of a variant as the other build runs it.
pub fn other_build(label: &str) -> String {
    format!("against: {label}")
}

/// Which program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Nginx,
    Nowait,
    /// The build of Nowait that `--against` names.
    Against,
    /// Another server.
    Peer(Peer),
    /// A server or relay that parses nothing, for comparison: `floor.rs`.
    Floor,
}

/// What the configuration says besides the variant's lines.
#[derive(Debug, Clone)]
pub struct Setup {
    pub workers: usize,
    pub root: PathBuf,
    /// Lines for the main block.
    pub main: String,
    /// Lines for the `http` block.
    pub http: String,
    /// Lines for the `server` block.
    pub server: String,
    /// More parameters of `listen`.
    pub listen: String,
    /// Each worker has a listening socket of its own (`reuseport`).
    pub reuseport: bool,
    /// The server passes connections on to the origin without looking at them (`stream`).
    pub stream: bool,
    /// What the server does, for peers, whose configurations are not nginx's.
    pub duty: Duty,
    /// The certificate that the lines name.
    pub certificate: Option<Certificate>,
    /// The processors that the server may use.
    pub cpus: Vec<usize>,
    /// The processors of the load generator, restored after the start.
    pub client_cpus: Vec<usize>,
}

/// The configuration of one run. The same text for both programs but for the variant's lines.
pub fn configuration(directory: &Path, setup: &Setup, variant: &Variant) -> String {
    let mut text = String::new();
    let directory = directory.display();
    let Setup { workers, root, main, http: common, server, listen, .. } = setup;
    let Variant { main: own, events, http, .. } = variant;
    if setup.stream {
        return stream_configuration(&directory.to_string(), setup, variant);
    }
    let root = root.display();
    let reuseport = if setup.reuseport { " reuseport" } else { "" };
    write!(
        text,
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {directory}/pid;
error_log {directory}/error.log warn;
{main}
{own}
events {{
    worker_connections 16384;
    {events}
}}
http {{
    access_log off;
    default_type application/octet-stream;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    {common}
    {http}
    server {{
        listen {ADDRESS} backlog=8192{reuseport} {listen};
        {server}
        location = /tiny {{ return 200 \"OK\"; }}
        location / {{ root {root}; }}
    }}
}}
"
    )
    .expect("writing to a string succeeds");
    text
}

/// A server that passes connections on: the variant's lines for `http` are for `stream` then.
fn stream_configuration(directory: &str, setup: &Setup, variant: &Variant) -> String {
    let Setup { workers, main, .. } = setup;
    let Variant { main: own, events, http, .. } = variant;
    format!(
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {directory}/pid;
error_log {directory}/error.log warn;
{main}
{own}
events {{
    worker_connections 16384;
    {events}
}}
stream {{
    {http}
    server {{
        listen {ADDRESS} backlog=8192;
        proxy_pass {ORIGIN};
    }}
}}
"
    )
}

/// The configuration of the origin behind a proxy: as fast as nginx is with files in memory.
pub fn origin_configuration(directory: &Path, root: &Path, user: &str) -> String {
    let (directory, root) = (directory.display(), root.display());
    format!(
        "daemon off;
worker_processes 1;
worker_rlimit_nofile 20000;
pid {directory}/pid;
error_log {directory}/error.log warn;
{user}
events {{ worker_connections 16384; }}
http {{
    access_log off;
    sendfile on;
    open_file_cache max=10000 inactive=60s;
    open_file_cache_valid 60s;
    default_type application/octet-stream;
    keepalive_requests 1000000000;
    keepalive_timeout 600s;
    server {{
        listen {ORIGIN} backlog=8192;
        location = /tiny {{ return 200 \"OK\"; }}
        location / {{ root {root}; }}
        # As they come through a relay.
        location = /proxied/tiny {{ return 200 \"OK\"; }}
        location /proxied/ {{ alias {root}/; }}
    }}
}}
"
    )
}

/// A running server; it is ended when dropped.
pub struct ServerProcess {
    child: Child,
    directory: PathBuf,
    address: SocketAddr,
    /// From the start of the process to the first accepted connection.
    pub start_time: Duration,
}

impl ServerProcess {
    /// Writes the configuration, starts the program on its processors and waits until it listens.
    pub fn start(
        binary: &Path,
        directory: &Path,
        setup: &Setup,
        variant: &Variant,
    ) -> Result<ServerProcess, String> {
        ServerProcess::start_under(&[], binary, directory, setup, variant)
    }

    /// Like [`ServerProcess::start`], run by the program that `wrapper` names, with its arguments.
    pub fn start_under(
        wrapper: &[String],
        binary: &Path,
        directory: &Path,
        setup: &Setup,
        variant: &Variant,
    ) -> Result<ServerProcess, String> {
        let (cpus, client_cpus) = (&setup.cpus, &setup.client_cpus);
        if let Side::Peer(peer) = variant.side {
            let start = peer.start(directory, setup.duty, setup);
            let (name, text) = start.file;
            write_files(directory, name, &text)?;
            let command = command(wrapper, binary, &start.arguments);
            return ServerProcess::run(command, directory, ADDRESS, cpus, client_cpus);
        }
        let text = configuration(directory, setup, variant);
        ServerProcess::launch_under(wrapper, binary, directory, ADDRESS, &text, cpus, client_cpus)
    }

    /// Starts a program with this configuration on `cpus`, which are then `client_cpus` again for
    /// the caller, and waits until it listens.
    pub fn launch(
        binary: &Path,
        directory: &Path,
        address: SocketAddr,
        text: &str,
        cpus: &[usize],
        client_cpus: &[usize],
    ) -> Result<ServerProcess, String> {
        ServerProcess::launch_under(&[], binary, directory, address, text, cpus, client_cpus)
    }

    /// Like [`ServerProcess::launch`], run by the program that `wrapper` names, with its arguments.
    pub fn launch_under(
        wrapper: &[String],
        binary: &Path,
        directory: &Path,
        address: SocketAddr,
        text: &str,
        cpus: &[usize],
        client_cpus: &[usize],
    ) -> Result<ServerProcess, String> {
        write_files(directory, "nginx.conf", text)?;
        let prefix = format!("{}/", directory.display());
        let arguments = ["-p", &prefix, "-c", "nginx.conf", "-e", "error.log"].map(str::to_owned);
        let command = command(wrapper, binary, &arguments);
        ServerProcess::run(command, directory, address, cpus, client_cpus)
    }

    /// Starts a program, and waits until it listens.
    fn run(
        mut command: Command,
        directory: &Path,
        address: SocketAddr,
        cpus: &[usize],
        client_cpus: &[usize],
    ) -> Result<ServerProcess, String> {
        let file_error = |error: std::io::Error| format!("{}: {error}", directory.display());
        let output = File::create(directory.join("output")).map_err(file_error)?;
        let errors = output.try_clone().map_err(file_error)?;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        // A child inherits the processors of the thread that starts it.
        pin(cpus)?;
        let begin = Instant::now();
        let program = command.get_program().to_owned();
        let child = command.spawn().map_err(|error| format!("{}: {error}", program.display()));
        pin(client_cpus)?;
        let mut server = ServerProcess {
            child: child?,
            directory: directory.to_path_buf(),
            address,
            start_time: Duration::ZERO,
        };
        server.wait_until_listening(begin)?;
        Ok(server)
    }

    fn wait_until_listening(&mut self, begin: Instant) -> Result<(), String> {
        loop {
            if TcpStream::connect(self.address).is_ok() {
                self.start_time = begin.elapsed();
                return Ok(());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("the server ended at once, {status}: {}", self.log()));
            }
            if begin.elapsed() > START_TIMEOUT {
                return Err(format!("the server does not listen: {}", self.log()));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// The first process of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The processes of the server.
    pub fn processes(&self) -> Vec<u32> {
        process::tree(self.child.id())
    }

    /// Tells the master to read its configuration again.
    pub fn reload(&self, text: &str) -> Result<(), String> {
        fs::write(self.directory.join("nginx.conf"), text).map_err(|error| error.to_string())?;
        signal(self.child.id(), Signal::HUP);
        Ok(())
    }

    /// The last lines of what the server said.
    pub fn log(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.directory.join(name)).unwrap_or_default();
        let text = read("output") + &read("error.log");
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(5)..].join("\n")
    }
}

/// The configuration, and no log of an earlier run.
fn write_files(directory: &Path, name: &str, text: &str) -> Result<(), String> {
    let file_error = |error: std::io::Error| format!("{}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(file_error)?;
    let _ = fs::remove_file(directory.join("error.log"));
    fs::write(directory.join(name), text).map_err(file_error)
}

/// A program, run by another one if `wrapper` names it.
fn command(wrapper: &[String], binary: &Path, arguments: &[String]) -> Command {
    let mut command = match wrapper {
        [] => Command::new(binary),
        [program, before @ ..] => {
            let mut command = Command::new(program);
            command.args(before).arg(binary);
            command
        }
    };
    command.args(arguments);
    command
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let pids = self.processes();
        signal(self.child.id(), Signal::TERM);
        let begin = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begin.elapsed() < STOP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            eprintln!("the server does not stop on TERM, killing it: {}", self.log());
            pids.iter().for_each(|pid| signal(*pid, Signal::KILL));
            let _ = self.child.wait();
        }
        // The kernel takes an io_uring apart after its process has gone, and until then the ring
        // keeps the listening socket: the next server must not be mistaken for this one.
        while TcpStream::connect(self.address).is_ok() && begin.elapsed() < STOP_TIMEOUT {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended already.
        let _ = rustix::process::kill_process(pid, signal);
    }
}
