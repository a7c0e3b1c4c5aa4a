//! The service manager's watchdog: fed while every event loop turns.

use std::process::{Child, Stdio};

use super::*;

/// The manager's interval. Nothing here depends on it but how long the tests take.
const INTERVAL_US: u64 = 400_000;

/// A server that a service manager watches.
struct Watched {
    manager: UnixDatagram,
    child: Child,
    dir: TempDir,
}

impl Watched {
    fn start(name: &str, main: &str) -> Watched {
        let dir = TempDir::new(name);
        let manager = UnixDatagram::bind(dir.path().join("notify.sock")).unwrap();
        manager.set_read_timeout(Some(PATIENCE)).unwrap();
        let port = nowait_testkit::ports::free_port();
        let text = format!(
            "daemon off; pid x.pid; error_log error.log notice; {main} events {{}}\n\
             http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 200 x; }} }}\n"
        );
        dir.write("nginx.conf", text);
        let child = binary()
            .command()
            .args(["-p", dir.path().to_str().unwrap(), "-c", "nginx.conf"])
            .env("NOTIFY_SOCKET", dir.path().join("notify.sock"))
            .env("WATCHDOG_USEC", INTERVAL_US.to_string())
            .spawn()
            .unwrap();
        Watched { manager, child, dir }
    }

    fn receive(&self) -> String {
        let mut buffer = [0; 256];
        let length = self.manager.recv(&mut buffer).expect("a message in time");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    /// The messages that are there already.
    fn received(&self) -> Vec<String> {
        self.manager.set_nonblocking(true).unwrap();
        let mut buffer = [0; 256];
        let mut messages = Vec::new();
        while let Ok(length) = self.manager.recv(&mut buffer) {
            messages.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        self.manager.set_nonblocking(false).unwrap();
        messages
    }

    fn is_fed(&self) {
        while !self.receive().contains("WATCHDOG=1") {}
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("error.log")).unwrap_or_default()
    }

    fn server_process(&self) -> u32 {
        until("the server process", PATIENCE, || {
            let processes = children(self.child.id());
            processes.into_iter().find(|pid| !threads(*pid, "worker 0").is_empty())
        })
    }

    fn end(mut self) {
        signal(self.child.id(), Signal::TERM);
        assert!(self.child.wait().unwrap().success(), "{}", self.log());
    }
}

/// The threads of a process with this name.
fn threads(pid: u32, name: &str) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let named = tasks.filter(|task| {
        fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
    });
    named.map(|task| task.file_name().to_str().unwrap().parse().unwrap()).collect()
}

#[test]
fn idle_loops_feed_it() {
    for main in ["worker_processes 2;", "worker_processes 2; master_process off;"] {
        let watched = Watched::start("fed", main);
        let first = watched.receive();
        assert!(first.starts_with("READY=1\n"), "{first}");
        for _ in 0..3 {
            assert_eq!(watched.receive(), "WATCHDOG=1\n");
        }
        assert!(!watched.log().contains("stuck"), "{}", watched.log());
        watched.end();
    }
}

/// A debugger stops one event loop, and nothing else of the process.
#[test]
fn a_stuck_loop_is_named_and_does_not_feed_it() {
    // PTRACE_SEIZE, then PTRACE_INTERRUPT; the number of the system call differs.
    let number = match std::env::consts::ARCH {
        "x86_64" => 101,
        "aarch64" => 117,
        other => return nowait_testkit::skip("ptrace", &format!("not on {other}")),
    };
    let script = "my $tid = 0 + $ARGV[1];
        for my $request (0x4206, 0x4207) {
            syscall(0 + $ARGV[0], $request, $tid, 0, 0) == 0 or die \"ptrace: $!\";
        }
        $| = 1; print \"stopped\\n\"; <STDIN>;";
    let watched = Watched::start("stuck", "worker_processes 2;");
    watched.is_fed();
    let server = watched.server_process();
    let stuck = threads(server, "worker 1")[0];
    let mut debugger = match Command::new("perl")
        .args(["-e", script, &number.to_string(), &stuck.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
    {
        Ok(debugger) => debugger,
        Err(_) => return nowait_testkit::skip("perl", "not installed"),
    };
    let mut said = [0; 8];
    if debugger.stdout.take().unwrap().read_exact(&mut said).is_err() {
        debugger.wait().unwrap();
        return nowait_testkit::skip("ptrace", "not permitted");
    }
    let reports =
        |text: &str| text.matches("the event loop of worker 1 has been stuck for ").count();
    until("a report", PATIENCE, || (reports(&watched.log()) >= 1).then_some(()));
    watched.received();
    let before = reports(&watched.log());
    until("another report", PATIENCE, || (reports(&watched.log()) > before).then_some(()));
    assert_eq!(watched.received(), [""; 0]);
    assert!(!watched.log().contains("the event loop of worker 0"), "{}", watched.log());

    drop(debugger.stdin.take());
    debugger.wait().unwrap();
    watched.is_fed();
    watched.is_fed();
    until("the end of the report", PATIENCE, || {
        watched.log().contains("all event loops turn again, after ").then_some(())
    });
    watched.end();
}

/// A server process as a whole that does not run.
#[test]
fn a_stopped_process_does_not_feed_it() {
    let watched = Watched::start("stopped", "worker_processes 1;");
    watched.is_fed();
    let server = watched.server_process();
    signal(server, Signal::STOP);
    until("the process to stop", PATIENCE, || {
        let status = fs::read_to_string(format!("/proc/{server}/status")).ok()?;
        status.contains("State:\tT").then_some(())
    });
    // What it had sent before arrives, then nothing: the master alone is not enough.
    watched.received();
    watched
        .manager
        .set_read_timeout(Some(std::time::Duration::from_micros(3 * INTERVAL_US)))
        .unwrap();
    let mut late = 0;
    while watched.manager.recv(&mut [0; 256]).is_ok() {
        late += 1;
    }
    assert!(late <= 1, "{late}");
    watched.manager.set_read_timeout(Some(PATIENCE)).unwrap();
    signal(server, Signal::CONT);
    watched.is_fed();
    watched.end();
}

/// The program that takes over feeds it, too.
#[test]
fn an_upgrade_goes_on_feeding_it() {
    let mut watched = Watched::start("upgrade-watchdog", "worker_processes 1;");
    watched.is_fed();
    let old = watched.child.id();
    signal(old, Signal::USR2);
    let new: u32 = until("the new master", PATIENCE, || {
        let text = fs::read_to_string(watched.dir.path().join("x.pid")).ok()?;
        text.trim().parse().ok().filter(|pid| *pid != old)
    });
    let _end = EndOnDrop(new);
    while !watched.receive().contains(&format!("MAINPID={new}\n")) {}
    signal(old, Signal::QUIT);
    assert!(watched.child.wait().unwrap().success());
    watched.received();
    watched.is_fed();
    // WINCH: the new master stays alone, which is no reason to end it.
    signal(new, Signal::WINCH);
    until("the end of its server process", PATIENCE, || children(new).is_empty().then_some(()));
    watched.received();
    watched.is_fed();
    watched.is_fed();
}

/// A reload, with a new server process: the manager is patient meanwhile.
#[test]
fn a_reload_goes_on_feeding_it() {
    let watched = Watched::start("reload", "worker_processes 1;");
    watched.is_fed();
    let text = fs::read_to_string(watched.dir.path().join("nginx.conf")).unwrap();
    watched.dir.write("nginx.conf", format!("worker_rlimit_core 1; {text}"));
    signal(watched.child.id(), Signal::HUP);
    let mut seen = String::new();
    let usual = format!("WATCHDOG_USEC={INTERVAL_US}\n");
    while !seen.contains(&usual) {
        seen.push_str(&watched.receive());
    }
    let (patient, ready) = (seen.find("WATCHDOG_USEC=600000000\n"), seen.find("READY=1"));
    assert!(patient.is_some() && ready > patient && seen.find(&usual) > ready, "{seen}");
    watched.is_fed();
    watched.is_fed();
    watched.end();
}
