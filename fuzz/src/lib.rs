//! What the fuzz targets share: cutting an input into pieces, the limits to try, configurations to compare.
#![forbid(unsafe_code)]

pub mod h2;
pub mod h3;
pub mod site;

use nowait_conf::Node;
use nowait_h1::Limits;

/// Cuts `input` into pieces whose lengths follow from `seed`; seed 0 means single bytes.
pub fn pieces(input: &[u8], seed: u8) -> impl Iterator<Item = &[u8]> {
    let mut state = u32::from(seed).wrapping_mul(0x9e37_79b1);
    let mut rest = input;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        let length = (1 + (state >> 24) as usize % (1 + usize::from(seed))).min(rest.len());
        let (piece, tail) = rest.split_at(length);
        rest = tail;
        Some(piece)
    })
}

/// nginx's default limits, or ones so small that every bound is near.
pub fn limits(choice: u8) -> Limits {
    let flags = Limits {
        ignore_invalid_headers: choice & 1 == 0,
        underscores_in_headers: choice & 2 != 0,
        control_characters: choice & 16 != 0,
        ..Limits::default()
    };
    match choice & 12 {
        0 => flags,
        4 => Limits {
            header_buffer: 32,
            large_buffers: 2,
            large_buffer: 64,
            headers_max: 4,
            ..flags
        },
        8 => Limits { header_buffer: 80, large_buffers: 1, large_buffer: 40, ..flags },
        _ => Limits { header_buffer: 256, large_buffers: 0, large_buffer: 0, ..flags },
    }
}

/// A directive: its words, and the number of directives in its block.
type Shape = (Vec<Vec<u8>>, Option<usize>);

/// Words and blocks of a configuration without places.
pub fn shape(nodes: &[Node]) -> Vec<Shape> {
    let mut shapes = Vec::new();
    for node in nodes {
        let words = node.words().map(|word| word.text.clone()).collect();
        shapes.push((words, node.block.as_ref().map(Vec::len)));
        shapes.extend(shape(node.children()));
    }
    shapes
}
