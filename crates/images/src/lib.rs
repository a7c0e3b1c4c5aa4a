//! Images: their formats and sizes, and smaller, rotated or cropped ones made of them. JPEG, GIF, PNG and
//! WebP.
//!
//! [`Format::of`] and [`facts`] read only the beginnings of images; [`transform`] decodes, changes and
//! encodes one. That takes long: callers do it in a thread of their own. The number of pixels is checked
//! before anything is decoded; a transformation needs at most about 12 bytes for each pixel of its source.
//!
//! nginx: `ngx_http_image_filter_module`, which leaves this to libgd. As there, the first picture of an
//! animation is taken, orientations in metadata are ignored, and metadata are dropped.
//!
//! `unsafe` is forbidden.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod decode;
mod encode;
mod facts;
mod picture;

use std::fmt;

pub use facts::{Facts, Format, START_BYTES, facts};

/// Maximum number of pixels of an image that is decoded.
pub const PIXELS_MAX: u64 = 40_000_000;

/// The change of an image's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// It stays.
    Whole,
    /// The image is made smaller until it fits.
    Fit(Size),
    /// The image is made smaller until one side fits, and cut at the other.
    Fill(Size),
}

/// Width and height in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Pixels per row.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

/// Degrees by which an image is turned counter-clockwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Angle {
    /// 90
    Quarter,
    /// 180
    Half,
    /// 270
    ThreeQuarters,
}

impl Angle {
    /// Of a number of degrees.
    pub fn of(degrees: u32) -> Option<Self> {
        match degrees {
            90 => Some(Self::Quarter),
            180 => Some(Self::Half),
            270 => Some(Self::ThreeQuarters),
            _ => None,
        }
    }
}

/// A transformation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    /// The new size. It limits the image before it is turned, except for the cut of [`Shape::Fill`].
    pub shape: Shape,
    /// The rotation of the image.
    pub angle: Option<Angle>,
    /// Quality of JPEG images, from 1 to 100.
    pub jpeg_quality: u8,
    /// Additional sharpness in percent.
    pub sharpen: u32,
    /// Keep transparency in GIF images, and in PNG images with a palette.
    pub transparency: bool,
    /// Order the data so that they can be shown before they are complete: JPEG and GIF.
    pub interlace: bool,
}

/// The reason why an image is not transformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageError {
    /// The decoder's complaint.
    Broken(Format, String),
    /// It has more than [`PIXELS_MAX`] pixels: width and height.
    TooLarge(Size),
    /// The encoder's complaint.
    Unencodable(Format, String),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Broken(format, why) => write!(f, "broken {} image: {why}", format.name()),
            Self::TooLarge(Size { width, height }) => {
                write!(f, "too many pixels: {width} x {height}, at most {PIXELS_MAX} are decoded")
            }
            Self::Unencodable(format, why) => {
                write!(f, "{} image can't be encoded: {why}", format.name())
            }
        }
    }
}

impl std::error::Error for ImageError {}

/// Transforms an image; `None`: it can stay as it is.
///
/// # Errors
/// [`ImageError`]
pub fn transform(format: Format, image: &[u8], plan: &Plan) -> Result<Option<Vec<u8>>, ImageError> {
    let fits = |size: Size| match plan.shape {
        Shape::Whole => false,
        Shape::Fit(max) | Shape::Fill(max) => {
            plan.angle.is_none() && size.width <= max.width && size.height <= max.height
        }
    };
    let facts = facts(format, image);
    let heavy = facts.is_some_and(|facts| facts.is_heavy);
    if facts.is_some_and(|facts| fits(facts.size)) && !heavy {
        return Ok(None);
    }
    let decoded = decode::decode(format, image)?;
    let mut picture = decoded.picture;
    if fits(picture.size()) && !heavy {
        return Ok(None);
    }
    if decoded.has_palette && !plan.transparency {
        picture.make_opaque();
    }
    if let Shape::Fit(max) | Shape::Fill(max) = plan.shape {
        let smaller = smaller(picture.size(), max, matches!(plan.shape, Shape::Fill(_)));
        if smaller != picture.size() {
            picture = picture.resampled(smaller);
        }
    }
    if let Some(angle) = plan.angle {
        picture = picture.turned(angle);
    }
    if let Shape::Fill(max) = plan.shape {
        picture = picture.cut(max);
    }
    if plan.sharpen > 0 {
        picture.sharpen(plan.sharpen);
    }
    encode::encode(format, picture, plan, decoded.has_palette).map(Some)
}

/// The size of an image that is made smaller until all its sides fit, or with `fill` only the one that
/// fits first.
fn smaller(size: Size, max: Size, fill: bool) -> Size {
    let Size { mut width, mut height } = size;
    let scaled = |side: u32, to: u32, of: u32| {
        let side = u64::from(side) * u64::from(to) / u64::from(of.max(1));
        u32::try_from(side).unwrap_or(u32::MAX).max(1)
    };
    let product = |a: u32, b: u32| u64::from(a) * u64::from(b);
    let narrow = product(width, max.height) < product(height, max.width);
    if width > max.width && (!fill || narrow) {
        (width, height) = (max.width, scaled(height, max.width, width));
    }
    if height > max.height && (!fill || !narrow) {
        (width, height) = (scaled(width, max.height, height), max.height);
    }
    Size { width, height }
}

#[cfg(test)]
mod tests;
