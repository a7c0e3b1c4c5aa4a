//! Tests with unusual requirements report that they are skipped instead of passing silently.

use std::io::Write;

/// Lists the requirements (words such as `fuse,loop,root,nginx`, or `all`) whose absence fails a
/// test instead of skipping it: CI sets it so that a lost capability of its machines is noticed.
pub const REQUIRE_VARIABLE: &str = "NOWAIT_TESTS_REQUIRE";

/// Reports a skipped test: prints `skipped: TEST: REASON`, bypassing the test harness's capture.
///
/// # Panics
/// If [`REQUIRE_VARIABLE`] lists `need`.
#[track_caller]
pub fn skip(need: &str, reason: &str) {
    report(reason, |word| word == need || word == "all");
}

/// Like [`skip`], for requirements that a machine may well lack, such as file systems of its kernel:
/// only [`REQUIRE_VARIABLE`] with `need` itself makes the test fail; `all` does not.
///
/// # Panics
/// If [`REQUIRE_VARIABLE`] lists `need`.
#[track_caller]
pub fn skip_rare(need: &str, reason: &str) {
    report(reason, |word| word == need);
}

#[track_caller]
fn report(reason: &str, requires: impl Fn(&str) -> bool) {
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    assert!(
        !required.split(',').any(requires),
        "{REQUIRE_VARIABLE}={required} forbids to skip: {reason}"
    );
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    // `eprintln!` would be captured; a skipped test must be visible. A closed stderr is no reason
    // to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}
