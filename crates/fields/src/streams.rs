//! The open streams of a connection, and whose turn it is to send.
//!
//! Used by the cores of both versions, which add what a stream is to them. It never opens or closes a stream by itself.

use crate::Priority;

/// When a stream sends.
#[derive(Debug, Clone, Copy, Default)]
pub struct Turn {
    /// A caller has data to send.
    pub ready: bool,
    /// The priority of the response.
    pub priority: Priority,
    /// A PRIORITY_UPDATE frame said so.
    updated: bool,
}

impl Turn {
    /// The priority that a PRIORITY_UPDATE frame states: it has precedence over the field of the request.
    pub fn update(&mut self, priority: Priority) {
        (self.priority, self.updated) = (priority, true);
    }
}

/// An open stream.
pub trait OpenStream {
    /// The number of a stream.
    type Id: Ord + Copy;

    /// The number.
    fn id(&self) -> Self::Id;

    /// When it sends.
    fn turn(&self) -> &Turn;

    /// The same, to change it.
    fn turn_mut(&mut self) -> &mut Turn;
}

/// The open streams of a connection, in the order of their numbers. A stream costs no allocation once there have been as
/// many. The number of streams is bounded by the side that accepts them.
#[derive(Debug)]
pub struct OpenStreams<S: OpenStream> {
    open: Vec<S>,
    /// The stream that was served last.
    served: Option<S::Id>,
}

impl<S: OpenStream> Default for OpenStreams<S> {
    fn default() -> Self {
        OpenStreams { open: Vec::new(), served: None }
    }
}

impl<S: OpenStream> OpenStreams<S> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    #[inline]
    fn find(&self, id: S::Id) -> Result<usize, usize> {
        // The newest stream is the likeliest.
        if let Some(last) = self.open.last()
            && last.id() == id
        {
            return Ok(self.open.len() - 1);
        }
        self.open.binary_search_by_key(&id, S::id)
    }

    /// A stream by its number.
    #[inline]
    pub fn get(&self, id: S::Id) -> Option<&S> {
        self.find(id).ok().map(|at| &self.open[at])
    }

    /// A stream by its number.
    #[inline]
    pub fn get_mut(&mut self, id: S::Id) -> Option<&mut S> {
        self.find(id).ok().map(|at| &mut self.open[at])
    }

    /// Adds a stream, unless one of its number is there.
    #[inline]
    pub fn insert(&mut self, stream: S) {
        if self.open.last().is_none_or(|last| last.id() < stream.id()) {
            self.open.push(stream);
        } else if let Err(at) = self.find(stream.id()) {
            self.open.insert(at, stream);
        }
    }

    /// Removes a stream.
    pub fn remove(&mut self, id: S::Id) -> Option<S> {
        self.find(id).ok().map(|at| self.open.remove(at))
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = &S> {
        self.open.iter()
    }

    /// All of them, by number.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.open.iter_mut()
    }

    /// The largest number of an open stream.
    pub fn last(&self) -> Option<S::Id> {
        self.open.last().map(S::id)
    }

    /// Whether a stream has data to send.
    pub fn set_ready(&mut self, id: S::Id, ready: bool) {
        if let Some(open) = self.get_mut(id) {
            open.turn_mut().ready = ready;
        }
    }

    /// Sets the priority that a request's `Priority` field states, unless a PRIORITY_UPDATE frame has come already.
    pub fn set_priority(&mut self, id: S::Id, priority: Priority) {
        if let Some(open) = self.get_mut(id)
            && !open.turn().updated
        {
            open.turn_mut().priority = priority;
        }
    }

    /// Whether any stream has data to send.
    pub fn has_ready(&self) -> bool {
        self.open.iter().any(|stream| stream.turn().ready)
    }

    /// Of the most urgent streams that have data and may send it, the next after the one served last. Those that are not
    /// incremental have one turn together, which the first of them takes.
    #[inline]
    pub fn next_ready(&mut self, may_send: impl Fn(&S) -> bool) -> Option<S::Id> {
        let ready = self.open.iter().filter(|stream| stream.turn().ready && may_send(stream));
        let streams = ready.map(|stream| (stream.id(), stream.turn().priority));
        let next = Priority::next(streams, self.served)?;
        self.served = Some(next);
        Some(next)
    }

    /// Gives back memory that the open streams don't need.
    pub fn shrink(&mut self) {
        self.open.shrink_to_fit();
    }

    /// Bytes of heap memory of the list.
    pub fn heap(&self) -> usize {
        self.open.capacity() * size_of::<S>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct TestStream {
        id: u32,
        turn: Turn,
        /// Bytes of its window.
        window: u32,
    }

    impl OpenStream for TestStream {
        type Id = u32;

        fn id(&self) -> u32 {
            self.id
        }

        fn turn(&self) -> &Turn {
            &self.turn
        }

        fn turn_mut(&mut self) -> &mut Turn {
            &mut self.turn
        }
    }

    type Streams = OpenStreams<TestStream>;

    fn stream(id: u32, ready: bool, urgency: u8, incremental: bool) -> TestStream {
        let priority = Priority { urgency, incremental };
        TestStream { id, turn: Turn { ready, priority, updated: false }, window: 10 }
    }

    fn streams(open: impl IntoIterator<Item = TestStream>) -> Streams {
        let mut streams = Streams::default();
        open.into_iter().for_each(|stream| streams.insert(stream));
        streams
    }

    fn turn(streams: &mut Streams) -> u32 {
        streams.next_ready(|stream| stream.window > 0).unwrap_or(0)
    }

    #[test]
    fn streams_are_found_by_number() {
        let mut streams = streams([5, 1, 9, 7, 1].map(|id| stream(id, false, 3, true)));
        assert_eq!(streams.iter().map(|stream| stream.id).collect::<Vec<_>>(), [1, 5, 7, 9]);
        assert_eq!((streams.len(), streams.last()), (4, Some(9)));
        assert!(streams.get(3).is_none() && streams.remove(3).is_none());
        assert_eq!(streams.remove(5).map(|stream| stream.id), Some(5));
        assert!(streams.get_mut(5).is_none() && streams.get_mut(7).is_some());
    }

    #[test]
    fn ready_streams_take_turns() {
        let mut streams = streams([1, 3, 5, 7].map(|id| stream(id, id != 3, 3, true)));
        assert_eq!([(); 4].map(|()| turn(&mut streams)), [1, 5, 7, 1]);
        streams.remove(5);
        assert_eq!([(); 2].map(|()| turn(&mut streams)), [7, 1]);
        streams.get_mut(7).unwrap().window = 0;
        assert_eq!([(); 2].map(|()| turn(&mut streams)), [1, 1]);
        streams.set_ready(1, false);
        assert!(streams.has_ready());
        streams.set_ready(7, false);
        assert!(!streams.has_ready());
    }

    #[test]
    fn the_most_urgent_streams_come_first() {
        let of = [(1, 3), (3, 1), (5, 7), (7, 1)];
        let mut streams = streams(of.map(|(id, urgency)| stream(id, true, urgency, true)));
        assert_eq!([(); 3].map(|()| turn(&mut streams)), [3, 7, 3]);
        streams.set_ready(3, false);
        streams.get_mut(7).unwrap().window = 0;
        assert_eq!([(); 2].map(|()| turn(&mut streams)), [1, 1]);
        streams.remove(1);
        assert_eq!(turn(&mut streams), 5);
    }

    #[test]
    fn streams_that_are_not_incremental_come_one_after_the_other() {
        let of = [(1, true), (3, false), (5, false), (7, true)];
        let mut streams = streams(of.map(|(id, incremental)| stream(id, true, 3, incremental)));
        assert_eq!([(); 6].map(|()| turn(&mut streams)), [1, 3, 7, 1, 3, 7]);
        // While it has nothing to send, the next one does.
        streams.set_ready(3, false);
        assert_eq!([(); 3].map(|()| turn(&mut streams)), [1, 5, 7]);
        streams.set_ready(3, true);
        assert_eq!([(); 3].map(|()| turn(&mut streams)), [1, 3, 7]);
    }

    #[test]
    fn updates_have_precedence_over_the_field() {
        let mut streams = streams([stream(1, true, 3, true)]);
        let urgent = |urgency| Priority { urgency, incremental: false };
        streams.set_priority(1, urgent(5));
        assert_eq!(streams.get(1).unwrap().turn.priority, urgent(5));
        streams.get_mut(1).unwrap().turn.update(urgent(1));
        streams.set_priority(1, urgent(7));
        assert_eq!(streams.get(1).unwrap().turn.priority, urgent(1));
    }

    /// By the definition, in several passes.
    fn next_by_definition(streams: &Streams) -> Option<u32> {
        let sends = |stream: &&TestStream| stream.turn.ready && stream.window > 0;
        let sends: Vec<&TestStream> = streams.iter().filter(sends).collect();
        let urgency = sends.iter().map(|stream| stream.turn.priority.urgency).min()?;
        let urgent = sends.iter().filter(|stream| stream.turn.priority.urgency == urgency);
        let whole = urgent.clone().find(|stream| !stream.turn.priority.incremental);
        let incremental = urgent.filter(|stream| stream.turn.priority.incremental);
        let mut turns: Vec<u32> = incremental.chain(whole).map(|stream| stream.id).collect();
        turns.sort_unstable();
        turns.iter().find(|id| Some(**id) > streams.served).or(turns.first()).copied()
    }

    #[test]
    fn one_pass_finds_what_is_defined() {
        let mut state = 1u32;
        for _ in 0..2000 {
            let mut random = |below: u32| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 16) % below
            };
            let mut streams = Streams::default();
            for number in 0..random(7) {
                let (ready, urgency) = (random(4) > 0, random(3) as u8);
                let mut stream = stream(2 * number + 1, ready, urgency, random(2) > 0);
                stream.window = random(3);
                streams.insert(stream);
            }
            streams.served = Some(2 * random(7) + 1);
            let expected = next_by_definition(&streams);
            let next = streams.next_ready(|stream| stream.window > 0);
            assert_eq!(next, expected, "{streams:?}");
        }
    }
}
