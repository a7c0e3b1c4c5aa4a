//! Words and directives as rules look at them.

use nowait_conf::{Node, Span, Word};

use crate::model::BlockRef;
use crate::rule::Finding;
use crate::values;

/// Directives that pass requests to servers of other protocols.
pub(crate) const PASSES: &[&str] =
    &["proxy_pass", "grpc_pass", "fastcgi_pass", "uwsgi_pass", "scgi_pass", "memcached_pass"];

/// A character is to be written at the end of a word.
pub(crate) fn append<'f>(finding: &'f mut Finding, word: &Word, text: &str) -> &'f mut Finding {
    let end = word.span.end - u32::from(word.quoted);
    finding.insert(Span { end, ..word.span }, text)
}

/// The place of a byte of a word in its file, if the word is written as it is read and is UTF-8.
pub(crate) fn place_in(word: &Word, at: usize) -> Option<Span> {
    let quotes = 2 * usize::from(word.quoted);
    let length = (word.span.end - word.span.start) as usize;
    let start = word.span.start + at as u32 + u32::from(word.quoted);
    // Places come from the text for messages, where a byte that is not UTF-8 is three.
    let is_written = length == word.text.len() + quotes && word.to_str().is_ok();
    is_written.then_some(Span { start, end: start, ..word.span })
}

/// Whether the arguments of a directive contain this word.
pub(crate) fn has_word(node: &Node, text: &str) -> bool {
    node.args.iter().any(|word| *word == *text)
}

/// Whether the word is a header field's name, without regard to case.
pub(crate) fn is_field(node: &Node, name: &str) -> bool {
    node.args.first().is_some_and(|word| word.text.eq_ignore_ascii_case(name.as_bytes()))
}

/// The value of the header field that a list of directives sets.
pub(crate) fn field<'m>(nodes: &[&'m Node], name: &str) -> Option<&'m Word> {
    nodes.iter().find(|node| is_field(node, name)).and_then(|node| node.args.get(1))
}

/// The URL of the `*_pass` directive of a block, and the same as text.
pub(crate) fn passed<'m>(block: BlockRef<'m>, name: &str) -> Option<(&'m Word, String)> {
    let word = block.own(name).next()?.args.first()?;
    Some((word, word.lossy().into_owned()))
}

/// Whether all addresses are of this machine.
pub(crate) fn is_this_machine(block: BlockRef<'_>, text: &str) -> bool {
    let is_local = |host: &str| {
        host.starts_with("127.")
            || host.starts_with("unix:")
            || matches!(host, "localhost" | "::1" | "[::1]")
    };
    let host = values::host(values::url(text).0).to_owned();
    match block.model.upstream(host.as_bytes()) {
        Some(group) => group.own("server").all(|node| {
            node.args.first().is_some_and(|word| is_local(values::host(&word.lossy())))
        }),
        None => is_local(&host),
    }
}
