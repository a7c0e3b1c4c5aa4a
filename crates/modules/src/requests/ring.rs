//! Rings of recent requests: one per worker, written by it alone and read by any thread, without locks.
//!
//! A ring is an array of records of [`WORDS`] numbers. The first of a record is its sequence lock: odd while it is being
//! written, and different afterwards, so that a reader notices if a record has changed under it and leaves it out. All
//! of it is safe code: words are atomic, and what is read from a torn record is thrown away.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use nowait_runtime::clock;

/// Words of a record: 656 bytes.
pub const WORDS: usize = 82;

/// The words of a record, without its lock.
pub type Words = [u64; WORDS - 1];

/// Records whose memory is allocated together, when the first of them is written: the event loop would wait
/// milliseconds for the memory of a large ring.
const CHUNK_RECORDS: usize = 64;

/// The ring of a worker.
pub struct Ring {
    chunks: Box<[OnceLock<Box<[AtomicU64]>>]>,
    records: usize,
    /// Records written so far.
    written: AtomicU64,
    /// Different from the numbers of all other rings, also from those of earlier processes.
    number: u64,
}

struct Rings {
    /// The number of the next ring; zero until there is one.
    next: u64,
    all: Vec<Weak<Ring>>,
}

/// The rings of this process.
static RINGS: Mutex<Rings> = Mutex::new(Rings { next: 0, all: Vec::new() });

thread_local! {
    /// That of this worker.
    static OWN: RefCell<Option<Arc<Ring>>> = const { RefCell::new(None) };
}

fn rings() -> MutexGuard<'static, Rings> {
    RINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ring {
    fn new(records: usize, number: u64) -> Self {
        let chunks = (0..records.div_ceil(CHUNK_RECORDS)).map(|_| OnceLock::new()).collect();
        Self { chunks, records, written: AtomicU64::new(0), number }
    }

    /// Where the record with this sequence number is: its chunk, and its first word there.
    fn place(&self, sequence: u64) -> (usize, usize) {
        let at = usize::try_from(sequence).unwrap_or(0) % self.records;
        (at / CHUNK_RECORDS, at % CHUNK_RECORDS * WORDS)
    }

    /// Writes a record. Only its worker calls this.
    fn push(&self, numbers: &[u64], text: &[u8]) {
        let sequence = self.written.load(Ordering::Relaxed);
        let (chunk, at) = self.place(sequence);
        let words = self.chunks[chunk].get_or_init(|| {
            let records = CHUNK_RECORDS.min(self.records - chunk * CHUNK_RECORDS);
            (0..records * WORDS).map(|_| AtomicU64::new(0)).collect()
        });
        let record = &words[at..at + WORDS];
        // Odd: it is being written.
        record[0].store(2 * sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        // Plain loops: this happens for every request.
        let (first, behind) = record[1..].split_at(numbers.len().min(WORDS - 1));
        for (word, value) in first.iter().zip(numbers) {
            word.store(*value, Ordering::Relaxed);
        }
        let (whole, rest) = text.as_chunks::<8>();
        for (word, bytes) in behind.iter().zip(whole) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        if let Some(word) = behind.get(whole.len()) {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            word.store(u64::from_le_bytes(last), Ordering::Relaxed);
        }
        record[0].store(2 * sequence + 2, Ordering::Release);
        self.written.store(sequence + 1, Ordering::Release);
    }

    /// Reads the records from this sequence number on; calls `each` with their numbers. Returns how many were
    /// overwritten before, and the number after the last.
    fn read(&self, from: u64, each: &mut dyn FnMut(u64, &Words)) -> (u64, u64) {
        let end = self.written.load(Ordering::Acquire);
        let first = end.saturating_sub(self.records as u64).max(from.min(end));
        let mut missed = first - from.min(end);
        for sequence in first..end {
            let (chunk, at) = self.place(sequence);
            let Some(words) = self.chunks[chunk].get() else { continue };
            let record = &words[at..at + WORDS];
            let before = record[0].load(Ordering::Acquire);
            let words = std::array::from_fn(|at| record[at + 1].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            let after = record[0].load(Ordering::Relaxed);
            if before == after && before == 2 * sequence + 2 {
                each(sequence, &words);
            } else {
                missed += 1;
            }
        }
        (missed, end)
    }
}

/// Gives this worker a ring of this many records, if it has none; a ring of another size is replaced, and its records
/// are lost. Zero: it needs no ring.
pub fn resize(records: usize) {
    OWN.with_borrow_mut(|own| {
        if own.as_ref().map_or(0, |ring| ring.records) != records {
            *own = (records > 0).then(|| join(records));
        }
    });
}

/// Writes a record of this worker into its ring, if it has one: numbers, and behind them a text, of which eight bytes
/// are a word. What does not fit is cut off.
pub fn push(numbers: &[u64], text: &[u8]) {
    OWN.with_borrow(|own| {
        if let Some(ring) = own {
            ring.push(numbers, text);
        }
    });
}

fn join(records: usize) -> Arc<Ring> {
    let mut rings = rings();
    // A reader's place may be from an earlier process, whose rings it must not confuse with these.
    let number = if rings.next == 0 { clock().unix_ms().max(1) } else { rings.next };
    rings.next = number + 1;
    let ring = Arc::new(Ring::new(records, number));
    rings.all.retain(|ring| ring.strong_count() > 0);
    rings.all.push(Arc::downgrade(&ring));
    ring
}

/// A reader's place in all rings: what it has seen of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place(Vec<(u64, u64)>);

/// Rings that a place may name.
const PLACES_MAX: usize = 1024;

impl Place {
    /// Reads the text of a place; `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let entry = |entry: &str| {
            let (ring, sequence) = entry.split_once('.')?;
            Some((ring.parse().ok()?, sequence.parse().ok()?))
        };
        if text.is_empty() {
            return Some(Self::default());
        }
        let entries =
            text.split('-').take(PLACES_MAX + 1).map(entry).collect::<Option<Vec<_>>>()?;
        (entries.len() <= PLACES_MAX).then_some(Self(entries))
    }

    fn of(&self, ring: u64) -> Option<u64> {
        self.0.iter().find(|(number, _)| *number == ring).map(|(_, sequence)| *sequence)
    }
}

/// Its text, which URLs take as it is.
impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, (ring, sequence)) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { "-" };
            write!(f, "{separator}{ring}.{sequence}")?;
        }
        Ok(())
    }
}

/// Reads the records of all rings behind a place; without one, all that are there. Returns the new place, and how
/// many records were overwritten in between.
pub fn read(from: Option<&Place>, each: &mut dyn FnMut(&Words)) -> (Place, u64) {
    let all: Vec<Arc<Ring>> = rings().all.iter().filter_map(Weak::upgrade).collect();
    let (mut place, mut missed) = (Vec::new(), 0);
    for ring in all {
        let seen = from.and_then(|from| from.of(ring.number));
        let (lost, end) = ring.read(seen.unwrap_or(0), &mut |_, words| each(words));
        // What was overwritten before the first look is not missed.
        missed += if seen.is_some() { lost } else { 0 };
        place.push((ring.number, end));
    }
    (Place(place), missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn the_last_records_are_kept() {
        let ring = Ring::new(4, 0);
        for n in 0..6 {
            ring.push(&[n, 10 * n], b"");
        }
        let mut seen = Vec::new();
        assert_eq!(ring.read(0, &mut |at, words| seen.push((at, words[0], words[1]))), (2, 6));
        assert_eq!(seen, [(2, 2, 20), (3, 3, 30), (4, 4, 40), (5, 5, 50)]);
        assert_eq!(ring.read(6, &mut |_, _| panic!("nothing is new")), (0, 6));
        // The place of a ring of another time.
        assert_eq!(ring.read(99, &mut |_, _| panic!("nothing is new")), (0, 6));
    }

    #[test]
    fn memory_is_allocated_as_records_come() {
        let ring = Ring::new(CHUNK_RECORDS + 2, 0);
        let allocated = || ring.chunks.iter().filter_map(|chunk| Some(chunk.get()?.len())).sum();
        assert_eq!((ring.read(0, &mut |_, _| panic!("it is empty")), allocated()), ((0, 0), 0));
        ring.push(&[1], b"");
        assert_eq!(allocated(), CHUNK_RECORDS * WORDS);
        for n in 0..200 {
            ring.push(&[n], b"");
        }
        assert_eq!(allocated(), (CHUNK_RECORDS + 2) * WORDS);
        let mut seen = Vec::new();
        assert_eq!(ring.read(0, &mut |_, words| seen.push(words[0])), (135, 201));
        assert_eq!(seen, (134..200).collect::<Vec<u64>>());
    }

    #[test]
    fn a_worker_has_one_ring() {
        let number = || OWN.with_borrow(|own| own.as_ref().map(|ring| ring.number));
        push(&[1], b"");
        assert_eq!(number(), None, "no configuration has asked for one");
        resize(4);
        let first = number();
        assert!(first > Some(1_000_000_000_000), "{first:?}");
        push(&[1], b"");
        resize(4);
        assert_eq!(number(), first);
        resize(5);
        assert!(number() > first);
        resize(0);
        assert_eq!(number(), None);
    }

    #[test]
    fn torn_records_are_left_out() {
        let ring = Arc::new(Ring::new(2, 0));
        let ended = Arc::new(AtomicBool::new(false));
        let writer = {
            let (ring, ended) = (ring.clone(), ended.clone());
            std::thread::spawn(move || {
                let mut n = 0;
                while !ended.load(Ordering::Relaxed) {
                    n += 1;
                    ring.push(&[n; WORDS - 2], &n.to_le_bytes());
                }
            })
        };
        let mut seen = 0;
        while seen < 1000 {
            ring.read(0, &mut |_, words| {
                assert!(words.iter().all(|word| *word == words[0]), "{words:?}");
                seen += 1;
            });
        }
        ended.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }

    #[test]
    fn places() {
        for text in ["", "0.7", "0.7-1.18446744073709551615"] {
            assert_eq!(Place::parse(text).unwrap().to_string(), text);
        }
        for bad in ["7", "0.7-", "a.b", "0.7,1.8", "0.-1"] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
        assert_eq!(Place::parse(&"0.0-".repeat(5000)), None);
    }
}
