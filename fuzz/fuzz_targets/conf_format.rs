//! Formatting: a text that can be read is formatted once and for all, and means the same as before.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use nowait_conf::{Node, format, parse_text};

fuzz_target!(|text: &[u8]| {
    let name = Path::new("/main.conf");
    let (tree, diagnostics) = parse_text(name, text);
    let formatted = match format(name, text) {
        Ok(formatted) => formatted,
        Err(errors) => {
            assert!(!diagnostics.is_empty(), "{}", errors.render(false));
            return;
        }
    };
    assert!(diagnostics.is_empty());
    assert_eq!(format(name, &formatted).ok().as_ref(), Some(&formatted));
    assert_eq!(shape(&tree.nodes), shape(&parse_text(name, &formatted).0.nodes));
});

type Shape = Vec<(Vec<Vec<u8>>, Option<usize>)>;

/// Words and blocks without places.
fn shape(nodes: &[Node]) -> Shape {
    let mut shapes = Vec::new();
    for node in nodes {
        let words = node.words().map(|word| word.text.clone()).collect();
        shapes.push((words, node.block.as_ref().map(Vec::len)));
        shapes.extend(shape(node.children()));
    }
    shapes
}
