//! A new binary takes over (USR2), inherited sockets, and the service manager.

use super::*;

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
