//! Steps of receiving a response.

use std::ops::Range;

/// One step through a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadStep {
    /// Number of consumed bytes of the input.
    pub consumed: usize,
    /// The event found.
    pub event: HeadEvent,
}

/// Progress of a head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeadEvent {
    /// All input is consumed, and the head is incomplete.
    NeedMore,
    /// Output of the application for a log, not part of the head.
    Stderr(Vec<u8>),
    /// A part of such a text, the rest of which is to come.
    StderrPart,
    /// The head is complete.
    Done,
}

/// One step through a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyStep {
    /// Number of consumed bytes of the input, including the content in [`BodyEvent::Data`].
    pub consumed: usize,
    /// The event found.
    pub event: BodyEvent,
}

/// An event in a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyEvent {
    /// All input is consumed, and the body continues.
    NeedMore,
    /// Content: this range of the input, never empty.
    Data(Range<usize>),
    /// Output of the application for a log.
    Stderr(Vec<u8>),
    /// More follows than the head has announced. The body ends here; reported once.
    Excess,
    /// The body has ended. Repeated calls return this again.
    End,
}
