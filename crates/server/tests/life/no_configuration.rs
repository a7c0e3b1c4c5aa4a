//! Serving the current directory without a configuration.

use super::*;

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
