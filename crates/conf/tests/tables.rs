//! Tables as other crates write them: rows, inheritance, defaults, structural blocks.

use std::path::Path;
use std::sync::Arc;

use nowait_conf::{
    Bundle, Context, Cx, Diagnostic, Diagnostics, LocalSetting, Msec, Node, Paths, Registry, Scope,
    Setting, Size, Template, Words, arity, directives, parse, rows, setting_enum, setting_flags,
};

setting_enum! {
    pub enum Satisfy { All = "all", Any = "any" }
}

setting_flags! {
    pub struct Methods { GET = "get", PUT = "put", POST = "post" }
}

directives! {
    /// A table for tests.
    #[derive(Debug)]
    module "test";
    pub struct TestConf with TestLayer;

    /// A flag.
    sendfile: bool = "off", in HTTP | SERVER | LOCATION, args "on | off";
    send_timeout: Msec = "60s", in HTTP | SERVER | LOCATION, args "time";
    limit_rate: Option<Size>, in HTTP | SERVER | LOCATION, args "size";
    add_header: Vec<Header>, in HTTP | SERVER | LOCATION, args "name value";
    try_files: LocalSetting<Words>, in SERVER | LOCATION, args "file ... uri";
    satisfy: Satisfy = "all", in HTTP | SERVER | LOCATION, args "all | any";
    methods: Methods = "get post", in HTTP | SERVER | LOCATION, args "method ...";
    root: nowait_conf::Path = "html", in HTTP | SERVER | LOCATION, args "path";
    chain: Chain = "default", in HTTP | SERVER | LOCATION, args "name";
    answer("return"): Option<Template>, in LOCATION, args "text";
    cache_line: Size = "64 or 128" => cache_line, in HTTP, args "size";
}

fn cache_line(_cx: &mut Cx<'_>) -> Size {
    Size(64)
}

directives! {
    /// A table whose names begin with a word of their own.
    #[derive(Debug)]
    module "back", prefix "back_";
    pub struct BackConf with BackLayer;

    /// Named `back_buffering`.
    buffering: bool = "on", in HTTP | SERVER | LOCATION, args "on | off";
}

#[derive(Clone, Debug, PartialEq)]
struct Header(String, String);

impl Setting for Header {
    const ARITY: arity::Arity = arity::exactly(2);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Header, Diagnostic> {
        Ok(Header(node.args[0].to_string(), node.args[1].to_string()))
    }
}

/// Merges instead of replacing, and may be repeated.
#[derive(Clone, Debug, PartialEq)]
struct Chain(Vec<String>);

impl Setting for Chain {
    const ARITY: arity::Arity = arity::exactly(1);

    fn parse(node: &Node, _cx: &mut Cx<'_>) -> Result<Chain, Diagnostic> {
        Ok(Chain(vec![node.args[0].to_string()]))
    }

    fn merge(self, outer: &Chain) -> Chain {
        Chain(outer.0.iter().cloned().chain(self.0).collect())
    }

    fn again(&mut self, node: &Node, cx: &mut Cx<'_>) -> Result<(), Diagnostic> {
        self.0.extend(Chain::parse(node, cx)?.0);
        Ok(())
    }
}

#[derive(Default)]
struct Blocks {
    http: Option<Scope>,
    servers: Vec<Scope>,
    locations: Vec<Scope>,
}

rows! {
    static STRUCTURE, module "test";

    /// The http block.
    block "http" => http, in MAIN, take none(), args "{ ... }";
    block "server" => |cx: &mut Cx<'_>, node: &Node| {
        let scope = cx.block(Context::SERVER, node.children());
        cx.global::<Blocks>().servers.push(scope);
        Ok(())
    }, in HTTP, take none(), args "{ ... }";
    block "location" => location, in SERVER | LOCATION, take between(1, 2), args "uri { ... }";
    "once" => |cx: &mut Cx<'_>, node: &Node| cx.once(node), in MAIN, take any(), args "";
}

fn http(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    cx.once(node)?;
    let scope = cx.block(Context::HTTP, node.children());
    cx.global::<Blocks>().http = Some(scope);
    Ok(())
}

fn location(cx: &mut Cx<'_>, node: &Node) -> Result<(), Diagnostic> {
    assert!(cx.enclosing(Context::SERVER).is_some());
    let scope = cx.block(Context::LOCATION, node.children());
    cx.global::<Blocks>().locations.push(scope);
    Ok(())
}

fn registry() -> Registry {
    Registry::new(&[TestConf::ROWS, BackConf::ROWS, STRUCTURE])
}

fn with<T>(text: &str, check: impl FnOnce(&mut Cx<'_>, Blocks) -> T) -> (T, Diagnostics) {
    let mut files = Bundle::default();
    files.add("/etc/test.conf", text);
    let main = Path::new("/etc/test.conf");
    let (tree, mut diagnostics) = parse(&files, main, None);
    let registry = registry();
    let paths = Paths::new(Path::new("/srv"), main);
    let mut cx = Cx::new(&registry, paths, &mut diagnostics);
    cx.run(&tree);
    let blocks = cx.take_global::<Blocks>();
    let result = check(&mut cx, blocks);
    (result, diagnostics)
}

/// The configuration of the first location.
fn resolved(text: &str) -> Arc<TestConf> {
    let (conf, diagnostics) = with(text, |cx, blocks| {
        let http = blocks.http.unwrap();
        TestConf::resolve(cx, &[&http, &blocks.servers[0], &blocks.locations[0]])
    });
    assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
    conf
}

#[test]
fn defaults() {
    let conf = resolved("http { server { location / { } } }");
    assert!(!conf.sendfile);
    assert_eq!(conf.send_timeout, Msec(60_000));
    assert_eq!(conf.limit_rate, None);
    assert!(conf.add_header.is_empty());
    assert_eq!(*conf.try_files, None);
    assert_eq!(conf.satisfy, Satisfy::All);
    assert_eq!(conf.methods, Methods::GET.or(Methods::POST));
    assert_eq!(conf.root.as_bytes(), b"/srv/html");
    assert_eq!(conf.chain, Chain(vec!["default".into()]));
    assert_eq!(conf.answer, None);
    assert_eq!(conf.cache_line, Size(64));
}

#[test]
fn inner_blocks_win() {
    let conf = resolved(
        "http { sendfile on; send_timeout 1s; add_header a 1; add_header b 2; limit_rate 1k;
           chain http; root /one;
           server { send_timeout 2s; limit_rate 2k; try_files a b; chain s1; chain s2;
             location / { send_timeout 3s; add_header c 3; satisfy ANY; return $uri; } } }",
    );
    assert!(conf.sendfile);
    assert_eq!(conf.send_timeout, Msec(3_000));
    assert_eq!(conf.limit_rate, Some(Size(2048)));
    assert_eq!(conf.add_header, [Header("c".into(), "3".into())]);
    assert_eq!(*conf.try_files, None, "try_files is not inherited");
    assert_eq!(conf.satisfy, Satisfy::Any);
    assert_eq!(conf.root.as_bytes(), b"/one");
    assert_eq!(conf.chain.0, ["default", "http", "s1", "s2"]);
    assert!(!conf.answer.as_ref().unwrap().is_constant());
}

#[test]
fn blocks_that_inherit_everything_share_the_settings() {
    let text = "http { sendfile on; server { try_files a b; location / { } location /a { }
                location /b { back_buffering off; } location /c { limit_rate 1k; } }
                server { location / { } } }";
    let ((), diagnostics) = with(text, |cx, blocks| {
        let http = blocks.http.unwrap();
        let server = TestConf::resolve(cx, &[&http, &blocks.servers[0]]);
        let inner: Vec<_> = blocks.locations[..4]
            .iter()
            .map(|location| TestConf::resolve(cx, &[&http, &blocks.servers[0], location]))
            .collect();
        assert!(Arc::ptr_eq(&inner[0], &inner[1]) && Arc::ptr_eq(&inner[0], &inner[2]));
        assert!(!Arc::ptr_eq(&inner[0], &inner[3]) && inner[3].limit_rate == Some(Size(1024)));
        assert!(inner.iter().all(|conf| conf.sendfile));
        // A directive that is not inherited makes the difference to the block that has it.
        assert!(server.try_files.is_some() && inner[0].try_files.is_none());
        let other = TestConf::resolve(cx, &[&http, &blocks.servers[1]]);
        let inside = TestConf::resolve(cx, &[&http, &blocks.servers[1], &blocks.locations[4]]);
        assert!(Arc::ptr_eq(&other, &inside) && other.try_files.is_none());
        let back = |cx: &mut Cx<'_>, n: usize| {
            BackConf::resolve(cx, &[&http, &blocks.servers[0], &blocks.locations[n]])
        };
        assert!(Arc::ptr_eq(&back(cx, 0), &back(cx, 3)) && !back(cx, 2).buffering);
    });
    assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
}

#[test]
fn lists_are_inherited_as_a_whole() {
    let conf = resolved("http { add_header a 1; add_header b 2; server { location / { } } }");
    assert_eq!(conf.add_header.len(), 2);
}

#[test]
fn duplicates_are_refused() {
    let text = "http { sendfile on; sendfile on; }\nhttp { }";
    let ((), diagnostics) = with(text, |_, _| ());
    let messages: Vec<_> = diagnostics.iter().map(|d| diagnostics.classic(d)).collect();
    assert_eq!(
        messages,
        [
            "\"sendfile\" directive is duplicate in /etc/test.conf:1",
            "\"http\" directive is duplicate in /etc/test.conf:2",
        ]
    );
}

#[test]
fn tables_are_consistent() {
    assert_eq!(registry().conflicts(), Vec::<String>::new());
    let names: Vec<_> = TestConf::ROWS.iter().map(|row| row.name).collect();
    assert!(names.contains(&"return") && !names.contains(&"answer"));
    assert!(STRUCTURE[0].block && !STRUCTURE[3].block);
    assert_eq!(TestConf::ROWS[0].doc, [" A flag."]);
}

#[test]
fn a_table_may_have_a_prefix() {
    assert_eq!(BackConf::ROWS[0].name, "back_buffering");
    let (buffering, diagnostics) = with("http { back_buffering off; }", |cx, blocks| {
        BackConf::resolve(cx, &[&blocks.http.unwrap()]).buffering
    });
    assert!(diagnostics.is_empty(), "{}", diagnostics.render(false));
    assert!(!buffering);
    let ((), diagnostics) = with("http { buffering off; }", |_, _| ());
    assert!(diagnostics.has_errors());
}
