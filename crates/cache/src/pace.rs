//! The pace of background work: steps, with pauses between them in which the worker serves requests.

use std::time::{Duration, Instant};

use nowait_runtime::sleep;
use nowait_runtime::task::{Either, select};
use nowait_runtime::worker::{is_stopping, stopping};

use crate::options::Steps;

/// Pauses; false: the worker ends, stop.
pub(crate) async fn pause(duration: Duration) -> bool {
    matches!(select(stopping(), sleep(duration)).await, Either::Right(()))
}

/// Splits work into steps.
#[derive(Debug)]
pub(crate) struct Pace {
    steps: Steps,
    done: usize,
    begun: Instant,
}

impl Pace {
    pub(crate) fn new(steps: Steps) -> Pace {
        Pace { steps, done: 0, begun: nowait_runtime::now() }
    }

    /// Counts handled files; pauses if they complete a step. False: the worker ends, stop.
    pub(crate) async fn did(&mut self, files: usize) -> bool {
        self.done += files;
        let elapsed = nowait_runtime::now().saturating_duration_since(self.begun);
        if self.done < self.steps.files && elapsed < self.steps.threshold {
            return !is_stopping();
        }
        let goes_on = pause(self.steps.sleep).await;
        self.done = 0;
        self.begun = nowait_runtime::now();
        goes_on
    }
}
