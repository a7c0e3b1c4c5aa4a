//! Parts of MP4 files: a part or an error, no matter what a file contains. The scan finds the same however
//! much is read at once. A part is no larger than its file and its tables, and can be cut again.
//!
//! Input: the start, the length, key frames or not, how much is read at once; then a file.
#![no_main]

use std::num::NonZeroU64;

use libfuzzer_sys::fuzz_target;
use nowait_mp4::{
    ATOMS_MAX, Clip, FTYP_BYTES_MAX, Layout, Mp4Error, Scan, ScanStep, cut, duration_ms,
};

/// Bytes of `moov` that are accepted.
const MOOV_BYTES_MAX: u64 = 1 << 16;

fuzz_target!(|data: &[u8]| {
    let [start, length, choice, at_once, file @ ..] = data else { return };
    let clip = Clip {
        start_ms: u64::from(*start) * 50,
        length_ms: NonZeroU64::new(u64::from(*length) * 50),
        start_key_frame: choice & 1 != 0,
    };
    let found = scan(file, file.len());
    assert_eq!(found, scan(file, usize::from(*at_once)));
    let Ok(layout) = found else { return };
    let at = |offset: u64| usize::try_from(offset).expect("in the file");
    let moov = &file[at(layout.moov.start)..at(layout.moov.end)];
    let _ = duration_ms(moov);
    let head = match cut(&layout, moov, &clip) {
        Ok(head) => head,
        Err(error) => return assert!(error.of("file").to_string().contains("file")),
    };
    assert!(head.content.start < head.content.end && head.content.end <= layout.size);
    assert!(head.bytes.len() <= layout.ftyp.len() + 2 * moov.len() + 200);
    // It is a file again.
    let part = [&head.bytes, &file[at(head.content.start)..at(head.content.end)]].concat();
    let layout = scan(&part, part.len()).expect("a file with its atoms");
    assert!(layout.moov_first);
    assert_eq!(layout.mdat.end, part.len() as u64);
    assert_eq!(layout.mdat.start, head.bytes.len() as u64);
});

fn scan(file: &[u8], at_once: usize) -> Result<Layout, Mp4Error> {
    let mut scan = Scan::new(file.len() as u64, MOOV_BYTES_MAX);
    let mut window = 0..0;
    for _ in 0..=2 * ATOMS_MAX {
        match scan.step(window.start as u64, &file[window.clone()])? {
            ScanStep::Found(layout) => return Ok(layout),
            ScanStep::Read { offset, len } => {
                assert!(len as u64 <= FTYP_BYTES_MAX + 16);
                let start = usize::try_from(offset).expect("in the file");
                assert!(start + len <= file.len());
                window = start..(start + len.max(at_once)).min(file.len());
            }
        }
    }
    panic!("the scan does not end");
}
