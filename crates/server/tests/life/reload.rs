//! Reloads, new processes for new settings, and reopened logs.

use super::*;

#[test]
fn a_reload_changes_what_is_served_also_on_open_connections() {
    let mut server = server("one").workers(2).start();
    let mut client = server.client();
    assert_eq!(client.get("/").text(), "one");
    server.set_http(&serving("two"));
    let output = control(&server, &["-s", "reload"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(client.get("/").text(), "two");
    assert_eq!(server.get("/").text(), "two");
    assert!(server.log().contains("generation 2 is in use"));
    // One line per worker of the old generation, for tools that wait for nginx's workers.
    until("the epitaphs", PATIENCE, || {
        (server.log().matches("exited with code 0").count() == 2).then_some(())
    });
    assert!(server.stop().success());
}

#[test]
fn a_broken_configuration_changes_nothing_and_says_why() {
    let mut server = server("one").allow_log("unknown directive").start();
    server.set_http("server { listne 127.0.0.1:%%PORT%%; }");
    let output = control(&server, &["-e", "stderr", "-s", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("unknown directive \"listne\""), "{}", stderr(&output));
    assert_eq!(server.get("/").text(), "one");
    server.reload();
    assert!(server.log().contains("unknown directive \"listne\" in"));
    assert_eq!(server.get("/").text(), "one");
    // What could not be opened is no reason to fall either.
    server.allow_log("bind() to");
    server.set_http(&format!("{} server {{ listen 192.0.2.1:1; }}", serving("three")));
    let output = control(&server, &["-s", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(server.get("/").text(), "one");
}

#[test]
fn warnings_refuse_nothing_however_many_there_are() {
    let duplicates = |count: usize| {
        let line = |n: usize| format!("10.0.{n}.0/24 a;\n10.0.{n}.0/24 b;\n");
        let networks: String = (0..count).map(line).collect();
        format!("geo $g {{\n{networks}}}\n")
    };
    let configuration = |name: &str, count| format!("{}{}", duplicates(count), serving(name));
    let mut server = server("").http(&configuration("one", 101)).start();
    assert_eq!(server.get("/").text(), "one");
    let log = server.log();
    assert_eq!(log.matches("duplicate network").count(), 100);
    assert!(log.contains("[warn] ") && log.contains(": 1 more warning not shown\n"), "{log}");
    server.set_http(&configuration("two", 250));
    let output = control(&server, &["-s", "reload"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(server.get("/").text(), "two");
    assert!(server.log().contains(": 150 more warnings not shown\n"), "{}", server.log());
    assert!(!server.log().contains("[emerg]"), "{}", server.log());
    // An error among them is shown, and refuses the configuration.
    server.allow_log("unknown directive");
    server.set_http(&format!("{} frob;", configuration("three", 250)));
    let output = control(&server, &["-e", "stderr", "-s", "reload"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("unknown directive \"frob\""), "{}", stderr(&output));
    assert_eq!(server.get("/").text(), "two");
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_connection_is_lost_while_listeners_and_workers_change_on_epoll() {
    no_connection_is_lost(Driver::Epoll);
}

#[test]
fn no_connection_is_lost_while_listeners_and_workers_change_on_io_uring() {
    no_connection_is_lost(Driver::IoUring);
}

fn no_connection_is_lost(driver: Driver) {
    let reuse = |text: &str| {
        format!("server {{ listen 127.0.0.1:%%PORT%% reuseport; return 200 {text}; }}")
    };
    let mut server = server("first").workers(3).driver(driver).start();
    let stop = AtomicBool::new(false);
    let address = server.addr();
    std::thread::scope(|scope| {
        // Also when an assertion fails, or the clients would go on for ever.
        let _end = StopOnDrop(&stop);
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut served = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let mut client = nowait_testkit::Client::to(address);
                        assert_eq!(client.get("/").status, 200);
                        served += 1;
                    }
                    served
                })
            })
            .collect();
        server.set_http(&reuse("second"));
        server.reload();
        for workers in [1, 4, 2] {
            let text = server.read("nginx.conf");
            let at = text.find("worker_processes ").unwrap() + "worker_processes ".len();
            let changed = format!("{}{workers}{}", &text[..at], &text[at + 1..]);
            server.write("nginx.conf", changed);
            let output = control(&server, &["-s", "reload"]);
            assert!(output.status.success(), "{}", stderr(&output));
        }
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
    // More sockets than workers now: all of them are read.
    for _ in 0..50 {
        assert_eq!(server.get("/").text(), "second");
    }
    assert!(server.quit().success());
}

#[test]
fn what_needs_a_new_process_gets_one() {
    let server = server("x").main("env A=1;").start();
    assert_eq!(server.get("/").text(), "x");
    let old = server.children();
    let text = server.read("nginx.conf").replace("env A=1;", "env A=2;");
    server.write("nginx.conf", text);
    let output = control(&server, &["-s", "reload"]);
    assert!(output.status.success(), "{}", stderr(&output));
    until("the old process to end", PATIENCE, || {
        let new = server.children();
        (new.len() == 1 && new != old).then_some(())
    });
    assert_eq!(server.get("/").text(), "x");
    assert!(server.quit().success());
}

#[test]
fn logs_are_opened_again() {
    let mut server = server("x").start();
    let log = server.dir().join("error.log");
    fs::rename(&log, server.dir().join("error.log.1")).unwrap();
    let output = control(&server, &["-s", "reopen"]);
    assert!(output.status.success(), "{}", stderr(&output));
    until("the new log", PATIENCE, || log.exists().then_some(()));
    server.wait_log("thread pool \"default\": ");
    assert!(server.log().contains("worker 0: event_loop_blocked: "), "{}", server.log());
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    let text = fs::read_to_string(&log).unwrap();
    // Both the master and the server process write to the new file.
    assert!(text.contains("gracefully shutting down") && text.contains("exited with code 0"));
}

/// A new server process that cannot serve what it was started for ends, and the old one serves on.
#[test]
fn a_process_that_refuses_a_reload_is_not_kept() {
    let server = server("one").workers(1).allow_log("refused generation").start();
    assert_eq!(server.get("/").text(), "one");
    let before = server.children();
    let text = server.read("nginx.conf");
    let refused =
        text.replace("worker_processes 1;", "worker_processes 64; worker_rlimit_nofile 1;");
    assert_ne!(text, refused);
    server.write("nginx.conf", refused);
    let output = control(&server, &["-s", "reload"]);
    assert_eq!(output.status.code(), Some(1), "{}", server.log());
    until("the new process to end", PATIENCE, || (server.children() == before).then_some(()));
    assert_eq!(server.get("/").text(), "one");
    server.write("nginx.conf", text);
    assert!(control(&server, &["-s", "reload"]).status.success());
    assert_eq!(server.get("/").text(), "one");
    assert!(server.stop().success());
}
