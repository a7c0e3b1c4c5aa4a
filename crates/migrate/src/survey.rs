//! Reads a configuration file by file and classifies every directive.
//!
//! Unlike [`nowait_conf::parse`], which expands `include` and stops where a file cannot be read,
//! this keeps the files apart and goes on. A file that several blocks include is read once, and
//! judged once for each kind of block; its directives keep the heaviest class.

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use nowait_conf::{Context, Node, Registry, Span, Word, parse_text};

use crate::class::{self, Class, Classification, Surroundings};
use crate::error::{Error, Limit};

/// The source of a configuration's files.
pub trait ConfigSource {
    /// The text of a file.
    ///
    /// # Errors
    /// It cannot be read, is no regular file, or too large.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// The paths that match a pattern, sorted bytewise; none is no error.
    ///
    /// # Errors
    /// There are too many.
    fn glob(&self, pattern: &[u8]) -> io::Result<Vec<PathBuf>>;

    /// The path without links; the path itself if it cannot be resolved.
    fn real(&self, path: &Path) -> PathBuf;

    /// Whether the name exists, even as a dangling link.
    fn exists(&self, path: &Path) -> bool;

    /// Whether nowait has a copy of an included file that does not exist.
    fn has_built_in(&self, path: &Path) -> bool;
}

/// A directive of a file.
#[derive(Clone, Debug)]
pub struct Directive {
    /// The file, an index into the files of the survey.
    pub(crate) file: usize,
    /// The line, from 1.
    pub line: u32,
    /// The bytes of the file from its name to its `;` or `}`.
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The name, without control characters.
    pub name: String,
    pub(crate) verdict: Classification,
}

impl Directive {
    /// The class.
    pub fn class(&self) -> Class {
        self.verdict.class
    }
}

/// A virtual server, or a server of `stream`.
#[derive(Clone, Debug)]
pub struct Site {
    /// Whether it is one of `stream`.
    pub stream: bool,
    /// The words of `server_name`.
    pub names: Vec<String>,
    /// The addresses of `listen`.
    pub listens: Vec<String>,
    pub(crate) file: usize,
    pub(crate) line: u32,
    pub(crate) start: u32,
    pub(crate) end: u32,
    /// The files that it includes, directly or not.
    pub(crate) includes: BTreeSet<usize>,
}

/// A file of the configuration.
pub(crate) struct File {
    /// As the first `include` spells it.
    pub path: PathBuf,
    /// Without links.
    pub real: PathBuf,
    /// Every spelling.
    pub spellings: Vec<PathBuf>,
    pub text: Vec<u8>,
    pub nodes: Rc<Vec<Node>>,
    /// Problems of its syntax, up to [`Survey::SYNTAX_MAX`]: line and message.
    pub syntax: Vec<(u32, String)>,
    pub syntax_errors: usize,
    /// Entries of data blocks, which are no directives.
    pub entries: usize,
    /// The directives in the order of the text; complete when the survey is.
    pub directives: Vec<usize>,
}

/// An `include` that was followed.
pub(crate) struct Include {
    pub file: usize,
    pub word: Word,
    /// The full path or pattern.
    pub path: Vec<u8>,
    /// The spellings of the files that it includes.
    pub found: Vec<(usize, PathBuf)>,
}

/// A remark about a place, independent of a directive.
#[derive(Clone, Debug)]
pub(crate) struct Remark {
    pub place: String,
    pub message: String,
}

/// A whole configuration, judged.
pub struct Survey {
    pub(crate) main: PathBuf,
    pub(crate) files: Vec<File>,
    pub(crate) directives: Vec<Directive>,
    pub(crate) sites: Vec<Site>,
    pub(crate) includes: Vec<Include>,
    /// Files that were not read, up to [`Survey::UNREAD_MAX`], and how many more.
    pub(crate) unread: Vec<Remark>,
    pub(crate) unread_more: usize,
    /// Findings of the check beyond single directives.
    pub(crate) remarks: Vec<Remark>,
    /// Warnings of the check.
    pub(crate) warnings: Vec<Remark>,
    by_spelling: HashMap<PathBuf, usize>,
}

impl Survey {
    /// Maximum number of files.
    pub const FILES_MAX: usize = 20_000;
    /// Maximum size of all files together, in bytes.
    pub const BYTES_MAX: usize = 128 << 20;
    /// Maximum number of directives in all files.
    pub const DIRECTIVES_MAX: usize = 1_000_000;
    /// Maximum sum of all files that files and sites include, directly or not, and of the names and addresses
    /// that come with them.
    pub const INCLUSIONS_MAX: usize = 4_000_000;
    /// Maximum depth of blocks and includes within each other.
    pub const DEPTH_MAX: usize = 192;
    /// Files that were not read, of which the places are kept.
    pub const UNREAD_MAX: usize = 1000;
    /// Problems of a file's syntax that are kept.
    pub const SYNTAX_MAX: usize = 5;

    /// Reads the configuration in `main`, a full path.
    ///
    /// # Errors
    /// The main file cannot be read, or the whole is too large. What else cannot be read is a part
    /// of the result.
    pub fn take(
        source: &dyn ConfigSource,
        registry: &Registry,
        main: &Path,
    ) -> Result<Survey, Error> {
        let mut walk = SurveyWalk {
            source,
            registry,
            conf_prefix: directory(main),
            survey: Survey {
                main: main.to_owned(),
                files: Vec::new(),
                directives: Vec::new(),
                sites: Vec::new(),
                includes: Vec::new(),
                unread: Vec::new(),
                unread_more: 0,
                remarks: Vec::new(),
                warnings: Vec::new(),
                by_spelling: HashMap::new(),
            },
            by_real: HashMap::new(),
            by_place: HashMap::new(),
            visits: HashMap::new(),
            followed: HashMap::new(),
            active: Vec::new(),
            bytes: 0,
            inclusions: 0,
        };
        let main = walk.load(main)?.map_err(Error::Main)?;
        walk.file(main, &Surroundings::Block(Context::MAIN), 0)?;
        let mut survey = walk.survey;
        for (index, directive) in survey.directives.iter().enumerate() {
            survey.files[directive.file].directives.push(index);
        }
        for file in &mut survey.files {
            file.directives.sort_by_key(|index| survey.directives[*index].start);
        }
        Ok(survey)
    }

    /// Adds an error of the check: the directive at byte `at` of `file` is refused. What was judged
    /// missing before stays so.
    pub fn refused(&mut self, file: &Path, at: u32, message: &str) {
        let Some(index) = self.directive_at(file, at) else {
            let place = self.shown(file);
            return self.remark(place, message);
        };
        let verdict = &mut self.directives[index].verdict;
        if verdict.class.works() {
            verdict.class = Class::Refused;
            verdict.note = message.to_owned().into();
        } else if verdict.class == Class::Unknown && message.contains("did you mean") {
            verdict.note = message.to_owned().into();
        }
    }

    /// Adds an error of the check that concerns no directive.
    pub fn remark(&mut self, place: String, message: &str) {
        self.remarks.push(Remark { place, message: printable(message) });
    }

    /// Adds a warning of the check.
    pub fn warning(&mut self, file: &Path, line: u32, message: &str) {
        let place = format!("{}:{line}", self.shown(file));
        self.warnings.push(Remark { place, message: printable(message) });
    }

    /// The innermost directive at a byte of a file.
    fn directive_at(&self, file: &Path, at: u32) -> Option<usize> {
        let file = &self.files[*self.by_spelling.get(file)?];
        let after = file.directives.partition_point(|n| self.directives[*n].start <= at);
        let before = file.directives[..after].iter().rev();
        before.copied().find(|index| self.directives[*index].end > at)
    }

    /// The name of a file, relative to the directory of the main file where it is below that.
    pub(crate) fn shown(&self, file: &Path) -> String {
        let directory = self.main.parent().unwrap_or(Path::new("/"));
        printable(&file.strip_prefix(directory).unwrap_or(file).to_string_lossy())
    }

    /// `FILE:LINE`.
    pub(crate) fn place(&self, file: usize, line: u32) -> String {
        format!("{}:{line}", self.shown(&self.files[file].path))
    }

    /// Every directive, those of a file in the order of its text.
    pub fn directives(&self) -> impl Iterator<Item = &Directive> {
        let indices = self.files.iter().flat_map(|file| &file.directives);
        indices.map(|index| &self.directives[*index])
    }

    /// The directives of a site, without those of included files.
    pub(crate) fn of_site(&self, site: &Site) -> impl Iterator<Item = &Directive> {
        let all = &self.files[site.file].directives;
        let before = |end: u32| all.partition_point(|n| self.directives[*n].start < end);
        let own = before(site.start.saturating_add(1))..before(site.end);
        all.get(own).unwrap_or_default().iter().map(|n| &self.directives[*n])
    }

    /// Whether a server can start with the configuration as it is, as far as this tells.
    pub fn works(&self) -> bool {
        self.directives.iter().all(|directive| directive.class().works())
            && self.unread.is_empty()
            && self.remarks.is_empty()
            && self.files.iter().all(|file| file.syntax_errors == 0)
    }
}

/// A text for a terminal: control characters are shown, not sent.
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\n' => out.push(' '),
            letter if letter.is_control() => out.extend(letter.escape_default()),
            letter => out.push(letter),
        }
    }
    out
}

/// Like [`printable`], and not longer than what a line of a report has room for.
pub(crate) fn short(text: &str) -> String {
    const LETTERS_MAX: usize = 80;
    let mut letters = text.chars();
    let begin: String = letters.by_ref().take(LETTERS_MAX).collect();
    let begin = printable(&begin);
    if letters.next().is_some() { format!("{begin}...") } else { begin }
}

fn directory(file: &Path) -> Vec<u8> {
    let bytes = file.as_os_str().as_bytes();
    let length = bytes.iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    bytes[..length].to_vec()
}

/// The result of walking through a block, for its site.
#[derive(Clone, Default)]
struct BlockSummary {
    names: Vec<String>,
    listens: Vec<String>,
    includes: BTreeSet<usize>,
}

/// Names and addresses that are kept for one site.
const WORDS_MAX: usize = 1000;

impl BlockSummary {
    fn add(&mut self, other: &BlockSummary) {
        let add = |to: &mut Vec<String>, from: &[String]| {
            let room = WORDS_MAX.saturating_sub(to.len());
            to.extend_from_slice(&from[..from.len().min(room)]);
        };
        add(&mut self.names, &other.names);
        add(&mut self.listens, &other.listens);
        self.includes.extend(&other.includes);
    }

    fn size(&self) -> usize {
        self.names.len() + self.listens.len() + self.includes.len()
    }
}

/// The cost of an `include` for [`Survey::INCLUSIONS_MAX`], even without matches: for a pattern, the
/// directory is read.
const INCLUDE_COST: usize = 10;

/// In place of the index of a directive: an entry of a data block stands there.
const ENTRY: usize = usize::MAX;

struct SurveyWalk<'a> {
    source: &'a dyn ConfigSource,
    registry: &'a Registry,
    /// The directory of the main file, with its final `/`.
    conf_prefix: Vec<u8>,
    survey: Survey,
    by_real: HashMap<PathBuf, usize>,
    by_place: HashMap<(usize, u32), usize>,
    /// The contents of each file, by the kind of block that includes it.
    visits: HashMap<(usize, Surroundings), Rc<BlockSummary>>,
    /// Directives `include` by file and byte.
    followed: HashMap<(usize, u32), usize>,
    /// The files being walked through.
    active: Vec<usize>,
    bytes: usize,
    /// The count for [`Survey::INCLUSIONS_MAX`].
    inclusions: usize,
}

impl SurveyWalk<'_> {
    /// Reads a file, unless that has been done.
    fn load(&mut self, path: &Path) -> Result<io::Result<usize>, Error> {
        if let Some(index) = self.survey.by_spelling.get(path) {
            return Ok(Ok(*index));
        }
        let real = self.source.real(path);
        if let Some(&index) = self.by_real.get(&real) {
            self.survey.files[index].spellings.push(path.to_owned());
            self.survey.by_spelling.insert(path.to_owned(), index);
            return Ok(Ok(index));
        }
        if self.survey.files.len() >= Survey::FILES_MAX {
            return Err(Error::TooLarge(Limit::Files));
        }
        let text = match self.source.read(path) {
            Ok(text) => text,
            Err(error) => return Ok(Err(error)),
        };
        self.bytes += text.len();
        if self.bytes > Survey::BYTES_MAX {
            return Err(Error::TooLarge(Limit::Bytes));
        }
        let (tree, diagnostics) = parse_text(path, &text);
        let syntax = diagnostics.iter().take(Survey::SYNTAX_MAX);
        let syntax = syntax.map(|problem| {
            (problem.span().map_or(1, |span| span.line), printable(problem.message()))
        });
        let index = self.survey.files.len();
        self.survey.files.push(File {
            path: path.to_owned(),
            real: real.clone(),
            spellings: vec![path.to_owned()],
            text,
            nodes: Rc::new(tree.nodes),
            syntax: syntax.collect(),
            syntax_errors: diagnostics.iter().count() + diagnostics.dropped(),
            entries: 0,
            directives: Vec::new(),
        });
        self.by_real.insert(real, index);
        self.survey.by_spelling.insert(path.to_owned(), index);
        Ok(Ok(index))
    }

    /// Walks through a file that stands in a block.
    fn file(
        &mut self,
        file: usize,
        around: &Surroundings,
        depth: usize,
    ) -> Result<Rc<BlockSummary>, Error> {
        let key = (file, around.clone());
        if let Some(known) = self.visits.get(&key) {
            return Ok(Rc::clone(known));
        }
        let nodes = Rc::clone(&self.survey.files[file].nodes);
        let mut found =
            BlockSummary { includes: BTreeSet::from([file]), ..BlockSummary::default() };
        self.active.push(file);
        self.block(file, &nodes, around, depth, &mut found)?;
        self.active.pop();
        let found = Rc::new(found);
        self.visits.insert(key, Rc::clone(&found));
        Ok(found)
    }

    fn block(
        &mut self,
        file: usize,
        nodes: &[Node],
        around: &Surroundings,
        depth: usize,
        found: &mut BlockSummary,
    ) -> Result<(), Error> {
        for node in nodes {
            let verdict = match around {
                _ if node.name == "include" => {
                    let verdict = self.include(file, node, around, depth, found)?;
                    let verdict = match around {
                        Surroundings::Lost(class, module) => {
                            Classification::lost(*class, module.clone())
                        }
                        _ => verdict,
                    };
                    self.judge(file, node, verdict)?;
                    continue;
                }
                Surroundings::Data => {
                    let entries = &mut self.survey.files[file].entries;
                    self.by_place.entry((file, node.span.start)).or_insert_with(|| {
                        *entries += 1;
                        ENTRY
                    });
                    // A block within data is an error, but not less of a text.
                    self.block(file, node.children(), around, depth + 1, found)?;
                    continue;
                }
                Surroundings::Block(context) => class::verdict(self.registry, *context, node),
                Surroundings::Lost(class, module) => Classification::lost(*class, module.clone()),
            };
            if let Surroundings::Block(context) = around {
                note_site(*context, node, found);
                if node.block.is_some() {
                    self.inner(file, node, *context, &verdict, depth, found)?;
                }
            } else if node.block.is_some() {
                self.block(file, node.children(), around, depth + 1, found)?;
            }
            self.judge(file, node, verdict)?;
        }
        Ok(())
    }

    fn inner(
        &mut self,
        file: usize,
        node: &Node,
        context: Context,
        verdict: &Classification,
        depth: usize,
        found: &mut BlockSummary,
    ) -> Result<(), Error> {
        if depth >= Survey::DEPTH_MAX {
            let message = format!("more than {} blocks within each other", Survey::DEPTH_MAX);
            self.unread(file, node.span, &message);
            return Ok(());
        }
        let inside = class::inside(context, node, verdict);
        let is_site = matches!(inside, Surroundings::Block(kind)
            if kind.intersects(Context::SERVER | Context::STREAM_SERVER));
        if !is_site {
            return self.block(file, node.children(), &inside, depth + 1, found);
        }
        let mut site = BlockSummary::default();
        self.block(file, node.children(), &inside, depth + 1, &mut site)?;
        self.count(site.includes.len())?;
        found.includes.extend(&site.includes);
        self.survey.sites.push(Site {
            stream: context.intersects(Context::STREAM),
            names: site.names,
            listens: site.listens,
            file,
            line: node.span.line,
            start: node.span.start,
            end: end_of(node),
            includes: site.includes,
        });
        Ok(())
    }

    /// Records the verdict on a directive; the heavier one, if it was judged before.
    fn judge(&mut self, file: usize, node: &Node, verdict: Classification) -> Result<(), Error> {
        if let Some(&index) = self.by_place.get(&(file, node.span.start)) {
            // An entry of a data block is counted already.
            if let Some(known) = self.survey.directives.get_mut(index)
                && verdict.class > known.verdict.class
            {
                known.verdict = verdict;
            }
            return Ok(());
        }
        let index = self.survey.directives.len();
        if index >= Survey::DIRECTIVES_MAX {
            return Err(Error::TooLarge(Limit::Directives));
        }
        self.by_place.insert((file, node.span.start), index);
        self.survey.directives.push(Directive {
            file,
            line: node.span.line,
            start: node.span.start,
            end: end_of(node),
            name: short(&node.name.lossy()),
            verdict,
        });
        Ok(())
    }

    /// Counts what is kept of an inclusion.
    fn count(&mut self, size: usize) -> Result<(), Error> {
        self.inclusions += size;
        match self.inclusions > Survey::INCLUSIONS_MAX {
            true => Err(Error::TooLarge(Limit::Inclusions)),
            false => Ok(()),
        }
    }

    /// Follows an `include`.
    fn include(
        &mut self,
        file: usize,
        node: &Node,
        around: &Surroundings,
        depth: usize,
        found: &mut BlockSummary,
    ) -> Result<Classification, Error> {
        let mut verdict = class::verdict(self.registry, Context::MAIN, node);
        let [word] = &node.args[..] else {
            refuse(&mut verdict, "takes one file name or pattern".to_owned());
            return Ok(verdict);
        };
        if depth >= Survey::DEPTH_MAX {
            let message =
                format!("more than {} blocks and includes within each other", Survey::DEPTH_MAX);
            self.unread(file, word.span, &message);
            refuse(&mut verdict, message);
            return Ok(verdict);
        }
        let full = match word.text.starts_with(b"/") {
            true => word.text.clone(),
            false => [&self.conf_prefix[..], &word.text].concat(),
        };
        self.count(INCLUDE_COST)?;
        let paths = if full.iter().any(|byte| b"*?[".contains(byte)) {
            match self.source.glob(&full) {
                Ok(paths) => paths,
                Err(error) => {
                    let message = format!("\"{word}\": {error}");
                    self.unread(file, word.span, &message);
                    refuse(&mut verdict, message);
                    return Ok(verdict);
                }
            }
        } else {
            vec![PathBuf::from(OsString::from_vec(full.clone()))]
        };
        let mut reached = Vec::new();
        for path in paths {
            let shown = path.display();
            match self.load(&path)? {
                Ok(included) if self.active.contains(&included) => {
                    let message = format!("\"{shown}\" includes itself");
                    self.unread(file, word.span, &message);
                    refuse(&mut verdict, message);
                }
                Ok(included) => {
                    let inside = self.file(included, around, depth + 1)?;
                    self.count(inside.size())?;
                    found.add(&inside);
                    reached.push((included, path));
                }
                Err(error)
                    if error.kind() == io::ErrorKind::NotFound
                        && self.source.has_built_in(&path) =>
                {
                    let note = "the file does not exist: the built-in copy is used";
                    verdict.note = note.into();
                    verdict.class = verdict.class.max(Class::Differs);
                }
                Err(error) => {
                    let message = format!("\"{shown}\": {error}");
                    self.unread(file, word.span, &message);
                    refuse(&mut verdict, message);
                }
            }
        }
        if !self.followed.contains_key(&(file, node.span.start)) {
            self.followed.insert((file, node.span.start), self.survey.includes.len());
            let include = Include { file, word: word.clone(), path: full, found: reached };
            self.survey.includes.push(include);
        }
        Ok(verdict)
    }

    fn unread(&mut self, file: usize, at: Span, message: &str) {
        let place = self.survey.place(file, at.line);
        let message = printable(message);
        let known = |known: &Remark| known.place == place && known.message == message;
        if self.survey.unread.len() >= Survey::UNREAD_MAX {
            self.survey.unread_more += 1;
        } else if !self.survey.unread.iter().any(known) {
            self.survey.unread.push(Remark { place, message });
        }
    }
}

/// Turns the verdict on an `include` into a refusal; the first reason stays.
fn refuse(verdict: &mut Classification, message: String) {
    if verdict.class != Class::Refused {
        verdict.class = Class::Refused;
        verdict.note = message.into();
    }
}

/// The byte after a directive.
fn end_of(node: &Node) -> u32 {
    node.close.map_or(node.span.end, |close| close.end)
}

/// Keeps what names a site.
fn note_site(context: Context, node: &Node, found: &mut BlockSummary) {
    if !context.intersects(Context::SERVER | Context::STREAM_SERVER) {
        return;
    }
    let words = node.args.iter().map(|word| short(&word.lossy()));
    if node.name == "server_name" {
        found.names.extend(words.take(WORDS_MAX.saturating_sub(found.names.len())));
    } else if node.name == "listen" && found.listens.len() < WORDS_MAX {
        found.listens.extend(words.take(1));
    }
}
