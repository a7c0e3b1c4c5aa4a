//! Properties of all texts: reading never panics, findings can be rendered, and a tree that is written out
//! and read again is the same tree.

use std::path::Path;

use nowait_conf::{
    Bundle, Context, Cx, Diagnostic, Diagnostics, Node, Paths, Registry, Tree, Word, comments,
    format, parse, parse_text, rows,
};

rows! {
    static ROWS, module "core";

    block "http" => nested, in ANY, take any(), args "";
    block "server" => nested, in HTTP | SERVER, take any(), args "";
    "listen" => simple, in HTTP | SERVER, take between(1, 2), args "";
    "root" => simple, in ANY, take exactly(1), args "";
}

fn nested(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.block(Context::HTTP, node.children());
    Ok(())
}

fn simple(_cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    nowait_conf::Template::parse(&node.args[0]).map(drop)
}

fn read(text: &[u8]) -> (Tree, Diagnostics) {
    let mut files = Bundle::default();
    files.add("/main.conf", text);
    files.add("/inc.conf", &b"root a; http { listen \"b\""[..]);
    parse(&files, Path::new("/main.conf"), None)
}

/// Reads, interprets and renders; returns the tree if there were no findings.
fn exercise(text: &[u8]) -> Option<Tree> {
    let (tree, mut diagnostics) = read(text);
    let clean = diagnostics.is_empty();
    let registry = Registry::new(&[ROWS]);
    let paths = Paths::new(Path::new("/"), Path::new("/main.conf"));
    Cx::new(&registry, paths, &mut diagnostics).run(&tree);
    let rendered = diagnostics.render(true);
    assert_eq!(rendered.is_empty(), diagnostics.is_empty());
    assert!(rendered.chars().all(|c| !c.is_control() || c == '\n' || c == '\x1b'));
    clean.then_some(tree)
}

fn write(nodes: &[Node], out: &mut Vec<u8>) {
    for node in nodes {
        for word in node.words() {
            write_word(word, out);
        }
        match &node.block {
            None => out.extend(b";\n"),
            Some(children) => {
                out.extend(b"{\n");
                write(children, out);
                out.extend(b"}\n");
            }
        }
    }
}

fn write_word(word: &Word, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in &word.text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.extend(b"\" ");
}

/// Words and blocks without places.
fn shape(nodes: &[Node]) -> Vec<(Vec<Vec<u8>>, Option<usize>)> {
    let mut shapes = Vec::new();
    for node in nodes {
        let words = node.words().map(|word| word.text.clone()).collect();
        shapes.push((words, node.block.as_ref().map(Vec::len)));
        shapes.extend(shape(node.children()));
    }
    shapes
}

/// A text that can be read is formatted at once: formatting it again changes nothing, and the tree
/// is the same but for its places.
fn check_format(text: &[u8]) {
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
    let shown = String::from_utf8_lossy(&formatted).into_owned();
    let again = format(name, &formatted).unwrap_or_else(|e| panic!("{}", e.render(false)));
    assert_eq!(String::from_utf8_lossy(&again), shown, "{}", String::from_utf8_lossy(text));
    assert_eq!(shape(&tree.nodes), shape(&parse_text(name, &formatted).0.nodes), "{shown}");
    let texts = |text| -> Vec<Vec<u8>> { comments(text).iter().map(|c| c.text.into()).collect() };
    assert_eq!(texts(text), texts(&formatted));
}

fn check(text: &[u8]) {
    check_format(text);
    if let Some(tree) = exercise(text) {
        let mut written = Vec::new();
        write(&tree.nodes, &mut written);
        let (again, diagnostics) = read(&written);
        assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
        assert_eq!(shape(&tree.nodes), shape(&again.nodes), "{}", String::from_utf8_lossy(text));
    }
}

/// xorshift64*: the same texts in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}

const PIECES: &[&str] = &[
    "http", "server", "listen", "root", "sever", "include", "inc.conf", "*.conf", "/none", "{",
    "{", "}", "}", ";", ";", ";", " ", " ", "\n", "\n    ", "\t", "\r\n", "\"", "'", "\\", "#",
    "$", "${", "$x", "$1", ")", "(", "a", "80", "ä", "\u{feff}", "\0", "\x1b[2J", "\\n", "\\\"",
    "[",
];

#[test]
fn random_texts() {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for _ in 0..10_000 {
        let count = random.below(40);
        let text: String = (0..count).map(|_| PIECES[random.below(PIECES.len())]).collect();
        check(text.as_bytes());
    }
}

#[test]
fn random_bytes() {
    let mut random = Random(42);
    for _ in 0..5_000 {
        let count = random.below(200);
        let text: Vec<u8> = (0..count).map(|_| random.below(256) as u8).collect();
        check(&text);
    }
}

/// Good texts with comments, line ends and columns in every place.
#[test]
fn random_layouts() {
    const PIECES: &[&str] = &[
        "a",
        "map",
        "bb ",
        "'q r'",
        "'x\ny'",
        "x_by_lua_block { --[[ } ]] \n }",
        "types",
        ";",
        ";",
        "; ",
        "{",
        "}",
        " ",
        "  ",
        "\t",
        "\n",
        "\n",
        "\n\n\n",
        "# c\n",
        " # d \n",
        "\r\n",
    ];
    let mut random = Random(7);
    let mut good = 0;
    for _ in 0..100_000 {
        let count = random.below(30);
        let mut text: String = (0..count).map(|_| PIECES[random.below(PIECES.len())]).collect();
        text.push_str("\n;");
        let (_, diagnostics) = parse_text(Path::new("/main.conf"), text.as_bytes());
        if diagnostics.is_empty() {
            good += 1;
            check_format(text.as_bytes());
        }
    }
    assert!(good > 1000, "{good}");
}

/// All configurations in the repository, also those in pages.
#[test]
fn configurations_of_the_repository() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for directory in
        ["examples", "conf", "packaging", "packaging/site", "docs", "docs/reference", "."]
    {
        for entry in std::fs::read_dir(root.join(directory)).unwrap() {
            let path = entry.unwrap().path();
            let is_page = path.extension().is_some_and(|extension| extension == "md");
            let Some(text) = path.is_file().then(|| std::fs::read_to_string(&path).ok()).flatten()
            else {
                continue;
            };
            let snippets: Vec<&str> = match is_page {
                true => text.split("```").skip(1).step_by(2).collect(),
                false => vec![&text],
            };
            for snippet in snippets {
                let snippet = snippet.strip_prefix("nginx\n").unwrap_or(snippet);
                let (tree, diagnostics) = parse_text(&path, snippet.as_bytes());
                count += usize::from(diagnostics.is_empty() && !tree.nodes.is_empty());
                check_format(snippet.as_bytes());
            }
        }
    }
    assert!(count > 30, "{count} configurations");
}

#[test]
fn every_prefix_of_a_good_file() {
    let text = include_bytes!("golden/good.conf");
    for end in 0..text.len() {
        check_format(&text[..end]);
        exercise(&text[..end]);
    }
}

#[test]
fn deep_and_long() {
    check("http {".repeat(20_000).as_bytes());
    check(&[b"http {".repeat(100), b"}".repeat(100)].concat());
    check("}".repeat(20_000).as_bytes());
    check("root a;".repeat(10_000).as_bytes());
    check("a ".repeat(20_000).as_bytes());
    check("\"".repeat(20_001).as_bytes());
    check("root\n".repeat(20_000).as_bytes());
    check(&[&b" ".repeat(20_000)[..], &b"a;".repeat(10_000)].concat());
    check("include main.conf;".repeat(3).as_bytes());
}

#[test]
fn tokens_of_nginx() {
    let words = |text: &str| -> Vec<String> {
        let (tree, diagnostics) = read(text.as_bytes());
        assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
        assert_eq!(tree.nodes.len(), 1);
        tree.nodes[0].words().map(|word| word.to_string()).collect()
    };
    let check = |text: &str, expected: &[&str]| assert_eq!(words(text), expected, "{text}");
    check("a b;", &["a", "b"]);
    check("a\tb\r\nc\n;", &["a", "b", "c"]);
    check("a \"b c\" 'd e';", &["a", "b c", "d e"]);
    check("a \"\" '';", &["a", "", ""]);
    check("a b\"c d'e;", &["a", "b\"c", "d'e"]);
    check("a \"it's\" '\"';", &["a", "it's", "\""]);
    check(r#"a "\"\'\\\t\r\n\x";"#, &["a", "\"'\\\t\r\n\\x"]);
    check(r"a \;\ \{ \#;", &["a", r"\;\ \{", r"\#"]);
    check(r"a \.php$ \d+\;;", &["a", r"\.php$", r"\d+\;"]);
    check("a ${b}c ${d;", &["a", "${b}c", "${d"]);
    check("a ${{b;", &["a", "${{b"]);
    check("a $b#c d #e;\n;", &["a", "$b#c", "d"]);
    check("a # b;\nc;", &["a", "c"]);
    check("if ($a = \"b\") { }", &["if", "($a", "=", "b", ")"]);
    check("a b} c;", &["a", "b}", "c"]);
    check("a x{ }", &["a", "x"]);
}
