//! Tests that need more than any machine has say so aloud instead of passing in silence.

use std::io::Write;

/// Names a list of reasons (words such as `fuse,loop,root,nginx`, or `all`) for which a test must
/// not be skipped but fail: CI sets it so that a lost capability of its machines shows.
pub const REQUIRE_VARIABLE: &str = "NOWAIT_TESTS_REQUIRE";

/// Reports that a test is not run: prints `skipped: TEST: REASON` past the test harness's capture.
///
/// # Panics
/// If [`REQUIRE_VARIABLE`] demands that `need` be there.
#[track_caller]
pub fn skip(need: &str, reason: &str) {
    let required = std::env::var(REQUIRE_VARIABLE).unwrap_or_default();
    assert!(
        !required.split(',').any(|word| word == need || word == "all"),
        "{REQUIRE_VARIABLE}={required} forbids to skip: {reason}"
    );
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?");
    // `eprintln!` would be captured; a skipped test must be seen. A closed stderr is no reason
    // to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
}
