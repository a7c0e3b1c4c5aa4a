//! A survey as JSON, for tools. Called by `nowait migrate --json`.

use serde_json::{Value, json};

use crate::class::Class;
use crate::report::ClassTotals;
use crate::survey::{Directive, Remark, Survey};

impl Survey {
    /// The whole survey. Directives that run are only counted; all others are listed, up to
    /// [`Survey::LISTED_MAX`].
    pub fn json(&self) -> Value {
        let files = self.files.iter().map(|file| {
            let syntax = file.syntax.iter();
            let syntax = syntax.map(|(line, message)| json!({"line": line, "message": message}));
            json!({
                "path": file.path.to_string_lossy(),
                "directives": self.of_file(file).json(),
                "entries": file.entries,
                "syntax_errors": file.syntax_errors,
                "syntax": syntax.collect::<Vec<_>>(),
            })
        });
        let sites = self.of_sites().map(|(site, totals)| {
            json!({
                "kind": if site.stream { "stream" } else { "http" },
                "names": site.names,
                "listens": site.listens,
                "file": self.files[site.file].path.to_string_lossy(),
                "line": site.line,
                "directives": totals.json(),
            })
        });
        let modules = self.modules();
        let modules = modules
            .iter()
            .map(|(module, totals)| json!({"module": module, "directives": totals.json()}));
        let listed = self.directives().filter(|directive| directive.class() != Class::Runs);
        let listed = listed.take(Self::LISTED_MAX).map(|directive| self.directive_json(directive));
        let others = self.totals().all() - self.totals().get(Class::Runs);
        let not_listed = others.saturating_sub(Self::LISTED_MAX);
        json!({
            "configuration": self.main.to_string_lossy(),
            "runs": self.works(),
            "directives": self.totals().json(),
            "findings": listed.collect::<Vec<_>>(),
            "not_listed": not_listed,
            "unread": list(&self.unread),
            "unread_not_listed": self.unread_more,
            "check": list(&self.remarks),
            "warnings": list(&self.warnings),
            "sites": sites.collect::<Vec<_>>(),
            "files": files.collect::<Vec<_>>(),
            "modules": modules.collect::<Vec<_>>(),
        })
    }

    /// Directives that are listed one by one in JSON.
    pub const LISTED_MAX: usize = 10_000;

    fn directive_json(&self, directive: &Directive) -> Value {
        let verdict = &directive.verdict;
        let optional = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        json!({
            "file": self.files[directive.file].path.to_string_lossy(),
            "line": directive.line,
            "directive": directive.name,
            "class": directive.class().name(),
            "module": verdict.module,
            "note": optional(&verdict.note),
            "substitute": optional(&verdict.substitute),
            "protects": verdict.protects,
        })
    }
}

impl ClassTotals {
    fn json(&self) -> Value {
        let mut value = json!({"all": self.all()});
        for class in Class::ALL {
            value[class.name()] = self.get(class).into();
        }
        value
    }
}

fn list(remarks: &[Remark]) -> Vec<Value> {
    let one = |remark: &Remark| json!({"place": remark.place, "message": remark.message});
    remarks.iter().map(one).collect()
}
