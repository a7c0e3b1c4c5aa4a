//! `cargo xtask features`: the program with none of its Cargo features, and with each alone.
//!
//! Only checks that it compiles without warnings; with all features, the other steps build it.

use crate::workspace::{Outcome, cargo, root, succeed};

/// Where the features are declared.
const MANIFEST: &str = "crates/server/Cargo.toml";

/// Checks all of them.
pub fn run(args: &[String]) -> Outcome {
    if let Some(arg) = args.first() {
        return Err(format!("unknown option \"{arg}\""));
    }
    let manifest = std::fs::read_to_string(root().join(MANIFEST))
        .map_err(|error| format!("{MANIFEST}: {error}"))?;
    let names = declared(&manifest);
    if names.is_empty() {
        return Err(format!("{MANIFEST} declares no features"));
    }
    let check = |feature: Option<&str>| {
        let mut command = cargo();
        command.args(["clippy", "--locked", "-p", "nowait", "--no-default-features"]);
        if let Some(name) = feature {
            command.args(["--features", name]);
        }
        succeed(command.args(["--", "-D", "warnings"]))
    };
    check(None)?;
    names.into_iter().try_for_each(|name| check(Some(name)))
}

/// The features of a manifest, but for the list of those that are on by default.
fn declared(manifest: &str) -> Vec<&str> {
    let lines = manifest.lines().skip_while(|line| *line != "[features]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| Some(line.split_once(" = [")?.0));
    names.filter(|name| *name != "default").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_found_in_their_section() {
        let manifest = "[lints]\nx = [1]\n\n[features]\ndefault = [\"a\"]\n# Text.\na = []\n\
                        b-c = [\"dep:d\"]\n\n[dependencies]\ne = [1]\n";
        assert_eq!(declared(manifest), ["a", "b-c"]);
    }
}
