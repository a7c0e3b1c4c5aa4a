//! `nowait lint`: what it says of files, explains and changes. The kinds of mistakes are tested beside
//! their code, with a table of a few directives; here they meet all of them.

use std::path::Path;
use std::process::Output;

use nowait_testkit::{Binary, TempDir};

fn lint(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Binary::nowait(env!("CARGO_BIN_EXE_nowait")).command();
    command.current_dir(directory).arg("lint").args(arguments).output().unwrap()
}

/// The exit code, and what went to standard output and standard error.
fn said(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn our_own_configurations_are_clean() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec!["packaging/nowait.conf".to_owned(), "packaging/site/default".to_owned()];
    files.push("packaging/image/nowait.conf".to_owned());
    for entry in std::fs::read_dir(root.join("examples")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".conf") {
            files.push(format!("examples/{name}"));
        }
    }
    assert!(files.len() > 10, "{files:?}");
    for file in files {
        let (code, out, error) = said(&lint(&root, &[&file]));
        assert_eq!(code, Some(0), "{file}: {out}{error}");
    }
}

/// The right examples of the explanations, and the wrong ones, with the tables of the program.
#[test]
fn explanations_are_right() {
    let dir = TempDir::new("lint");
    let (code, list, _) = said(&lint(dir.path(), &["--list"]));
    assert_eq!(code, Some(0));
    let names: Vec<&str> = list
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(names.len() >= 60, "{list}");
    // Found in the configuration of a machine only; other tests have one.
    const OF_MACHINES: [&str; 2] = ["root-unreachable", "certificate-expired"];
    for name in names.into_iter().filter(|name| !OF_MACHINES.contains(name)) {
        let (code, text, _) = said(&lint(dir.path(), &["--explain", name]));
        assert_eq!(code, Some(0), "{name}");
        let example = |title: &str| -> String {
            let (_, rest) = text.split_once(&format!("\n{title}:\n\n")).expect("an example");
            let lines = rest.lines().take_while(|line| line.starts_with("    ") || line.is_empty());
            lines.map(|line| format!("{line}\n")).collect()
        };
        dir.write("wrong.conf", example("Wrong"));
        dir.write("right.conf", example("Right"));
        let (code, out, error) = said(&lint(dir.path(), &["wrong.conf"]));
        assert_eq!(code, Some(1), "{name}: {out}{error}");
        assert!(out.contains(&format!("= kind: {name}\n")), "{name}: {out}");
        let (code, out, error) = said(&lint(dir.path(), &["right.conf"]));
        assert_eq!(code, Some(0), "{name}: {out}{error}");
    }
}

#[test]
fn findings_are_shown_and_counted() {
    let dir = TempDir::new("lint");
    dir.write("a.conf", "http {\n    include b.conf;\n}\n");
    dir.write("b.conf", "merge_slashes off;\ngzip_types text/css image/png;\n");
    let (code, out, _) = said(&lint(dir.path(), &["a.conf"]));
    assert_eq!(code, Some(1));
    for expected in [
        "nowait: [warn] locations do not match paths with \"//\" in b.conf:1:1\n1 | merge_slashes off;\n",
        "= kind: merge-slashes-off\n",
        "nowait: [notice] compressed already: image/png in b.conf:2:21\n",
        "\n2 findings; \"nowait lint --explain KIND\" explains, \"--fix\" changes 1\n",
    ] {
        assert!(out.contains(expected), "{expected}: {out}");
    }
    let path = dir.path().to_str().unwrap();
    assert_eq!(said(&lint(dir.path(), &["-p", path, "-c", "a.conf"])).0, Some(1));
    // Of the whole configuration, only what is found in one file.
    assert_eq!(said(&lint(dir.path(), &["-p", path, "-c", "a.conf", "a.conf"])).0, Some(0));
}

#[test]
fn findings_for_programs() {
    let dir = TempDir::new("lint");
    dir.write("a.conf", "server { merge_slashes off; }");
    let (code, out, _) = said(&lint(dir.path(), &["--json", "a.conf"]));
    assert_eq!(code, Some(1));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let finding = &value["findings"][0];
    assert_eq!(value["ok"], false);
    assert_eq!(finding["kind"], "merge-slashes-off");
    assert_eq!(
        (&finding["file"], &finding["line"], &finding["column"]),
        (&"a.conf".into(), &1.into(), &10.into())
    );
}

/// More than people are shown: the most severe are among those, and programs get all.
#[test]
fn many_findings() {
    const NOTICES: usize = 10_100;
    let dir = TempDir::new("lint");
    let notices = "gzip_types image/png;\n".repeat(NOTICES);
    dir.write("a.conf", format!("{notices}server {{ merge_slashes off; }}\n"));
    let (code, out, error) = said(&lint(dir.path(), &["a.conf"]));
    assert_eq!((code, error.as_str()), (Some(1), ""));
    assert!(out.contains("kind: merge-slashes-off\n") && !out.contains("[emerg]"));
    let (_, end) = out.rsplit_once("\n\n").unwrap();
    let expected =
        "10101 findings, of which the 10000 most severe are shown; \"--json\" prints all; ";
    assert!(end.starts_with(expected), "{end}");
    let (_, out, _) = said(&lint(dir.path(), &["--json", "a.conf"]));
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(value["findings"].as_array().unwrap().len(), NOTICES + 1);
    assert_eq!(value["not_listed"], 0);
}

/// Nothing writes into the FIFO.
#[test]
fn files_that_never_end_are_not_read() {
    let dir = TempDir::new("lint");
    let made = std::process::Command::new("mkfifo").arg(dir.path().join("fifo")).status().unwrap();
    assert!(made.success());
    dir.write("a.conf", "include fifo;\n");
    dir.write("b.conf", "include /dev/zero;\n");
    for file in ["fifo", "a.conf", "b.conf"] {
        let (code, _, error) = said(&lint(dir.path(), &[file]));
        assert_eq!(code, Some(2), "{error}");
        assert!(error.contains("failed (it is not a regular file but a "), "{error}");
    }
    dir.write("c.conf", "include /dev/null;\n");
    let (code, _, error) = said(&lint(dir.path(), &["c.conf"]));
    assert_eq!(code, Some(0), "{error}");
}

#[test]
fn fixes_are_written_and_told() {
    let dir = TempDir::new("lint");
    let file = dir.write(
        "a.conf",
        "server {\n    listen 443; # TLS\n    ssl on; # old\n    ssl_certificate a; ssl_certificate_key b;\n    \
         ssl_protocols TLSv1 TLSv1.2;\n    merge_slashes off;\n}\n",
    );
    let (code, out, _) = said(&lint(dir.path(), &["--fix", "a.conf"]));
    assert_eq!(code, Some(1), "one is left: {out}");
    assert!(
        out.contains("fixed tls-protocols-weak in a.conf:5:19: TLSv1 is no longer safe\n"),
        "{out}"
    );
    assert!(out.contains("fixed ssl-directive in a.conf:3:5: "), "{out}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert_eq!(
        text,
        "server {\n    listen 443 ssl; # TLS\n     # old\n    ssl_certificate a; ssl_certificate_key b;\n    \
         ssl_protocols TLSv1.2;\n    merge_slashes off;\n}\n"
    );
}

/// The address is in one file, "ssl on" in another: a change of one alone would serve plain HTTP.
#[test]
fn fixes_stay_in_one_file() {
    let dir = TempDir::new("lint");
    let main = "server {\n    listen 443; include ssl.conf;\n}\n";
    let ssl = "# comment comment comment comment\nssl on;\nssl_certificate a;\n";
    dir.write("nginx.conf", main);
    dir.write("ssl.conf", ssl);
    let (code, out, _) = said(&lint(dir.path(), &["--fix", "nginx.conf"]));
    assert_eq!(code, Some(1));
    assert!(out.contains("kind: ssl-directive") && !out.contains("fixed"), "{out}");
    let text = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert_eq!((text("nginx.conf").as_str(), text("ssl.conf").as_str()), (main, ssl));
}

#[test]
fn a_file_with_two_names_is_fixed_once() {
    let dir = TempDir::new("lint");
    dir.write("nginx.conf", "server { include a.conf; }\nserver { include b.conf; }\n");
    dir.write("a.conf", "gzip_types text/css image/png;\n");
    std::os::unix::fs::symlink("a.conf", dir.path().join("b.conf")).unwrap();
    let (code, out, error) = said(&lint(dir.path(), &["--fix", "nginx.conf"]));
    assert_eq!(code, Some(0), "{out}{error}");
    assert!(out.contains("fixed compressed-again in a.conf:1:21: "), "{out}");
    let text = std::fs::read_to_string(dir.path().join("a.conf")).unwrap();
    assert_eq!(text, "gzip_types text/css;\n");
}

/// What was written before a failure is told.
#[test]
fn a_failure_does_not_hide_what_was_written() {
    let dir = TempDir::new("lint");
    dir.write("nginx.conf", "include a.conf;\nserver { include b.conf; }\n");
    dir.write("a.conf", "gzip_types text/css image/png;\n");
    dir.write("b.conf", "gzip_types text/css image/png;\n");
    std::fs::hard_link(dir.path().join("b.conf"), dir.path().join("c")).unwrap();
    let (code, out, error) = said(&lint(dir.path(), &["--fix", "nginx.conf"]));
    assert_eq!(code, Some(2));
    assert!(out.contains("fixed compressed-again in a.conf:1:21: "), "{out}{error}");
    assert!(error.contains("b.conf\" has 2 names (hard links)"), "{error}");
}

#[test]
fn what_cannot_be_read_is_another_exit_code() {
    let dir = TempDir::new("lint");
    dir.write("broken.conf", "server { listen 80 }");
    for file in ["broken.conf", "none.conf"] {
        let (code, out, error) = said(&lint(dir.path(), &[file]));
        assert_eq!((code, out.as_str()), (Some(2), ""), "{error}");
        assert!(error.contains("[emerg]") && error.contains(file), "{error}");
    }
    let (code, _, error) = said(&lint(dir.path(), &["--explain", "alias-traversel"]));
    assert_eq!(code, Some(2));
    assert!(error.contains("did you mean \"alias-traversal\"?"), "{error}");
}

/// A column is found without a look at the whole line: otherwise this would take minutes.
#[test]
fn many_findings_in_one_line() {
    const LOCATIONS: usize = 20_000;
    let dir = TempDir::new("lint");
    let mut text = "server { listen 127.0.0.1:80; server_name \u{e4}.example; ".to_owned();
    for n in 0..LOCATIONS {
        text += &format!("location /x{n} {{ alias /srv/{n}/; }} ");
    }
    dir.write("a.conf", text.clone() + "}");
    let (code, out, error) = said(&lint(dir.path(), &["--json", "a.conf"]));
    assert_eq!(code, Some(1), "{error}");
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    let found = found["findings"].as_array().unwrap();
    assert!(found.len() >= LOCATIONS, "{}", found.len());
    let columns = found.iter().filter_map(|finding| finding["column"].as_u64());
    let last = text[..text.rfind("alias").unwrap()].chars().count() as u64 + 1;
    let ends = [last, last + "alias ".len() as u64];
    assert!(columns.max().is_some_and(|column| ends.contains(&column)), "{last}");
}

#[test]
fn the_machine_is_looked_at_for_its_own_configuration() {
    let dir = TempDir::new("lint");
    let root = dir.path().join("closed/site");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::set_permissions(
        root.parent().unwrap(),
        std::os::unix::fs::PermissionsExt::from_mode(0o700),
    )
    .unwrap();
    let text = format!(
        "user nobody; events {{ }} http {{ server {{ listen 80; server_name a.example; root {}; \
         location /b/ {{ root /no/such/directory; }} }} }}\n",
        root.display()
    );
    dir.write("nginx.conf", &text);
    let own = lint(dir.path(), &["-c", "nginx.conf"]);
    assert_eq!(own.status.code(), Some(1));
    let said = String::from_utf8_lossy(&own.stdout).into_owned();
    assert!(said.contains("there is no directory \"/no/such/directory\""), "{said}");
    if rustix::process::geteuid().is_root() {
        assert!(said.contains("user \"nobody\" cannot enter \""), "{said}");
    }
    let named = lint(dir.path(), &["nginx.conf"]);
    let said = String::from_utf8_lossy(&named.stdout).into_owned();
    assert!(!said.contains("root-unreachable"), "{said}");
}
