//! The samples of a track in a part, and their tables: `stts`, `stss`, `ctts`, `stsz`.

use std::ops::Range;

use crate::Mp4Error;
use crate::atom::{self, SampleTable, set_u32, u32_at};
use crate::cut::Clip;
use crate::track::{Sizes, Track};

/// The samples of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Samples {
    /// Number of the first one, from zero.
    pub start: u64,
    /// Number of the first one after the part; `None`: the part extends to the end of the track.
    pub end: Option<u64>,
    /// What precedes the start time, since a key frame, in units of the track.
    pub prefix: u64,
    /// The kept entries of `stts`.
    entries: Range<usize>,
    /// Samples of the first kept entry.
    first_count: u32,
    /// Samples of the last kept entry, if it is cut.
    last_count: Option<u32>,
}

/// A time in units.
pub fn units(ms: u64, timescale: u32) -> u64 {
    let units = u128::from(ms) * u128::from(timescale) / 1000;
    u64::try_from(units).unwrap_or(u64::MAX)
}

impl Samples {
    /// The samples between the times of `clip`.
    ///
    /// # Errors
    /// [`Mp4Error`]
    pub fn find(track: &Track<'_>, clip: &Clip) -> Result<Self, Mp4Error> {
        let stts = track.stts.ok_or(Mp4Error::Missing("stts"))?;
        let timescale = track.mdhd.map_or(0, |mdhd| mdhd.timescale);
        let mut samples = Self::from(&stts, units(clip.start_ms, timescale))?;
        if clip.start_key_frame
            && let Some(stss) = &track.stss
        {
            samples.back_to(&stts, key_frame(stss, samples.start)?);
        }
        if let Some(length_ms) = clip.length_ms {
            let time = units(length_ms.get(), timescale).saturating_add(samples.prefix);
            samples.until(&stts, time);
        }
        Ok(samples)
    }

    /// Those from a time on.
    fn from(stts: &SampleTable<'_, 8>, mut time: u64) -> Result<Self, Mp4Error> {
        let entries = stts.entries().len();
        let mut start = 0;
        for number in 0..entries {
            let (count, duration) = stts.pair(number).unwrap_or_default();
            let span = u64::from(count) * u64::from(duration);
            if time < span {
                // A quotient of less than `count`.
                let before = time / u64::from(duration);
                return Ok(Self {
                    start: start + before,
                    end: None,
                    prefix: 0,
                    entries: number..entries,
                    first_count: count - u32::try_from(before).unwrap_or(count),
                    last_count: None,
                });
            }
            start += u64::from(count);
            time -= span;
        }
        Err(Mp4Error::Out { time: "start", table: "stts samples" })
    }

    /// Begins this many samples earlier; there are that many.
    fn back_to(&mut self, stts: &SampleTable<'_, 8>, mut samples: u64) {
        self.start -= samples;
        while samples > 0 {
            let (count, duration) = stts.pair(self.entries.start).unwrap_or_default();
            let before = u64::from(count - self.first_count);
            let taken = before.min(samples);
            self.prefix = self.prefix.saturating_add(taken * u64::from(duration));
            self.first_count += u32::try_from(taken).unwrap_or(0);
            samples -= taken;
            if samples > 0 {
                let Some(previous) = self.entries.start.checked_sub(1) else { return };
                self.entries.start = previous;
                self.first_count = 0;
            }
        }
    }

    /// Ends at a time after its beginning.
    fn until(&mut self, stts: &SampleTable<'_, 8>, mut time: u64) {
        let mut end = self.start;
        for number in self.entries.clone() {
            let (mut count, duration) = stts.pair(number).unwrap_or_default();
            if number == self.entries.start {
                count = self.first_count;
            }
            let span = u64::from(count) * u64::from(duration);
            if time < span {
                let kept = time / u64::from(duration);
                end += kept;
                // The first entry stays, even without samples.
                if kept == 0 && number > self.entries.start {
                    self.entries.end = number;
                } else {
                    self.entries.end = number + 1;
                    self.last_count = u32::try_from(kept).ok();
                }
                break;
            }
            end += u64::from(count);
            time -= span;
        }
        self.end = Some(end);
    }

    /// Appends `stts`.
    pub fn write_stts(&self, out: &mut Vec<u8>, stts: &SampleTable<'_, 8>) -> Result<(), Mp4Error> {
        let entries = &stts.entries()[self.entries.clone()];
        let at = atom::table(out, b"stts", &[0; 4], entries)?;
        set_u32(out, at, self.first_count);
        if let Some(count) = self.last_count {
            set_u32(out, at + 8 * (entries.len() - 1), count);
        }
        Ok(())
    }

    /// Appends `stss`, the numbers of key frames.
    pub fn write_stss(&self, out: &mut Vec<u8>, stss: &SampleTable<'_, 4>) -> Result<(), Mp4Error> {
        // Samples are counted from one there.
        let is_from =
            |entry: &&[u8; 4], sample: u64| u64::from(u32::from_be_bytes(**entry)) > sample;
        let entries = stss.entries();
        let start = entries.iter().take_while(|entry| !is_from(entry, self.start)).count();
        let entries = &entries[start..];
        let kept = match self.end {
            Some(end) => entries.iter().take_while(|entry| !is_from(entry, end)).count(),
            None => entries.len(),
        };
        let at = atom::table(out, b"stss", &[0; 4], &entries[..kept])?;
        let earlier = u32::try_from(self.start).unwrap_or(u32::MAX);
        for number in 0..kept {
            let at = at + 4 * number;
            let sample = u32_at(out, at).unwrap_or(0);
            // Entries that are not in order remain so.
            set_u32(out, at, sample.wrapping_sub(earlier));
        }
        Ok(())
    }

    /// Appends `ctts`, with this version, if there are entries for the part.
    pub fn write_ctts(
        &self,
        out: &mut Vec<u8>,
        ctts: &SampleTable<'_, 8>,
        version: &[u8],
    ) -> Result<(), Mp4Error> {
        let find = |from: usize, skipped: u32, mut sample: u64| {
            for number in from..ctts.entries().len() {
                let (mut count, _) = ctts.pair(number).unwrap_or_default();
                if number == from {
                    count -= skipped;
                }
                // The sample is in this entry, after as many others.
                match u32::try_from(sample) {
                    Ok(before) if before < count => return Some((number, before)),
                    _ => sample -= u64::from(count),
                }
            }
            None
        };
        let Some((start, skipped)) = find(0, 0, self.start) else { return Ok(()) };
        let end = self.end.and_then(|end| find(start, skipped, end - self.start));
        // The last entry is cut; without samples it is dropped.
        let last = end.and_then(|(number, kept)| match kept {
            0 => Some((number.checked_sub(1)?, None)),
            _ => Some((number, Some(kept))),
        });
        let last = match (end, last) {
            (None, _) => (ctts.entries().len() - 1, None),
            (Some(_), Some(last)) if last.0 >= start => last,
            (Some(_), _) => return Ok(()),
        };
        let at = atom::table(out, b"ctts", version, &ctts.entries()[start..=last.0])?;
        let (count, _) = ctts.pair(start).unwrap_or_default();
        set_u32(out, at, count - skipped);
        if let Some(kept) = last.1 {
            set_u32(out, at + 8 * (last.0 - start), kept);
        }
        Ok(())
    }

    /// Appends `stsz`.
    pub fn write_stsz(&self, out: &mut Vec<u8>, sizes: &Sizes<'_>) -> Result<(), Mp4Error> {
        let range = self.range(sizes)?;
        match sizes {
            Sizes::Uniform { size, .. } => {
                let count = u32::try_from(range.len()).unwrap_or(u32::MAX);
                let data = [[0; 4], size.to_be_bytes(), count.to_be_bytes()];
                atom::plain(out, b"stsz", data.as_flattened())
            }
            Sizes::Each(table) => {
                atom::table(out, b"stsz", &[0; 8], &table.entries()[range]).map(|_| ())
            }
        }
    }

    /// The samples of the part among those with sizes.
    fn range(&self, sizes: &Sizes<'_>) -> Result<Range<usize>, Mp4Error> {
        let count = match sizes {
            Sizes::Uniform { count, .. } => *count as usize,
            Sizes::Each(table) => table.entries().len(),
        };
        let table = "stsz samples";
        let start = usize::try_from(self.start).ok().filter(|&start| start < count);
        let start = start.ok_or(Mp4Error::Out { time: "start", table })?;
        let end = match self.end {
            None => count,
            Some(end) => usize::try_from(end)
                .ok()
                .filter(|&end| end <= count)
                .ok_or(Mp4Error::Out { time: "end", table })?,
        };
        Ok(start..end)
    }
}

/// Bytes of the `count` samples before sample `end`; a file with `file_bytes` must have them.
///
/// # Errors
/// [`Mp4Error`]: `time` is the one for which the size is needed.
pub fn bytes_before(
    sizes: &Sizes<'_>,
    end: u64,
    count: u64,
    time: &'static str,
    file_bytes: u64,
) -> Result<u64, Mp4Error> {
    let sum = match sizes {
        Sizes::Uniform { size, .. } => u64::from(*size).saturating_mul(count),
        Sizes::Each(table) => {
            let start = end.checked_sub(count).and_then(|start| usize::try_from(start).ok());
            let range = start.zip(usize::try_from(end).ok());
            let sizes = range.and_then(|(start, end)| table.entries().get(start..end));
            let sizes = sizes.ok_or(Mp4Error::Out { time, table: "stsz samples" })?;
            sizes.iter().map(|size| u64::from(u32::from_be_bytes(*size))).sum()
        }
    };
    if sum > file_bytes { Err(Mp4Error::SampleSizes(time)) } else { Ok(sum) }
}

/// How many samples before this one the last key frame is; 0 if there is none.
fn key_frame(stss: &SampleTable<'_, 4>, sample: u64) -> Result<u64, Mp4Error> {
    let mut before = 0;
    for entry in stss.entries() {
        // Counted from one.
        let number = u64::from(u32::from_be_bytes(*entry)).checked_sub(1);
        let number = number.ok_or(Mp4Error::Zero("sync sample"))?;
        let Some(distance) = sample.checked_sub(number) else { break };
        before = distance;
    }
    Ok(before)
}
