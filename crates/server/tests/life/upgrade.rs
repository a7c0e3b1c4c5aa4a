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

/// A service manager that believes only the process it watches (`NotifyAccess=main`).
struct Manager {
    socket: UnixDatagram,
    main_pid: u32,
}

impl Manager {
    fn below(dir: &std::path::Path) -> Manager {
        let socket = UnixDatagram::bind(dir.join("notify.sock")).unwrap();
        rustix::net::sockopt::set_socket_passcred(&socket, true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Manager { socket, main_pid: 0 }
    }

    /// Takes messages until `main_pid` has the value, or one of them is `message`.
    #[track_caller]
    fn take_until(&mut self, main_pid: u32, message: &str) {
        while self.main_pid != main_pid || !message.is_empty() {
            let (sender, text) = self.receive();
            if sender != self.main_pid {
                continue;
            }
            if let Some(pid) = text.lines().find_map(|line| line.strip_prefix("MAINPID=")) {
                self.main_pid = pid.parse().unwrap();
            }
            if text.lines().any(|line| line == message) {
                return assert_eq!(self.main_pid, main_pid);
            }
            assert!(!text.contains("STOPPING=1"), "{text}");
        }
    }

    #[track_caller]
    fn receive(&self) -> (u32, String) {
        use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
        let mut text = [0; 256];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = recvmsg(
            &self.socket,
            &mut [std::io::IoSliceMut::new(&mut text)],
            &mut control,
            RecvFlags::empty(),
        );
        let bytes = received.expect("a message in time").bytes;
        let sender = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmCredentials(of) => Some(of.pid.as_raw_nonzero().get()),
            _ => None,
        });
        let sender = sender.expect("credentials").unsigned_abs();
        (sender, String::from_utf8_lossy(&text[..bytes]).into_owned())
    }
}

/// The service manager follows an upgrade forth and back, and the program is found again although
/// it was started by a name without a directory.
#[test]
fn the_service_manager_follows_an_upgrade() {
    let dir = TempDir::new("upgrade");
    let mut manager = Manager::below(dir.path());
    let port = nowait_testkit::ports::free_port();
    let text = format!(
        "daemon off; pid x.pid; error_log error.log notice; events {{}}\n\
         http {{ access_log off; server {{ listen 127.0.0.1:{port}; return 200 x; }} }}\n"
    );
    dir.write("nginx.conf", text);
    let path = std::path::Path::new(env!("CARGO_BIN_EXE_nowait")).parent().unwrap();
    // A shell looks the name up, as it does for an operator.
    let mut old = Command::new("/bin/sh")
        .args(["-c", "exec nowait -p \"$0\" -c nginx.conf"])
        .arg(dir.path())
        .env("PATH", format!("/nonexistent:{}", path.display()))
        .env("NOTIFY_SOCKET", dir.path().join("notify.sock"))
        .spawn()
        .unwrap();
    let end = EndOnDrop(old.id());
    manager.main_pid = old.id();
    manager.take_until(old.id(), "READY=1");
    let new_pid = || {
        until("the new master", PATIENCE, || {
            let text = fs::read_to_string(dir.path().join("x.pid")).ok()?;
            text.trim().parse().ok().filter(|pid| *pid != old.id())
        })
    };

    signal(old.id(), Signal::USR2);
    let new = new_pid();
    manager.take_until(new, "");
    // It gives up, by its own will or not.
    for how in [Signal::QUIT, Signal::TERM] {
        let new = new_pid();
        manager.take_until(new, "");
        signal(new, how);
        manager.take_until(old.id(), "");
        until("the old pid file", PATIENCE, || {
            let text = fs::read_to_string(dir.path().join("x.pid")).ok()?;
            (text == format!("{}\n", old.id())).then_some(())
        });
        signal(old.id(), Signal::USR2);
    }

    let new = new_pid();
    let _end = EndOnDrop(new);
    manager.take_until(new, "");
    signal(old.id(), Signal::QUIT);
    assert!(old.wait().unwrap().success());
    drop(end);
    assert_eq!(nowait_testkit::Client::to_port(port).get("/").text(), "x");
    signal(new, Signal::TERM);
    manager.take_until(new, "STOPPING=1");
    until("the new master to end", PATIENCE, || (!dir.path().join("x.pid").exists()).then_some(()));
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
