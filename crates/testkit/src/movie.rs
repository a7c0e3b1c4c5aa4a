//! MP4 files: one is written from its samples, and the samples of one are read again.

use std::fmt;

/// A sample.
#[derive(Clone, PartialEq, Eq)]
pub struct MovieSample {
    /// In units of the track.
    pub duration: u32,
    /// Decoding can begin with it.
    pub key: bool,
    /// How much later than decoded it is shown, in units of the track.
    pub delay: u32,
    /// The content.
    pub bytes: Vec<u8>,
}

impl fmt::Debug for MovieSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.bytes[..self.bytes.len().min(6)].escape_ascii().to_string())
    }
}

/// A track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Track {
    /// Units per second.
    pub timescale: u32,
    /// The samples.
    pub samples: Vec<MovieSample>,
    /// Samples per chunk: the first one, the second one, and so on, over and over.
    pub chunks: Vec<usize>,
    /// Offsets, times and durations have 64 bits.
    pub wide: bool,
    /// There are key frames, and delays.
    pub video: bool,
    /// All samples have the same size, which is stated once.
    pub uniform: bool,
}

/// What is played of a track.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlayedTrack {
    /// Length of the track, in units of the movie.
    pub duration: u64,
    /// Length of the media, in units of the track.
    pub decoded: u64,
    /// What the edit list shows: a duration, in units of the movie, and where it begins in the media.
    pub edit: Option<(u64, u64)>,
    /// The samples.
    pub samples: Vec<MovieSample>,
}

/// Units per second of the movie.
pub const TIMESCALE: u64 = 1000;

impl Track {
    /// Pictures: this many per second for some seconds, each second one begins with a key frame.
    pub fn video(per_second: u32, seconds: u32, chunks: &[usize]) -> Self {
        let sample = |number: u32| MovieSample {
            duration: 1000 / per_second,
            key: number.is_multiple_of(2 * per_second),
            delay: number % 3,
            bytes: format!("v{number:04}{}", "-".repeat((number % 7) as usize)).into_bytes(),
        };
        Self {
            timescale: 1000,
            samples: (0..per_second * seconds).map(sample).collect(),
            chunks: chunks.to_vec(),
            wide: false,
            video: true,
            uniform: false,
        }
    }

    /// Sound, in samples of equal size.
    pub fn sound(per_second: u32, seconds: u32, chunks: &[usize]) -> Self {
        let sample = |number: u32| MovieSample {
            duration: 10,
            key: true,
            delay: 0,
            bytes: format!("s{number:05}").into_bytes(),
        };
        Self {
            timescale: 10 * per_second,
            samples: (0..per_second * seconds).map(sample).collect(),
            chunks: chunks.to_vec(),
            wide: false,
            video: false,
            uniform: true,
        }
    }

    fn duration(&self) -> u64 {
        self.samples.iter().map(|sample| u64::from(sample.duration)).sum()
    }

    fn movie_duration(&self) -> u64 {
        self.duration() * TIMESCALE / u64::from(self.timescale)
    }

    /// Chunks as numbers of samples.
    fn chunk_sizes(&self) -> Vec<usize> {
        let mut left = self.samples.len();
        let mut sizes = Vec::new();
        for &size in self.chunks.iter().cycle() {
            if left == 0 {
                break;
            }
            sizes.push(size.min(left));
            left -= size.min(left);
        }
        sizes
    }

    fn trak(&self, number: u32, offsets: &[u64]) -> Vec<u8> {
        let number = be(number);
        let tkhd = if self.wide {
            let duration = self.movie_duration().to_be_bytes();
            [&[1, 0, 0, 3], &[0; 16][..], &number, &[0; 4], &duration, &[0; 60]].concat()
        } else {
            let duration = be(self.movie_duration());
            [&[0, 0, 0, 3], &[0; 8][..], &number, &[0; 4], &duration, &[0; 60]].concat()
        };
        let mdhd = if self.wide {
            let duration = self.duration().to_be_bytes();
            [&[1, 0, 0, 0], &[0; 16][..], &be(self.timescale), &duration, &[0; 4]].concat()
        } else {
            [&[0; 12][..], &be(self.timescale), &be(self.duration()), &[0; 4]].concat()
        };
        let handler = if self.video { b"vide" } else { b"soun" };
        let hdlr = [&[0; 8][..], handler, &[0; 13]].concat();
        let media = if self.video { atom("vmhd", &[0; 12]) } else { atom("smhd", &[0; 8]) };
        let dinf = atom("dinf", &atom("dref", &[0; 8]));
        let minf = [media, dinf, atom("stbl", &self.stbl(offsets))].concat();
        let mdia = [atom("mdhd", &mdhd), atom("hdlr", &hdlr), atom("minf", &minf)].concat();
        [atom("tkhd", &tkhd), atom("edts", &atom("free", b"")), atom("mdia", &mdia)].concat()
    }

    fn stbl(&self, offsets: &[u64]) -> Vec<u8> {
        let samples = &self.samples;
        let mut out = atom("stsd", &[&[0; 4][..], &be(1_u32), &[0; 16]].concat());
        out.extend(table("stts", &[0; 4], &runs(samples.iter().map(|sample| sample.duration))));
        if self.video {
            let keys = samples.iter().enumerate().filter(|(_, sample)| sample.key);
            let keys: Vec<[u8; 4]> = keys.map(|(number, _)| be(number + 1)).collect();
            out.extend(table("stss", &[0; 4], &keys));
            out.extend(table(
                "ctts",
                &[1, 0, 0, 0],
                &runs(samples.iter().map(|sample| sample.delay)),
            ));
        }
        let mut stsc: Vec<[u8; 12]> = Vec::new();
        let sizes = self.chunk_sizes();
        for (number, size) in sizes.iter().enumerate() {
            if number == 0 || sizes[number - 1] != *size {
                let entry = [be(number + 1), be(*size), be(1_u32)].concat();
                stsc.push(entry.try_into().expect("three numbers"));
            }
        }
        out.extend(table("stsc", &[0; 4], &stsc));
        if self.uniform {
            let size = samples.first().map_or(0, |sample| sample.bytes.len());
            out.extend(atom("stsz", &[be(0_u32), be(size), be(samples.len())].concat()));
        } else {
            let sizes: Vec<[u8; 4]> = samples.iter().map(|sample| be(sample.bytes.len())).collect();
            out.extend(table("stsz", &[0; 8], &sizes));
        }
        if self.wide {
            let offsets: Vec<[u8; 8]> = offsets.iter().map(|offset| offset.to_be_bytes()).collect();
            out.extend(table("co64", &[0; 4], &offsets));
        } else {
            let offsets: Vec<[u8; 4]> = offsets.iter().map(|offset| be(*offset)).collect();
            out.extend(table("stco", &[0; 4], &offsets));
        }
        out
    }
}

/// A file with these tracks, chunk by chunk in turn.
pub fn movie(tracks: &[Track], moov_first: bool) -> Vec<u8> {
    let ftyp = atom("ftyp", b"isom\0\0\x02\0isomiso2");
    // The offsets do not change the size of their tables.
    let moov = |start: usize| {
        let (offsets, _) = content(tracks, start as u64);
        let longest = tracks.iter().map(Track::movie_duration).max().unwrap_or(0);
        let mvhd = [&[0; 12][..], &be(TIMESCALE), &be(longest), &[0; 80]].concat();
        let mut moov = atom("mvhd", &mvhd);
        for (number, (track, offsets)) in tracks.iter().zip(&offsets).enumerate() {
            let number = u32::try_from(number + 1).expect("few tracks");
            moov.extend(atom("trak", &track.trak(number, offsets)));
        }
        moov.extend(atom("udta", b"dropped"));
        atom("moov", &moov)
    };
    let (_, bytes) = content(tracks, 0);
    let mdat = atom("mdat", &bytes);
    let free = atom("free", &[0; 5]);
    if moov_first {
        let start = ftyp.len() + moov(0).len() + free.len() + 8;
        [ftyp, moov(start), free, mdat].concat()
    } else {
        let start = ftyp.len() + free.len() + 8;
        [ftyp, free, mdat, moov(start)].concat()
    }
}

/// The offsets of each track's chunks if the content begins at `start`, and the content.
fn content(tracks: &[Track], start: u64) -> (Vec<Vec<u64>>, Vec<u8>) {
    let sizes: Vec<Vec<usize>> = tracks.iter().map(Track::chunk_sizes).collect();
    let mut offsets = vec![Vec::new(); tracks.len()];
    let mut next = vec![0; tracks.len()];
    let mut bytes = Vec::new();
    let rounds = sizes.iter().map(Vec::len).max().unwrap_or(0);
    for round in 0..rounds {
        for (number, track) in tracks.iter().enumerate() {
            let Some(&size) = sizes[number].get(round) else { continue };
            offsets[number].push(start + bytes.len() as u64);
            for sample in &track.samples[next[number]..][..size] {
                bytes.extend_from_slice(&sample.bytes);
            }
            next[number] += size;
        }
    }
    (offsets, bytes)
}

/// The data of a file's `moov` atom.
///
/// # Panics
/// If there is none.
pub fn moov(file: &[u8]) -> &[u8] {
    find(file, "moov").expect("a moov atom")
}

/// Reads a file as a player would.
///
/// # Panics
/// If it can't be played.
pub fn play(file: &[u8]) -> Vec<PlayedTrack> {
    let traks = atoms(moov(file)).into_iter().filter(|(name, _)| name == b"trak");
    traks.map(|(_, trak)| play_track(file, trak)).collect()
}

fn play_track(file: &[u8], trak: &[u8]) -> PlayedTrack {
    let tkhd = find(trak, "tkhd").expect("a tkhd atom");
    let duration = if tkhd[0] == 0 { number(tkhd, 20) } else { long(tkhd, 28) };
    let edit = find(trak, "edts").and_then(|edts| find(edts, "elst")).map(|elst| {
        assert_eq!((elst[0], number(elst, 4), elst.len()), (1, 1, 28));
        assert_eq!(number(elst, 24), 1 << 16);
        (long(elst, 8), long(elst, 16))
    });
    let mdia = find(trak, "mdia").expect("an mdia atom");
    let mdhd = find(mdia, "mdhd").expect("an mdhd atom");
    let decoded = if mdhd[0] == 0 { number(mdhd, 16) } else { long(mdhd, 24) };
    let minf = find(mdia, "minf").expect("an minf atom");
    let stbl = find(minf, "stbl").expect("an stbl atom");
    for (name, of) in [("hdlr", mdia), ("dinf", minf), ("stsd", stbl)] {
        find(of, name).unwrap_or_else(|| panic!("an atom {name}"));
    }
    let durations = unfold(stbl, "stts").expect("an stts atom");
    let delays = unfold(stbl, "ctts");
    let keys = find(stbl, "stss").map(|stss| entries(stss, 4, 4));
    let contents = contents(file, stbl);
    assert_eq!(durations.len(), contents.len());
    assert!(delays.as_ref().is_none_or(|delays| delays.len() == contents.len()));
    let sample = |(at, bytes): (usize, Vec<u8>)| MovieSample {
        duration: durations[at],
        delay: delays.as_ref().map_or(0, |delays| delays[at]),
        key: keys
            .as_ref()
            .is_none_or(|keys| keys.iter().any(|key| number(key, 0) == at as u64 + 1)),
        bytes,
    };
    let samples = contents.into_iter().enumerate().map(sample).collect();
    PlayedTrack { duration, decoded, edit, samples }
}

/// The contents of all samples.
fn contents(file: &[u8], stbl: &[u8]) -> Vec<Vec<u8>> {
    let stsz = find(stbl, "stsz").expect("an stsz atom");
    let count = number(stsz, 8);
    let sizes: Vec<u64> = match number(stsz, 4) {
        0 => entries(stsz, 8, 4).iter().map(|size| number(size, 0)).collect(),
        size => vec![size; usize::try_from(count).expect("few samples")],
    };
    let offsets: Vec<u64> = match find(stbl, "stco") {
        Some(stco) => entries(stco, 4, 4).iter().map(|offset| number(offset, 0)).collect(),
        None => {
            let co64 = find(stbl, "co64").expect("an stco or co64 atom");
            entries(co64, 4, 8).iter().map(|offset| long(offset, 0)).collect()
        }
    };
    let runs = entries(find(stbl, "stsc").expect("an stsc atom"), 4, 12);
    let mut sizes = sizes.into_iter();
    let mut contents = Vec::new();
    for (chunk, offset) in offsets.iter().enumerate() {
        let run = runs.iter().rev().find(|run| number(run, 0) <= chunk as u64 + 1).expect("a run");
        let mut at = usize::try_from(*offset).expect("an offset in the file");
        for _ in 0..number(run, 4) {
            let Some(size) = sizes.next() else { break };
            let size = usize::try_from(size).expect("a size in the file");
            contents.push(file[at..at + size].to_vec());
            at += size;
        }
    }
    assert_eq!(sizes.next(), None, "samples without a chunk");
    contents
}

/// One number per sample of a table that counts equal ones.
fn unfold(stbl: &[u8], name: &str) -> Option<Vec<u32>> {
    let mut all = Vec::new();
    for entry in entries(find(stbl, name)?, 4, 8) {
        for _ in 0..number(entry, 0) {
            all.push(u32::try_from(number(entry, 4)).expect("32 bits"));
        }
    }
    Some(all)
}

/// The entries of a table, whose number is at `at`.
fn entries(table: &[u8], at: usize, size: usize) -> Vec<&[u8]> {
    let entries: Vec<&[u8]> = table[at + 4..].chunks(size).collect();
    assert_eq!(entries.len() as u64, number(table, at));
    entries
}

/// The atoms of some data.
fn atoms(mut data: &[u8]) -> Vec<(&[u8], &[u8])> {
    let mut all = Vec::new();
    while !data.is_empty() {
        let (size, header) = match number(data, 0) {
            1 => (long(data, 8), 16),
            size => (size, 8),
        };
        let (atom, rest) = data.split_at(usize::try_from(size).expect("a size in the file"));
        all.push((&atom[4..8], &atom[header..]));
        data = rest;
    }
    all
}

fn find<'a>(data: &'a [u8], name: &str) -> Option<&'a [u8]> {
    atoms(data).into_iter().find(|(of, _)| *of == name.as_bytes()).map(|(_, data)| data)
}

fn number(data: &[u8], at: usize) -> u64 {
    data[at..at + 4].iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn long(data: &[u8], at: usize) -> u64 {
    number(data, at) << 32 | number(data, at + 4)
}

/// An atom.
pub fn atom(name: &str, data: &[u8]) -> Vec<u8> {
    [&be(8 + data.len())[..], name.as_bytes(), data].concat()
}

fn table<const N: usize>(name: &str, start: &[u8], entries: &[[u8; N]]) -> Vec<u8> {
    atom(name, &[start, &be(entries.len()), entries.as_flattened()].concat())
}

/// Numbers, each with how often it follows itself.
fn runs(numbers: impl Iterator<Item = u32>) -> Vec<[u8; 8]> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((count, of)) if *of == number => *count += 1,
            _ => runs.push((1, number)),
        }
    }
    let entry = |(count, of): (u32, u32)| [be(count), be(of)].concat().try_into();
    runs.into_iter().map(|run| entry(run).expect("two numbers")).collect()
}

fn be(number: impl TryInto<u32>) -> [u8; 4] {
    let Ok(number) = number.try_into() else { panic!("a number of more than 32 bits") };
    number.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut wide = Track::video(10, 3, &[4, 4, 1]);
        wide.wide = true;
        let tracks = [Track::video(25, 4, &[5]), Track::sound(40, 2, &[7, 9]), wide];
        for moov_first in [false, true] {
            let played = play(&movie(&tracks, moov_first));
            assert_eq!(played.len(), tracks.len());
            for (played, track) in played.iter().zip(&tracks) {
                assert_eq!(played.samples, track.samples);
                assert_eq!((played.decoded, played.edit), (track.duration(), None));
            }
        }
    }
}
