//! The exit codes of the commands.

use nowait_testkit::{Binary, TempDir};

/// 1 is a judgement about a configuration, 2 a command that judges nothing.
#[test]
fn exit_codes_of_commands() {
    let dir = TempDir::new("exit-codes");
    let text = "events {}\nhttp {\n    server {\n        listen 18080;\n        merge_slashes off;\n    }\n}\n";
    dir.write("n.conf", text);
    dir.write("odd.conf", "events {}  http { server { lisen 1; } }");
    let directory = dir.path();
    let code = |line: &str| {
        let mut command = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
        command.current_dir(directory).args(line.split_whitespace());
        command.stdin(std::process::Stdio::null()).output().unwrap().status.code()
    };
    for (line, expected) in [
        ("lint --jsn", 2),
        ("lint --explain nothing-at-all", 2),
        ("lint missing.conf", 2),
        ("lint n.conf", 1),
        ("fmt --chek", 2),
        ("fmt missing.conf", 2),
        ("fmt --check odd.conf", 1),
        ("migrate --otput x", 2),
        ("migrate missing", 2),
        ("migrate odd.conf", 1),
        ("explain", 2),
        ("explain -H x http://a/", 2),
        ("explain -c odd.conf http://a/", 1),
        ("explain -c n.conf http://a:1/", 1),
        ("explain -c n.conf http://a:18080/", 0),
        ("cache purge", 2),
        ("serve --lisen x", 2),
        ("check-health not-a-url", 1),
        ("reference nothing-at-all", 1),
    ] {
        assert_eq!(code(line), Some(expected), "{line}");
    }
    // Commands say so themselves.
    for command in ["lint", "fmt", "migrate", "explain"] {
        let mut help = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
        let help = help.args([command, "--help"]).output().unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains("The exit code is 0") && help.contains("2 for wrong arguments"));
    }
}
