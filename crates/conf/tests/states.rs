//! Files that the server itself writes are told apart from those of operators.

use std::path::Path;

use nowait_conf::{Bundle, Contents, Cx, Diagnostic, Node, Paths, Registry, parse, rows};

rows! {
    static ROWS, module "test";

    "certificate" => |cx: &mut Cx<'_>, _: &Node| read(cx.read_named(Path::new("/own.pem"))),
        in MAIN, take none(), args "";
    "state" => |cx: &mut Cx<'_>, node: &Node| {
        assert!(cx.read_state(b"/missing", &node.name)?.is_none());
        assert!(cx.read_state(b"/state", &node.name)?.is_some());
        let again = cx.read_state(b"/state", &node.name).expect_err("it has an owner");
        assert_eq!(again.message(), "state file \"/state\" is already in use");
        Ok(())
    }, in MAIN, take none(), args "";
}

fn read(result: std::io::Result<Contents>) -> Result<(), Diagnostic> {
    result.map(drop).map_err(|error| Diagnostic::emerg(error.to_string()))
}

#[test]
fn state_files_are_known() {
    let mut files = Bundle::default();
    files.add("/etc/a.conf", "certificate; state;");
    for path in ["/own.pem", "/state"] {
        files.add_named(path, Contents::new(path.into()));
    }
    let main = Path::new("/etc/a.conf");
    let (mut tree, mut diagnostics) = parse(&files, main, None);
    let registry = Registry::new(&[ROWS]);
    let paths = Paths::new(Path::new("/srv"), main);
    let mut cx = Cx::new(&registry, paths, &mut diagnostics).reading(&files);
    cx.run(&tree);
    cx.give_named(&mut tree.files);
    drop(cx);
    assert_eq!(diagnostics.render(false), "");
    let bundle = tree.files;
    assert!(bundle.has_states() && bundle.is_state(Path::new("/missing")));
    assert_eq!(bundle.named().count(), 2);
    let of_operators: Vec<_> = bundle.named_by_operators().map(|(path, _)| path).collect();
    assert_eq!(of_operators, [Path::new("/own.pem")]);
}
