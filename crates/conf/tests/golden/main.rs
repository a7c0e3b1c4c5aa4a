//! Configurations with mistakes, and the diagnostics about them: `golden/*.conf` and `*.expected`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p nowait-conf --test golden` rewrites the expectations; review the
//! difference before committing it.

use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{
    Buffers, Contents, Context, Cx, Diagnostic, Disk, Files, Level, LocalSetting, Msec, Node,
    Paths, Regex, Registry, Size, Template, Words, directives, parse, rows, setting_enum,
};

setting_enum! {
    enum Satisfy { All = "all", Any = "any" }
}

directives! {
    #[allow(dead_code)]
    module "core";
    struct FileConf with FileLayer;

    sendfile: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    send_timeout: Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    client_body_buffer_size: Size = "16k", in HTTP | SERVER | LOCATION, args "size";
    output_buffers: Buffers = "2 32k", in HTTP | SERVER | LOCATION, args "number size";
    keepalive_requests: u32 = "1000", in HTTP | SERVER | LOCATION, args "number";
    satisfy: Satisfy = "all", in HTTP | SERVER | LOCATION, args "all | any";
    root: Template = "html", in HTTP | SERVER | LOCATION, args "path";
    index: Vec<Words>, in HTTP | SERVER | LOCATION, args "file ...";
    server_name: Vec<Words>, in SERVER, args "name ...";
    try_files: LocalSetting<Words>, in SERVER | LOCATION, args "file ... uri";
}

rows! {
    static STRUCTURE, module "core";

    block "events" => ignore, in MAIN, take none(), args "{ ... }";
    block "http" => |cx: &mut Cx<'_>, n: &Node| block(cx, n, Context::HTTP),
        in MAIN, take none(), args "{ ... }";
    block "server" => |cx: &mut Cx<'_>, n: &Node| block(cx, n, Context::SERVER),
        in HTTP, take none(), args "{ ... }";
    block "location" => location, in SERVER | LOCATION, take between(1, 2),
        args "[ = | ~ | ~* | ^~ ] uri { ... }";
    block "types" => types, in HTTP | SERVER | LOCATION, take none(), args "{ ... }";
    "listen" => listen, in SERVER, take at_least(1), args "address[:port] [parameters]";
    "worker_processes" => ignore, in MAIN, take exactly(1), args "number | auto";
}

fn ignore(_cx: &mut Cx<'_>, _node: &Node) -> Result<(), Diagnostic> {
    Ok(())
}

fn block(cx: &mut Cx<'_>, node: &Node, context: Context) -> Result<(), Diagnostic> {
    cx.block(context, node.children());
    Ok(())
}

fn location(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    if let [operator, pattern] = node.args.as_slice()
        && *operator == "~"
    {
        let regex = Regex::parse(pattern, false);
        cx.accept(regex);
    }
    block(cx, node, Context::LOCATION)
}

fn types(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    for entry in cx.entries(node) {
        if entry.args.is_empty() {
            cx.report(entry.error("a type needs an extension"));
        }
    }
    Ok(())
}

fn listen(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    for word in &node.args[1..] {
        if let Some(value) = word.strip_prefix("backlog=") {
            let number = <u32 as nowait_conf::Value>::from_word(&value.text);
            cx.accept(number.map_err(|invalid| invalid.in_parameter(word)));
        } else if *word != "default_server" {
            return Err(node.parameter_error(word));
        }
    }
    Ok(())
}

/// Findings as a terminal shows them.
fn rendered(main: &Path, globals: Option<&str>) -> (String, bool) {
    let (tree, mut diagnostics) = parse(&Disk, main, globals);
    let registry = Registry::new(&[FileConf::ROWS, STRUCTURE]);
    assert_eq!(registry.conflicts(), Vec::<String>::new());
    let mut cx = Cx::new(&registry, Paths::new(Path::new("/srv"), main), &mut diagnostics);
    let scope = cx.run(&tree);
    FileConf::resolve(&mut cx, &[&scope]);
    let errors = diagnostics.iter().any(|d| d.level() == Level::Emerg);
    assert_eq!(errors, diagnostics.has_errors());
    (diagnostics.render(false), errors)
}

#[test]
fn golden() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut names: Vec<_> = std::fs::read_dir("tests/golden")
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "conf"))
        .collect();
    names.sort();
    assert!(names.len() >= 10);
    let mut wrong = Vec::new();
    for path in names {
        let (found, _) = rendered(&path, None);
        let expected_path = path.with_extension("expected");
        if update {
            std::fs::write(&expected_path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&expected_path).unwrap_or_default();
        if found != expected {
            wrong.push(format!("== {}\n-- expected\n{expected}-- found\n{found}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn command_line() {
    let main = Path::new("tests/golden/good.conf");
    let check = |globals: &str, first: &str| {
        let (text, _) = rendered(main, Some(globals));
        assert_eq!(text.lines().next().unwrap_or(""), first, "{globals}");
    };
    check("worker_processes 2;", "");
    check("", "");
    check(
        "worker_processes 2",
        "nowait: [emerg] unexpected end of parameter, expecting \";\" in command line",
    );
    check(
        "events { }",
        "nowait: [emerg] block directives are not supported in -g option in command line",
    );
    check("deamon off;", "nowait: [emerg] unknown directive \"deamon\" in command line");
}

#[test]
fn main_file_missing() {
    let (text, errors) = rendered(Path::new("/nonexistent/main.conf"), None);
    assert!(errors);
    assert_eq!(
        text,
        "nowait: [emerg] open() \"/nonexistent/main.conf\" failed (2: No such file or directory)\n"
    );
}

/// Files that the user may not read.
struct Denied;

impl Files for Denied {
    fn read(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn read_named(&self, path: &Path) -> io::Result<Contents> {
        Disk.read_named(path)
    }

    fn glob(&self, _pattern: &[u8]) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }
}

#[test]
fn files_that_the_user_may_not_read() {
    let (_, diagnostics) = parse(&Denied, Path::new("/etc/main.conf"), None);
    assert_eq!(
        diagnostics.render(false),
        "nowait: [emerg] open() \"/etc/main.conf\" failed (permission denied)\n  \
         = hint: run this as root, or as a user who may read the file\n"
    );
}
