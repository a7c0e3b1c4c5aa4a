//! Modes of the files and directories that the program creates.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

/// Every name below `dir` with its mode, sorted.
fn modes(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(next) = rest.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(dir).unwrap().display();
            found.push(format!("{name} {:o}", metadata.permissions().mode() & 0o7777));
            if metadata.is_dir() {
                rest.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A daemon has no umask, as in nginx: what it creates must be safe without one.
#[test]
fn a_daemon_creates_nothing_that_others_may_write() {
    let dir = TempDir::new("modes");
    let run = dir.path().join("run");
    fs::create_dir(&run).unwrap();
    fs::set_permissions(&run, fs::Permissions::from_mode(0o755)).unwrap();
    let (port, path) = (nowait_testkit::ports::free_port(), run.to_str().unwrap());
    let conf = dir.path().join("nginx.conf");
    let arguments = ["-p", path, "-c", conf.to_str().unwrap(), "-e", "early.log"];
    // The server process itself opens logs whose names have variables.
    fs::create_dir(run.join("hosts")).unwrap();
    fs::set_permissions(run.join("hosts"), fs::Permissions::from_mode(0o777)).unwrap();
    let configure = |http: &str, server: &str| {
        let text = format!(
            "pid a.pid; error_log error.log notice; events {{}}\n\
             http {{ {http} root {path}; server {{ listen 127.0.0.1:{port}; listen unix:{path}/a.sock; \
             {server} return 200 x; }} }}\n"
        );
        fs::write(&conf, text).unwrap();
    };
    configure("", "access_log off;");
    // A umask of the shell's own would hide what the program asks for.
    let start = "umask 0; exec \"$0\" \"$@\"";
    let output = Command::new("sh")
        .args(["-c", start, env!("CARGO_BIN_EXE_nowait")])
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let pid = fs::read_to_string(run.join("a.pid")).unwrap().trim().parse().unwrap();
    let _end = EndOnDrop(pid);
    configure(
        "error_log new.log; proxy_cache_path cache keys_zone=c:1m;",
        "access_log logs/access.log; access_log hosts/$request_method.log;",
    );
    let output = nowait(&[&arguments[..], &["-s", "reload"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(nowait_testkit::Client::to_port(port).get("/").status, 200);
    for name in ["error.log", "new.log", "logs/access.log"] {
        fs::rename(run.join(name), run.join(format!("{name}.1"))).unwrap();
    }
    let output = nowait(&[&arguments[..], &["-s", "reopen"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    for name in ["error.log", "new.log", "logs/access.log"] {
        until(name, PATIENCE, || run.join(name).exists().then_some(()));
    }
    let expected = [
        "a.pid 644",
        "a.sock 666",
        "cache 700",
        "client_body_temp 700",
        "early.log 644",
        "error.log 644",
        "error.log.1 644",
        "hosts 777", // made above
        "hosts/GET.log 644",
        "logs 755",
        "logs/access.log 644",
        "logs/access.log.1 644",
        "new.log 644",
        "new.log.1 644",
    ];
    let found = until("the log with a variable", PATIENCE, || {
        run.join("hosts/GET.log").exists().then(|| modes(&run))
    });
    assert_eq!(found, expected);
    let output = nowait(&[&arguments[..], &["-s", "stop"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
}
