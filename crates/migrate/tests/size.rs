//! Large configurations: the time is proportional to their size.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use nowait_conf::{Cx, Diagnostic, Node, Registry, Words, directives, rows};
use nowait_migrate::{Adaptation, ConfigSource, Survey};

directives! {
    #[allow(dead_code)]
    module "core";
    struct Conf with ConfLayer;

    listen: Vec<Words>, in SERVER, args "address";
    server_name: Vec<Words>, in SERVER, args "name ...";
}

rows! {
    static BLOCKS, module "core";

    block "http" => ignored, in MAIN, take none(), args "{ ... }";
    block "server" => ignored, in HTTP, take none(), args "{ ... }";
}

fn ignored(_: &mut Cx<'_>, _: &Node) -> Result<(), Diagnostic> {
    Ok(())
}

/// Files by their paths.
struct Files(HashMap<PathBuf, String>);

impl ConfigSource for Files {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let text = self.0.get(path).ok_or(io::ErrorKind::NotFound)?;
        Ok(text.clone().into_bytes())
    }

    fn glob(&self, _: &[u8]) -> io::Result<Vec<PathBuf>> {
        Ok(Vec::new())
    }

    fn real(&self, path: &Path) -> PathBuf {
        path.to_owned()
    }

    fn exists(&self, _: &Path) -> bool {
        false
    }

    fn has_built_in(&self, _: &Path) -> bool {
        false
    }
}

fn survey(files: &[(&str, String)]) -> (Survey, Files) {
    let files = files.iter().map(|(path, text)| (PathBuf::from(path), text.clone()));
    let source = Files(files.collect());
    let registry = Registry::new(&[Conf::ROWS, BLOCKS]);
    (Survey::take(&source, &registry, Path::new("/nginx.conf")).unwrap(), source)
}

/// The directives of each site, its included files among them, are not looked for in all others.
#[test]
fn many_sites() {
    const SITES: usize = 50_000;
    let servers = "server { listen 80; include names; }\n".repeat(SITES);
    // Without names, which are kept for each site.
    let names = "server_name;\n".repeat(SITES);
    let (survey, source) =
        survey(&[("/nginx.conf", format!("http {{\n{servers}}}")), ("/names", names)]);
    let value = survey.json();
    let sites = value["sites"].as_array().unwrap();
    assert_eq!(sites.len(), SITES);
    assert!(sites.iter().all(|site| site["directives"]["all"] == SITES + 2));
    assert!(survey.report().contains("\n  and 49600 more\n"));
    assert!(Adaptation::plan(&survey, &source, Path::new("/")).files.is_empty());
}
