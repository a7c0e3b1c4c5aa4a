//! A model of all orders of changes, requests and reports, explored completely.
//!
//! Two loops, a pool thread that makes the entry of a path (twice), a writer that makes two changes, and
//! two requests. The order of the steps of different threads is arbitrary, and every order is tried. Two
//! actions are one step if what others do between them makes no difference: a request is sent when it is
//! received, since an earlier one would be content with more, and a change returns when it is reported.
//!
//! The graph is the real one; the kernel, the locks and the steps of the threads are written down here,
//! next to the names of the functions that they stand for.
//!
//! What must hold: a response to a request that was sent after a change had returned shows that change.
//! Each [`ModelFault`] takes one rule away, and must then be found.

use std::cell::Cell;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::rc::Rc;

use foldhash::quality::FixedState;

use super::graph::{Dependent, Graph, NodeId};

/// Requests, and changes.
const REQUESTS: usize = 2;
const CHANGES: usize = 2;
const LOOPS: usize = 2;

/// How often the pool thread makes an entry.
const WALKS: u8 = 2;

/// The watches of the directory, and of the first file.
const DIR: i32 = 1;
const FILE: i32 = 10;

const NAME: &[u8] = b"page";

/// A rule that is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ModelFault {
    None,
    /// Reports are read at the beginning of a turn, and not again after its receives.
    ReceiveNotCounted,
    /// Requests received in a turn are treated as older than the last reading of reports.
    TurnNotCounted,
    HandoverNotCounted,
    /// Another loop that has taken reports is not waited for.
    ApplyingIgnored,
    /// A loop announces that it reads reports only after reading them.
    AnnouncedLate,
    /// A loop announces that it is done as soon as it has read them.
    RetiredEarly,
    /// A graph that another thread has locked counts as up to date.
    LockedIsUpToDate,
    /// An entry is checked before the reports are read.
    ValidBeforeReports,
    /// An entry in the table is believed to be valid.
    ValidityIgnored,
    /// An entry is published without a second check of its validity.
    PublishedUnchecked,
    /// A file is watched when it has been read.
    WatchedLate,
    /// An entry depends on its node when it has been read.
    AttachedLate,
    /// The name is not registered with its directory.
    NameNotRegistered,
    OverflowIgnored,
    /// An entry of a time before all was in doubt is used.
    AgeIgnored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Backend {
    Epoll,
    Uring,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileChange {
    /// The content of the file changes.
    Write,
    /// The name leads to another file.
    Rename,
}

#[derive(Clone, Copy, Debug)]
struct Setup {
    driver: Backend,
    changes: [FileChange; CHANGES],
    /// Reports that the kernel keeps.
    queue_max: usize,
    fault: ModelFault,
}

/// An entry in the graph, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct EntryId(usize);

thread_local! {
    /// The valid entries of the current state.
    static VALID: Cell<[bool; WALKS as usize]> = const { Cell::new([false; WALKS as usize]) };
}

impl Dependent for EntryId {
    fn is_valid(&self) -> bool {
        VALID.get()[self.0]
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Report {
    Name,
    Itself(i32),
    Overflow,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Ask {
    Unsent,
    /// io_uring has received it for this loop, which doesn't know yet; the changes that had returned.
    Completed(usize, u8),
    /// Another loop has received it for this one.
    Message(usize, u8),
    /// The request waits on this loop for its turn.
    Received(usize, u8),
    Answered,
}

/// The graph, and a hash of it.
#[derive(Clone, Default)]
struct Hashed {
    graph: Rc<Graph<EntryId>>,
    hash: u64,
}

impl Hashed {
    fn edit<T>(&mut self, change: impl FnOnce(&mut Graph<EntryId>) -> T) -> T {
        let result = change(Rc::make_mut(&mut self.graph));
        self.hash = FixedState::default().hash_one(&*self.graph);
        result
    }
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.hash.hash(hasher);
    }
}

/// The position of a loop in `look_up`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LoopPosition {
    /// Between tasks.
    Idle,
    /// `Sentinel::look`, up to the first line of `Changes::apply`.
    Poll,
    /// `Changes::take`, with the lock of the graph.
    Take,
    Apply,
    /// The end of `Sentinel::look`, with the last line of `Changes::apply`.
    Others,
    /// `valid` and `age`.
    Believe,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ModelLoop {
    at: LoopPosition,
    /// The current request, the entry found for it, and whether that was valid.
    request: usize,
    entry: usize,
    was_valid: bool,
    /// `UP_TO_DATE` is the number of receives.
    up_to_date: bool,
    taken: Vec<Report>,
    applied: bool,
    is_announced: bool,
    has_lock: bool,
}

/// The position of the pool thread in `walk` and `admit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WalkState {
    Idle,
    Root,
    RootWatched(NodeId),
    Begin(NodeId),
    Open(NodeId),
    WatchFile(NodeId),
    FileWatched(NodeId),
    Attach(NodeId),
    Read(NodeId),
    /// Only with a fault: when it has been read.
    LateWatch(NodeId),
    LateAttach(NodeId),
    Check(NodeId),
    Publish,
    /// The node of the entry that was replaced.
    Forget(NodeId),
    Fail,
}

#[derive(Clone, Hash)]
struct ModelState {
    // The file system: the target of the name, and the change that each file shows.
    named: usize,
    content: [u8; CHANGES + 1],
    /// Steps of the writer: each change is made, and then reported and done.
    writer: usize,
    watched: [bool; CHANGES + 1],
    dir_watched: bool,
    queue: Vec<Report>,
    requests: [Ask; REQUESTS],

    // Shared by the threads.
    graph: Hashed,
    locked: bool,
    applying: u8,
    age: u32,
    valid: [bool; WALKS as usize],
    /// The contents of entries, the times at which they were begun, and their nodes.
    held: [u8; WALKS as usize],
    ages: [u32; WALKS as usize],
    nodes: [Option<NodeId>; WALKS as usize],
    table: Option<usize>,

    loops: [ModelLoop; LOOPS],
    walk: WalkState,
    walks: u8,
    opened: usize,
    made: Vec<NodeId>,
    /// A response showed an older state than its request allows.
    is_old: bool,
}

/// A step, for the account of what led to an old answer.
#[derive(Clone, Copy, Debug)]
#[expect(dead_code, reason = "shown by Debug")]
enum ModelStep {
    Change(usize, &'static str),
    /// Of this loop, for this request.
    Task(usize, &'static str, usize),
    Turn(usize),
    Loop(usize, LoopPosition),
    Pool(WalkState),
}

/// Called with a step, and the change of the state that it is.
type With<'a> = &'a mut dyn FnMut(ModelStep, &dyn Fn(&mut ModelState));

/// The steps, newest first.
struct StepTrace {
    step: ModelStep,
    before: Option<Rc<StepTrace>>,
}

impl ModelState {
    fn new() -> ModelState {
        let idle = ModelLoop {
            at: LoopPosition::Idle,
            request: 0,
            entry: 0,
            was_valid: false,
            up_to_date: false,
            taken: Vec::new(),
            applied: false,
            is_announced: false,
            has_lock: false,
        };
        ModelState {
            named: 0,
            content: [0; CHANGES + 1],
            writer: 0,
            watched: [false; CHANGES + 1],
            dir_watched: false,
            queue: Vec::new(),
            requests: [Ask::Unsent; REQUESTS],
            graph: Hashed::default(),
            locked: false,
            applying: 0,
            age: 0,
            valid: [false; WALKS as usize],
            held: [0; WALKS as usize],
            ages: [0; WALKS as usize],
            nodes: [None; WALKS as usize],
            table: None,
            loops: [idle.clone(), idle],
            walk: WalkState::Idle,
            walks: 0,
            opened: 0,
            made: Vec::new(),
            is_old: false,
        }
    }

    /// Changes that have returned.
    fn returned(&self) -> u8 {
        (self.writer / 2) as u8
    }

    /// The kernel queues a report.
    fn report(&mut self, world: &Setup, report: Report) {
        if self.queue.len() < world.queue_max {
            self.queue.push(report);
        } else if self.queue.last() != Some(&Report::Overflow) {
            self.queue.push(Report::Overflow);
        }
    }

    fn write(&mut self, world: &Setup) {
        let (number, step) = (self.writer / 2, self.writer % 2);
        let change = world.changes[number];
        match (step, change) {
            (0, FileChange::Write) => self.content[self.named] = number as u8 + 1,
            (0, FileChange::Rename) => {
                self.named += 1;
                self.content[self.named] = number as u8 + 1;
            }
            (1, FileChange::Write) if self.watched[self.named] => {
                self.report(world, Report::Itself(FILE + self.named as i32));
            }
            (1, FileChange::Rename) if self.dir_watched => self.report(world, Report::Name),
            _ => {}
        }
        self.writer += 1;
    }

    /// All successor states.
    fn successors(&self, world: &Setup, mut visit: impl FnMut(ModelStep, ModelState)) {
        let mut with = |step: ModelStep, change: &dyn Fn(&mut ModelState)| {
            let mut next = self.clone();
            VALID.set(next.valid);
            change(&mut next);
            visit(step, next);
        };
        if self.writer < 2 * CHANGES {
            let what = ["is made", "is reported"][self.writer % 2];
            with(ModelStep::Change(self.writer / 2, what), &|next| next.write(world));
        }
        for number in 0..REQUESTS {
            match self.requests[number] {
                Ask::Unsent if world.driver == Backend::Uring => (0..LOOPS).for_each(|at| {
                    if !self.may_receive(at, number) {
                        return;
                    }
                    with(ModelStep::Task(at, "has a completion of", number), &|next| {
                        next.requests[number] = Ask::Completed(at, next.returned());
                    });
                }),
                _ => {}
            }
        }
        for at in 0..LOOPS {
            match self.loops[at].at {
                LoopPosition::Idle => self.between_tasks(world, at, &mut with),
                step => {
                    with(ModelStep::Loop(at, step), &|next| next.look(world, at));
                    if step == LoopPosition::Take && !self.locked && self.walk != WalkState::Idle {
                        with(ModelStep::Loop(at, step), &|next| next.locked_out(world, at));
                    }
                }
            }
        }
        if self.is_pool_ready() {
            with(ModelStep::Pool(self.walk), &|next| next.walk(world));
        }
    }

    /// Loops are interchangeable, and so are requests: the first request goes to the first loop.
    fn may_receive(&self, at: usize, number: usize) -> bool {
        if number == 0 { at == 0 } else { self.requests[0] != Ask::Unsent }
    }

    /// The steps of a loop other than look-ups.
    fn between_tasks(&self, world: &Setup, at: usize, with: With<'_>) {
        let fault = world.fault;
        let is_complete = |request: &Ask| matches!(request, Ask::Completed(of, _) if *of == at);
        if self.requests.iter().any(is_complete) {
            with(ModelStep::Turn(at), &|next| {
                for request in &mut next.requests {
                    if let Ask::Completed(of, floor) = *request
                        && of == at
                    {
                        *request = Ask::Received(at, floor);
                    }
                }
                if fault != ModelFault::TurnNotCounted {
                    next.loops[at].up_to_date = false;
                }
            });
        }
        for number in 0..REQUESTS {
            match self.requests[number] {
                // With io_uring: a large or speculative receive, during a turn.
                Ask::Unsent if !self.may_receive(at, number) => {}
                Ask::Unsent => with(ModelStep::Task(at, "receives", number), &|next| {
                    next.requests[number] = Ask::Received(at, next.returned());
                    if fault != ModelFault::ReceiveNotCounted {
                        next.loops[at].up_to_date = false;
                    }
                }),
                Ask::Received(of, floor) if of == at => {
                    with(ModelStep::Task(at, "hands over", number), &|next| {
                        next.requests[number] = Ask::Message(1 - at, floor);
                    });
                    with(ModelStep::Task(at, "looks up for", number), &|next| {
                        next.begin(world, at, number);
                    });
                }
                Ask::Message(of, floor) if of == at => {
                    with(ModelStep::Task(at, "takes over", number), &|next| {
                        next.requests[number] = Ask::Received(at, floor);
                        if fault != ModelFault::HandoverNotCounted {
                            next.loops[at].up_to_date = false;
                        }
                    });
                }
                _ => {}
            }
        }
    }

    /// `look_up`: the entry, and whether this loop has to read reports.
    fn begin(&mut self, world: &Setup, at: usize, request: usize) {
        let Some(entry) = self.table else {
            // The file is opened, which shows its current state.
            self.requests[request] = Ask::Answered;
            return;
        };
        let was_valid = self.is_usable(world, entry);
        let this = &mut self.loops[at];
        (this.request, this.entry, this.was_valid) = (request, entry, was_valid);
        this.at = if this.up_to_date { LoopPosition::Believe } else { LoopPosition::Poll };
    }

    fn is_usable(&self, world: &Setup, entry: usize) -> bool {
        (self.valid[entry] || world.fault == ModelFault::ValidityIgnored)
            && (self.ages[entry] == self.age || world.fault == ModelFault::AgeIgnored)
    }

    /// The pool thread has locked the graph for a moment.
    fn locked_out(&mut self, world: &Setup, at: usize) {
        self.loops[at].applied = world.fault == ModelFault::LockedIsUpToDate;
        self.loops[at].at = LoopPosition::Others;
    }

    /// The next step of a loop that reads reports.
    fn look(&mut self, world: &Setup, at: usize) {
        let fault = world.fault;
        let mut this = self.loops[at].clone();
        this.at = match this.at {
            LoopPosition::Poll => {
                this.applied = true;
                if self.queue.is_empty() {
                    LoopPosition::Others
                } else {
                    if fault != ModelFault::AnnouncedLate {
                        self.applying += 1;
                        this.is_announced = true;
                    }
                    LoopPosition::Take
                }
            }
            LoopPosition::Take if self.locked && !this.has_lock => {
                this.applied = fault == ModelFault::LockedIsUpToDate;
                LoopPosition::Others
            }
            LoopPosition::Take => {
                (self.locked, this.has_lock) = (true, true);
                this.taken = std::mem::take(&mut self.queue);
                if fault == ModelFault::RetiredEarly && this.is_announced {
                    self.applying -= 1;
                    this.is_announced = false;
                }
                if this.taken.is_empty() {
                    (self.locked, this.has_lock) = (false, false);
                    LoopPosition::Others
                } else {
                    LoopPosition::Apply
                }
            }
            LoopPosition::Apply => {
                if fault == ModelFault::AnnouncedLate && !this.is_announced {
                    self.applying += 1;
                    this.is_announced = true;
                } else {
                    let report = this.taken.remove(0);
                    self.apply(world, report);
                }
                if this.taken.is_empty() { LoopPosition::Take } else { LoopPosition::Apply }
            }
            LoopPosition::Others => {
                self.applying -= u8::from(this.is_announced);
                let others = self.applying > 0 && fault != ModelFault::ApplyingIgnored;
                if !this.applied || others {
                    self.requests[this.request] = Ask::Answered;
                    LoopPosition::Idle
                } else {
                    this.is_announced = false;
                    this.up_to_date = true;
                    LoopPosition::Believe
                }
            }
            LoopPosition::Believe => {
                let is_usable = match fault {
                    ModelFault::ValidBeforeReports => this.was_valid,
                    _ => self.is_usable(world, this.entry),
                };
                if let Ask::Received(_, floor) = self.requests[this.request] {
                    self.is_old |= is_usable && self.held[this.entry] < floor;
                }
                if !is_usable && self.table == Some(this.entry) {
                    self.table = None;
                }
                self.requests[this.request] = Ask::Answered;
                LoopPosition::Idle
            }
            LoopPosition::Idle => unreachable!("an idle loop looks at nothing"),
        };
        if this.at == LoopPosition::Idle {
            // This look-up is complete.
            let idle = ModelState::new().loops[0].clone();
            this = ModelLoop { up_to_date: this.up_to_date, ..idle };
        }
        self.loops[at] = this;
    }

    /// `Changes::take`: one report.
    fn apply(&mut self, world: &Setup, report: Report) {
        let mut ended = [false; WALKS as usize];
        let mut end = |entry: &EntryId| ended[entry.0] = true;
        let mut budget = usize::MAX;
        let (watch, name) = match report {
            Report::Name => (DIR, Some(NAME)),
            Report::Itself(watch) => (watch, None),
            Report::Overflow => {
                if world.fault != ModelFault::OverflowIgnored {
                    self.graph.edit(|graph| graph.is_void = true);
                    self.age += 1;
                }
                return;
            }
        };
        self.graph.edit(|graph| graph.change(watch, name, 0, &mut end, &mut budget));
        // `All::report`
        self.table = self.table.filter(|entry| !ended[*entry]);
        (0..ended.len()).filter(|entry| ended[*entry]).for_each(|entry| self.valid[entry] = false);
    }

    fn is_pool_ready(&self) -> bool {
        match self.walk {
            WalkState::Idle => self.walks < WALKS && !self.locked,
            // The thread waits for the lock of the graph.
            WalkState::Root
            | WalkState::RootWatched(_)
            | WalkState::Begin(_)
            | WalkState::FileWatched(_)
            | WalkState::Attach(_)
            | WalkState::LateAttach(_)
            | WalkState::Forget(_)
            | WalkState::Fail => !self.locked,
            _ => true,
        }
    }

    /// The next step of the pool thread, which makes entry number `walks - 1`.
    fn walk(&mut self, world: &Setup) {
        let fault = world.fault;
        let entry = usize::from(self.walks).saturating_sub(1);
        let age = self.ages[entry];
        let failed = WalkState::Fail;
        self.walk = match self.walk {
            WalkState::Idle => {
                self.clean_up();
                let entry = usize::from(self.walks);
                self.walks += 1;
                self.ages[entry] = self.age;
                self.valid[entry] = true;
                WalkState::Root
            }
            WalkState::Root => {
                let mut ended = self.valid;
                let age_now = self.age;
                let mut end = |entry: &EntryId| ended[entry.0] = false;
                let way = self.graph.edit(|graph| graph.way(b"/", age_now, &mut end));
                self.valid = ended;
                match way {
                    Some(node) => WalkState::Begin(node),
                    None => {
                        let root = self.graph.edit(|graph| graph.begin(b"/"[..].into(), None, age));
                        self.made.extend(root);
                        self.dir_watched = true;
                        root.map_or(failed, WalkState::RootWatched)
                    }
                }
            }
            WalkState::RootWatched(root) => self
                .graph
                .edit(|graph| graph.watch(root, DIR, true))
                .map_or(failed, |()| WalkState::Begin(root)),
            WalkState::Begin(root) => {
                let name: &[u8] =
                    if fault == ModelFault::NameNotRegistered { b"other" } else { NAME };
                let begun = self
                    .graph
                    .edit(|graph| graph.begin(b"/page"[..].into(), Some((root, name)), age));
                self.made.extend(begun);
                begun.map_or(failed, WalkState::Open)
            }
            WalkState::Open(node) => {
                self.opened = self.named;
                match fault {
                    ModelFault::WatchedLate => WalkState::Read(node),
                    _ => WalkState::WatchFile(node),
                }
            }
            WalkState::WatchFile(node) | WalkState::LateWatch(node) => {
                self.watched[self.opened] = true;
                WalkState::FileWatched(node)
            }
            WalkState::FileWatched(node) => {
                let watch = FILE + self.opened as i32;
                let next = match fault {
                    ModelFault::AttachedLate => WalkState::Read(node),
                    _ => WalkState::Attach(node),
                };
                self.graph.edit(|graph| graph.watch(node, watch, false)).map_or(failed, |()| next)
            }
            WalkState::Attach(node) | WalkState::LateAttach(node) => {
                let next = match fault {
                    ModelFault::AttachedLate | ModelFault::WatchedLate => WalkState::Check(node),
                    _ => WalkState::Read(node),
                };
                self.nodes[entry] = Some(node);
                self.graph
                    .edit(|graph| graph.attach(node, EntryId(entry)))
                    .map_or(failed, |()| next)
            }
            // `found`: the path still leads to the watched file.
            WalkState::Read(_) if self.named != self.opened => failed,
            WalkState::Read(node) => {
                self.held[entry] = self.content[self.named];
                match fault {
                    ModelFault::AttachedLate => WalkState::LateAttach(node),
                    ModelFault::WatchedLate => WalkState::LateWatch(node),
                    _ => WalkState::Check(node),
                }
            }
            WalkState::Check(_) if fault == ModelFault::PublishedUnchecked || self.valid[entry] => {
                WalkState::Publish
            }
            WalkState::Check(_) => failed,
            WalkState::Publish => {
                let old = self.table.replace(entry);
                let node = old.and_then(|old| {
                    self.valid[old] = false;
                    self.nodes[old]
                });
                self.made.clear();
                node.map_or(WalkState::Idle, WalkState::Forget)
            }
            WalkState::Forget(node) => {
                self.graph.edit(|graph| graph.release(node));
                WalkState::Idle
            }
            WalkState::Fail => {
                self.valid[entry] = false;
                VALID.set(self.valid);
                let made = std::mem::take(&mut self.made);
                self.graph
                    .edit(|graph| made.into_iter().rev().for_each(|node| graph.release(node)));
                WalkState::Idle
            }
        };
    }

    /// `Changes::clean_up`
    fn clean_up(&mut self) {
        let is_void = self.graph.graph.is_void;
        self.age += u32::from(is_void);
        let unneeded =
            self.graph.edit(|graph| if is_void { graph.clear() } else { graph.take_unused() });
        for watch in unneeded {
            match watch {
                DIR => self.dir_watched = false,
                file => self.watched[(file - FILE) as usize] = false,
            }
        }
    }
}

/// Tries every order; returns the number of states, or the steps that lead to an old answer.
fn explore(world: &Setup) -> Result<usize, String> {
    let hasher = FixedState::default();
    let mut seen = HashSet::new();
    let begin = ModelState::new();
    seen.insert(hasher.hash_one(&begin));
    let mut stack = vec![(begin, None)];
    let mut found = None;
    while let Some((state, before)) = stack.pop() {
        state.successors(world, |step, next| {
            if seen.insert(hasher.hash_one(&next)) {
                let trace = Rc::new(StepTrace { step, before: before.clone() });
                if next.is_old {
                    found = Some(trace);
                } else {
                    stack.push((next, Some(trace)));
                }
            }
        });
        if let Some(found) = found {
            return Err(account(&found));
        }
    }
    Ok(seen.len())
}

/// The steps in the order in which they were done.
fn account(last: &Rc<StepTrace>) -> String {
    let steps = std::iter::successors(Some(last), |trace| trace.before.as_ref());
    let mut steps: Vec<String> = steps.map(|trace| format!("{:?}", trace.step)).collect();
    steps.reverse();
    steps.join("\n")
}

/// Every sequence of changes; what does not fit into a queue of `queue_max` reports is lost.
fn worlds(driver: Backend, queue_max: usize, fault: ModelFault) -> impl Iterator<Item = Setup> {
    let kinds = [FileChange::Write, FileChange::Rename];
    let pairs = kinds.into_iter().flat_map(move |first| kinds.map(|second| [first, second]));
    pairs.map(move |changes| Setup { driver, changes, queue_max, fault })
}

/// Room for every report, and for none.
const AMPLE: usize = 2 * CHANGES;
const NONE: usize = 0;

fn holds(mut worlds: impl Iterator<Item = Setup>) {
    worlds.all(|world| match explore(&world) {
        Ok(_) => true,
        Err(steps) => panic!("{world:?}: an old answer\n{steps}"),
    });
}

fn is_found(fault: ModelFault, driver: Backend, queue_max: usize) {
    let found = worlds(driver, queue_max, fault).any(|world| explore(&world).is_err());
    assert!(found, "{fault:?} leads to no old answer");
}

/// A loop with io_uring may do all that one with epoll does: it also receives during a turn.
#[test]
fn no_order_leads_to_an_old_answer() {
    holds(worlds(Backend::Uring, AMPLE, ModelFault::None));
}

#[test]
fn no_order_leads_to_an_old_answer_when_reports_are_lost() {
    holds(worlds(Backend::Uring, NONE, ModelFault::None));
}

#[test]
fn what_a_receive_brings_is_newer_than_the_last_look() {
    is_found(ModelFault::ReceiveNotCounted, Backend::Epoll, AMPLE);
    is_found(ModelFault::ReceiveNotCounted, Backend::Uring, AMPLE);
    is_found(ModelFault::TurnNotCounted, Backend::Uring, AMPLE);
    is_found(ModelFault::HandoverNotCounted, Backend::Epoll, AMPLE);
}

#[test]
fn loops_wait_for_the_reports_that_others_have_taken() {
    is_found(ModelFault::ApplyingIgnored, Backend::Epoll, AMPLE);
    is_found(ModelFault::AnnouncedLate, Backend::Epoll, AMPLE);
    is_found(ModelFault::RetiredEarly, Backend::Epoll, AMPLE);
    is_found(ModelFault::LockedIsUpToDate, Backend::Epoll, AMPLE);
}

#[test]
fn entries_are_believed_after_the_reports_alone() {
    is_found(ModelFault::ValidBeforeReports, Backend::Epoll, AMPLE);
    is_found(ModelFault::ValidityIgnored, Backend::Epoll, AMPLE);
    is_found(ModelFault::OverflowIgnored, Backend::Epoll, NONE);
    is_found(ModelFault::AgeIgnored, Backend::Epoll, NONE);
}

#[test]
fn what_is_read_is_watched_before() {
    is_found(ModelFault::WatchedLate, Backend::Epoll, AMPLE);
    is_found(ModelFault::NameNotRegistered, Backend::Epoll, AMPLE);
}

/// Loops check whether an entry is valid, and an ended node accepts none: a pool thread that checked less
/// often would publish unused entries, but no outdated ones.
#[test]
fn two_looks_of_the_pool_thread_only_spare_work() {
    holds(worlds(Backend::Epoll, AMPLE, ModelFault::PublishedUnchecked).skip(2).take(1));
    holds(worlds(Backend::Epoll, AMPLE, ModelFault::AttachedLate).skip(2).take(1));
}
