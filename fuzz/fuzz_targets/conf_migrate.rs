//! Moving a configuration: any text is judged and reported without a panic, every directive once; an adapted
//! copy of a text that can be read can be read, and needs no further change.
//!
//! Input: a main file, a zero byte, and a second file `inc.conf` that it may include.
#![no_main]

use std::io;
use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use nowait_conf::{Cx, Diagnostic, Node, Registry, parse_text, rows};
use nowait_migrate::{Adaptation, Class, ConfigSource, Survey};

rows! {
    static ROWS, module "core";

    block "http" => ignored, in MAIN, take any(), args "";
    block "server" => ignored, in HTTP, take any(), args "";
    block "location" => ignored, in SERVER | LOCATION, take any(), args "";
    block "if" => ignored, in SERVER | LOCATION, take any(), args "";
    block "types" => ignored, in ANY, take any(), args "";
    "return" => ignored, in SERVER | SERVER_IF | LOCATION | LOCATION_IF, take any(), args "";
    "listen" => ignored, in SERVER, take any(), args "";
    "server_name" => ignored, in SERVER, take any(), args "";
    "autoindex" => ignored, in ANY, take any(), args "";
    "add_header" => ignored, in ANY, take any(), args "";
}

fn ignored(_: &mut Cx<'_>, _: &Node) -> Result<(), Diagnostic> {
    Ok(())
}

const MAIN: &str = "/etc/nginx.conf";
const INCLUDED: &str = "/etc/inc.conf";

struct Files<'t>(&'t [u8], &'t [u8]);

impl ConfigSource for Files<'_> {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some(MAIN) => Ok(self.0.to_vec()),
            Some(INCLUDED) => Ok(self.1.to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn glob(&self, _: &[u8]) -> io::Result<Vec<PathBuf>> {
        Ok(vec![INCLUDED.into()])
    }

    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn exists(&self, path: &Path) -> bool {
        self.read(path).is_ok()
    }

    fn has_built_in(&self, _: &Path) -> bool {
        false
    }
}

fuzz_target!(|data: &[u8]| {
    let mut files = data.splitn(2, |&b| b == 0);
    let main = files.next().unwrap_or_default();
    let included = files.next().unwrap_or_default();
    let adapted = adapt(main, included);
    let is_good = |text: &[u8]| parse_text(Path::new(MAIN), text).1.is_empty();
    if !is_good(main) || !is_good(included) {
        return;
    }
    let text = |name: &str, original: &[u8]| {
        let file = adapted.files.iter().find(|file| file.path == Path::new(name));
        file.map_or(original.to_vec(), |file| file.text.clone())
    };
    let (main, included) = (text("nginx.conf", main), text("inc.conf", included));
    assert!(is_good(&main) && is_good(&included));
    assert_eq!(adapt(&main, &included).removed, 0);
});

fn adapt(main: &[u8], included: &[u8]) -> Adaptation {
    let source = Files(main, included);
    let registry = Registry::new(&[ROWS]);
    let survey = Survey::take(&source, &registry, Path::new(MAIN)).expect("a small text");
    let report = survey.report();
    assert!(report.chars().all(|c| !c.is_control() || c == '\n'));
    let totals = survey.totals();
    assert_eq!(Class::ALL.iter().map(|class| totals.get(*class)).sum::<usize>(), totals.all());
    assert_eq!(survey.json()["directives"]["all"], totals.all());
    Adaptation::plan(&survey, &source, Path::new("/etc"))
}
