//! Configurations: any text is read, interpreted and its findings rendered without a panic; a
//! text without findings is the same tree after it was written out and read again.
//!
//! Input: a main file, a zero byte, and a second file `inc.conf` that it may include.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nowait_conf::{
    Bundle, Context, Cx, Diagnostic, Diagnostics, LocalSetting, Msec, Node, Offset, Paths, Regex,
    Registry, Size, Template, Tree, Words, directives, parse, rows,
};
use nowait_fuzz::shape;

directives! {
    #[allow(dead_code)]
    module "core";
    struct Conf with ConfLayer;

    flag: bool = "off", in ANY, args "on | off";
    time: Msec = "60s", in ANY, args "time";
    size: Size = "8k", in ANY, args "size";
    offset: Option<Offset>, in ANY, args "size";
    number: u32 = "1", in ANY, args "number";
    text: Template = "$host", in ANY, args "text";
    regex: Vec<Regex>, in ANY, args "pattern";
    path: Option<nowait_conf::Path>, in ANY, args "path";
    words: LocalSetting<Words>, in ANY, args "word ...";
}

rows! {
    static BLOCKS, module "core";

    block "http" => nested, in ANY, take none(), args "{ ... }";
    block "server" => nested, in HTTP, take any(), args "{ ... }";
    block "types" => data, in ANY, take none(), args "{ ... }";
}

fn nested(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    let scope = cx.block(Context::HTTP, node.children());
    Conf::resolve(cx, &[&scope]);
    Ok(())
}

fn data(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.entries(node);
    Ok(())
}

fuzz_target!(|data: &[u8]| {
    let mut files = data.splitn(2, |&b| b == 0);
    let main = files.next().unwrap_or_default();
    let included = files.next().unwrap_or_default();
    let (tree, mut diagnostics) = read(main, included);
    let clean = diagnostics.is_empty();
    let registry = Registry::new(&[Conf::ROWS, BLOCKS]).with(nowait_catalogue::find);
    let paths = Paths::new(Path::new("/"), Path::new("/main.conf"));
    Cx::new(&registry, paths, &mut diagnostics).run(&tree);
    let rendered = diagnostics.render(false);
    assert!(rendered.chars().all(|c| !c.is_control() || c == '\n'));
    if clean && short(&tree.nodes) {
        let mut written = Vec::new();
        write(&tree.nodes, &mut written);
        let (again, diagnostics) = read(&written, &[]);
        assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
        assert_eq!(shape(&tree.nodes), shape(&again.nodes));
    }
});

fn read(main: &[u8], included: &[u8]) -> (Tree, Diagnostics) {
    let mut files = Bundle::default();
    files.add("/main.conf", main);
    files.add("/inc.conf", included);
    parse(&files, Path::new("/main.conf"), None)
}

/// Whether all words can still be read when quoting has made them longer.
fn short(nodes: &[Node]) -> bool {
    const WORD_BYTES_MAX: usize = 2000;
    nodes.iter().all(|n| n.words().all(|w| w.text.len() <= WORD_BYTES_MAX) && short(n.children()))
}

/// Writes every word in quotes.
fn write(nodes: &[Node], out: &mut Vec<u8>) {
    for node in nodes {
        for word in node.words() {
            out.push(b'"');
            for &byte in &word.text {
                if matches!(byte, b'"' | b'\\') {
                    out.push(b'\\');
                }
                out.push(byte);
            }
            out.extend(b"\" ");
        }
        match &node.block {
            None => out.push(b';'),
            Some(children) => {
                out.push(b'{');
                write(children, out);
                out.push(b'}');
            }
        }
    }
}
