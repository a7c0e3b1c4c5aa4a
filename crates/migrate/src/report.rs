//! A survey as text for a terminal.
//!
//! Called by `nowait migrate`. Every directive is counted in the totals, in the line of its file and
//! in that of its module; those that do not simply run are named with their places.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::class::Class;
use crate::survey::{Directive, File, Remark, Site, Survey, printable};

/// Places that are listed for one directive, and lines for one list; more are counted.
const PLACES_MAX: usize = 8;
const LINES_MAX: usize = 40;

/// The number of directives of each class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClassTotals([usize; Class::ALL.len()]);

impl ClassTotals {
    pub(crate) fn of<'d>(directives: impl Iterator<Item = &'d Directive>) -> ClassTotals {
        let mut totals = ClassTotals::default();
        directives.for_each(|directive| totals.0[directive.class() as usize] += 1);
        totals
    }

    fn add(&mut self, other: &ClassTotals) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// The number of directives of this class.
    pub fn get(&self, class: Class) -> usize {
        self.0[class as usize]
    }

    /// The total number.
    pub fn all(&self) -> usize {
        self.0.iter().sum()
    }

    fn works(&self) -> usize {
        Class::ALL.iter().filter(|class| class.works()).map(|class| self.get(*class)).sum()
    }

    /// `2 missing, 1 refused`; empty if all works.
    fn problems(&self) -> String {
        let problems = Class::ALL.iter().filter(|class| !class.works());
        let problems = problems.filter(|class| self.get(**class) > 0);
        let texts = problems.map(|class| format!("{} {}", self.get(*class), adjective(*class)));
        texts.collect::<Vec<_>>().join(", ")
    }
}

fn adjective(class: Class) -> &'static str {
    match class {
        Class::Runs => "run",
        Class::NoEffect => "without effect",
        Class::Differs => "differ",
        Class::Refused => "refused",
        Class::Missing => "missing",
        Class::ThirdParty => "of missing third-party modules",
        Class::Lua => "in Lua",
        Class::Unknown => "unknown",
    }
}

fn sentence(class: Class) -> &'static str {
    match class {
        Class::Runs => "run as in nginx",
        Class::Differs => "run, with a difference",
        Class::NoEffect => "are accepted and have no effect here",
        Class::Refused => "exist, but are refused as they are written",
        Class::Missing => "are missing",
        Class::ThirdParty => "belong to third-party modules that nowait does not have",
        Class::Lua => "are blocks of Lua code",
        Class::Unknown => "are unknown",
    }
}

impl Survey {
    /// The number of directives of each class.
    pub fn totals(&self) -> ClassTotals {
        ClassTotals::of(self.directives.iter())
    }

    /// The totals of each module, by the module's name.
    pub(crate) fn modules(&self) -> BTreeMap<&str, ClassTotals> {
        let mut modules: BTreeMap<&str, ClassTotals> = BTreeMap::new();
        for directive in &self.directives {
            let totals = modules.entry(&directive.verdict.module).or_default();
            totals.0[directive.class() as usize] += 1;
        }
        modules
    }

    /// The totals of a file.
    pub(crate) fn of_file(&self, file: &File) -> ClassTotals {
        ClassTotals::of(file.directives.iter().map(|index| &self.directives[*index]))
    }

    /// The totals of every site, those of its files included.
    pub(crate) fn of_sites(&self) -> impl Iterator<Item = (&Site, ClassTotals)> {
        let files: Vec<ClassTotals> = self.files.iter().map(|file| self.of_file(file)).collect();
        self.sites.iter().map(move |site| {
            let mut totals = ClassTotals::of(self.of_site(site));
            site.includes.iter().for_each(|file| totals.add(&files[*file]));
            (site, totals)
        })
    }

    /// The whole report.
    pub fn report(&self) -> String {
        let mut out = String::new();
        let totals = self.totals();
        let entries: usize = self.files.iter().map(|file| file.entries).sum();
        let main = printable(&self.main.to_string_lossy());
        // Writing to a string cannot fail.
        let _ = writeln!(
            out,
            "{main}: {}, {}, and {} of maps and the like\n",
            count(self.files.len(), "file", "files"),
            count(totals.all(), "directive", "directives"),
            count(entries, "entry", "entries"),
        );
        for class in Class::ALL {
            if totals.get(class) > 0 {
                let _ = writeln!(out, "{:>8}  {}", totals.get(class), sentence(class));
            }
        }
        self.unreadable(&mut out);
        self.protection(&mut out);
        for class in [Class::Missing, Class::ThirdParty, Class::Lua, Class::Unknown] {
            self.absent(class, &mut out);
        }
        self.refusals(&mut out);
        self.differences(&mut out);
        remarks(&mut out, "Warnings of the check", &self.warnings, 0);
        self.sites_text(&mut out);
        self.files_text(&mut out);
        self.modules_text(&mut out);
        out
    }

    fn unreadable(&self, out: &mut String) {
        remarks(out, "Not read", &self.unread, self.unread_more);
        let broken: Vec<&File> = self.files.iter().filter(|file| file.syntax_errors > 0).collect();
        if broken.is_empty() {
            return;
        }
        out.push_str("\nErrors of syntax (the directives around them may be judged wrongly)\n");
        for file in broken.iter().take(LINES_MAX) {
            for (line, message) in &file.syntax {
                let _ = writeln!(out, "  {}:{line}: {message}", self.shown(&file.path));
            }
            let more = file.syntax_errors - file.syntax.len();
            if more > 0 {
                let _ = writeln!(out, "  {}: and {more} more", self.shown(&file.path));
            }
        }
        more(out, broken.len());
    }

    fn protection(&self, out: &mut String) {
        let lost: Vec<_> =
            self.directives().filter(|directive| directive.verdict.protects).collect();
        if lost.is_empty() {
            return;
        }
        out.push_str("\nProtection that would be lost: decide about these first\n");
        for directive in lost.iter().take(LINES_MAX) {
            let place = self.place(directive.file, directive.line);
            let note = &directive.verdict.note;
            let _ = writeln!(out, "  {place}: {}: {}", directive.name, printable(note));
        }
        more(out, lost.len());
    }

    /// The missing directives, by module.
    fn absent(&self, class: Class, out: &mut String) {
        let mut modules: BTreeMap<&str, Vec<&Directive>> = BTreeMap::new();
        for directive in self.directives().filter(|directive| directive.class() == class) {
            modules.entry(&directive.verdict.module).or_default().push(directive);
        }
        if modules.is_empty() {
            return;
        }
        let title = match class {
            Class::Missing => "Missing",
            Class::ThirdParty => "Third-party modules",
            Class::Lua => "Lua",
            _ => "Unknown",
        };
        let _ = writeln!(out, "\n{title}");
        for (module, directives) in modules {
            let _ = writeln!(out, "  {module}");
            let mut notes: Vec<&str> = Vec::new();
            for directive in &directives {
                let verdict = &directive.verdict;
                if !notes.contains(&&*verdict.note) && notes.len() < PLACES_MAX {
                    notes.push(&verdict.note);
                    let _ = writeln!(out, "    consequence: {}", printable(&verdict.note));
                    if !verdict.substitute.is_empty() {
                        let _ = writeln!(out, "    substitute:  {}", verdict.substitute);
                    }
                }
            }
            let mut names: BTreeMap<&str, Vec<String>> = BTreeMap::new();
            for directive in &directives {
                let places = names.entry(&directive.name).or_default();
                places.push(self.place(directive.file, directive.line));
            }
            for (name, places) in names.iter().take(LINES_MAX) {
                let _ = writeln!(out, "      {name}: {}", list(places));
            }
            more_at(out, "      ", names.len());
        }
    }

    fn refusals(&self, out: &mut String) {
        let refused: Vec<_> =
            self.directives().filter(|directive| directive.class() == Class::Refused).collect();
        if !refused.is_empty() {
            out.push_str("\nRefused as they are written\n");
            for directive in refused.iter().take(LINES_MAX) {
                let place = self.place(directive.file, directive.line);
                let note = printable(&directive.verdict.note);
                let _ = writeln!(out, "  {place}: {}: {note}", directive.name);
            }
            more(out, refused.len());
        }
        remarks(out, "The check also says", &self.remarks, 0);
    }

    fn differences(&self, out: &mut String) {
        let mut notes: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        for directive in self.directives().filter(|directive| directive.class() == Class::Differs) {
            let places = notes.entry((&directive.name, &directive.verdict.note)).or_default();
            places.push(self.place(directive.file, directive.line));
        }
        if notes.is_empty() {
            return;
        }
        out.push_str("\nDifferences\n");
        for ((name, note), places) in notes.iter().take(LINES_MAX) {
            let _ = writeln!(out, "  {name}: {note}\n      {}", list(places));
        }
        more(out, notes.len());
    }

    fn sites_text(&self, out: &mut String) {
        if self.sites.is_empty() {
            return;
        }
        let _ = writeln!(out, "\nSites");
        for (site, totals) in self.of_sites().take(LINES_MAX * 10) {
            let outcome = match totals.problems() {
                problems if problems.is_empty() => "runs".to_owned(),
                problems => problems,
            };
            let _ = writeln!(
                out,
                "  {} on {} ({}): {}, {outcome}",
                site.title(),
                site.addresses(),
                self.place(site.file, site.line),
                count(totals.all(), "directive", "directives"),
            );
        }
        if self.sites.len() > LINES_MAX * 10 {
            let _ = writeln!(out, "  and {} more", self.sites.len() - LINES_MAX * 10);
        }
    }

    fn files_text(&self, out: &mut String) {
        out.push_str("\nFiles\n");
        let mut shown = 0;
        for file in &self.files {
            let totals = self.of_file(file);
            let problems = totals.problems();
            if shown >= LINES_MAX && problems.is_empty() {
                continue;
            }
            if shown >= LINES_MAX * 10 {
                break;
            }
            shown += 1;
            let all = count(totals.all(), "directive", "directives");
            let outcome = if problems.is_empty() { "all run".to_owned() } else { problems };
            let _ = writeln!(out, "  {}: {all}, {outcome}", self.shown(&file.path));
        }
        if shown < self.files.len() {
            let _ = writeln!(out, "  and {} more", self.files.len() - shown);
        }
    }

    fn modules_text(&self, out: &mut String) {
        let modules = self.modules();
        let width = modules.keys().map(|name| name.chars().count()).max().unwrap_or(0).max(6);
        let _ =
            writeln!(out, "\n{:<width$}  directives    run  differ  without effect  not", "Module");
        for (module, totals) in &modules {
            let _ = writeln!(
                out,
                "{module:<width$}  {:>10}  {:>5}  {:>6}  {:>14}  {:>3}",
                totals.all(),
                totals.get(Class::Runs),
                totals.get(Class::Differs),
                totals.get(Class::NoEffect),
                totals.all() - totals.works(),
            );
        }
    }
}

impl Site {
    /// The names.
    pub(crate) fn title(&self) -> String {
        match (self.names.is_empty(), self.stream) {
            (true, true) => "(stream)".to_owned(),
            (true, false) => "(no name)".to_owned(),
            (false, _) => list(&self.names).replace(", ", " "),
        }
    }

    /// The addresses.
    pub(crate) fn addresses(&self) -> String {
        if self.listens.is_empty() { "port 80".to_owned() } else { list(&self.listens) }
    }
}

fn remarks(out: &mut String, title: &str, remarks: &[Remark], not_kept: usize) {
    if remarks.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for Remark { place, message } in remarks.iter().take(LINES_MAX) {
        let _ = match place.is_empty() {
            true => writeln!(out, "  {message}"),
            false => writeln!(out, "  {place}: {message}"),
        };
    }
    more(out, remarks.len() + not_kept);
}

fn more(out: &mut String, length: usize) {
    more_at(out, "  ", length);
}

fn more_at(out: &mut String, indent: &str, length: usize) {
    if length > LINES_MAX {
        let _ = writeln!(out, "{indent}and {} more; \"--json\" lists all", length - LINES_MAX);
    }
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn list(items: &[String]) -> String {
    let mut text = items[..items.len().min(PLACES_MAX)].join(", ");
    if items.len() > PLACES_MAX {
        let _ = write!(text, " and {} more", items.len() - PLACES_MAX);
    }
    text
}
