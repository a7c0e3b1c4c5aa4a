//! The life of the program: command line, start, stop, reload, upgrade, what survives what.
//!
//! Every server runs on ports of its own below a temporary directory; nothing needs root, and as
//! root the server process runs as nobody.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use nowait_testkit::server::{Signal, children, signal};
use nowait_testkit::wait::{PATIENCE, until};
use nowait_testkit::{Binary, Driver, Server, ServerBuilder, TempDir};

fn binary() -> Binary {
    Binary::nowait(env!("CARGO_BIN_EXE_nowait"))
}

fn nowait(arguments: &[&str]) -> Output {
    binary().command().args(arguments).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn serving(text: &str) -> String {
    format!("server {{ listen 127.0.0.1:%%PORT%%; return 200 {text}; }}")
}

fn server(text: &str) -> ServerBuilder {
    Server::of(binary()).http(&serving(text))
}

/// `nowait -p DIR -c nginx.conf ...` for a running server, as an operator would call it.
fn control(server: &Server, arguments: &[&str]) -> Output {
    let dir = server.dir().to_str().unwrap();
    binary().command().args(["-p", dir, "-c", "nginx.conf"]).args(arguments).output().unwrap()
}

fn listing(dir: &std::path::Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

// ---- command line

#[test]
fn version_and_usage_go_to_standard_error() {
    let output = nowait(&["-v"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("nginx version: nginx/1.31.4\n"));
    let output = nowait(&["-V"]);
    assert!(stderr(&output).contains("configure arguments: "));
    assert!(stderr(&output).contains("--without-http_fastcgi_module"));
    let output = nowait(&["-?"]);
    assert!(output.status.success());
    assert!(stderr(&output).contains("Usage: nowait [-?hvVtTq]"));
}

#[test]
fn the_reference_is_in_the_binary() {
    let output = nowait(&["reference", "directives"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("### worker_processes\n"));
    let output = nowait(&["reference"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "nowait: usage: nowait reference directives|unsupported|variables\n"
    );
}

#[test]
fn wrong_options_are_refused_in_nginx_words() {
    for (arguments, message) in [
        (&["stop"][..], "nowait: invalid option: \"stop\"\n"),
        (&["-tx"], "nowait: invalid option: \"x\"\n"),
        (&["-s", "halt"], "nowait: invalid option: \"-s halt\"\n"),
        (&["-c"], "nowait: option \"-c\" requires file name\n"),
    ] {
        let output = nowait(arguments);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(stderr(&output), message);
    }
}

// ---- -t and -T

#[test]
fn a_test_says_so_and_touches_nothing() {
    let dir = TempDir::new("test");
    let text = "pid x.pid; error_log logs/error.log; events {}\n\
                http { server { listen 127.0.0.1:1; return 200 x; } }\n";
    dir.write("nginx.conf", text);
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-e", "early.log", "-t"]);
    let expected = format!(
        "nowait: the configuration file {path}/nginx.conf syntax is ok\n\
         nowait: configuration file {path}/nginx.conf test is successful\n"
    );
    assert_eq!(stderr(&output), expected);
    assert!(output.status.success());
    assert_eq!(listing(dir.path()), ["nginx.conf"]);
    assert_eq!(stderr(&nowait(&["-p", path, "-cnginx.conf", "-tq"])), "");
}

#[test]
fn a_failed_test_shows_every_error_where_it_is() {
    let dir = TempDir::new("test");
    dir.write("nginx.conf", "worker_procesess 2;\nevents { use kqueue; }\n");
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    let first =
        format!("nowait: [emerg] unknown directive \"worker_procesess\" in {path}/nginx.conf:1\n");
    assert!(text.starts_with(&first), "{text}");
    assert!(text.contains("did you mean \"worker_processes\"?"), "{text}");
    assert!(text.contains(&format!("invalid event type \"kqueue\" in {path}/nginx.conf:2\n")));
    assert!(text.ends_with(&format!("configuration file {path}/nginx.conf test failed\n")));
}

#[test]
fn a_name_given_twice_is_shown_where_it_is_ignored() {
    let dir = TempDir::new("twice");
    let server = "server { listen 127.0.0.1:1; server_name a; }\n";
    dir.write("nginx.conf", format!("events {{}} http {{\n{server}{server}}}\n"));
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(output.status.success());
    let warning = format!(
        "[warn] conflicting server name \"a\" on 127.0.0.1:1, ignored in {path}/nginx.conf:3\n"
    );
    assert!(stderr(&output).contains(&warning), "{}", stderr(&output));
}

#[test]
fn what_does_not_do_what_it_seems_to_is_warned_of() {
    let dir = TempDir::new("seems");
    let path = dir.path().to_str().unwrap();
    let open = "[warn] \"auth_basic\" has no effect without \"auth_basic_user_file\"";
    let handlers = "replaces another handler of the same block, only the last one is used";
    for (server, warnings) in [
        ("auth_basic a;", vec![open]),
        // One line is named once, whoever inherits it.
        ("auth_basic a; location / { } location /a { location /a/b { } }", vec![open]),
        ("location / { limit_except GET { auth_basic a; } }", vec![open]),
        ("auth_basic a; location / { auth_basic_user_file f; }", vec![]),
        ("auth_basic a; location / { auth_basic off; }", vec![]),
        ("auth_basic off;", vec![]),
        ("location / { metrics; status_api; stub_status; }", vec![handlers, handlers]),
        ("location / { proxy_pass http://127.0.0.1:1; empty_gif; }", vec![handlers]),
        (
            "location / { stub_status; stub_status; if ($arg_a) { proxy_pass http://127.0.0.1:1; } }",
            vec![],
        ),
    ] {
        dir.write("nginx.conf", format!("events {{}} http {{ server {{ {server} }} }}\n"));
        let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
        assert!(output.status.success());
        let said = stderr(&output);
        let lines: Vec<&str> = said.lines().filter(|line| line.contains("[warn]")).collect();
        assert_eq!(lines.len(), warnings.len(), "{server}: {said}");
        for (line, warning) in lines.iter().zip(warnings) {
            assert!(line.contains(warning), "{server}: {said}");
        }
    }
}

#[test]
fn a_dump_prints_every_file_once() {
    let dir = TempDir::new("dump");
    let main = "include a.inc;\ninclude a.in?;\nevents {}\n";
    dir.write("nginx.conf", main);
    dir.write("a.inc", "env A=1;\n");
    let path = dir.path().to_str().unwrap();
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-T"]);
    let expected = format!(
        "# configuration file {path}/nginx.conf:\n{main}\n\
         # configuration file {path}/a.inc:\nenv A=1;\n\n"
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

#[test]
fn directives_of_the_main_context_are_checked() {
    let dir = TempDir::new("main");
    let path = dir.path().to_str().unwrap();
    for (line, message) in [
        ("thread_pool x max_queue=1;", "\"x\" must have \"threads\" parameter"),
        ("thread_pool x threads=0;", "invalid threads value \"threads=0\""),
        ("thread_pool x threads=1; thread_pool x threads=2;", "duplicate thread pool \"x\""),
        ("worker_processes many;", "\"worker_processes\" directive invalid value"),
        ("worker_cpu_affinity 0102;", "invalid character \"2\" in \"worker_cpu_affinity\""),
        ("error_log x loud;", "invalid log level \"loud\""),
        ("daemon on; daemon off;", "\"daemon\" directive is duplicate"),
        ("events { use select; }", "invalid event type \"select\""),
    ] {
        let text =
            if line.contains("events") { line.into() } else { format!("{line} events {{}}") };
        dir.write("nginx.conf", text);
        let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
        assert_eq!(output.status.code(), Some(1), "{line}");
        assert!(stderr(&output).contains(message), "{line}: {}", stderr(&output));
    }
    dir.write(
        "nginx.conf",
        "worker_processes auto; worker_cpu_affinity auto; thread_pool default threads=4; \
         thread_pool d1 threads=1 max_queue=0; worker_priority -5; worker_rlimit_core 500M; \
         worker_shutdown_timeout 5s; timer_resolution 100ms; lock_file x; pcre_jit on; \
         debug_points stop; env PATH; error_log x debug_http; \
         events { use epoll; multi_accept on; accept_mutex on; accept_mutex_delay 100ms; \
         epoll_events 1; worker_aio_requests 64; event_loop_guard strict; worker_connections 10; }",
    );
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-t"]);
    assert!(output.status.success(), "{}", stderr(&output));
}

// ---- start and stop

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
fn one_process_does_it_too() {
    let mut server = server("one").master_process(false).start();
    assert_eq!(server.get("/").text(), "one");
    assert_eq!(server.children(), []);
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
    let output = nowait(&["-p", path, "-c", "nginx.conf", "-e", "error.log"]);
    assert_eq!(output.status.code(), Some(1));
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
    for arguments in [&["-s", "stop"][..], &["-t"]] {
        let output = binary().command().args(arguments).current_dir(dir.path()).output().unwrap();
        // Unless the machine has one installed.
        if !std::path::Path::new("/etc/nowait/nowait.conf").exists() {
            assert_eq!(output.status.success(), arguments == ["-t"]);
            let said = stderr(&output);
            assert!(said.starts_with("nowait: [warn] there is no configuration: "), "{said}");
        }
    }
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
    // that wait the master takes HUP first, whatever came first.
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

// ---- reload

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

// ---- graceful ends

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

// ---- accidents

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
    assert!(server.dir().join("a.sock").exists());
    assert!(!server.dir().join("b.sock").exists());
    let path = server.dir().join("a.sock");
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    assert!(!path.exists());
}

// ---- upgrade, inheritance, the service manager

#[test]
fn another_binary_takes_over_and_back() {
    let mut server = server("x").start();
    let (pid, dir) = (server.pid(), server.dir().to_owned());
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let new_pid = |server: &Server| {
        until("the new master", PATIENCE, || {
            let text = read("nginx.pid");
            let new: u32 = text.trim().parse().ok()?;
            (new != pid && server.children().contains(&new)).then_some(new)
        })
    };
    server.signal(Signal::USR2);
    let new = new_pid(&server);
    assert_eq!(read("nginx.pid.oldbin"), format!("{pid}\n"));
    assert_eq!(server.get("/").text(), "x");

    // Back: the new one ends, the old one has its name again.
    signal(new, Signal::QUIT);
    until("the pid file to come back", PATIENCE, || {
        (read("nginx.pid") == format!("{pid}\n")).then_some(())
    });
    assert_eq!(server.get("/").text(), "x");

    // Again, and now the old one ends.
    server.signal(Signal::USR2);
    let new = new_pid(&server);
    server.wait_log(&format!("{new}#{new}: start worker processes"));
    server.signal(Signal::QUIT);
    assert!(server.wait_exit(PATIENCE).success());
    assert!(!dir.join("nginx.pid.oldbin").exists());
    assert_eq!(server.get("/").text(), "x");
    signal(new, Signal::TERM);
    until("the new master to end", PATIENCE, || (!dir.join("nginx.pid").exists()).then_some(()));
}

#[test]
fn sockets_of_the_service_manager_are_used_and_readiness_is_told() {
    // A shell stands in for the service manager: it opens no socket itself, so this test passes
    // one through descriptor 3.
    let dir = TempDir::new("systemd");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let manager = UnixDatagram::bind(dir.path().join("notify.sock")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let text = format!(
        "daemon off; pid x.pid; error_log error.log notice; events {{}}\n\
         http {{ access_log off; server {{ listen {address}; return 200 inherited; }} }}\n"
    );
    dir.write("nginx.conf", text);
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS=1 NOTIFY_SOCKET={0}/notify.sock exec {1} -p {0} -c nginx.conf",
        dir.path().display(),
        env!("CARGO_BIN_EXE_nowait"),
    );
    // The listener becomes the shell's standard input, and from there its descriptor 3.
    let mut child = Command::new("sh")
        .args(["-c", &format!("exec 3<&0 </dev/null; {script}")])
        .stdin(std::os::fd::OwnedFd::from(listener))
        .spawn()
        .unwrap();
    let mut buffer = [0; 256];
    let length = manager.recv(&mut buffer).unwrap();
    let message = String::from_utf8_lossy(&buffer[..length]);
    assert!(message.starts_with(&format!("READY=1\nMAINPID={}\n", child.id())), "{message}");
    assert_eq!(nowait_testkit::Client::to(address).get("/").text(), "inherited");
    signal(child.id(), Signal::TERM);
    let length = manager.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], b"STOPPING=1\n");
    assert!(child.wait().unwrap().success());
}

// ---- without a configuration

#[test]
fn without_a_configuration_the_directory_is_served() {
    // Another server may have the port: then there is nothing to see here.
    if TcpStream::connect(("127.0.0.1", 8080)).is_ok() {
        return nowait_testkit::skip("port 8080", "in use");
    }
    if std::path::Path::new("/etc/nowait/nowait.conf").exists() {
        return nowait_testkit::skip("no installed configuration", "there is one");
    }
    let dir = TempDir::new("here");
    // Ctrl-C, and the end of the terminal.
    for end in [Signal::INT, Signal::HUP] {
        let mut child = binary()
            .command()
            .current_dir(dir.path())
            .env("XDG_RUNTIME_DIR", dir.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        until("port 8080", PATIENCE, || TcpStream::connect(("127.0.0.1", 8080)).ok());
        signal(child.id(), end);
        assert!(child.wait().unwrap().success());
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
        assert!(text.contains("http://localhost:8080/"), "{text}");
        assert!(text.contains("Ctrl-C"), "{text}");
    }
}
