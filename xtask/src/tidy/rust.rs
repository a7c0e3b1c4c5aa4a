//! Checks of Rust sources: unsafe code, headers, length, words that must not be left behind.

use super::layers::{crate_name, members};
use super::tree::{Finding, Tree};

/// Good neighbours are 100 to 400 lines; from here on a file needs a reason.
const LINES_MAX: usize = 800;

/// Files that may be longer, and why.
const LONG: &[(&str, &str)] = &[];

/// Files whose production code may call `unwrap()`, and why.
const UNWRAP: &[(&str, &str)] = &[];

/// Macros and markers of unfinished work. `concat!` keeps this file from finding itself.
const UNFINISHED: &[&str] = &["dbg!", "todo!", "unimplemented!"];
const MARKERS: &[&str] = &[concat!("FIX", "ME"), concat!("XX", "X:")];

/// Crates whose code runs on event loops.
const LOOP_CRATES: &[&str] = &[
    "crates/http/src/",
    "crates/backend/src/",
    "crates/connections/src/",
    "crates/modules/src/",
    "crates/stream/src/",
];

/// Paths in crates of the loop where files may be touched without the runtime's `fs`, and why.
const FILE_CALLS: &[(&str, &str)] = &[
    ("crates/http/src/files.rs", "resolves symbolic links, within blocking() of a pool"),
    (
        "crates/modules/src/acme/dns_hook.rs",
        "looks at the program's file while the configuration is read",
    ),
];

/// `unsafe` stands only under the paths of the table `unsafe`; crates without such a path
/// forbid it in their root.
pub fn unsafe_code(tree: &Tree) -> Vec<Finding> {
    let allowed = match tree.table("unsafe") {
        Ok(lines) => lines,
        Err(finding) => return vec![finding],
    };
    let mut findings = Vec::new();
    for (path, text) in tree.with_suffix(".rs") {
        if allowed.iter().any(|prefix| path.starts_with(prefix.as_str())) {
            continue;
        }
        for (number, line) in Code::of(text).lines() {
            if words_of(line).any(|word| word == "unsafe") {
                findings.push(Finding::at(path, number, "unsafe code is not allowed here"));
            }
        }
    }
    for (manifest, _) in members(tree) {
        let directory = manifest.trim_end_matches("Cargo.toml");
        if allowed.iter().any(|prefix| prefix.starts_with(directory)) {
            continue;
        }
        for root in ["src/lib.rs", "src/main.rs"] {
            let path = format!("{directory}{root}");
            let Some(text) = tree.text(&path) else { continue };
            if !text.contains("#![forbid(unsafe_code)]") {
                let name = crate_name(manifest);
                let message = format!("crate \"{name}\" lacks #![forbid(unsafe_code)]");
                findings.push(Finding::file(&path, message));
            }
        }
    }
    findings
}

/// Every module opens with its `//!` header.
pub fn headers(tree: &Tree) -> Vec<Finding> {
    tree.with_suffix(".rs")
        .filter(|(_, text)| {
            let first = text.lines().find(|line| !line.trim().is_empty());
            !first.is_some_and(|line| line.starts_with("//! "))
        })
        .map(|(path, _)| Finding::at(path, 1, "does not open with a //! header"))
        .collect()
}

/// No file is longer than `LINES_MAX` without a reason.
pub fn length(tree: &Tree) -> Vec<Finding> {
    tree.with_suffix(".rs")
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(path, lines)| *lines > LINES_MAX && !excused(LONG, path))
        .map(|(path, lines)| {
            let message =
                format!("{lines} lines, the limit is {LINES_MAX}: what second thing grew in it?");
            Finding::file(path, message)
        })
        .collect()
}

/// Nothing unfinished is left behind, and production code does not call `unwrap()`.
pub fn words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.with_suffix(".rs") {
        let code = Code::of(text);
        for (number, line) in code.lines() {
            for word in UNFINISHED.iter().filter(|word| line.contains(**word)) {
                findings.push(Finding::at(path, number, format!("{word} is left behind")));
            }
        }
        for (index, line) in text.lines().enumerate() {
            for word in MARKERS.iter().filter(|word| line.contains(**word)) {
                findings.push(Finding::at(path, index + 1, format!("{word} is left behind")));
            }
        }
        if is_test(path) || excused(UNWRAP, path) {
            continue;
        }
        for (number, _) in code.production().filter(|(_, line)| line.contains(".unwrap()")) {
            let message = "unwrap(): use expect() and state the invariant, or return an error";
            findings.push(Finding::at(path, number, message));
        }
    }
    findings
}

/// Code that runs on the loop reaches files only through the runtime's `fs`.
pub fn file_calls(tree: &Tree) -> Vec<Finding> {
    const CALLS: &[&str] =
        &["std::fs", "File::open(", "File::create(", "thread::sleep(", "rustix::fs"];
    // Types are harmless: a loop may hold a file, it may not wait for one.
    const TYPES: &[&str] = &["std::fs::File;", "std::fs::Metadata;"];
    let mut findings = Vec::new();
    for (path, text) in tree.with_suffix(".rs") {
        let off_the_loop = FILE_CALLS.iter().any(|(prefix, _)| path.starts_with(prefix));
        let in_loop = LOOP_CRATES.iter().any(|crates| path.starts_with(crates));
        if !in_loop || is_test(path) || off_the_loop {
            continue;
        }
        for (number, line) in Code::of(text).production() {
            if TYPES.iter().any(|import| line.trim_start() == format!("use {import}")) {
                continue;
            }
            for call in CALLS.iter().filter(|call| line.contains(**call)) {
                let message = format!("{call} can block the loop: use nowait_runtime::fs");
                findings.push(Finding::at(path, number, message));
            }
        }
    }
    findings
}

/// Whether `path` has an entry in a list of exceptions.
fn excused(list: &[(&str, &str)], path: &str) -> bool {
    list.iter().any(|(excused, _)| *excused == path)
}

/// Whether the whole file is test code.
fn is_test(path: &str) -> bool {
    path.starts_with("crates/testkit/")
        || path
            .split('/')
            .any(|part| matches!(part, "tests" | "tests.rs" | "benches" | "fuzz_targets"))
}

/// The identifiers and keywords of a line.
fn words_of(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

/// A Rust source with comments and literals blanked, line by line.
pub struct Code {
    text: String,
    /// The line of the first `#[cfg(test)]` on a module; tests stand at a file's end.
    tests_from: usize,
}

impl Code {
    pub fn of(source: &str) -> Code {
        let text = blank_literals(source);
        let mut lines = text.lines().enumerate().peekable();
        let mut tests_from = usize::MAX;
        while let Some((index, line)) = lines.next() {
            let next_is_module =
                lines.peek().is_some_and(|(_, next)| words_of(next).any(|word| word == "mod"));
            if line.starts_with("#[cfg(test)]") && next_is_module {
                tests_from = index + 1;
                break;
            }
        }
        Code { text, tests_from }
    }

    /// Every line with its number, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// The lines above the tests.
    pub fn production(&self) -> impl Iterator<Item = (usize, &str)> {
        self.lines().take_while(|(number, _)| *number < self.tests_from)
    }
}

/// Replaces what is inside comments and string, byte and character literals by spaces. Lines
/// keep their numbers.
fn blank_literals(source: &str) -> String {
    let bytes = source.as_bytes();
    let mut out = String::with_capacity(source.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(source, at);
        if end > at {
            let literal = source.get(at..end).unwrap_or_default();
            out.extend(literal.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            at = end;
        } else {
            let c = source.get(at..).and_then(|rest| rest.chars().next()).unwrap_or(' ');
            out.push(c);
            at += c.len_utf8();
        }
    }
    out
}

/// Where the comment or literal that starts at `at` ends; `at` when none starts there.
fn literal_end(source: &str, at: usize) -> usize {
    let rest = source.get(at..).unwrap_or_default();
    let find = |what: &str, from: usize| {
        rest.get(from..).and_then(|tail| tail.find(what)).map_or(rest.len(), |i| from + i)
    };
    let length = if rest.starts_with("//") {
        find("\n", 2)
    } else if rest.starts_with("/*") {
        (find("*/", 2) + 2).min(rest.len())
    } else if rest.starts_with('"') {
        quoted_length(rest)
    } else if let Some(hashes) = raw_string_hashes(rest)
        && !source.get(..at).is_some_and(|before| before.ends_with(is_word))
    {
        let closing = format!("\"{}", "#".repeat(hashes));
        let open = rest.find('"').unwrap_or(0) + 1;
        (find(&closing, open) + closing.len()).min(rest.len())
    } else if rest.starts_with('\'') {
        char_length(rest)
    } else {
        0
    };
    at + length
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The number of `#` of a raw string (`r"`, `br#"`) that starts here.
fn raw_string_hashes(rest: &str) -> Option<usize> {
    let tail = rest.strip_prefix("br").or_else(|| rest.strip_prefix('r'))?;
    let hashes = tail.len() - tail.trim_start_matches('#').len();
    tail.get(hashes..)?.starts_with('"').then_some(hashes)
}

/// The length of the string literal that starts here, both quotes included.
fn quoted_length(rest: &str) -> usize {
    let mut escaped = false;
    for (index, byte) in rest.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return index + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of the character literal that starts here; 0 for a lifetime.
fn char_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let (_, first) = chars.next().unwrap_or((0, '\''));
    let closing = if first == '\\' {
        // `'\''` and `'\u{1F600}'`: the first quote after the escaped character.
        chars.next();
        chars.take(10).find(|(_, c)| *c == '\'')
    } else {
        chars.next().filter(|(_, c)| *c == '\'')
    };
    closing.map_or(0, |(index, _)| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree::STRUCTURE;

    const PAGE: (&str, &str) = (STRUCTURE, "```unsafe\ncrates/sys/\n```\n");

    fn lines(findings: Vec<Finding>) -> Vec<usize> {
        findings.into_iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn literals_and_comments_are_blanked() {
        let source = "a(\"un\\\"safe\") // x\nr#\"b\"#; 'c'; '\\''; f::<'d>() /* e\n */ g";
        let code = blank_literals(source);
        assert_eq!(code.split_whitespace().collect::<String>(), "a();;;f::<'d>()g");
        assert_eq!(code.lines().count(), source.lines().count());
    }

    #[test]
    fn unsafe_is_found_outside_its_places() {
        let text = "//! unsafe\nfn f() { unsafe { g() } }\nconst S: &str = \"unsafe\";\n";
        let tree = Tree::of(&[PAGE, ("crates/sys/src/a.rs", text), ("crates/http/src/a.rs", text)]);
        let findings = unsafe_code(&tree);
        assert_eq!(findings, [Finding::at("crates/http/src/a.rs", 2, &*findings[0].message)]);
    }

    #[test]
    fn crates_without_unsafe_must_forbid_it() {
        let manifest = ("crates/h1/Cargo.toml", "");
        let tree = Tree::of(&[PAGE, manifest, ("crates/h1/src/lib.rs", "//! H1.\n")]);
        assert_eq!(unsafe_code(&tree).len(), 1);
        let good = ("crates/h1/src/lib.rs", "//! H1.\n#![forbid(unsafe_code)]\n");
        assert!(unsafe_code(&Tree::of(&[PAGE, manifest, good])).is_empty());
    }

    #[test]
    fn missing_headers_are_found() {
        let tree = Tree::of(&[("a.rs", "//! Good.\n"), ("b.rs", "use x;\n//! late\n")]);
        assert_eq!(headers(&tree), [Finding::at("b.rs", 1, "does not open with a //! header")]);
    }

    #[test]
    fn long_files_are_found() {
        let long = "x\n".repeat(LINES_MAX + 1);
        let tree = Tree::of(&[("a.rs", &long), ("b.rs", "x\n")]);
        assert_eq!(length(&tree).len(), 1);
    }

    #[test]
    fn unfinished_work_is_found() {
        let source = concat!("fn a() { todo!() }\n// FIX", "ME\nlet s = \"todo!\";\n");
        assert_eq!(lines(words(&Tree::of(&[("a.rs", source)]))), [1, 2]);
    }

    #[test]
    fn unwrap_is_for_tests() {
        let source = "fn a() { b.unwrap() }\n#[cfg(test)]\nmod tests {\n c.unwrap()\n}\n";
        let tree = Tree::of(&[("src/a.rs", source), ("tests/a.rs", source)]);
        assert_eq!(lines(words(&tree)), [1]);
    }

    #[test]
    fn file_calls_are_found_in_code_of_the_loop() {
        let source = "fn a() { std::fs::read(p) }\n// std::fs\nuse std::fs::File;\n";
        let tree = Tree::of(&[("crates/http/src/a.rs", source), ("crates/conf/src/a.rs", source)]);
        assert_eq!(lines(file_calls(&tree)), [1]);
    }
}
