//! Evaluates the logs of a server under test.

use super::Binary;
use super::builder::Product;

/// Words that appear in no log of a healthy run, and their sources.
const FAULTS: &[&str] = &[
    "[alert]",
    "[emerg]",
    // A panicking task or thread.
    "panicked",
    // The seccomp guard's report of a blocking call on an event loop.
    "event_loop_guard:",
    "event loop guard",
    // Words of nginx and of sanitizers.
    "ERROR: AddressSanitizer",
    "exited on signal",
];

/// Lines that indicate a fault and contain none of `allowed`.
pub(super) fn faults(logs: &[String], allowed: &[String]) -> Vec<String> {
    logs.iter()
        .flat_map(|log| log.lines())
        .filter(|line| FAULTS.iter().any(|word| line.contains(word)))
        .filter(|line| !allowed.iter().any(|text| line.contains(text)))
        .map(str::to_owned)
        .collect()
}

/// Whether the new part of an error log shows that a reload has finished.
pub(super) fn tells_of_reload(binary: &Binary, new: &str) -> bool {
    if new.contains("[emerg]") {
        return true;
    }
    match binary.kind() {
        // nginx does not report success; the new workers are the first sign.
        Product::Nginx => new.contains("start worker process"),
        // The first generation belongs to the start, which may be logged only now.
        Product::Nowait => new
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
