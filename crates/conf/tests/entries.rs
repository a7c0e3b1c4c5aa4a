//! Data blocks whose entries stay text: they are the same entries, and the same errors.

use std::path::Path;

use nowait_conf::{
    Bundle, Context, Cx, Diagnostic, Diagnostics, Node, Paths, Registry, Tree, parse,
    parse_for_use, rows,
};

rows! {
    static ROWS, module "test";

    block "http" => |cx: &mut Cx<'_>, node: &Node| {
        cx.block(Context::HTTP, node.children());
        Ok(())
    }, in MAIN, take none(), args "{ ... }";
    block "map" => data, in HTTP, take any(), args "{ ... }";
    block "geo" => data, in HTTP, take any(), args "{ ... }";
    "other" => |_: &mut Cx<'_>, _: &Node| Ok(()), in HTTP, take any(), args "";
}

/// The entries that were read: their words and positions.
#[derive(Default)]
struct Read(Vec<String>);

fn data(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.each_entry(node, |cx, entry| {
        let words: Vec<_> = entry.words().map(|word| (word.to_string(), word.span)).collect();
        cx.global::<Read>().0.push(format!("{words:?} {:?}", entry.span));
    });
    cx.global::<Read>().0.push(format!("end of {}", node.name));
    Ok(())
}

fn files(text: &str) -> Bundle {
    let mut files = Bundle::default();
    files.add("/etc/a.conf", text);
    files.add("/etc/b.inc", "b 1;\n'b 2' 2 # comment\n;include c.inc; b 3;");
    files.add("/etc/c.inc", "c 1;\n");
    files.add("/etc/empty.inc", "");
    files.add("/etc/broken.inc", "x 1; } y");
    files
}

fn interpret((tree, mut diagnostics): (Tree, Diagnostics)) -> (Vec<String>, String, Tree) {
    let registry = Registry::new(&[ROWS]);
    let main = Path::new("/etc/a.conf");
    let mut cx = Cx::new(&registry, Paths::new(Path::new("/srv"), main), &mut diagnostics);
    cx.run(&tree);
    let read = cx.take_global::<Read>().0;
    drop(cx);
    (read, diagnostics.render(false), tree)
}

#[test]
fn entries_left_as_text_are_the_same() {
    let main = Path::new("/etc/a.conf");
    for text in [
        "http { map a b { }\n geo c { } }",
        "http { map $a $b { x 1; \"y z\" 2;\n~^/a{2} '3;';\t w\\;v 4 ; ${x}y 5; } other 1; geo $g { 1.2.3.4 5; } }",
        "http { map a b { a 1; include b.inc; z 9; } geo c { include empty.inc; } }",
        "http { map a b { include b.inc; } }",
        "http { map a b { include b.inc; include c.inc; include b.inc; } }",
        "http { map a b { include c.inc; x; ; y 1 2 3; } }",
        "http { map a b { map c d; geo { a 1; } } }",
        // Errors.
        "http { map a b { x 1 } }",
        "http { map a b { x 1; y 2 { z 3; } w 4; } other; }",
        "http { map a b { x 1; }",
        "http { map a b { x 1; include missing.inc; y 2; } }",
        "http { map a b { x 1; include broken.inc; y 2; } }",
        "http { map a b { x \"1; }",
        "http { map a b { x \"1\"2; y 3; } }",
        "http { other 1\n map a b { x 1; } }",
        "map a b { x 1; }",
    ] {
        let files = files(text);
        let (whole, said, tree) = interpret(parse(&files, main, None));
        let (left, also_said, lean) = interpret(parse_for_use(&files, main, None));
        assert_eq!(said, also_said, "{text}");
        assert_eq!(tree.files, lean.files, "{text}");
        if said.is_empty() {
            assert_eq!(whole, left, "{text}");
        }
    }
}

#[test]
fn entries_take_no_room_in_the_tree() {
    let files = files("http { map a b { x 1; include b.inc; y 2; } }");
    let (tree, _) = parse_for_use(&files, Path::new("/etc/a.conf"), None);
    let map = &tree.nodes[0].children()[0];
    assert!(map.children().is_empty() && map.entries.is_some());
    let (tree, _) = parse(&files, Path::new("/etc/a.conf"), None);
    assert_eq!(tree.nodes[0].children()[0].children().len(), 6);
}
