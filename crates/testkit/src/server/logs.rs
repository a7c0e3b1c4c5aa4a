//! What the logs of a server under test say to the kit.

use super::Binary;
use super::builder::Kind;

/// Words that no log of a sound run contains, and where they come from.
const FAULTS: &[&str] = &[
    "[alert]",
    "[emerg]",
    // A panicking task or thread.
    "panicked",
    // The seccomp guard's report of a blocking call on an event loop.
    "event_loop_guard:",
    "event loop guard",
    // nginx's and sanitizers' words.
    "ERROR: AddressSanitizer",
    "exited on signal",
];

/// Lines that tell of a fault and contain none of `allowed`.
pub(super) fn faults(logs: &[String], allowed: &[String]) -> Vec<String> {
    logs.iter()
        .flat_map(|log| log.lines())
        .filter(|line| FAULTS.iter().any(|word| line.contains(word)))
        .filter(|line| !allowed.iter().any(|text| line.contains(text)))
        .map(str::to_owned)
        .collect()
}

/// Whether the new part of an error log tells that a reload has come to its end.
pub(super) fn tells_of_reload(binary: &Binary, new: &str) -> bool {
    if new.contains("[emerg]") {
        return true;
    }
    match binary.kind() {
        // nginx says nothing about success; the new workers are the first sign.
        Kind::Nginx => new.contains("start worker process"),
        // The first one is of the start, which may be told only now.
        Kind::Nowait => new
            .lines()
            .any(|line| line.contains("generation") && !line.ends_with("generation 1 is in use")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_faults_that_are_not_allowed() {
        let log = "1 [notice] fine\n2 [alert] bad\n3 thread 'x' panicked at\n".to_owned();
        assert_eq!(faults(std::slice::from_ref(&log), &[]).len(), 2);
        assert_eq!(faults(&[log], &["bad".to_owned()]), ["3 thread 'x' panicked at"]);
    }
}
