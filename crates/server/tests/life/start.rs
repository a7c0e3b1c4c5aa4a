//! Start and stop: signals, daemons, graceful and fast ends, processes that die.

use std::collections::BTreeSet;

use nowait_testkit::server::{Descriptor, all_children};

use super::*;

#[test]
fn starts_serves_and_ends_on_every_signal_that_ends_it() {
    for signal in [Signal::TERM, Signal::INT, Signal::QUIT] {
        let mut server = server("hello").workers(2).start();
        assert_eq!(server.get("/").text(), "hello");
        assert_eq!(server.read("nginx.pid"), format!("{}\n", server.pid()));
        assert!(server.log().contains("nginx/1.31.4"));
        server.signal(signal);
        assert!(server.wait_exit(PATIENCE).success());
        assert!(!server.dir().join("nginx.pid").exists());
        assert!(server.log().contains("exited with code 0"), "{}", server.log());
    }
}

#[test]
fn two_servers_do_not_share_a_pid_file() {
    let server = server("first").allow_log("belongs to a running server").start();
    let text = server.read("nginx.conf");
    let port = nowait_testkit::ports::free_port();
    let text = text.replace(&format!(":{};", server.port()), &format!(":{port};"));
    server.write("second.conf", text);
    let dir = server.dir().to_str().unwrap();
    let output = nowait(&["-p", dir, "-c", "second.conf", "-e", "second.log"]);
    assert_eq!(output.status.code(), Some(1));
    let message = format!(
        "nowait: [emerg] the pid file \"{dir}/nginx.pid\" belongs to a running server, \
         process {}\n",
        server.pid()
    );
    assert!(stderr(&output).contains(&message), "{}", stderr(&output));
    assert_eq!(server.read("nginx.pid"), format!("{}\n", server.pid()));
    // The pid of another process, running or not, is no obstacle.
    server.write("nginx.pid", format!("{}\n", std::process::id()));
    let mut second = binary()
        .command()
        .args(["-p", dir, "-c", "second.conf", "-e", "second.log"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let own = format!("{}\n", second.id());
    until("the second server", PATIENCE, || (server.read("nginx.pid") == own).then_some(()));
    // Nor is a master that is about to end; and its end leaves the file of its successor alone.
    assert!(server.stop().success());
    second.kill().unwrap();
    second.wait().unwrap();
}

#[test]
fn an_end_leaves_the_pid_file_of_a_successor() {
    let mut server = server("x").start();
    server.write("nginx.pid", "1\n");
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).success());
    assert_eq!(server.read("nginx.pid"), "1\n");
}

#[test]
fn one_process_does_it_too() {
    let mut server = server("one").master_process(false).start();
    assert_eq!(server.get("/").text(), "one");
    assert!(server.children().is_empty(), "{:?}", server.children());
    server.set_http(&serving("two"));
    server.reload();
    assert_eq!(server.get("/").text(), "two");
    assert!(server.quit().success());
}

#[test]
fn an_idle_connection_does_not_hold_up_the_end() {
    let server = server("x").start();
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "x");
    assert!(server.quit().success());
    client.expect_closed();
}

#[test]
fn a_taken_address_is_reported_and_tried_again() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dir = TempDir::new("taken");
    let address = taken.local_addr().unwrap();
    let text = format!(
        "daemon off; pid x.pid; error_log error.log; events {{}}\n\
         http {{ access_log off; server {{ listen {address}; return 200 x; }} }}\n"
    );
    dir.write("nginx.conf", text);
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-e", "early.log"]);
    assert_eq!(output.status.code(), Some(1));
    let log = std::fs::read_to_string(dir.path().join("error.log")).unwrap();
    assert!(log.contains("[emerg]") && log.contains(": still could not bind()"), "{log}");
    let line = format!("nowait: [emerg] bind() to {address} failed (98: Address already in use)\n");
    assert_eq!(stderr(&output).matches(&line).count(), 5, "{}", stderr(&output));
    let end = "nowait: [emerg] still could not bind()\n  = hint: another program";
    assert!(stderr(&output).contains(end), "{}", stderr(&output));
    assert!(!dir.path().join("x.pid").exists());
}

#[test]
fn what_stops_a_start_is_said_in_the_classic_form_with_a_hint() {
    let dir = TempDir::new("refused");
    dir.write("logs", "a file");
    let path = dir.path().to_str().unwrap().to_owned();
    for (http, message, hint) in [
        ("server { listen 127.0.0.1:1; }", format!("[emerg] open() \"{path}/logs/"), ""),
        (
            "access_log off; server { listen 192.0.2.1:1; }",
            "[emerg] bind() to 192.0.2.1:1 failed (99: Cannot assign requested address)".into(),
            "  = hint: this machine does not have the address",
        ),
        ("", "[warn] no \"server\" listens: nothing will be served".into(), "  = hint: http {"),
    ] {
        // Without -e, as a daemon: what a person sees who just starts it.
        let text =
            format!("pid /nonexistent/x.pid; error_log stderr; events {{}} http {{ {http} }}");
        dir.write("nginx.conf", text);
        let output = nowait(&["-p", &path, "-c", "nginx.conf"]);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let said = stderr(&output);
        assert!(said.lines().any(|line| line.starts_with(&format!("nowait: {message}"))), "{said}");
        assert!(said.contains(hint), "{said}");
    }
}

#[test]
fn a_signal_to_nobody_says_so() {
    let dir = TempDir::new("nobody");
    dir.write("nginx.conf", "events {} http { server { listen 127.0.0.1:1; } }");
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-s", "quit"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("nowait.pid\" failed (2: No such file or directory)\n"));
    assert!(stderr(&output).contains("  = hint: no server runs with this configuration"));
}

#[test]
fn without_a_configuration_there_is_nobody_to_signal() {
    let dir = TempDir::new("nothing");
    for arguments in [&["-s", "stop"][..], &["-t"], &["cache", "purge", "one", "--all"]] {
        let output = binary().command().args(arguments).current_dir(dir.path()).output().unwrap();
        // Unless the machine has one installed.
        if !std::path::Path::new("/etc/nowait/nowait.conf").exists() {
            assert!(!output.status.success(), "{arguments:?}");
            let said = stderr(&output);
            assert!(said.starts_with("nowait: [error] there is no configuration: "), "{said}");
        }
    }
}

/// Another user is told why nothing happens. Only root can play one.
#[test]
fn another_user_is_told_whose_server_it_is() {
    use std::os::unix::process::CommandExt;
    if !rustix::process::geteuid().is_root() {
        return nowait_testkit::skip("root", "another user cannot be played");
    }
    let server = server("x").start();
    // Others may not enter the directory that the program was built in, perhaps.
    let copy = TempDir::new("program");
    let program = copy.path().join("nowait");
    fs::copy(env!("CARGO_BIN_EXE_nowait"), &program).unwrap();
    let dir = server.dir().to_str().unwrap();
    for (arguments, message) in [
        (&["-s", "reload"][..], "nowait: [error] the master process belongs to another user"),
        (&["-s", "quit"], "nowait: [alert] kill("),
        (&["cache", "purge", "one", "--all"], "the master process belongs to another user"),
    ] {
        let (before, after) = arguments.split_at(if arguments[0] == "cache" { 2 } else { 0 });
        let output = Command::new(&program)
            .args(before)
            .args(["-p", dir, "-c", "nginx.conf", "-e", "stderr"])
            .args(after)
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("belongs to another user"), "{}", stderr(&output));
    }
    assert!(server.stop().success());
}

#[test]
fn a_reload_that_cannot_open_something_says_what() {
    let mut server = server("first").allow_log("192.0.2.1").start();
    server.set_http(&format!("server {{ listen 192.0.2.1:80; }} {}", serving("second")));
    let output = control(&server, &["-s", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    let line =
        "nowait: [emerg] bind() to 192.0.2.1:80 failed (99: Cannot assign requested address)\n";
    assert!(said.contains(line) && said.contains("  = hint: this machine does not"), "{said}");
    assert_eq!(server.get("/").text(), "first");
}

#[test]
fn a_daemon_leaves_its_pid_behind() {
    let dir = TempDir::new("daemon");
    let port = nowait_testkit::ports::free_port();
    let text = format!(
        "pid x.pid; error_log error.log notice; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 200 daemon; }} }}\n"
    );
    dir.write("nginx.conf", text);
    let path = dir.path().to_str().unwrap();
    let arguments = ["-p", path, "-c", "nginx.conf", "-e", "error.log"];
    assert!(nowait(&arguments).status.success());
    // It is there at once.
    let status = nowait(&["-p", path, "-c", "nginx.conf", "-s", "reload"]);
    assert!(status.status.success(), "{}", stderr(&status));
    assert_eq!(nowait_testkit::Client::to_port(port).get("/").text(), "daemon");

    // WINCH: only the server process ends. HUP: back with a new one.
    let pid = fs::read_to_string(dir.path().join("x.pid")).unwrap().trim().to_owned();
    let pid: u32 = pid.parse().unwrap();
    let log_has = |text: &str| {
        let log = || fs::read_to_string(dir.path().join("error.log")).unwrap_or_default();
        until(text, PATIENCE, || log().contains(text).then_some(()));
    };
    signal(pid, Signal::WINCH);
    // Its end itself: the log has a line of that kind from the reload already, and of two signals
    // that wait the master takes HUP first, no matter what came first.
    until("the server process to end", PATIENCE, || children(pid).is_empty().then_some(()));
    signal(pid, Signal::HUP);
    log_has("generation 3 is in use");
    assert_eq!(nowait_testkit::Client::to_port(port).get("/").text(), "daemon");
    let output = nowait(&[&arguments[..], &["-s", "quit"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    until("the daemon to end", PATIENCE, || (!dir.path().join("x.pid").exists()).then_some(()));
}

#[test]
fn signals_without_a_server_are_errors() {
    let dir = TempDir::new("nobody");
    dir.write("nginx.conf", "pid x.pid; events {}");
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-s", "stop"]);
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("open() \"{path}/x.pid\" failed (2: No such file or directory)");
    assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    dir.write("x.pid", "none\n");
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-s", "reload"]);
    assert!(stderr(&output).contains("invalid PID number \"none\" in"), "{}", stderr(&output));
}

/// A server with a large file, and a client that has asked for it and does not read yet.
fn busy(main: &str) -> (Server, nowait_testkit::Client) {
    let server = Server::of(binary())
        .main(main)
        .http("server { listen 127.0.0.1:%%PORT%%; root %%DIR%%/www; }")
        .file("www/big", vec![b'x'; BIG])
        .start();
    let mut client = server.client();
    client.send("GET /big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    // The response has begun.
    client.read_some(1);
    (server, client)
}

/// More than the buffers of a connection take.
const BIG: usize = 32 << 20;

#[test]
fn a_request_under_way_is_finished_before_the_end() {
    let (mut server, mut client) = busy("");
    server.signal(Signal::QUIT);
    server.wait_log("gracefully shutting down");
    until("the port to be free", PATIENCE, || TcpStream::connect(server.addr()).err());
    assert!(server.try_exit().is_none());
    assert!(client.rest().len() >= BIG);
    assert!(server.wait_exit(PATIENCE).success());
}

#[test]
fn a_graceful_end_can_be_limited() {
    let (mut server, client) = busy("worker_shutdown_timeout 100ms;");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    assert!(server.log().contains("shutdown timeout"));
    // What had begun is logged.
    assert!(server.read("access.log").contains("GET /big"));
    drop(client);
}

#[test]
fn a_fast_end_does_not_wait() {
    let (mut server, client) = busy("");
    server.signal(Signal::QUIT);
    server.wait_log("gracefully shutting down");
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).success());
    drop(client);
}

#[test]
fn an_old_generation_lives_as_long_as_its_requests() {
    let (mut server, mut client) = busy("");
    server.set_http(&serving("new"));
    server.reload();
    assert_eq!(server.get("/").text(), "new");
    assert!(!server.log().contains("exited with code 0"));
    assert!(client.rest().len() >= BIG);
    server.wait_log("exited with code 0");
    assert!(server.quit().success());
}

#[test]
fn a_dead_server_process_is_replaced() {
    let mut server = server("x").allow_log("exited on signal 9").start();
    // The pid file is there before the server process is.
    assert_eq!(server.get("/").text(), "x");
    let old = server.children();
    assert_eq!(old.len(), 1);
    let pid = old[0].to_string();
    signal(old[0], Signal::KILL);
    server.wait_log(&format!("worker process {pid} exited on signal 9"));
    assert_eq!(server.get("/").text(), "x");
    assert_ne!(server.children(), old);
    // TERM to the server process itself: it ends well, and another one is started, as in nginx.
    let pid = server.children()[0];
    signal(pid, Signal::TERM);
    server.wait_log(&format!("worker process {pid} exited with code 0"));
    assert_eq!(server.get("/").text(), "x");
    server.set_http(&serving("y"));
    server.reload();
    assert_eq!(server.get("/").text(), "y");
    assert!(server.stop().success());
}

#[test]
fn a_dead_master_takes_the_server_process_with_it() {
    let mut server = server("x").allow_log("the master process has gone").start();
    assert_eq!(server.get("/").text(), "x");
    let child = server.children()[0];
    server.signal(Signal::KILL);
    server.wait_exit(PATIENCE);
    until("the server process to end", PATIENCE, || {
        (!std::path::Path::new(&format!("/proc/{child}")).exists()).then_some(())
    });
}

#[test]
fn unix_sockets_come_and_go() {
    let mut server = Server::of(binary())
        .allow_log("deleting socket")
        .http(
            "server { listen 127.0.0.1:%%PORT%%; listen unix:%%DIR%%/a.sock; \
             listen unix:%%DIR%%/b.sock; return 200 unix; }",
        )
        .start();
    let ask = |name: &str| {
        let mut stream = UnixStream::connect(server.dir().join(name)).unwrap();
        stream.write_all(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut buffer = [0; 512];
        let length = stream.read(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(ask("a.sock").starts_with("HTTP/1.1 200"));
    assert!(ask("b.sock").starts_with("HTTP/1.1 200"));
    server.set_http(
        "server { listen 127.0.0.1:%%PORT%%; listen unix:%%DIR%%/a.sock; return 200 unix; }",
    );
    server.reload();
    // Sockets are closed after the new generation has been reported.
    until("the unused socket to be deleted", PATIENCE, || {
        (!server.dir().join("b.sock").exists()).then_some(())
    });
    assert!(server.dir().join("a.sock").exists());
    let path = server.dir().join("a.sock");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    assert!(!path.exists());
}

/// Another process writes the master's lines; no wait for them follows an event.
#[test]
fn the_log_is_complete_and_in_order() {
    let mut server = server("x").start();
    assert_eq!(server.get("/").text(), "x");
    let pid = server.pid();
    // The workers may serve before the master has heard of it.
    server.wait_log("generation 1 is in use");
    server.signal(Signal::USR1);
    server.wait_log("reopening logs");
    server.reload();
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    let log = server.log();
    let wanted = [
        "using the ".to_owned(),
        "start worker processes".to_owned(),
        "generation 1 is in use".to_owned(),
        "signal 10 (SIGUSR1) received".to_owned(),
        format!("#{pid}: reopening logs"),
        "signal 1 (SIGHUP) received".to_owned(),
        "reconfiguring".to_owned(),
        "generation 2 is in use".to_owned(),
        "signal 3 (SIGQUIT) received".to_owned(),
        "gracefully shutting down".to_owned(),
        ": exit\n".to_owned(),
        "exited with code 0".to_owned(),
    ];
    let mut from = 0;
    for text in wanted {
        let at = log[from..].find(&text);
        from += at.unwrap_or_else(|| panic!("{text:?} is missing or misplaced in:\n{log}"));
    }
    assert!(log.ends_with(&format!("#{pid}: exit\n")), "{log}");
}

#[test]
fn a_dead_log_process_is_replaced() {
    let mut server = server("x").allow_log("exited on signal 9").start();
    assert_eq!(server.get("/").text(), "x");
    let log_process = || {
        let (all, others) = (all_children(server.pid()), server.children());
        all.into_iter().find(|pid| !others.contains(pid))
    };
    let old = log_process().unwrap();
    signal(old, Signal::KILL);
    server.wait_log(&format!("log process {old} exited on signal 9"));
    assert_ne!(log_process(), Some(old));
    // The server process writes through the new one, too.
    let child = server.children()[0];
    signal(child, Signal::TERM);
    server.wait_log(&format!("#{child}: signal 15 (SIGTERM) received"));
    server.wait_log(&format!("worker process {child} exited with code 0"));
    assert_eq!(server.get("/").text(), "x");
    server.reload();
    server.signal(Signal::TERM);
    assert!(server.wait_exit(PATIENCE).success());
    assert!(server.log().ends_with(": exit\n"));
    server.check_logs();
}

/// As containers have it; the process that opens these logs must mean the same by their names.
#[test]
fn logs_can_be_the_standard_streams() {
    let mut server = Server::of(binary())
        .main("error_log /dev/stderr notice;")
        .http(&format!("access_log /dev/stdout; {}", serving("x")))
        .start();
    assert_eq!(server.get("/first").text(), "x");
    server.signal(Signal::USR1);
    server.wait_log("reopening logs");
    server.reload();
    assert_eq!(server.get("/second").text(), "x");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    let (stdout, stderr) = (server.read("stdout"), server.stderr());
    assert!(stdout.contains("GET /first") && stdout.contains("GET /second"), "{stdout}");
    assert!(stderr.contains("generation 2 is in use"), "{stderr}");
    assert!(stderr.ends_with(&format!("#{}: exit\n", server.pid())), "{stderr}");
    assert_eq!(stderr.matches("generation 1 is in use").count(), 1, "{stderr}");
}

/// The server process cannot give commands to the log process, which has the rights of root; the
/// master holds no log, as closing one may wait for a disk.
#[test]
fn descriptors_of_logs_are_where_they_belong() {
    let server = server("x").start();
    assert_eq!(server.get("/").text(), "x");
    let Some(descriptors) = server.descriptors() else { return };
    let of = |pid: u32| descriptors.iter().filter(move |found| found.pid == pid);
    let is_log = |found: &&Descriptor| found.target.extension().is_some_and(|e| e == "log");
    assert_eq!(of(server.pid()).filter(is_log).count(), 0, "{descriptors:?}");
    let child = server.children()[0];
    assert!(of(child).filter(is_log).count() >= 2, "{descriptors:?}");
    let sockets = |pid: u32| {
        let names = of(pid).map(|found| found.target.to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("socket:")).collect::<BTreeSet<_>>()
    };
    // The listening socket, and the queue of lines.
    let (master, child) = (sockets(server.pid()), sockets(child));
    assert_eq!(master.intersection(&child).count(), 2, "{descriptors:?}");
    assert!(server.stop().success());
}

/// A configuration that can be read but not served ends the start, after a few attempts.
#[test]
fn a_start_that_cannot_succeed_ends() {
    let dir = TempDir::new("giving-up");
    let path = dir.path().to_str().unwrap().to_owned();
    let port = nowait_testkit::ports::free_port();
    for (main, reason, attempts) in [
        // No process can start in it.
        ("working_directory /nonexistent/x;", "chdir(\"/nonexistent/x\") failed", 1),
        // The process starts, and refuses: its workers get no descriptors.
        ("worker_processes 64; worker_rlimit_nofile 1;", "refused generation 1: ", 5),
    ] {
        let text = format!(
            "daemon off; pid x.pid; error_log error.log notice; {main} events {{}}\n\
             http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 200 x; }} }}\n"
        );
        dir.write("nginx.conf", text);
        let _ = fs::remove_file(dir.path().join("error.log"));
        let output = nowait(&["-p", &path, "-c", "nginx.conf"]);
        let log = fs::read_to_string(dir.path().join("error.log")).unwrap();
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert_eq!(log.matches(reason).count(), attempts, "{log}");
        assert_eq!(log.matches("giving up: no server process").count(), 1, "{log}");
        assert!(stderr(&output).contains("giving up: "), "{}", stderr(&output));
        assert!(!dir.path().join("x.pid").exists());
    }
}
