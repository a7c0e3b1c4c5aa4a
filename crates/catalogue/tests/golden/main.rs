//! Configurations with directives that no table has, and the diagnostics about them: `golden/*.conf` and
//! `*.expected`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p nowait-catalogue --test golden` rewrites the expectations; review the
//! difference before committing it.

use std::path::Path;

use nowait_conf::{Context, Cx, Diagnostic, Disk, Node, Paths, Registry, directives, parse, rows};

directives! {
    #[allow(dead_code)]
    module "core";
    struct FileConf with FileLayer;

    sendfile: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
}

rows! {
    static STRUCTURE, module "core";

    block "http" => |cx: &mut Cx<'_>, n: &Node| block(cx, n, Context::HTTP),
        in MAIN, take none(), args "{ ... }";
    block "server" => |cx: &mut Cx<'_>, n: &Node| block(cx, n, Context::SERVER),
        in HTTP, take none(), args "{ ... }";
    block "location" => |cx: &mut Cx<'_>, n: &Node| block(cx, n, Context::LOCATION),
        in SERVER | LOCATION, take between(1, 2), args "[ = | ~ | ~* | ^~ ] uri { ... }";
}

fn block(cx: &mut Cx<'_>, node: &Node, context: Context) -> Result<(), Diagnostic> {
    cx.block(context, node.children());
    Ok(())
}

/// Findings as a terminal shows them.
fn rendered(main: &Path) -> String {
    let (tree, mut diagnostics) = parse(&Disk, main, None);
    let registry = Registry::new(&[FileConf::ROWS, STRUCTURE]).with(nowait_catalogue::find);
    let mut cx = Cx::new(&registry, Paths::new(Path::new("/srv"), main), &mut diagnostics);
    cx.run(&tree);
    diagnostics.render(false)
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
    assert!(names.len() >= 4);
    let mut wrong = Vec::new();
    for path in names {
        let found = rendered(&path);
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
