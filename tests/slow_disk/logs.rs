//! The disk with the logs does not answer: the master and the control thread never wait for it.
//!
//! The same lines also go to logs on another disk, which tests read while the gate is closed.

use std::path::Path;
use std::process::{ExitStatus, Stdio};

use nowait_testkit::server::{Signal, all_children};
use nowait_testkit::slow_disk::{Gate, Ops};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Client, Driver};

use crate::stage::{
    Case,
    Medium::{self, Ext4, Fuse},
    Running, Setup, Stage,
};

/// Both kinds of disk: on a local one, files can be opened, but not written.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        $(mod $name {
            #[test]
            fn ext4() {
                super::$name(super::Ext4);
            }
            #[test]
            fn fuse() {
                super::$name(super::Fuse);
            }
        })*
    };
}

on_both!(reload, terminate, quit, reopen);

const LOGS: Setup<'_> = Setup {
    main: "error_log %%DISK%%/logs/error.log info;",
    http: "access_log %%DISK%%/logs/access.log;",
    locations: "location /generation { return 200 old; }",
};

/// Only root can create files here, so logs have to come from the master.
fn stage(medium: Medium) -> Option<Stage> {
    let stage = Stage::synchronous(Case::new(medium, Driver::Epoll, 1))?;
    stage.write("logs/keep", "");
    Some(stage)
}

fn start(medium: Medium) -> Option<Running> {
    stage(medium)?.start_as(LOGS)
}

/// Holds the disk, and waits until it delays the logs.
fn hang(run: &Running) -> Gate {
    let gate = run.hold(Ops::ALL);
    assert_eq!(run.server.get("/generation").status, 200);
    gate.wait_waiting(1);
    gate
}

impl Running {
    fn disk_log(&self, name: &str) -> String {
        let path = self.disk_root().join("logs").join(name);
        String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
    }

    fn wait_disk_log(&self, name: &str, text: &str) {
        until(&format!("{text:?} in {name}"), PATIENCE, || {
            self.disk_log(name).contains(text).then_some(())
        });
    }
}

/// Runs `nowait -s reload` and returns its exit status and standard error.
#[track_caller]
fn reload_command(run: &Running) -> (ExitStatus, String) {
    let stderr = run.server.dir().join("reload.stderr");
    let mut command = run.server.binary().command();
    command.arg("-p").arg(run.server.dir()).args(["-c", "nginx.conf", "-s", "reload"]);
    command.stdout(Stdio::null()).stderr(std::fs::File::create(&stderr).unwrap());
    let mut child = command.spawn().unwrap();
    let status = until("the result of the reload", PATIENCE, || child.try_wait().unwrap());
    (status, std::fs::read_to_string(stderr).unwrap())
}

/// A reload goes on with the logs that are open. Lines of the meantime are not lost.
fn reload(medium: Medium) {
    let Some(mut run) = start(medium) else { return };
    let gate = hang(&run);
    let http = run.http.replace("return 200 old;", "return 200 new;");
    run.server.set_http(&http);
    let (status, stderr) = reload_command(&run);
    assert!(status.success(), "{stderr}");
    if medium == Fuse {
        for name in ["error.log", "access.log"] {
            let text = format!("/logs/{name}\" does not answer; the log is reopened when it does");
            assert!(stderr.contains(&text), "{stderr}");
        }
    }
    assert_eq!(run.server.get("/generation?second").text(), "new");
    run.assert_hot_is_served();
    gate.open();
    run.wait_disk_log("error.log", "reconfiguring");
    run.wait_disk_log("access.log", "GET /generation?second");
    run.finish();
}

/// A log that is new, and whose disk does not answer, makes the reload fail.
#[test]
fn reload_with_a_new_log() {
    let Some(mut run) = start(Fuse) else { return };
    run.server.allow_log("its disk does not answer");
    let gate = hang(&run);
    let http = run.http.replace("return 200 old;", "return 200 new;");
    run.server.set_http(&http.replace("logs/access.log", "logs/other.log"));
    let (status, stderr) = reload_command(&run);
    assert_eq!(status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("logs/other.log\" failed: its disk does not answer"), "{stderr}");
    assert_eq!(run.server.get("/generation").text(), "old");
    run.assert_hot_is_served();
    gate.open();
    run.finish();
}

fn terminate(medium: Medium) {
    assert_ends(medium, Signal::TERM);
}

fn quit(medium: Medium) {
    assert_ends(medium, Signal::QUIT);
}

/// The master ends while the disk hangs; processes that the kernel keeps end with the disk's reply.
#[track_caller]
fn assert_ends(medium: Medium, signal: Signal) {
    let Some(mut run) = start(medium) else { return };
    let gate = hang(&run);
    let children = all_children(run.server.pid());
    run.server.allow_log("exited on signal 9");
    run.server.allow_log("cannot end while a disk does not answer");
    run.server.signal(signal);
    assert_eq!(run.server.wait_exit(PATIENCE).code(), Some(0));
    assert!(Client::try_to(run.server.addr()).is_err());
    assert!(!run.server.dir().join("nginx.pid").exists());
    gate.open();
    for pid in children {
        until("the end of all processes", PATIENCE, || {
            (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
    }
    run.wait_disk_log("error.log", &format!("signal {}", signal.as_raw()));
    run.server.check_logs();
}

/// Logs are reopened as soon as the disk answers; earlier lines are in the old files.
fn reopen(medium: Medium) {
    let Some(mut run) = start(medium) else { return };
    let logs = run.disk_root().join("logs");
    for name in ["error.log", "access.log"] {
        std::fs::rename(logs.join(name), logs.join(format!("{name}.1"))).unwrap();
    }
    let gate = hang(&run);
    run.server.signal(Signal::USR1);
    run.server.wait_log("reopening logs");
    run.server.signal(Signal::WINCH);
    run.server.wait_log("signal 28");
    run.assert_hot_is_served();
    gate.open();
    // Signals that change nothing, until one is in the new file.
    until("a line in the new error log", PATIENCE, || {
        run.server.signal(Signal::WINCH);
        run.disk_log("error.log").contains("signal 28").then_some(())
    });
    until("a line in the new access log", PATIENCE, || {
        assert_eq!(run.server.get("/generation?new").status, 200);
        run.disk_log("access.log").contains("GET /generation?new").then_some(())
    });
    assert!(run.disk_log("error.log.1").contains("signal 10"));
    run.wait_disk_log("access.log.1", "GET /generation ");
    run.finish();
}

/// The server starts without its logs, says so, and uses them once the disk answers.
#[test]
fn start_without() {
    let Some(stage) = stage(Fuse) else { return };
    let gate = stage.hold(Ops::ALL);
    let Some(run) = stage.start_as(LOGS) else { return };
    let stderr = run.server.stderr();
    for name in ["error.log", "access.log"] {
        let text = format!("/logs/{name}\" does not answer; going on without this log");
        assert!(stderr.contains(&text), "{stderr}");
    }
    assert_eq!(run.server.get("/generation?early").text(), "old");
    gate.open();
    run.wait_disk_log("error.log", "generation 1 is in use");
    run.wait_disk_log("access.log", "GET /generation?early");
    run.finish();
}
