//! The chunks of a track in a part, and their tables: `stsc`, `stco`, `co64`.

use crate::Mp4Error;
use crate::atom::{self, SampleTable, set_u32, set_u64, u32_at, u64_at};
use crate::samples::{Samples, bytes_before};
use crate::track::{Offsets, Sizes};

/// The chunks of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunks {
    /// Number of the first one, from zero.
    pub start: u64,
    /// Number of the first one after the part; `None`: the part extends to the end of the track.
    pub end: Option<u64>,
    /// Samples of the first chunk that precede the part.
    skipped: u64,
    /// Samples of the last chunk that are in the part.
    last: u64,
    /// `stsc` of the part.
    runs: Vec<ChunkRun>,
}

/// Chunks with equally many samples: an entry of `stsc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ChunkRun {
    /// Number of the first chunk, from one.
    chunk: u32,
    /// Samples of each chunk.
    samples: u32,
    /// Number of the description of these samples.
    id: u32,
}

/// The position of a sample among runs.
struct SamplePosition {
    /// Number of the run.
    run: usize,
    /// Number of the first chunk after the run, from one.
    next: u64,
    /// Samples of the run before it.
    sample: u64,
    /// Samples of the chunk before the run, if there is one.
    before: Option<u32>,
}

impl SamplePosition {
    /// Finds a sample among the runs of a track with this many chunks.
    fn of(
        runs: &[ChunkRun],
        mut sample: u64,
        chunks: u64,
        time: &'static str,
    ) -> Result<Self, Mp4Error> {
        let mut before = None;
        for (number, run) in runs.iter().enumerate() {
            let last = number + 1 == runs.len();
            let next = runs.get(number + 1).map_or(chunks + 1, |next| u64::from(next.chunk));
            let count = next.checked_sub(u64::from(run.chunk)).ok_or(Mp4Error::Unordered)?;
            let samples = count.saturating_mul(u64::from(run.samples));
            if last && sample > samples {
                return Err(Mp4Error::Out { time, table: "stsc chunks" });
            }
            if last || sample < samples {
                return match (run.samples, run.chunk) {
                    (0, _) => Err(Mp4Error::Zero("number of samples")),
                    (_, 0) => Err(Mp4Error::Zero("chunk")),
                    _ => Ok(Self { run: number, next, sample, before }),
                };
            }
            sample -= samples;
            if count > 0 {
                before = Some(run.samples);
            }
        }
        Err(Mp4Error::Zero("number of entries in stsc atom"))
    }
}

impl Chunks {
    /// The chunks with these samples.
    ///
    /// # Errors
    /// [`Mp4Error`]
    pub fn find(
        stsc: &SampleTable<'_, 12>,
        offsets: &Offsets<'_>,
        samples: &Samples,
    ) -> Result<Self, Mp4Error> {
        let run = |entry: &[u8; 12]| {
            let number = |at| u32_at(entry, at).unwrap_or(0);
            ChunkRun { chunk: number(0), samples: number(4), id: number(8) }
        };
        let mut runs: Vec<ChunkRun> = stsc.entries().iter().map(run).collect();
        let count = offsets.count() as u64;
        let place = SamplePosition::of(&runs, samples.start, count, "start")?;
        runs.drain(..place.run);
        let first = &mut runs[0];
        let per_chunk = u64::from(first.samples);
        let start = u64::from(first.chunk) - 1 + place.sample / per_chunk;
        let skipped = place.sample % per_chunk;
        if start >= count {
            let table = match offsets {
                Offsets::Narrow(_) => "stco chunks",
                Offsets::Wide(_) => "co64 chunks",
            };
            return Err(Mp4Error::Out { time: "start", table });
        }
        // A chunk of which only a part is kept is a run of its own. There are fewer than 2^30 chunks,
        // because their offsets are in memory.
        let number = |chunk: u64| u32::try_from(chunk).unwrap_or(u32::MAX);
        first.chunk = number(start + 1);
        let mut partial = None;
        if skipped > 0 {
            let kept = ChunkRun { samples: first.samples - number(skipped), ..*first };
            if place.next - 1 - start == 1 {
                *first = kept;
            } else {
                partial = Some(kept);
                first.chunk += 1;
            }
        }
        let mut chunks = Self { start, end: None, skipped, last: 0, runs };
        let Some(end) = samples.end else {
            chunks.runs.splice(..0, partial);
            chunks.renumber();
            return Ok(chunks);
        };
        chunks.end_after(end - samples.start, partial, count)?;
        chunks.renumber();
        Ok(chunks)
    }

    /// Keeps this many samples; `partial` is the first chunk if it is not among the runs.
    fn end_after(
        &mut self,
        mut left: u64,
        partial: Option<ChunkRun>,
        count: u64,
    ) -> Result<(), Mp4Error> {
        if left == 0 {
            self.runs.clear();
            self.end = Some(self.start);
            return Ok(());
        }
        if let Some(partial) = &partial {
            let kept = u64::from(partial.samples);
            if left <= kept {
                let samples = u32::try_from(left).unwrap_or(partial.samples);
                self.runs = vec![ChunkRun { samples, ..*partial }];
                (self.end, self.last) = (Some(self.start + 1), left);
                return Ok(());
            }
            left -= kept;
        }
        let place = SamplePosition::of(&self.runs, left, count, "end")?;
        let run = &mut self.runs[place.run];
        let per_chunk = u64::from(run.samples);
        let before = u64::from(run.chunk) - 1;
        let whole = place.sample / per_chunk;
        let rest = place.sample % per_chunk;
        let last = ChunkRun { samples: u32::try_from(rest).unwrap_or(0), ..*run };
        let mut own = None;
        match (whole, rest) {
            (0, 0) => {
                self.last = place.before.or(partial.map(|run| run.samples)).unwrap_or(0).into();
                self.runs.truncate(place.run);
            }
            (_, 0) => {
                self.last = per_chunk;
                self.runs.truncate(place.run + 1);
            }
            (0, _) => {
                self.last = rest;
                *run = last;
                self.runs.truncate(place.run + 1);
            }
            (_, _) => {
                self.last = rest;
                let chunk = u32::try_from(before + whole + 1).unwrap_or(u32::MAX);
                own = Some(ChunkRun { chunk, ..last });
                self.runs.truncate(place.run + 1);
            }
        }
        self.end = Some(before + whole + u64::from(rest > 0));
        self.runs.splice(..0, partial);
        self.runs.extend(own);
        Ok(())
    }

    /// Counts chunks from the first one of the part.
    fn renumber(&mut self) {
        let start = u32::try_from(self.start).unwrap_or(u32::MAX);
        for run in &mut self.runs {
            run.chunk = run.chunk.wrapping_sub(start);
        }
    }

    /// Appends `stsc`.
    pub fn write_stsc(&self, out: &mut Vec<u8>) -> Result<(), Mp4Error> {
        let entry = |run: &ChunkRun| {
            let mut entry = [0; 12];
            set_u32(&mut entry, 0, run.chunk);
            set_u32(&mut entry, 4, run.samples);
            set_u32(&mut entry, 8, run.id);
            entry
        };
        let entries: Vec<[u8; 12]> = self.runs.iter().map(entry).collect();
        atom::table(out, b"stsc", &[0; 4], &entries).map(|_| ())
    }

    /// Appends `stco` or `co64`, with the offsets in the file.
    ///
    /// # Errors
    /// [`Mp4Error`]
    pub fn write_offsets(
        &self,
        out: &mut Vec<u8>,
        offsets: &Offsets<'_>,
        sizes: &Sizes<'_>,
        samples: &Samples,
        file_bytes: u64,
    ) -> Result<ChunkOffsets, Mp4Error> {
        let skipped = bytes_before(sizes, samples.start, self.skipped, "start", file_bytes)?;
        let count = offsets.count() as u64;
        if self.end.is_some_and(|end| end > count) {
            let table = match offsets {
                Offsets::Narrow(_) => "stco chunks",
                Offsets::Wide(_) => "co64 chunks",
            };
            return Err(Mp4Error::Out { time: "end", table });
        }
        // Chunks are in memory: their numbers fit.
        let at = |chunk: u64| usize::try_from(chunk).unwrap_or(usize::MAX);
        let range = at(self.start)..at(self.end.unwrap_or(count));
        let mut written = match offsets {
            Offsets::Narrow(table) => {
                let at = atom::table(out, b"stco", &[0; 4], &table.entries()[range.clone()])?;
                ChunkOffsets { at, count: range.len(), wide: false, start: 0, end: None }
            }
            Offsets::Wide(table) => {
                let at = atom::table(out, b"co64", &[0; 4], &table.entries()[range.clone()])?;
                ChunkOffsets { at, count: range.len(), wide: true, start: 0, end: None }
            }
        };
        if written.count == 0 {
            written.start = file_bytes;
            written.end = Some(0);
            return Ok(written);
        }
        let in_file = |offset: u64, bytes: u64| {
            let end = offset.checked_add(bytes).filter(|&end| end <= file_bytes);
            end.ok_or(Mp4Error::ChunkOffset)
        };
        written.start = in_file(written.offset(out, 0), skipped)?;
        written.set_offset(out, 0, written.start)?;
        if let (Some(_), Some(end)) = (self.end, samples.end) {
            let last = bytes_before(sizes, end, self.last, "end", file_bytes)?;
            written.end = Some(in_file(written.offset(out, written.count - 1), last)?);
        }
        Ok(written)
    }
}

/// Appended offsets of chunks, and the extent of the part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChunkOffsets {
    at: usize,
    count: usize,
    wide: bool,
    /// The start of the part in the file.
    pub start: u64,
    /// The end of the part; `None`: with the content.
    pub end: Option<u64>,
}

impl ChunkOffsets {
    fn offset(&self, out: &[u8], number: usize) -> u64 {
        let offset = match self.wide {
            true => u64_at(out, self.at + 8 * number),
            false => u32_at(out, self.at + 4 * number).map(u64::from),
        };
        offset.unwrap_or(0)
    }

    fn set_offset(&self, out: &mut [u8], number: usize, offset: u64) -> Result<(), Mp4Error> {
        if self.wide {
            set_u64(out, self.at + 8 * number, offset);
        } else {
            let offset = u32::try_from(offset).map_err(|_| Mp4Error::ChunkOffset)?;
            set_u32(out, self.at + 4 * number, offset);
        }
        Ok(())
    }

    /// Changes all offsets: position `from` of the file becomes `to`.
    ///
    /// # Errors
    /// [`Mp4Error::ChunkOffset`]
    pub fn shift(&self, out: &mut [u8], from: u64, to: u64) -> Result<(), Mp4Error> {
        for number in 0..self.count {
            let offset = self.offset(out, number).checked_sub(from);
            let offset = offset.and_then(|offset| offset.checked_add(to));
            self.set_offset(out, number, offset.ok_or(Mp4Error::ChunkOffset)?)?;
        }
        Ok(())
    }
}
