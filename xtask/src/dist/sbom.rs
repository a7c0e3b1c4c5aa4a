//! The bill of materials of the program, in CycloneDX's JSON (<https://cyclonedx.org/docs/1.5/json/>).

use std::fmt::Write;

use super::libraries::{Libraries, Library};

/// The program that the bill is for.
pub(super) struct Subject<'a> {
    pub(super) version: &'a str,
    /// The processor and system.
    pub(super) target: &'a str,
    /// SHA-256, hexadecimal.
    pub(super) digest: &'a str,
    /// When its source was committed, in the form of RFC 3339.
    pub(super) time: &'a str,
    /// The version of the compiler, which is that of Rust's library.
    pub(super) rust: &'a str,
}

/// The bill.
pub(super) fn bill(subject: &Subject<'_>, libraries: &Libraries) -> String {
    let Subject { version, target, digest, time, rust } = subject;
    let program = format!("nowait@{version}");
    let standard = format!("std@{rust}");
    let mut components = vec![format!(
        r#"{{"type":"library","bom-ref":{},"name":"std","version":{},"licenses":[{{"expression":"MIT OR Apache-2.0"}}],"purl":{}}}"#,
        quoted(&standard),
        quoted(rust),
        quoted(&format!("pkg:github/rust-lang/rust@{rust}")),
    )];
    components.extend(libraries.all.iter().map(component));
    let mut dependencies = vec![needs(&program, libraries.direct.iter().chain([&standard]))];
    dependencies.extend(libraries.all.iter().map(|one| needs(&one.id(), one.needs.iter())));
    dependencies.push(needs(&standard, [].iter()));
    format!(
        r#"{{
"bomFormat":"CycloneDX",
"specVersion":"1.5",
"serialNumber":"urn:uuid:{}",
"version":1,
"metadata":{{
"timestamp":{},
"tools":{{"components":[{{"type":"application","name":"cargo xtask dist","version":{version}}}]}},
"component":{{"type":"application","bom-ref":{},"name":"nowait","version":{version},"licenses":[{{"expression":"Apache-2.0"}}],"hashes":[{{"alg":"SHA-256","content":{}}}],"purl":{},"properties":[{{"name":"target","value":{}}}]}}
}},
"components":[
{}
],
"dependencies":[
{}
]
}}
"#,
        uuid(digest),
        quoted(time),
        quoted(&program),
        quoted(digest),
        quoted(&format!("pkg:generic/{program}")),
        quoted(target),
        components.join(",\n"),
        dependencies.join(",\n"),
        version = quoted(version),
    )
}

fn component(library: &Library) -> String {
    let Library { name, version, license, repository, checksum, .. } = library;
    let mut text = format!(
        r#"{{"type":"library","bom-ref":{},"name":{},"version":{},"hashes":[{{"alg":"SHA-256","content":{}}}],"licenses":[{{"expression":{}}}],"purl":{}"#,
        quoted(&library.id()),
        quoted(name),
        quoted(version),
        quoted(checksum),
        quoted(license),
        // The only character of a version that a package URL encodes.
        quoted(&format!("pkg:cargo/{}", library.id().replace('+', "%2B"))),
    );
    if !repository.is_empty() {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            r#","externalReferences":[{{"type":"vcs","url":{}}}]"#,
            quoted(repository)
        );
    }
    text.push('}');
    text
}

fn needs<'a>(of: &str, needs: impl Iterator<Item = &'a String>) -> String {
    let needs: Vec<_> = needs.map(|need| quoted(need)).collect();
    format!(r#"{{"ref":{},"dependsOn":[{}]}}"#, quoted(of), needs.join(","))
}

/// A UUID of version 8 (RFC 9562), made of a digest, so that the same program has the same bill.
fn uuid(digest: &str) -> String {
    let at = |range: std::ops::Range<usize>| digest.get(range).unwrap_or("0");
    format!("{}-{}-8{}-8{}-{}", at(0..8), at(8..12), at(12..15), at(15..18), at(18..30))
}

/// A string of JSON.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_names_the_program_and_its_libraries() {
        let zstd = Library {
            name: "zstd-sys".to_owned(),
            version: "2.1.2+zstd.1.5.7".to_owned(),
            license: "BSD-3-Clause".to_owned(),
            repository: "https://zstd.example".to_owned(),
            checksum: "cc".repeat(32),
            needs: Vec::new(),
        };
        let libraries = Libraries { direct: vec![zstd.id()], all: vec![zstd] };
        let digest = "0123456789abcdef".repeat(4);
        let subject = Subject {
            version: "0.1.0",
            target: "aarch64-unknown-linux-gnu",
            digest: &digest,
            time: "2026-01-02T03:04:05Z",
            rust: "1.95.0",
        };
        let bill = bill(&subject, &libraries);
        for part in [
            r#""serialNumber":"urn:uuid:01234567-89ab-8cde-8f01-23456789abcd","#,
            r#""purl":"pkg:cargo/zstd-sys@2.1.2%2Bzstd.1.5.7","#,
            r#"{"ref":"nowait@0.1.0","dependsOn":["zstd-sys@2.1.2+zstd.1.5.7","std@1.95.0"]}"#,
        ] {
            assert!(bill.contains(part), "{part} in {bill}");
        }
    }

    #[test]
    fn strings_are_those_of_json() {
        assert_eq!(quoted("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
