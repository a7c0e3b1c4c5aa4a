//! `nowait fmt`: what it writes, lists and refuses. The layout itself is tested beside its code.

use std::io::Write;
use std::process::{Output, Stdio};

use nowait_testkit::{Binary, TempDir};

fn fmt(dir: &TempDir, arguments: &[&str], input: &str) -> Output {
    let mut command = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
    command.current_dir(dir.path()).arg("fmt").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that reads no input may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

/// The exit code, and what went to standard output and standard error.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn files_are_rewritten_or_listed() {
    let dir = TempDir::new("fmt");
    let bad = dir.write("bad.conf", "a{b;}");
    dir.write("good.conf", "a;\n");
    let listed = (Some(1), "bad.conf\n".to_owned(), String::new());
    assert_eq!(said(&fmt(&dir, &["--check", "bad.conf", "good.conf"], "")), listed);
    assert_eq!(std::fs::read_to_string(&bad).unwrap(), "a{b;}");
    let written = (Some(0), "bad.conf\n".to_owned(), String::new());
    assert_eq!(said(&fmt(&dir, &["bad.conf", "good.conf"], "")), written);
    assert_eq!(std::fs::read_to_string(&bad).unwrap(), "a {\n    b;\n}\n");
    let nothing = (Some(0), String::new(), String::new());
    assert_eq!(said(&fmt(&dir, &["--check", "bad.conf", "good.conf"], "")), nothing);
}

#[test]
fn standard_input_goes_to_standard_output() {
    let dir = TempDir::new("fmt");
    for arguments in [&[][..], &["--stdin"]] {
        let output = said(&fmt(&dir, arguments, "a   b;"));
        assert_eq!(output, (Some(0), "a b;\n".to_owned(), String::new()));
    }
    let output = said(&fmt(&dir, &["--check"], "a   b;"));
    assert_eq!(output, (Some(1), "standard input\n".to_owned(), String::new()));
    let (code, out, error) = said(&fmt(&dir, &[], "a   b"));
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(error.contains("in standard input:1\n"), "{error}");
}

#[test]
fn a_file_with_a_mistake_stays_and_others_do_not() {
    let dir = TempDir::new("fmt");
    let broken = dir.write("broken.conf", "a{\n  b c }\n");
    let good = dir.write("good.conf", "a  b;");
    let (code, out, error) = said(&fmt(&dir, &["broken.conf", "none.conf", "good.conf"], ""));
    assert_eq!((code, out.as_str()), (Some(2), "good.conf\n"));
    for expected in [
        "nowait: [emerg] unexpected \"}\" in broken.conf:2\n",
        "2 |   b c }\n",
        "a \";\" is missing after this to end \"b\"",
        "nowait: [emerg] open() \"none.conf\" failed (2: No such file or directory)\n",
    ] {
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert_eq!(std::fs::read_to_string(broken).unwrap(), "a{\n  b c }\n");
    assert_eq!(std::fs::read_to_string(good).unwrap(), "a b;\n");
}

#[test]
fn wrong_arguments_are_explained() {
    let dir = TempDir::new("fmt");
    let (code, _, error) = said(&fmt(&dir, &["--stdin", "a.conf"], ""));
    assert_eq!(code, Some(2));
    assert!(error.contains("cannot be used with"), "{error}");
}
