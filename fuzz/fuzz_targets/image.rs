//! Images: an image or an error, no matter what a file contains. What comes out is an image of the same format
//! that is no larger than was asked for, and can be transformed again.
//!
//! Input: the width, the height, how it is made smaller and turned; then an image.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nowait_images::{
    Angle, Format, ImageError, PIXELS_MAX, Plan, START_BYTES, Shape, Size, facts, transform,
};

/// Larger images take too long to be of use here, unless they are refused.
const PIXELS_DECODED_MAX: u64 = 1 << 18;

fuzz_target!(|data: &[u8]| {
    let [width, height, choice, image @ ..] = data else { return };
    let Some(format) = Format::of(&image[..image.len().min(START_BYTES)]) else { return };
    let facts = facts(format, image);
    let pixels =
        facts.map_or(0, |facts| u64::from(facts.size.width) * u64::from(facts.size.height));
    if pixels > PIXELS_DECODED_MAX && pixels <= PIXELS_MAX {
        return;
    }
    let max = Size { width: u32::from(*width) + 1, height: u32::from(*height) + 1 };
    let plan = Plan {
        shape: match choice & 3 {
            0 => Shape::Whole,
            1 => Shape::Fill(max),
            _ => Shape::Fit(max),
        },
        angle: Angle::of(90 * u32::from(choice >> 2 & 3)),
        jpeg_quality: 75,
        sharpen: u32::from(choice >> 4 & 1) * 50,
        transparency: choice & 32 != 0,
        interlace: choice & 64 != 0,
    };
    match transform(format, image, &plan) {
        Ok(Some(made)) => {
            assert_eq!(Format::of(&made[..START_BYTES]), Some(format));
            let size = nowait_images::facts(format, &made).expect("it has a head").size;
            if plan.shape != Shape::Whole && plan.angle.is_none() {
                assert!(size.width <= max.width && size.height <= max.height);
            }
            transform(format, &made, &plan).expect("what was encoded can be decoded");
        }
        Ok(None) => {}
        Err(error @ ImageError::TooLarge(_)) => {
            assert!(error.to_string().contains("too many pixels"))
        }
        Err(error) => {
            assert!(pixels <= PIXELS_MAX || matches!(error, ImageError::Broken(..)));
            assert!(error.to_string().contains(format.name()));
        }
    }
});
