//! Interpretation of a tree: looks up each directive, checks its context and arguments, applies it.
//!
//! The directives' functions get the [`Cx`]: the scope of the block being read, values for the
//! whole configuration, paths, and the collected diagnostics.

use std::any::{Any, TypeId};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::hash::{BuildHasher, BuildHasherDefault, Hasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use crate::context::Context;
use crate::diagnostic::{Diagnostic, Diagnostics};
use crate::files::{Bundle, Contents, Disk, Files};
use crate::missing::{Absence, MissingDirective};
use crate::os_error::Errno;
use crate::paths::Paths;
use crate::recovery;
use crate::registry::{Registry, Row};
use crate::source::Span;
use crate::substitution;
use crate::tree::{Node, Tree, Word};

fn missing_error(name: &Word, missing: MissingDirective) -> Diagnostic {
    let error = match missing.absence {
        Absence::Unknown => {
            name.error(format!("unknown directive \"{name}\"")).label(missing.origin)
        }
        Absence::Unsupported(reason) => {
            name.error(format!("directive \"{name}\" is not supported by nowait: {reason}"))
        }
        Absence::LeftOut { feature } => name.error(format!(
            "directive \"{name}\" belongs to the feature \"{feature}\", which this build leaves out"
        )),
    };
    error.missing(missing, name.lossy())
}

/// An error of a regular expression that begins a block.
const QUOTE: &str = "a regular expression with \"{\" or \"}\" has to be quoted";

/// The server whose configuration language has a directive like this one, which nginx's has not.
fn foreign_language(name: &[u8]) -> Option<&'static str> {
    const APACHE: &[&str] = &[
        "DocumentRoot",
        "ServerName",
        "ServerAlias",
        "ServerRoot",
        "ServerAdmin",
        "LoadModule",
        "DirectoryIndex",
        "ErrorDocument",
        "RewriteEngine",
        "RewriteRule",
        "RewriteCond",
        "ProxyPass",
        "ProxyPassReverse",
        "CustomLog",
        "AllowOverride",
    ];
    const CADDY: &[&str] = &[
        "reverse_proxy",
        "file_server",
        "php_fastcgi",
        "encode",
        "handle",
        "handle_path",
        "redir",
        "tls",
    ];
    const HAPROXY: &[&str] = &["frontend", "backend", "bind", "defaults", "global"];
    let is_among = |names: &[&str]| names.iter().any(|known| known.as_bytes() == name);
    if name.starts_with(b"<") || is_among(APACHE) {
        Some("Apache")
    } else if is_among(CADDY) {
        Some("Caddy")
    } else {
        is_among(HAPROXY).then_some("HAProxy")
    }
}

/// Hashes the identity of a type, which is a hash already.
#[derive(Default)]
struct TypeHasher(u64);

impl Hasher for TypeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// Values by the identity of a type.
type ByType<V> = HashMap<TypeId, V, BuildHasherDefault<TypeHasher>>;

/// One value per type.
#[derive(Default)]
struct TypeMap(ByType<Box<dyn Any>>);

impl TypeMap {
    fn get<T: 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }

    fn set<T: 'static>(&mut self, value: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(value));
    }

    fn get_mut<T: 'static>(&mut self) -> Option<&mut T> {
        self.0.get_mut(&TypeId::of::<T>())?.downcast_mut()
    }

    fn get_or_default<T: Default + 'static>(&mut self) -> &mut T {
        let value = self.0.entry(TypeId::of::<T>()).or_insert_with(|| Box::<T>::default());
        value.downcast_mut().expect("the value under a type's id has that type")
    }
}

/// One value per type, for few types: a block rarely has directives of more than a handful of tables.
#[derive(Default)]
struct FewTypes {
    values: Vec<(TypeId, Box<dyn Any>)>,
    /// A bit for each of them, so that most look-ups of others end here.
    bits: u64,
}

impl FewTypes {
    fn bit(id: TypeId) -> u64 {
        1 << (BuildHasherDefault::<TypeHasher>::default().hash_one(id) % 64)
    }

    fn position(&self, id: TypeId) -> Option<usize> {
        match self.bits & Self::bit(id) {
            0 => None,
            _ => self.values.iter().position(|(known, _)| *known == id),
        }
    }

    fn has<T: 'static>(&self) -> bool {
        self.position(TypeId::of::<T>()).is_some()
    }

    fn get<T: 'static>(&self) -> Option<&T> {
        self.values[self.position(TypeId::of::<T>())?].1.downcast_ref()
    }

    fn get_or_default<T: Default + 'static>(&mut self) -> &mut T {
        let at = self.position(TypeId::of::<T>()).unwrap_or_else(|| {
            self.set(T::default());
            self.values.len() - 1
        });
        self.values[at].1.downcast_mut().expect("the value under a type's id has that type")
    }

    fn set<T: 'static>(&mut self, value: T) {
        let id = TypeId::of::<T>();
        self.values.push((id, Box::new(value)));
        self.bits |= Self::bit(id);
    }

    fn clear(&mut self) {
        self.values.clear();
        self.bits = 0;
    }
}

/// The resolved settings of a table, shared by all blocks that set no other directive of it.
struct ResolvedConf<C> {
    conf: Arc<C>,
    /// Number of the blocks that set directives of the table.
    given: usize,
}

impl<C> Clone for ResolvedConf<C> {
    fn clone(&self) -> Self {
        Self { conf: self.conf.clone(), given: self.given }
    }
}

/// The same for blocks inside the one with the settings, which differ in directives that are not inherited.
struct InheritedConf<C>(ResolvedConf<C>);

impl<C> Clone for InheritedConf<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The result of a block: the layers written by its directives.
pub struct Scope {
    context: Context,
    layers: FewTypes,
    /// First use of each directive here.
    seen: Vec<(&'static str, Span)>,
    /// Values resolved from the layers, see [`Cx::resolved`].
    resolved: RefCell<FewTypes>,
}

impl Scope {
    fn new(context: Context) -> Scope {
        Scope {
            context,
            layers: FewTypes::default(),
            seen: Vec::new(),
            resolved: RefCell::default(),
        }
    }

    /// The kind of block.
    pub fn context(&self) -> Context {
        self.context
    }

    /// The layer of type `L`, if a directive of its table stood in the block.
    pub fn get<L: 'static>(&self) -> Option<&L> {
        self.layers.get()
    }

    fn has<L: 'static>(&self) -> bool {
        self.layers.has::<L>()
    }

    /// The layer of type `L`, created on first use.
    pub fn layer<L: Default + 'static>(&mut self) -> &mut L {
        // Values resolved from the layer may change.
        self.resolved.get_mut().clear();
        self.layers.get_or_default()
    }

    /// Takes the layer of type `L` out.
    pub fn take<L: Default + 'static>(&mut self) -> L {
        match self.has::<L>() {
            true => std::mem::take(self.layer()),
            false => L::default(),
        }
    }

    /// The first use of a directive in the block.
    pub fn seen(&self, name: &str) -> Option<Span> {
        self.seen.iter().find(|(known, _)| *known == name).map(|(_, span)| *span)
    }

    /// Notes the first use of a directive.
    fn note(&mut self, name: &'static str, span: Span) {
        // Each directive has one row, whose name is always the same text.
        if !self.seen.iter().any(|(known, _)| std::ptr::eq(*known, name)) {
            self.seen.push((name, span));
        }
    }
}

/// The interpretation of one configuration.
pub struct Cx<'a> {
    registry: &'a Registry,
    files: &'a dyn Files,
    /// Files that directives name.
    named: HashMap<PathBuf, Contents>,
    /// Those of them that the server itself writes.
    states: BTreeSet<PathBuf>,
    paths: Paths,
    diagnostics: &'a mut Diagnostics,
    scopes: Vec<Scope>,
    globals: TypeMap,
    defaults: ByType<Rc<dyn Any>>,
    /// Settings that no block gives.
    untouched: RefCell<TypeMap>,
}

impl<'a> Cx<'a> {
    pub fn new(registry: &'a Registry, paths: Paths, diagnostics: &'a mut Diagnostics) -> Cx<'a> {
        Cx {
            registry,
            files: &Disk,
            named: HashMap::new(),
            states: BTreeSet::new(),
            paths,
            diagnostics,
            scopes: Vec::new(),
            globals: TypeMap::default(),
            defaults: ByType::default(),
            untouched: RefCell::default(),
        }
    }

    /// Takes files that directives name from `files`, not from the disk.
    pub fn reading(mut self, files: &'a dyn Files) -> Cx<'a> {
        self.files = files;
        self
    }

    /// The contents of a file that a directive names. Every file is read once, and handed to the
    /// server process with the configuration.
    ///
    /// # Errors
    /// It can't be read, or is larger than [`NAMED_BYTES_MAX`](crate::NAMED_BYTES_MAX).
    pub fn read_named(&mut self, path: &Path) -> io::Result<Contents> {
        if let Some(contents) = self.named.get(path) {
            return Ok(contents.clone());
        }
        let contents = self.files.read_named(path)?;
        self.named.insert(path.to_owned(), contents.clone());
        Ok(contents)
    }

    /// The contents of a file that the server itself replaces while it runs, if there is one: the first change creates
    /// it. `word` names it.
    ///
    /// # Errors
    /// Another directive names it, too; it can't be read, or is larger than
    /// [`NAMED_BYTES_MAX`](crate::NAMED_BYTES_MAX).
    pub fn read_state(&mut self, path: &[u8], word: &Word) -> Result<Option<Contents>, Diagnostic> {
        let path = Path::new(OsStr::from_bytes(path));
        let refuse = |problem: String| word.error(problem);
        if !self.states.insert(path.to_owned()) {
            return Err(refuse(format!("state file \"{}\" is already in use", path.display()))
                .hint("every upstream and every keyval zone needs a file of its own"));
        }
        match self.read_named(path) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(refuse(format!("open() \"{}\" failed ({})", path.display(), Errno(&error))))
            }
        }
    }

    /// Adds all files that directives named to a bundle.
    pub fn give_named(&mut self, bundle: &mut Bundle) {
        let named = std::mem::take(&mut self.named);
        named.into_iter().for_each(|(path, contents)| bundle.add_named(path, contents));
        bundle.set_states(std::mem::take(&mut self.states));
    }

    /// Interprets a whole configuration; the result is the scope of the top level.
    pub fn run(&mut self, tree: &Tree) -> Scope {
        self.block(Context::MAIN, &tree.nodes)
    }

    /// Interprets the directives of a block in a new scope and returns that scope.
    pub fn block(&mut self, context: Context, nodes: &[Node]) -> Scope {
        self.block_in(Scope::new(context), nodes)
    }

    /// Like [`Cx::block`], but reads into a scope prepared by the caller or left by an earlier block.
    pub fn block_in(&mut self, scope: Scope, nodes: &[Node]) -> Scope {
        self.scopes.push(scope);
        for node in nodes {
            self.directive(node);
        }
        self.scopes.pop().expect("the scope pushed above is still there")
    }

    /// A scope to fill by hand and pass to [`Cx::block_in`].
    pub fn new_scope(&self, context: Context) -> Scope {
        Scope::new(context)
    }

    fn directive(&mut self, node: &Node) {
        let mut swallowed = self.one_directive(node);
        // Continue as if the forgotten ";" were there, to find further errors.
        for _ in 0..recovery::SWALLOWED_MAX {
            let Some(rest) = swallowed else {
                return;
            };
            swallowed = self.one_directive(&rest);
        }
    }

    /// Applies a directive; if its error comes from a forgotten `;`, returns the directive after that
    /// place.
    fn one_directive(&mut self, node: &Node) -> Option<Node> {
        let swallowed = recovery::swallowed(self.registry, self.context(), node);
        let error = match self.checked_row(node) {
            Ok(row) => {
                let checked = substitution::check(row.name, node);
                let result = checked.and_then(|()| (row.apply)(self, node));
                self.scope_mut().note(row.name, node.name.span);
                result.err().map(|error| {
                    let error = error.or_at(node.name.span);
                    error.or_hint(substitution::advice(node)).or_syntax(row)
                })
            }
            Err(error) => Some(error),
        };
        match (error, swallowed) {
            (None, None) => {}
            (Some(error), None) => self.report(error),
            (None, Some(swallowed)) => {
                if swallowed.is_complete(self.registry, self.context()) {
                    self.report(swallowed.warning(node));
                }
            }
            (Some(error), Some(swallowed)) => {
                self.report(swallowed.explain(node, error));
                return Some(swallowed.rest);
            }
        }
        None
    }

    fn checked_row(&self, node: &Node) -> Result<&'static Row, Diagnostic> {
        let rows = self.registry.named(&node.name.text);
        let context = self.context();
        let Some(row) = rows.iter().copied().find(|row| row.contexts.intersects(context)) else {
            return Err(match rows.iter().map(|row| row.contexts).reduce(Context::or) {
                Some(contexts) => self.misplaced(&node.name, contexts),
                None => self.unknown(&node.name),
            });
        };
        if row.block != node.block.is_some() {
            let name = &node.name;
            return Err(match row.block {
                true => node
                    .error(format!("directive \"{name}\" has no opening \"{{\""))
                    .expected(format!("\"{name} {}\"", row.args)),
                false => {
                    let error =
                        node.error(format!("directive \"{name}\" is not terminated by \";\""));
                    // Such as `rewrite ^/(a{3})$ /b;`.
                    let text = |word: &Word| word.text.iter().any(|b| b"^([\\".contains(b));
                    if node.args.iter().any(text) { error.hint(QUOTE) } else { error }
                }
            });
        }
        if !row.arity.allows(node.args.len()) {
            let given = node.args.len();
            let error = node.arity_error();
            let error = error.expected(format!("{}, not {given}", row.arity.describe()));
            return Err(error.hint(row.syntax()));
        }
        Ok(row)
    }

    fn misplaced(&self, name: &Word, contexts: Context) -> Diagnostic {
        if let Some(missing) = self.registry.missing(&name.text, self.context())
            && missing.contexts.intersects(self.context())
        {
            return missing_error(name, missing);
        }
        name.error(format!("\"{name}\" directive is not allowed here"))
            .label(format!("not in the \"{}\" context", self.context().describe()))
            .hint(format!("\"{name}\" belongs in {}", contexts.describe()))
            .follows_from_nesting()
    }

    fn unknown(&self, name: &Word) -> Diagnostic {
        if let Some(missing) = self.registry.missing(&name.text, self.context()) {
            return missing_error(name, missing);
        }
        let error = name.error(format!("unknown directive \"{name}\""));
        if name.text.contains(&b'}') {
            return error.hint(QUOTE);
        }
        if name.text.starts_with(b"\xef\xbb\xbf") {
            return error.hint("the file begins with a byte order mark; save it without");
        }
        if let Some(language) = foreign_language(&name.text) {
            return error.hint(format!(
                "this is {language}'s configuration language; nowait reads nginx's"
            ));
        }
        match self.registry.suggest(&name.lossy(), self.context()) {
            Some(known) => error.hint(format!("did you mean \"{known}\"?")),
            // As Caddy names sites.
            None if name.text.contains(&b'.') || name.text.starts_with(b":") => error.hint(
                "a site is a \"server\" block within \"http\"; its name stands after \"server_name\"",
            ),
            None => error,
        }
    }

    /// Records a finding and continues; for several errors in one directive, and for warnings.
    pub fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.merge(diagnostic);
    }

    /// Records the error of a result and continues without the value.
    pub fn accept<T>(&mut self, result: Result<T, Diagnostic>) -> Option<T> {
        result.map_err(|error| self.report(error)).ok()
    }

    pub fn diagnostics(&self) -> &Diagnostics {
        self.diagnostics
    }

    pub fn registry(&self) -> &'a Registry {
        self.registry
    }

    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The kind of the block being read; [`Context::MAIN`] outside of [`Cx::run`].
    pub fn context(&self) -> Context {
        self.scopes.last().map_or(Context::MAIN, Scope::context)
    }

    /// The open blocks, outermost first.
    pub fn scopes(&self) -> &[Scope] {
        &self.scopes
    }

    /// The scope of the block being read.
    pub fn scope_mut(&mut self) -> &mut Scope {
        if self.scopes.is_empty() {
            self.scopes.push(Scope::new(Context::MAIN));
        }
        self.scopes.last_mut().expect("one was pushed if there was none")
    }

    /// The innermost open block of a kind: `cx.enclosing(Context::SERVER)` in a location.
    pub fn enclosing(&mut self, context: Context) -> Option<&mut Scope> {
        self.scopes.iter_mut().rev().find(|scope| scope.context.intersects(context))
    }

    /// The layer of type `L` in the block being read, created on first use.
    pub fn layer<L: Default + 'static>(&mut self) -> &mut L {
        self.scope_mut().layer()
    }

    /// The value of type `T` for the whole configuration, created on first use: zones, pools,
    /// the table of variables.
    pub fn global<T: Default + 'static>(&mut self) -> &mut T {
        self.globals.get_or_default()
    }

    /// Stores a value for [`Cx::global`] in advance.
    pub fn set_global<T: 'static>(&mut self, value: T) {
        self.globals.set(value);
    }

    /// Takes the value of type `T` out, after the run.
    pub fn take_global<T: Default + 'static>(&mut self) -> T {
        match self.globals.get_mut::<T>() {
            Some(value) => std::mem::take(value),
            None => T::default(),
        }
    }

    /// Refuses the second use of a directive in a block: `"NAME" directive is duplicate`.
    pub fn once(&self, node: &Node) -> Result<(), Diagnostic> {
        let seen = self.scopes.last().and_then(|scope| {
            let name = std::str::from_utf8(&node.name.text).ok()?;
            scope.seen(name)
        });
        match seen {
            Some(first) => Err(self.duplicate(node).note(first, "first given here")),
            None => Ok(()),
        }
    }

    pub(crate) fn duplicate(&self, node: &Node) -> Diagnostic {
        node.directive_error("is duplicate").follows_from_nesting()
    }

    /// The entries of a data block (`types`): directives without blocks. Entries with blocks are reported
    /// and left out.
    pub fn entries<'n>(&mut self, node: &'n Node) -> Vec<&'n Node> {
        let (flat, nested): (Vec<_>, Vec<_>) =
            node.children().iter().partition(|entry| entry.block.is_none());
        for entry in nested {
            let at = Span { start: entry.span.end.saturating_sub(1), ..entry.span };
            let mut error = Diagnostic::emerg("unexpected \"{\"").at(at);
            if entry.name.text.starts_with(b"~") {
                error = error.hint(QUOTE);
            }
            self.report(error);
        }
        flat
    }

    /// The settings of a table for a chain of blocks, the outermost first. Blocks with the same settings
    /// share them: the innermost block that sets a directive keeps the resolved value.
    ///
    /// `has_own`: some directives of the table are not inherited.
    pub(crate) fn resolved<L: Default + 'static, C: 'static>(
        &mut self,
        scopes: &[&Scope],
        has_own: bool,
        defaults: fn(&mut Cx<'_>) -> L,
        merge: fn(&[&L]) -> C,
    ) -> Arc<C> {
        let given = || scopes.iter().filter(|scope| scope.has::<L>()).count();
        let giving = scopes.iter().rposition(|scope| scope.has::<L>());
        let inherits = has_own && giving.is_none_or(|at| at + 1 < scopes.len());
        let giving = giving.map(|at| scopes[at]);
        let known = match inherits {
            true => self.known::<InheritedConf<C>>(giving).map(|InheritedConf(known)| known),
            false => self.known::<ResolvedConf<C>>(giving),
        };
        if let Some(known) = known {
            debug_assert_eq!(known.given, given(), "a table is resolved for chains of one kind");
            return known.conf;
        }
        let (defaults, empty) = (self.cached_defaults(defaults), L::default());
        let mut all = vec![&*defaults];
        all.extend(scopes.iter().filter_map(|scope| scope.get::<L>()));
        if inherits {
            all.push(&empty);
        }
        let conf = Arc::new(merge(&all));
        let resolved = ResolvedConf { conf: conf.clone(), given: given() };
        match inherits {
            true => self.keep(giving, InheritedConf(resolved)),
            false => self.keep(giving, resolved),
        }
        conf
    }

    /// The value resolved for the block with the settings; without one, for all blocks that have none.
    fn known<T: Clone + 'static>(&self, giving: Option<&Scope>) -> Option<T> {
        match giving {
            Some(scope) => scope.resolved.borrow().get::<T>().cloned(),
            None => self.untouched.borrow().get::<T>().cloned(),
        }
    }

    fn keep<T: 'static>(&self, giving: Option<&Scope>, resolved: T) {
        match giving {
            Some(scope) => scope.resolved.borrow_mut().set(resolved),
            None => self.untouched.borrow_mut().set(resolved),
        }
    }

    /// The defaults of a table, parsed once per configuration.
    pub(crate) fn cached_defaults<L: 'static>(&mut self, make: fn(&mut Cx<'_>) -> L) -> Rc<L> {
        let known = self.defaults.get(&TypeId::of::<L>()).cloned();
        let any = known.unwrap_or_else(|| {
            let made: Rc<dyn Any> = Rc::new(self.made_aside(make));
            self.defaults.insert(TypeId::of::<L>(), Rc::clone(&made));
            made
        });
        any.downcast().expect("the value under a type's id has that type")
    }

    /// Runs `make` in a scope that is thrown away.
    fn made_aside<L>(&mut self, make: fn(&mut Cx<'_>) -> L) -> L {
        self.scopes.push(Scope::new(Context::NONE));
        let made = make(self);
        self.scopes.pop();
        made
    }
}
