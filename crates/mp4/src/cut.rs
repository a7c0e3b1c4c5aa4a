//! The beginning of a part: a shortened `moov`, and the range of the file that follows.

use std::num::NonZeroU64;
use std::ops::Range;

use crate::Mp4Error;
use crate::atom::{self, Atom, Atoms, HEADER, HEADER_64, set_u32, set_u64};
use crate::chunks::{ChunkOffsets, Chunks};
use crate::samples::{Samples, units};
use crate::scan::Layout;
use crate::track::{Times, Track};

/// The wanted part of a movie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clip {
    /// Where it begins, in milliseconds.
    pub start_ms: u64,
    /// The length in milliseconds; `None`: to the end.
    pub length_ms: Option<NonZeroU64>,
    /// It begins with a key frame: the one before the start time, from which players decode, without
    /// showing, what precedes that time.
    pub start_key_frame: bool,
}

/// A part of a movie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MovieHead {
    /// The beginning.
    pub bytes: Vec<u8>,
    /// The range of the file that follows; not empty.
    pub content: Range<u64>,
}

/// The length of the movie, in milliseconds, by the data of its `moov` atom.
pub fn duration_ms(moov: &[u8]) -> Option<u64> {
    let mvhd = Atoms(moov).map_while(Result::ok).find(|atom| atom.name == b"mvhd")?;
    let times = Times::mvhd(mvhd.data).ok()?;
    let ms = u128::from(times.duration) * 1000
        / u128::from(NonZeroU64::new(times.timescale.into())?.get());
    u64::try_from(ms).ok()
}

/// Makes a part of a movie. `moov` is the data of that atom.
///
/// # Errors
/// [`Mp4Error`]
pub fn cut(layout: &Layout, moov: &[u8], clip: &Clip) -> Result<MovieHead, Mp4Error> {
    let mut bytes = layout.ftyp.clone();
    let offsets = atom::nested(&mut bytes, b"moov", |out| write_moov(out, layout, moov, clip))?;
    let start = offsets.iter().map(|of| of.start).min().unwrap_or(layout.size);
    let end = offsets.iter().map(|of| of.end.unwrap_or(layout.mdat.end)).max().unwrap_or(0);
    if end <= start {
        return Err(Mp4Error::NoData);
    }
    if start >= layout.mdat.end {
        return Err(Mp4Error::Out { time: "start", table: "mdat atom" });
    }
    let len = end - start;
    let at = bytes.len();
    bytes.extend_from_slice(b"\0\0\0\x01mdat");
    match u32::try_from(len + HEADER as u64) {
        Ok(size) => set_u32(&mut bytes, at, size),
        Err(_) => {
            bytes.extend_from_slice(&[0; 8]);
            set_u64(&mut bytes, at + HEADER, len + HEADER_64 as u64);
        }
    }
    let to = bytes.len() as u64;
    for of in offsets {
        of.shift(&mut bytes, start, to)?;
    }
    Ok(MovieHead { bytes, content: start..end })
}

fn write_moov(
    out: &mut Vec<u8>,
    layout: &Layout,
    moov: &[u8],
    clip: &Clip,
) -> Result<Vec<ChunkOffsets>, Mp4Error> {
    let mut timescale = None;
    let mut tracks = Vec::new();
    for atom in Atoms(moov) {
        let Atom { name, data } = atom?;
        match name {
            b"mvhd" => {
                let times = Times::mvhd(data)?;
                if timescale.replace(times.timescale).is_some() {
                    return Err(Mp4Error::Duplicate("mvhd"));
                }
                let start = units(clip.start_ms, times.timescale);
                let left = times.duration.checked_sub(start).ok_or(Mp4Error::Start)?;
                atom::plain(out, b"mvhd", &times.with(shortened(left, clip, times.timescale)))?;
            }
            b"trak" => {
                let track = Track::read(data)?;
                tracks.extend(write_track(out, layout, &track, clip, timescale.unwrap_or(0))?);
            }
            b"cmov" => return Err(Mp4Error::Compressed),
            _ => {}
        }
    }
    if tracks.is_empty() { Err(Mp4Error::Missing("trak")) } else { Ok(tracks) }
}

/// The part of what follows the start time that is wanted.
fn shortened(left: u64, clip: &Clip, timescale: u32) -> u64 {
    clip.length_ms.map_or(left, |length| left.min(units(length.get(), timescale)))
}

/// The wanted part of a track's duration; `None`: the track ends before it.
fn duration(of: &Times<'_>, timescale: u32, clip: &Clip) -> Option<u64> {
    let left = of.duration.checked_sub(units(clip.start_ms, timescale)).filter(|&left| left > 0)?;
    Some(shortened(left, clip, timescale))
}

/// Appends a track, unless it ends before the part.
fn write_track(
    out: &mut Vec<u8>,
    layout: &Layout,
    track: &Track<'_>,
    clip: &Clip,
    timescale: u32,
) -> Result<Option<ChunkOffsets>, Mp4Error> {
    let in_movie = track.tkhd.map(|tkhd| duration(&tkhd, timescale, clip));
    let in_media = track.mdhd.map(|mdhd| duration(&mdhd, mdhd.timescale, clip));
    if in_movie == Some(None) || in_media == Some(None) {
        return Ok(None);
    }
    let in_movie = in_movie.flatten().unwrap_or(0);
    let in_media = in_media.flatten().unwrap_or(0);
    let samples = Samples::find(track, clip)?;
    let stsc = track.stsc.ok_or(Mp4Error::Missing("stsc"))?;
    let offsets = track.offsets.ok_or(Mp4Error::Missing("stco"))?;
    let chunks = Chunks::find(&stsc, &offsets, &samples)?;
    let optional = |out: &mut Vec<u8>, name: &[u8; 4], data: Option<&[u8]>| {
        data.map_or(Ok(()), |data| atom::plain(out, name, data))
    };
    atom::nested(out, b"trak", |out| {
        optional(out, b"tkhd", track.tkhd.map(|tkhd| tkhd.with(in_movie)).as_deref())?;
        if samples.prefix > 0 {
            write_edit(out, in_movie, samples.prefix)?;
        }
        atom::nested(out, b"mdia", |out| {
            let decoded = in_media.saturating_add(samples.prefix);
            optional(out, b"mdhd", track.mdhd.map(|mdhd| mdhd.with(decoded)).as_deref())?;
            optional(out, b"hdlr", track.hdlr)?;
            atom::nested(out, b"minf", |out| {
                optional(out, b"vmhd", track.vmhd)?;
                optional(out, b"smhd", track.smhd)?;
                optional(out, b"dinf", track.dinf)?;
                atom::nested(out, b"stbl", |out| {
                    write_tables(out, layout, track, &samples, &chunks)
                })
            })
        })
    })
    .map(Some)
}

/// Appends the tables of a track.
fn write_tables(
    out: &mut Vec<u8>,
    layout: &Layout,
    track: &Track<'_>,
    samples: &Samples,
    chunks: &Chunks,
) -> Result<ChunkOffsets, Mp4Error> {
    if let Some(stsd) = track.stsd {
        atom::plain(out, b"stsd", stsd)?;
    }
    samples.write_stts(out, &track.stts.ok_or(Mp4Error::Missing("stts"))?)?;
    if let Some(stss) = &track.stss {
        samples.write_stss(out, stss)?;
    }
    if let Some((ctts, version)) = &track.ctts {
        samples.write_ctts(out, ctts, version)?;
    }
    chunks.write_stsc(out)?;
    // nginx differs: without sizes it sends a file that can't be played.
    let sizes = track.stsz.ok_or(Mp4Error::Missing("stsz"))?;
    samples.write_stsz(out, &sizes)?;
    let offsets = track.offsets.ok_or(Mp4Error::Missing("stco"))?;
    chunks.write_offsets(out, &offsets, &sizes, samples, layout.size)
}

/// Appends an edit list that skips what precedes the start time: `duration` units of the movie from
/// `start` units of the track on.
fn write_edit(out: &mut Vec<u8>, duration: u64, start: u64) -> Result<(), Mp4Error> {
    atom::nested(out, b"edts", |out| {
        let mut edit = [0; 28];
        // Version 1, one entry, at the usual rate.
        edit[0] = 1;
        edit[7] = 1;
        set_u64(&mut edit, 8, duration);
        set_u64(&mut edit, 16, start);
        edit[25] = 1;
        atom::plain(out, b"elst", &edit)
    })
}
