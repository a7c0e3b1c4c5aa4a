//! The libraries that the program contains: found by asking cargo, and in `Cargo.lock`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::workspace::{cargo, output, root};

/// A library of others that the program contains.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Library {
    pub(super) name: String,
    pub(super) version: String,
    /// As an expression of SPDX.
    pub(super) license: String,
    pub(super) repository: String,
    /// SHA-256 of the package, as `Cargo.lock` has it.
    pub(super) checksum: String,
    /// What it needs of the others, by [`Library::id`].
    pub(super) needs: Vec<String>,
}

impl Library {
    /// Name and version, which together are unique.
    pub(super) fn id(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// The libraries in the program for `target`, and those of them that our own crates need.
pub(super) struct Libraries {
    pub(super) all: Vec<Library>,
    pub(super) direct: Vec<String>,
}

impl Libraries {
    /// Asks cargo.
    pub(super) fn of(target: &str) -> Result<Libraries, String> {
        let mut tree = cargo();
        // What only runs in the compiler is not part of the program.
        tree.args(["tree", "--locked", "-p", "nowait", "--edges", "normal,no-proc-macro"]);
        tree.args(["--target", target, "--prefix", "none", "--format", "{p}|{l}|{r}"]);
        let tree = String::from_utf8_lossy(&output(&mut tree)?).into_owned();
        let lock = root().join("Cargo.lock");
        let lock = fs::read_to_string(&lock).map_err(|error| format!("Cargo.lock: {error}"))?;
        Libraries::parse(&tree, &lock)
    }

    fn parse(tree: &str, lock: &str) -> Result<Libraries, String> {
        let packages = packages(lock);
        let mut listed = BTreeMap::new();
        for line in tree.lines() {
            let mut columns = line.split('|');
            let mut words = columns.next().unwrap_or_default().split(' ');
            let (Some(name), Some(version)) = (words.next(), words.next()) else { continue };
            let id = format!("{name}@{}", version.trim_start_matches('v'));
            // Since the first lists of licences, "/" has stood for "OR".
            let license = columns.next().unwrap_or_default().trim_end_matches(" (*)");
            let repository = columns.next().unwrap_or_default().trim_end_matches(" (*)");
            listed.insert(id, (license.replace('/', " OR "), repository.to_owned()));
        }
        let mut libraries = Libraries { all: Vec::new(), direct: Vec::new() };
        for (id, (license, repository)) in &listed {
            let package = packages.iter().find(|package| package.id() == *id);
            let package = package.ok_or_else(|| format!("Cargo.lock lacks {id}"))?;
            let needs = package.needs.iter().filter_map(|need| resolve(need, &packages));
            let needs: Vec<_> = needs
                .filter(|need| listed.contains_key(&need.id()) && !need.checksum.is_empty())
                .map(Library::id)
                .collect();
            if package.checksum.is_empty() {
                // One of our own.
                libraries.direct.extend(needs);
                continue;
            }
            libraries.all.push(Library {
                name: package.name.clone(),
                version: package.version.clone(),
                license: license.clone(),
                repository: repository.clone(),
                checksum: package.checksum.clone(),
                needs,
            });
        }
        libraries.direct.sort();
        libraries.direct.dedup();
        Ok(libraries)
    }
}

/// The packages of `Cargo.lock`; what they need as written there: `name`, or `name version`.
fn packages(lock: &str) -> Vec<Library> {
    let mut packages = Vec::new();
    for part in lock.split("[[package]]").skip(1) {
        let mut package = Library::default();
        for line in part.lines() {
            let line = line.trim();
            let value = |key: &str| {
                let value = line.strip_prefix(key)?.trim_start().strip_prefix('=')?;
                Some(value.trim().trim_matches('"').to_owned())
            };
            if let Some(name) = value("name") {
                package.name = name;
            } else if let Some(version) = value("version") {
                package.version = version;
            } else if let Some(checksum) = value("checksum") {
                package.checksum = checksum;
            } else if let Some(need) = line.strip_prefix('"') {
                package.needs.push(need.trim_end_matches(['"', ',']).to_owned());
            }
        }
        packages.push(package);
    }
    packages
}

fn resolve<'a>(need: &str, packages: &'a [Library]) -> Option<&'a Library> {
    let mut words = need.split(' ');
    let name = words.next()?;
    let version = words.next();
    packages.iter().find(|package| {
        package.name == name && version.is_none_or(|version| package.version == version)
    })
}

/// The licences and notices of the libraries, one after another.
pub(super) fn notices(libraries: &[Library]) -> Result<String, String> {
    let metadata = output(cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
    let metadata = String::from_utf8_lossy(&metadata);
    let folders: Vec<&Path> = metadata
        .split("\"manifest_path\":\"")
        .skip(1)
        .filter_map(|rest| Path::new(rest.split_once('"')?.0).parent())
        .collect();
    let mut text = String::from(
        "The program contains the standard library of Rust (MIT OR Apache-2.0,\n\
         https://github.com/rust-lang/rust) and these libraries.\n",
    );
    for library in libraries {
        let Library { name, version, license, repository, .. } = library;
        text.push_str(&format!("\n{}\n{name} {version}\n{license}\n", "=".repeat(80)));
        if !repository.is_empty() {
            text.push_str(&format!("{repository}\n"));
        }
        let folder = format!("{name}-{version}");
        let folder = folders.iter().find(|path| path.ends_with(&folder));
        let folder = folder.ok_or_else(|| format!("cargo metadata lacks {name} {version}"))?;
        let mut files = Vec::new();
        find_notices(folder, 2, &mut files)?;
        files.sort();
        for file in files {
            let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let name = file.strip_prefix(folder).unwrap_or(&file).display();
            text.push_str(&format!("\n--- {name}\n\n"));
            text.push_str(String::from_utf8_lossy(&bytes).trim_end());
            text.push('\n');
        }
    }
    Ok(text)
}

/// Files with licences in a folder, and in those inside it: libraries of C are in one of their own.
fn find_notices(folder: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), String> {
    const NAMES: [&str; 6] = ["license", "licence", "copying", "copyright", "notice", "unlicense"];
    let read = |error| format!("{}: {error}", folder.display());
    for entry in fs::read_dir(folder).map_err(read)? {
        let path = entry.map_err(read)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        let is_text = !name.ends_with(".rs") && !name.ends_with(".py");
        if path.is_dir() && depth > 0 {
            find_notices(&path, depth - 1, found)?;
        } else if path.is_file() && is_text && NAMES.iter().any(|known| name.starts_with(known)) {
            found.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_those_of_the_tree_with_what_the_lock_says() {
        let tree = "\
own v0.1.0 (/somewhere/own)|Apache-2.0|
a v1.0.0|MIT/Apache-2.0|https://a.example
b v2.0.1|ISC|https://b.example
own-part v0.1.0 (/somewhere/part)|Apache-2.0| (*)
";
        let lock = r#"version = 4

[[package]]
name = "a"
version = "1.0.0"
source = "registry"
checksum = "aa"
dependencies = [
 "b 2.0.1",
 "c",
]

[[package]]
name = "b"
version = "1.0.0"
checksum = "b1"

[[package]]
name = "b"
version = "2.0.1"
checksum = "b2"

[[package]]
name = "c"
version = "3.0.0"
checksum = "cc"

[[package]]
name = "own"
version = "0.1.0"
dependencies = [
 "a",
 "own-part",
]

[[package]]
name = "own-part"
version = "0.1.0"
dependencies = [
 "a",
]
"#;
        let libraries = Libraries::parse(tree, lock).unwrap();
        let ids: Vec<_> = libraries.all.iter().map(Library::id).collect();
        assert_eq!(ids, ["a@1.0.0", "b@2.0.1"]);
        assert_eq!(libraries.direct, ["a@1.0.0"]);
        let a = &libraries.all[0];
        assert_eq!((a.license.as_str(), a.checksum.as_str()), ("MIT OR Apache-2.0", "aa"));
        assert_eq!(a.needs, ["b@2.0.1"]);
        assert_eq!(libraries.all[1].checksum, "b2");
        assert!(Libraries::parse("d v1.0.0|MIT|", lock).is_err());
    }
}
