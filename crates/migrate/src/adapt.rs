//! The differences of an adapted copy from its original.
//!
//! Missing directives become comments that say why. Where a directive would have responded to
//! requests or refused clients, the copy refuses in its place, or keeps the line if that is impossible:
//! nothing that was closed is open afterwards, and no source code of an application is sent as a file.
//! Includes by full paths lead into the copy. Every path of the copy is below its directory, and leads
//! through no link. Called by `nowait migrate -o`; writes nothing itself.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use nowait_conf::{Node, Word};

use crate::class::{Class, Classification, Treatment};
use crate::survey::{ConfigSource, Include, Survey, printable};

/// The directory of the copy for files from outside of the original's directory, with a number if the
/// original has something of this name.
const OUTSIDE: &str = "outside";

/// A file of the copy that differs from the original, or replaces a link to a file outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Below the directory of the copy.
    pub path: PathBuf,
    /// The original.
    pub original: PathBuf,
    pub text: Vec<u8>,
}

/// The differences between a configuration and its copy.
pub struct Adaptation {
    /// Every file to be written with another text, or to another place.
    pub files: Vec<Placement>,
    /// Directives turned into comments.
    pub removed: usize,
    /// Directives that refuse requests in place of a missing one, or do the same as it.
    pub added: usize,
    /// `FILE:LINE` of what is left for the operator to decide.
    pub left: Vec<String>,
}

/// Bytes of a file to be replaced.
struct Edit {
    start: usize,
    end: usize,
    text: Vec<u8>,
}

/// The target of a file's name in the copy.
enum CopyTarget {
    /// To this path of the copy, since the original's directory is copied as a whole.
    Inside(PathBuf),
    /// Nowhere: it is outside of the original's directory.
    Outside,
}

impl Adaptation {
    /// Plans a copy of `root`, the directory of the main file.
    pub fn plan(survey: &Survey, source: &dyn ConfigSource, root: &Path) -> Adaptation {
        let mut plan = Adapter {
            survey,
            source,
            root,
            real_root: source.real(root),
            edits: survey.files.iter().map(|_| Vec::new()).collect(),
            outside: BTreeSet::new(),
            outside_name: outside_name(source, root),
            done: Adaptation { files: Vec::new(), removed: 0, added: 0, left: Vec::new() },
        };
        plan.directives();
        plan.includes();
        plan.place();
        plan.done
    }
}

struct Adapter<'a> {
    survey: &'a Survey,
    source: &'a dyn ConfigSource,
    root: &'a Path,
    real_root: PathBuf,
    /// By file.
    edits: Vec<Vec<Edit>>,
    /// Spellings of files that are copied from outside.
    outside: BTreeSet<(usize, PathBuf)>,
    /// The directory of the copy for them.
    outside_name: String,
    done: Adaptation,
}

impl<'a> Adapter<'a> {
    /// Edits the directives of all files.
    fn directives(&mut self) {
        for file in 0..self.survey.files.len() {
            let survey = self.survey;
            let nodes = &survey.files[file].nodes;
            let mut blocks: Vec<&[Node]> = vec![nodes];
            while let Some(block) = blocks.pop() {
                for node in block {
                    let Some(verdict) = self.verdict(file, node) else { continue };
                    if !self.treat(file, node, verdict) {
                        blocks.push(node.children());
                    }
                }
            }
        }
    }

    fn verdict(&self, file: usize, node: &Node) -> Option<&'a Classification> {
        let Survey { files, directives, .. } = self.survey;
        let of_file = &files[file].directives;
        let at = of_file.binary_search_by_key(&node.span.start, |n| directives[*n].start).ok()?;
        Some(&directives[of_file[at]].verdict)
    }

    /// Whether a directive was edited, with all that is in its block.
    fn treat(&mut self, file: usize, node: &Node, verdict: &Classification) -> bool {
        let module = &verdict.module;
        let why = match verdict.class {
            Class::Missing => format!("{module}: {}", verdict.note),
            _ if node.name == "load_module" => verdict.note.to_string(),
            _ => format!("{module} is missing: {}", verdict.note),
        };
        match verdict.treatment {
            Treatment::Keep => {
                if !verdict.class.works() && verdict.note != "stands in a block that is missing" {
                    self.done.left.push(self.survey.place(file, node.span.line));
                }
                return false;
            }
            Treatment::Instead(instead) => {
                let why = format!("{why}; requests are refused until it is replaced");
                self.comment(file, node, &why, Some(instead.as_bytes()));
            }
            Treatment::Rename(other) if node.close.is_none() => {
                let text = &self.survey.files[file].text;
                let rest = &text[node.name.span.end as usize..node.span.end as usize];
                self.comment(file, node, &why, Some(&[other.as_bytes(), rest].concat()));
            }
            // The other directive has no block.
            Treatment::Remove | Treatment::Rename(_) => self.comment(file, node, &why, None),
        }
        true
    }

    /// Turns a directive into a comment.
    fn comment(&mut self, file: usize, node: &Node, why: &str, instead: Option<&[u8]>) {
        let text = &self.survey.files[file].text;
        let end = node.close.map_or(node.span.end, |close| close.end) as usize;
        let edit = comment(text, node.span.start as usize, end, &printable(why), instead);
        self.edits[file].push(edit);
        self.done.removed += 1;
        self.done.added += usize::from(instead.is_some());
    }

    /// Edits includes, so that they point into the copy.
    fn includes(&mut self) {
        let mut rewritten = vec![false; self.survey.includes.len()];
        for (index, include) in self.survey.includes.iter().enumerate() {
            rewritten[index] = self.lead_inside(include);
        }
        // A file from outside is copied if it changes, and with it all that an include finds; that
        // changes the including file.
        loop {
            let mut changed = false;
            for (index, include) in self.survey.includes.iter().enumerate() {
                if rewritten[index] || !self.comes_along(include) {
                    continue;
                }
                rewritten[index] = true;
                let found = include.found.iter().map(|(_, path)| path.as_path());
                let pattern = Path::new(OsStr::from_bytes(&include.path));
                if !found.chain([pattern]).all(is_straight) {
                    let place = self.survey.place(include.file, include.word.span.line);
                    self.done.left.push(place);
                    continue;
                }
                changed = true;
                for (file, path) in &include.found {
                    if matches!(self.place_of(path), CopyTarget::Outside) {
                        self.outside.insert((*file, path.clone()));
                    }
                }
                let relative = !include.word.text.starts_with(b"/");
                let mut insert = self.outside_name.clone().into_bytes();
                if relative {
                    let prefix = include.path.len() - include.word.text.len();
                    insert.extend_from_slice(&include.path[..prefix]);
                }
                self.edit_word(include, 0, &insert);
            }
            if !changed {
                return;
            }
        }
    }

    /// Whether the files of an include have to be copied from outside.
    fn comes_along(&self, include: &Include) -> bool {
        include.found.iter().any(|(file, path)| {
            !self.edits[*file].is_empty() && matches!(self.place_of(path), CopyTarget::Outside)
        })
    }

    /// Makes the full path of an include relative, if it points into the original's directory.
    fn lead_inside(&mut self, include: &Include) -> bool {
        let word = &include.word.text;
        if !word.starts_with(b"/") {
            return false;
        }
        let outside =
            |(_, path): &(usize, PathBuf)| matches!(self.place_of(path), CopyTarget::Outside);
        if include.found.iter().any(outside) {
            return false;
        }
        let roots = [self.root, &self.real_root];
        let Some(length) = roots.iter().find_map(|root| below(word, root)) else { return false };
        // A directory found later might be another one.
        if !is_straight(Path::new(OsStr::from_bytes(&word[length..]))) {
            return false;
        }
        self.edit_word(include, length, b"");
        true
    }

    /// Replaces the first bytes of an include's argument. Nothing happens if these are escaped.
    fn edit_word(&mut self, include: &Include, drop: usize, insert: &[u8]) {
        let Word { span, quoted, text } = &include.word;
        let start = span.start as usize + usize::from(*quoted);
        let raw = &self.survey.files[include.file].text;
        if raw.get(start..start + drop) == Some(&text[..drop]) {
            self.edits[include.file].push(Edit { start, end: start + drop, text: insert.to_vec() });
        } else {
            self.done.left.push(self.survey.place(include.file, span.line));
        }
    }

    fn place_of(&self, path: &Path) -> CopyTarget {
        let parent = self.source.real(path.parent().unwrap_or(Path::new("/")));
        match (parent.strip_prefix(&self.real_root), path.file_name()) {
            (Ok(below), Some(name)) => CopyTarget::Inside(below.join(name)),
            _ => CopyTarget::Outside,
        }
    }

    /// Decides where the changed files are written.
    fn place(&mut self) {
        for index in 0..self.survey.files.len() {
            let file = &self.survey.files[index];
            let known = self.outside.range((index, PathBuf::new())..(index + 1, PathBuf::new()));
            let outside: Vec<PathBuf> = known.map(|(_, path)| path.clone()).collect();
            let edits = std::mem::take(&mut self.edits[index]);
            let changed = !edits.is_empty();
            let mut paths = BTreeSet::new();
            if changed && let Ok(below) = file.real.strip_prefix(&self.real_root) {
                paths.insert(below.to_owned());
            } else if changed {
                // Links to files elsewhere are replaced by their changed contents.
                for spelling in &file.spellings {
                    if let CopyTarget::Inside(path) = self.place_of(spelling) {
                        paths.insert(path);
                    }
                }
            }
            paths.extend(outside.iter().filter(|path| is_straight(path)).map(|path| {
                Path::new(&self.outside_name).join(path.strip_prefix("/").unwrap_or(path))
            }));
            if paths.is_empty() {
                continue;
            }
            let text = apply(&file.text, edits);
            for path in paths {
                self.done.files.push(Placement {
                    path,
                    original: file.path.clone(),
                    text: text.clone(),
                });
            }
        }
    }
}

/// A name that nothing in the original's directory has: what stands there is copied under its own name,
/// and may be a link.
fn outside_name(source: &dyn ConfigSource, root: &Path) -> String {
    let numbered = (1_u32..).map(|n| format!("{OUTSIDE}-{n}"));
    let mut names = std::iter::once(OUTSIDE.to_owned()).chain(numbered);
    names.find(|name| !source.exists(&root.join(name))).expect("a directory has fewer entries")
}

/// Whether a path never goes up.
fn is_straight(path: &Path) -> bool {
    !path.components().any(|component| component == Component::ParentDir)
}

/// The length of `root/` at the beginning of a path.
fn below(path: &[u8], root: &Path) -> Option<usize> {
    let root = root.as_os_str().as_bytes();
    let rest = path.strip_prefix(root)?;
    let slashes = rest.iter().take_while(|byte| **byte == b'/').count();
    (slashes > 0 && rest.len() > slashes).then_some(root.len() + slashes)
}

/// The bytes before a directive in which the beginning of its line is looked for. Beyond that, comments are not
/// indented: long lines would be read, and wide indentation written, again for each directive.
const INDENT_BYTES_MAX: usize = 200;

/// Whether a byte separates words, within a line. Others that are white space elsewhere belong to words.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// The blanks that a line begins with, and whether nothing else is before `start`.
fn indentation(text: &[u8], start: usize) -> (&[u8], bool) {
    let blanks = text[..start].iter().rev().take_while(|byte| is_blank(**byte)).count();
    let alone = matches!(text[..start - blanks].last(), None | Some(b'\n'));
    let from = start.saturating_sub(INDENT_BYTES_MAX);
    let line_start = match text[from..start].iter().rposition(|byte| *byte == b'\n') {
        Some(at) => from + at + 1,
        None if from == 0 => 0,
        None => return (b"", alone),
    };
    let length = text[line_start..start].iter().take_while(|byte| is_blank(**byte)).count();
    (&text[line_start..line_start + length], alone)
}

/// Turns the bytes from `start` to `end` into a comment, on lines of its own.
fn comment(text: &[u8], start: usize, end: usize, why: &str, instead: Option<&[u8]>) -> Edit {
    let (indent, alone) = indentation(text, start);
    let mut rest = text[end..].iter().filter(|byte| !is_blank(**byte));
    let next = rest.next();
    let mut out = Vec::new();
    if !alone {
        out.push(b'\n');
        out.extend_from_slice(indent);
    }
    out.extend_from_slice(b"# nowait: ");
    out.extend_from_slice(why.as_bytes());
    for line in text[start..end].split(|byte| *byte == b'\n') {
        out.push(b'\n');
        out.extend_from_slice(indent);
        out.extend_from_slice(b"# ");
        out.extend_from_slice(line.strip_prefix(indent).unwrap_or(line));
    }
    if let Some(instead) = instead {
        out.push(b'\n');
        out.extend_from_slice(indent);
        out.extend_from_slice(instead);
    }
    if !matches!(next, None | Some(b'\n' | b'#')) {
        out.push(b'\n');
        out.extend_from_slice(indent);
    }
    Edit { start, end, text: out }
}

/// The text with all edits.
fn apply(text: &[u8], mut edits: Vec<Edit>) -> Vec<u8> {
    edits.sort_by_key(|edit| edit.start);
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    for edit in edits {
        // Text within a comment is not edited again.
        if edit.start < at {
            continue;
        }
        out.extend_from_slice(&text[at..edit.start]);
        out.extend_from_slice(&edit.text);
        at = edit.end;
    }
    out.extend_from_slice(&text[at..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_stand_on_lines_of_their_own() {
        let check = |text: &str, what: &str, instead: Option<&str>, expected: &str| {
            let start = text.find(what).unwrap();
            let instead = instead.map(str::as_bytes);
            let edit = comment(text.as_bytes(), start, start + what.len(), "why", instead);
            let out = apply(text.as_bytes(), vec![edit]);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        };
        check("a;\n  b c;\nd;\n", "b c;", None, "a;\n  # nowait: why\n  # b c;\nd;\n");
        check("  a; b; c;\n", "b;", None, "  a; \n  # nowait: why\n  # b;\n   c;\n");
        check("\x0ca; b;\n", "b;", Some("d;"), "\x0ca; \n# nowait: why\n# b;\nd;\n");
        check("b; # x\n", "b;", Some("d;"), "# nowait: why\n# b;\nd; # x\n");
        check(
            "\tb {\n\t\tx;\n\t}",
            "b {\n\t\tx;\n\t}",
            None,
            "\t# nowait: why\n\t# b {\n\t# \tx;\n\t# }",
        );
        check("l { b; }\n", "b;", Some("d;"), "l { \n# nowait: why\n# b;\nd;\n }\n");
    }

    /// Reading the line, or writing its indentation, again for each directive would take hours.
    #[test]
    fn directives_of_one_long_line() {
        const COUNT: usize = 200_000;
        let text = [" ".repeat(1 << 20), "a;".repeat(COUNT)].concat().into_bytes();
        let starts = (0..COUNT).map(|n| (1 << 20) + 2 * n);
        let edits: Vec<Edit> =
            starts.map(|start| comment(&text, start, start + 2, "why", None)).collect();
        let out = apply(&text, edits);
        assert!(out.len() < text.len() + 32 * COUNT, "{}", out.len());
    }

    #[test]
    fn overlapping_edits_are_dropped() {
        let edit = |start, end, text: &str| Edit { start, end, text: text.into() };
        assert_eq!(apply(b"abcdef", vec![edit(4, 5, "Y"), edit(1, 5, "X")]), b"aXf");
    }
}
