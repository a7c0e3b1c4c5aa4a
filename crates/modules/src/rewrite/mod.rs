//! The rewrite module: `rewrite`, `return`, `if`, `set`, `break`, and the functions of set-misc, as a small program per
//! location. nginx: `ngx_http_rewrite_module`, `ngx_http_script.c`.
//!
//! [`conf`] compiles the directives of a block to [`Op`]s. A program runs without a future until
//! it reaches a file test (`if (-f …)`), and resumes there with the result. Never accesses files
//! directly, and never sends data.

mod answer;
mod condition;
pub mod conf;
mod explain;
mod functions;
mod replace;
mod set_misc;

use std::sync::Arc;

use nowait_conf::{Context, Cx, Scope, Span};
use nowait_http::conf::LocationId;
use nowait_http::module::{Handler, HandlerExplanation, LocationBuilder, Module, Phase, Step};
use nowait_http::outcome::Outcome;
use nowait_http::request::Request;
use nowait_http::response::LocalFuture;
use nowait_http::trace::Trace;
use nowait_http::variables::UNINITIALIZED_ALLOWED;
use nowait_http::variables::complex::{Complex, Groups, SetTarget};
use nowait_variables::Subject;

use self::conf::{Code, REWRITE_ROWS, RewriteConf};
use self::set_misc::{Call, SET_MISC_ROWS, SetMiscConf};

pub use answer::Return;
pub use condition::{FileTest, IfCondition};
pub use replace::{Flag, Replacement, Rewrite, RewriteResult};

/// This module.
pub static MODULE: Module = Module {
    rows: &[RewriteConf::ROWS, REWRITE_ROWS, SetMiscConf::ROWS, SET_MISC_ROWS],
    build: Some(build),
    ..Module::EMPTY
};

fn build(cx: &mut Cx<'_>, chain: &[&Scope], parts: &mut LocationBuilder) {
    let conf = RewriteConf::resolve(cx, chain);
    if !conf.uninitialized_variable_warn {
        parts.settings.set(&UNINITIALIZED_ALLOWED, ());
    }
    set_misc::build(cx, chain, parts);
    // The code of outer blocks is theirs; an `if` runs as a part of the code around it.
    let Some(scope) = chain.last() else { return };
    let Some(code) = scope.get::<Code>() else { return };
    let phase = match scope.context() {
        Context::SERVER => Phase::ServerRewrite,
        _ => Phase::Rewrite,
    };
    if let Some(program) = code.compile(conf.rewrite_log, &mut |scope| parts.inside(scope)) {
        parts.handler(phase, program);
    }
}

/// The code of a location, or of a server outside of its locations.
#[derive(Debug)]
pub struct Program {
    ops: Box<[Op]>,
    /// The position of each operation in the configuration.
    spans: Box<[Span]>,
    /// `rewrite_log`
    log: bool,
}

/// One step.
#[derive(Debug, Clone)]
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
        place: SetTarget,
        /// The new value.
        value: Complex,
    },
    /// A directive of the set-misc module.
    Call(Arc<Call>),
    /// `if`
    If {
        /// The condition.
        condition: IfCondition,
        /// The settings of the block, which replace those of the location; none in a server.
        location: Option<LocationId>,
        /// Index of the next step if the condition does not hold.
        otherwise: usize,
    },
}

impl Op {
    /// Whether it stores the content of the request in a variable, which may decide about more than this
    /// program: it may be in the key of a cache. `if` and `return` have it with `client_body_early_read`.
    ///
    /// nginx differs: there the variable is empty, and different content has the same key.
    fn is_late(&self, request: &Request) -> bool {
        match self {
            Self::Set { value, .. } => request.variables().late_in(value).is_late(),
            Self::Call(call) => call.is_late(request),
            Self::Rewrite(_) | Self::Return(_) | Self::Break | Self::If { .. } => false,
        }
    }
}

/// Position in a program.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    at: usize,
    /// Until a `rewrite` has matched, nginx escapes captures in every value.
    groups: Groups,
}

impl Program {
    /// A program of these steps, which stand at `spans`; `None`: there are none. `log`:
    /// `rewrite_log`.
    pub fn new(ops: Vec<Op>, spans: Vec<Span>, log: bool) -> Option<Self> {
        (!ops.is_empty()).then(|| Self { ops: ops.into(), spans: spans.into(), log })
    }

    /// Runs the program from a position.
    fn run<'r>(&'r self, request: &'r mut Request, mut cursor: Cursor) -> Step<'r> {
        // Every step moves forward, so the length of the program bounds the loop.
        while let Some(op) = self.ops.get(cursor.at) {
            if request.awaits_content() && op.is_late(request) {
                return Step::wait(async move {
                    match nowait_http::phases::early_body(request).await {
                        Ok(()) => self.run(request, cursor),
                        Err(status) => Step::Done(request, Outcome::status(status)),
                    }
                });
            }
            cursor.at += 1;
            match self.apply(op, request, &mut cursor) {
                Flow::Continue => {}
                Flow::Stop => return Step::Next(request),
                Flow::Done(outcome) => return Step::Done(request, outcome),
                Flow::Test(test) => {
                    return Step::wait(async move {
                        match test.run(request, &mut cursor).await {
                            Ok(_) => self.run(request, cursor),
                            Err(outcome) => Step::Done(request, outcome),
                        }
                    });
                }
            }
        }
        Step::Next(request)
    }

    /// Applies one step.
    #[inline(always)]
    fn apply<'p>(&'p self, op: &'p Op, request: &mut Request, cursor: &mut Cursor) -> Flow<'p> {
        match op {
            Op::Rewrite(rewrite) => match rewrite.apply(request, self.log) {
                Ok(RewriteResult::NoMatch) => {}
                Ok(RewriteResult::Continue) => cursor.groups = Groups::Plain,
                Ok(RewriteResult::Stop) => return Flow::Stop,
                Err(outcome) => return Flow::Done(outcome),
            },
            Op::Return(answer) => return Flow::Done(answer.run(request)),
            Op::Break => {
                if request.rewriting().changed {
                    request.stay_in_location();
                }
                return Flow::Stop;
            }
            Op::Set { place, value } => {
                let mut text = Vec::new();
                value.append_with(request, cursor.groups, &mut text);
                match place {
                    SetTarget::Slot(slot) => request.set_slot(*slot, Some(text.into())),
                    SetTarget::Builtin(set) => set(request, text.into()),
                }
            }
            Op::Call(call) => {
                if let Err(outcome) = call.run(request, cursor.groups) {
                    return Flow::Done(outcome);
                }
            }
            Op::If {
                condition: IfCondition::File { path, test, negated },
                location,
                otherwise,
            } => {
                return Flow::Test(Test {
                    path,
                    test: *test,
                    negated: *negated,
                    location: *location,
                    otherwise: *otherwise,
                });
            }
            Op::If { condition, location, otherwise } => {
                match condition.holds(request, cursor.groups, self.log) {
                    Ok(holds) => cursor.branch(request, holds, *location, *otherwise),
                    Err(outcome) => return Flow::Done(outcome),
                }
            }
        }
        Flow::Continue
    }
}

/// The continuation of a program after a step.
enum Flow<'p> {
    /// At the cursor.
    Continue,
    /// It has ended.
    Stop,
    /// The program has decided the outcome.
    Done(Outcome),
    /// Continue after a file test.
    Test(Test<'p>),
}

/// A file test of an `if`.
struct Test<'p> {
    path: &'p Complex,
    test: FileTest,
    negated: bool,
    location: Option<LocationId>,
    otherwise: usize,
}

impl Test<'_> {
    /// Runs the test and moves the cursor; whether the condition holds.
    async fn run(&self, request: &mut Request, cursor: &mut Cursor) -> Result<bool, Outcome> {
        let mut text = Vec::new();
        self.path.append_with(request, cursor.groups, &mut text);
        let holds = self.test.holds(request, &text).await? != self.negated;
        cursor.branch(request, holds, self.location, self.otherwise);
        Ok(holds)
    }
}

impl Handler for Program {
    fn handle<'r>(&'r self, request: &'r mut Request) -> Step<'r> {
        self.run(request, Cursor::START)
    }

    fn explain<'a>(
        &'a self,
        request: &'a mut Request,
        trace: &'a mut Trace,
    ) -> LocalFuture<'a, HandlerExplanation> {
        Box::pin(explain::run(self, request, trace))
    }
}

impl Cursor {
    /// The beginning of a program.
    const START: Cursor = Cursor { at: 0, groups: Groups::Escaped };

    /// Enters the block of an `if`, or continues after it.
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
            request.enter_location(location);
        }
    }
}
