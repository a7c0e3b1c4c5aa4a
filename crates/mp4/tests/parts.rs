//! Parts of movies, as players see them.

use std::num::NonZeroU64;

use nowait_mp4::{Clip, Layout, Mp4Error, Scan, ScanStep, cut, duration_ms};
use nowait_testkit::movie::{self, MovieSample, PlayedTrack, Track};

fn scan(file: &[u8]) -> Result<Layout, Mp4Error> {
    match Scan::new(file.len() as u64, 1 << 20).step(0, file)? {
        ScanStep::Found(layout) => Ok(layout),
        ScanStep::Read { .. } => panic!("everything was given"),
    }
}

fn range(file: &[u8], range: std::ops::Range<u64>) -> &[u8] {
    &file[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]
}

/// A part of a file, as a client receives it.
fn part(file: &[u8], clip: &Clip) -> Result<Vec<u8>, Mp4Error> {
    let layout = scan(file)?;
    let head = cut(&layout, range(file, layout.moov.clone()), clip)?;
    Ok([&head.bytes, range(file, head.content)].concat())
}

fn clip(start_ms: u64, length_ms: u64, start_key_frame: bool) -> Clip {
    Clip { start_ms, length_ms: NonZeroU64::new(length_ms), start_key_frame }
}

/// What is to be played of a track; `None`: it ends before the part.
fn expected(track: &Track, clip: &Clip) -> Option<PlayedTrack> {
    let units = |ms: u64| ms * u64::from(track.timescale) / 1000;
    let duration = |samples: &[MovieSample]| -> u64 {
        samples.iter().map(|sample| u64::from(sample.duration)).sum()
    };
    // The number of samples that end within a time.
    let whole = |samples: &[MovieSample], time: u64| {
        (0..samples.len()).take_while(|n| duration(&samples[..=*n]) <= time).count()
    };
    let all = &track.samples;
    let total = duration(all);
    let left = total.checked_sub(units(clip.start_ms)).filter(|left| *left > 0)?;
    let shown = whole(all, units(clip.start_ms));
    let mut start = shown;
    while clip.start_key_frame && !all[start].key {
        start -= 1;
    }
    let prefix = duration(&all[start..shown]);
    let (length, samples) = match clip.length_ms {
        None => (left, &all[start..]),
        Some(length) => {
            let length = units(length.get());
            let count = whole(&all[start..], length + prefix);
            (left.min(length), &all[start..start + count])
        }
    };
    let in_movie = |ms: u64| ms * movie::TIMESCALE / 1000;
    let mut in_movie =
        in_movie(total * 1000 / u64::from(track.timescale)) - in_movie(clip.start_ms);
    if let Some(length) = clip.length_ms {
        in_movie = in_movie.min(length.get() * movie::TIMESCALE / 1000);
    }
    Some(PlayedTrack {
        duration: in_movie,
        decoded: length + prefix,
        edit: (prefix > 0).then_some((in_movie, prefix)),
        samples: samples.to_vec(),
    })
}

fn movies() -> Vec<Vec<Track>> {
    let mut wide = Track::video(10, 6, &[3, 3, 3, 1, 1, 8]);
    wide.wide = true;
    let mut each = Track::sound(7, 6, &[4, 1]);
    each.uniform = false;
    vec![
        vec![Track::video(10, 8, &[1])],
        vec![Track::video(10, 8, &[100])],
        vec![Track::video(5, 8, &[6]), Track::sound(40, 6, &[50, 3, 3, 20])],
        vec![wide, each, Track::video(2, 9, &[2, 3])],
    ]
}

#[test]
fn parts_are_those_asked_for() {
    let times = [0, 1, 99, 100, 150, 999, 1000, 2000, 2050, 3333, 4801, 5999];
    let mut played = 0;
    for tracks in movies() {
        let files = [movie::movie(&tracks, true), movie::movie(&tracks, false)];
        for start in times {
            for length in [0, 250, 800, 1000, 1700, 4000, 100_000] {
                for key in [false, true] {
                    let clip = clip(start, length, key);
                    let expected: Vec<PlayedTrack> =
                        tracks.iter().filter_map(|track| expected(track, &clip)).collect();
                    let parts = files.each_ref().map(|file| part(file, &clip).unwrap());
                    assert_eq!(parts[0], parts[1], "{clip:?}");
                    assert_eq!(movie::play(&parts[0]), expected, "{clip:?}");
                    played += 1;
                }
            }
        }
    }
    assert_eq!(played, 4 * 12 * 7 * 2);
}

#[test]
fn parts_have_only_what_they_need() {
    let tracks = [Track::video(10, 60, &[10]), Track::sound(40, 60, &[40])];
    let file = movie::movie(&tracks, true);
    let layout = scan(&file).unwrap();
    let head = cut(&layout, range(&file, layout.moov.clone()), &clip(20_000, 1000, false)).unwrap();
    let bytes = |track: &Track, samples: std::ops::Range<usize>| -> usize {
        track.samples[samples].iter().map(|sample| sample.bytes.len()).sum()
    };
    let content = bytes(&tracks[0], 200..210) + bytes(&tracks[1], 800..840);
    assert_eq!(head.content.end - head.content.start, content as u64);
    assert!(head.bytes.len() < file.len() / 4);
    assert!(!head.bytes.windows(7).any(|bytes| bytes == b"dropped"));
    assert_eq!(duration_ms(range(&file, layout.moov)), Some(60_000));
}

#[test]
fn large_content_has_a_large_size() {
    let file = movie::movie(&[Track::video(10, 4, &[10])], true);
    let mut layout = scan(&file).unwrap();
    let moov = range(&file, layout.moov.clone());
    // As if the content were as large: only the head is made.
    layout.mdat.end = 5 << 30;
    layout.size = layout.mdat.end;
    let head = cut(&layout, moov, &clip(1000, 0, false)).unwrap();
    let (_, mdat) = head.bytes.split_at(head.bytes.len() - 16);
    let size = 16 + head.content.end - head.content.start;
    assert_eq!(mdat, [&b"\0\0\0\x01mdat"[..], &size.to_be_bytes()].concat());
    let offset = u64::from(u32::from_be_bytes(*stco(&head.bytes).first_chunk().unwrap()));
    assert_eq!(offset, head.bytes.len() as u64);
}

/// The first offset.
fn stco(head: &[u8]) -> &[u8] {
    let at = head.windows(4).position(|name| name == b"stco").unwrap();
    &head[at + 12..]
}

/// Overwrites bytes of a table: these, at a distance from its name.
fn spoil(file: &mut [u8], name: &str, at: usize, bytes: &[u8]) {
    let name = file.windows(4).position(|of| of == name.as_bytes()).unwrap();
    file[name + 4 + at..][..bytes.len()].copy_from_slice(bytes);
}

#[test]
fn faults_are_named() {
    let tracks = [Track::video(10, 8, &[2, 5])];
    let file = movie::movie(&tracks, true);
    let table = |name: &'static str, time| Mp4Error::Out { time, table: name };
    let max = &[255; 4][..];
    for (name, at, bytes, error) in [
        ("stts", 4, max, Mp4Error::Fields("stts")),
        ("stts", 8, &[0, 0, 0, 1][..], table("stts samples", "start")),
        ("stss", 4, max, Mp4Error::Fields("stss")),
        ("stss", 8, &[0; 4], Mp4Error::Zero("sync sample")),
        ("ctts", 4, max, Mp4Error::Fields("ctts")),
        ("stsc", 4, max, Mp4Error::Fields("stsc")),
        ("stsc", 4, &[0; 4], Mp4Error::Zero("number of entries in stsc atom")),
        ("stsc", 20, &[0; 4], Mp4Error::Unordered),
        ("stsz", 8, max, Mp4Error::Fields("stsz")),
        ("stsz", 8, &[0, 0, 0, 9], table("stsz samples", "start")),
        ("stsz", 8, &[0, 0, 0, 30], table("stsz samples", "end")),
        ("stco", 4, max, Mp4Error::Fields("stco")),
        ("stco", 4, &[0; 4], table("stco chunks", "start")),
        ("tkhd", 0, &[1], Mp4Error::Fields("tkhd")),
        ("mvhd", 16, &[0, 0, 0, 9], Mp4Error::Start),
        ("stbl", 0, max, Mp4Error::TooLarge(u32::MAX.into())),
        ("mdia", 0, &[0, 0, 0, 7], Mp4Error::TooSmall(7)),
    ] {
        let mut file = file.clone();
        spoil(&mut file, name, at, bytes);
        let result = part(&file, &clip(2500, 2000, true));
        assert_eq!(result, Err(error.clone()), "{name} {at}: {}", error.of("x"));
    }
    let mut broken = file.clone();
    let stsz = file.windows(4).position(|name| name == b"stsz").unwrap();
    broken[stsz..stsz + 4].copy_from_slice(b"free");
    assert_eq!(part(&broken, &clip(1, 0, false)), Err(Mp4Error::Missing("stsz")));
    broken = file.clone();
    let trak = file.windows(4).position(|name| name == b"trak").unwrap();
    broken[trak..trak + 4].copy_from_slice(b"cmov");
    assert_eq!(part(&broken, &clip(1, 0, false)), Err(Mp4Error::Compressed));
    broken[trak..trak + 4].copy_from_slice(b"free");
    assert_eq!(part(&broken, &clip(1, 0, false)), Err(Mp4Error::Missing("trak")));
    // Every offset is beyond the end.
    let mut broken = file.clone();
    let stco = file.windows(4).position(|name| name == b"stco").unwrap();
    broken[stco + 12..][..4 * 23].fill(0xff);
    assert_eq!(part(&broken, &clip(1, 0, false)), Err(Mp4Error::ChunkOffset));
    // A later chunk is before the part.
    let mut broken = file.clone();
    broken[stco + 12 + 40..][..4].fill(0);
    assert_eq!(part(&broken, &clip(1, 0, false)), Err(Mp4Error::ChunkOffset));
    // Sizes of samples before the part.
    let mut broken = file;
    let stsz = broken.windows(4).position(|name| name == b"stsz").unwrap();
    broken[stsz + 16 + 4 * 24..][..4].fill(0xff);
    assert_eq!(part(&broken, &clip(2500, 0, false)), Err(Mp4Error::SampleSizes("start")));
    assert_eq!(part(&broken, &clip(1000, 1500, false)), Err(Mp4Error::SampleSizes("end")));
}

#[test]
fn a_part_without_samples_has_no_data() {
    let file = movie::movie(&[Track::video(1, 8, &[3])], false);
    assert_eq!(part(&file, &clip(1000, 10, false)), Err(Mp4Error::NoData));
}

/// No matter what a byte becomes: a part or an error, and what a part announces is in the file.
#[test]
fn any_byte_may_be_wrong() {
    let tracks = [Track::video(5, 4, &[2, 5]), Track::sound(9, 4, &[3])];
    let original = movie::movie(&tracks, true);
    let end = original.windows(4).position(|name| name == b"mdat").unwrap();
    let mut parts = 0;
    for at in 0..end {
        for value in [0, 1, 0x7f, 0xff] {
            let mut file = original.clone();
            file[at] = value;
            for clip in [clip(1300, 700, true), clip(1300, 0, false)] {
                parts += usize::from(part(&file, &clip).is_ok());
            }
        }
    }
    assert!(parts > 0);
}
