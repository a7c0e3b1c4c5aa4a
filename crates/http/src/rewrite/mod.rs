//! The rewrite module: `rewrite`, `return`, `if`, `set` and `break` as a small program per location.
//! nginx: `ngx_http_rewrite_module`, `ngx_http_script.c`.
//!
//! [`conf::rewrite`](crate::conf::rewrite) compiles the directives to [`Op`]s; the phases run them.
//! A program runs without a future until it reaches a file test (`if (-f …)`): there it stops with
//! [`Step::File`], and [`Cursor::test_file`] moves it on after the file system has responded. Never
//! accesses a file itself, never sends anything.

mod answer;
mod condition;
mod replace;

use crate::conf::LocationId;
use crate::outcome::Outcome;
use crate::request::Request;
use crate::variables::Place;
use crate::variables::complex::{Complex, Groups};

pub use answer::Return;
pub use condition::{Condition, FileTest};
pub use replace::{Flag, Replacement, Rewrite, Then};

/// The code of a location, or of a server outside of its locations; usually empty.
#[derive(Debug, Default)]
pub struct Program(Box<[Op]>);

/// One step.
#[derive(Debug)]
pub enum Op {
    /// `rewrite`
    Rewrite(Rewrite),
    /// `return`
    Return(Return),
    /// `break`
    Break,
    /// `set`
    Set {
        /// The variable.
        place: Place,
        /// Its new value.
        value: Complex,
    },
    /// `if`
    If {
        /// The condition.
        condition: Condition,
        /// The settings of the block, which replace those of the location; none in a server.
        location: Option<LocationId>,
        /// Index of the next step if the condition does not hold.
        otherwise: usize,
    },
}

/// Position in a program.
#[derive(Debug, Clone, Copy)]
pub struct Cursor {
    /// The location of the code; `request.location` may be that of an `if` meanwhile.
    location: LocationId,
    at: usize,
    /// Until a `rewrite` has matched, nginx escapes captures in every value.
    groups: Groups,
}

/// Why a program has stopped.
#[derive(Debug)]
pub enum Step {
    /// It has ended; the request continues.
    Finished,
    /// It needs a file test.
    File(Cursor),
    /// It has produced the request's outcome.
    Decided(Outcome),
}

impl Program {
    /// A program of these steps.
    pub fn new(ops: Vec<Op>) -> Self {
        Self(ops.into())
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Cursor {
    /// The start of a location's code; `None` if it has none.
    pub fn start(request: &Request, location: LocationId) -> Option<Self> {
        let program = &request.current.conf.location(location).program;
        (!program.is_empty()).then_some(Self { location, at: 0, groups: Groups::Escaped })
    }

    /// Runs the program from here.
    pub fn run(mut self, request: &mut Request) -> Step {
        let current = request.current.clone();
        let location = current.conf.location(self.location);
        // Every step moves forward, so the length of the program bounds the loop.
        while let Some(op) = location.program.0.get(self.at) {
            self.at += 1;
            match op {
                Op::Rewrite(rewrite) => {
                    let log = location.rewrite.rewrite_log;
                    match rewrite.apply(request, log) {
                        Ok(Then::NoMatch) => {}
                        Ok(Then::Continue) => self.groups = Groups::Plain,
                        Ok(Then::Stop) => return Step::Finished,
                        Err(outcome) => return Step::Decided(outcome),
                    }
                }
                Op::Return(answer) => return Step::Decided(answer.run(request)),
                Op::Break => {
                    if request.uri_changed {
                        request.uri_changed = false;
                        request.uri_rewritten = true;
                    }
                    return Step::Finished;
                }
                Op::Set { place, value } => {
                    let mut text = Vec::new();
                    value.append_with(request, self.groups, &mut text);
                    match place {
                        Place::Slot(slot) => request.set_slot(*slot, Some(text.into())),
                        Place::Builtin(set) => set(request, text.into()),
                    }
                }
                Op::If { condition: Condition::File { .. }, .. } => {
                    self.at -= 1;
                    return Step::File(self);
                }
                Op::If { condition, location: inner, otherwise } => {
                    let log = location.rewrite.rewrite_log;
                    match condition.holds(request, self.groups, log) {
                        Ok(holds) => self.branch(request, holds, *inner, *otherwise),
                        Err(outcome) => return Step::Decided(outcome),
                    }
                }
            }
        }
        Step::Finished
    }

    /// Runs the file test at this position, and moves on.
    ///
    /// # Errors
    /// The response if the test could not be run.
    pub async fn test_file(mut self, request: &mut Request) -> Result<Self, Outcome> {
        let current = request.current.clone();
        let program = &current.conf.location(self.location).program;
        if let Some(Op::If {
            condition: Condition::File { path, test, negated },
            location,
            otherwise,
        }) = program.0.get(self.at)
        {
            let mut text = Vec::new();
            path.append_with(request, self.groups, &mut text);
            let holds = test.holds(request, &text).await? != *negated;
            self.at += 1;
            self.branch(request, holds, *location, *otherwise);
        }
        Ok(self)
    }

    fn branch(
        &mut self,
        request: &mut Request,
        holds: bool,
        location: Option<LocationId>,
        otherwise: usize,
    ) {
        if !holds {
            self.at = otherwise;
        } else if let Some(location) = location {
            request.location = location;
        }
    }
}
