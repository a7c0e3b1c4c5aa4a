//! Properties of an image from its first bytes. nginx: `ngx_http_image_test`, `ngx_http_image_size`.

use crate::Size;

/// Bytes by which a format is recognised.
pub const START_BYTES: usize = 16;

/// The format of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// JPEG
    Jpeg,
    /// GIF
    Gif,
    /// PNG
    Png,
    /// WebP
    Webp,
}

/// Size and weight of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts {
    /// The size; the sides may be zero.
    pub size: Size,
    /// More than 5 % of it are metadata: it becomes smaller by being encoded again.
    pub is_heavy: bool,
}

impl Format {
    /// Recognises an image by its first [`START_BYTES`] bytes.
    pub fn of(start: &[u8]) -> Option<Self> {
        if start.len() < START_BYTES {
            return None;
        }
        if start.starts_with(b"\xff\xd8") {
            Some(Self::Jpeg)
        } else if start.starts_with(b"GIF87a") || start.starts_with(b"GIF89a") {
            Some(Self::Gif)
        } else if start.starts_with(b"\x89PNG\r\n\x1a\n") {
            Some(Self::Png)
        } else if start.starts_with(b"RIFF") && &start[8..12] == b"WEBP" {
            Some(Self::Webp)
        } else {
            None
        }
    }

    /// The name in lower case.
    pub fn name(self) -> &'static str {
        &self.content_type()["image/".len()..]
    }

    /// The media type.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Png => "image/png",
            Self::Webp => "image/webp",
        }
    }
}

/// Size and weight of an image, if its head is complete.
pub fn facts(format: Format, image: &[u8]) -> Option<Facts> {
    let little = |at: usize| Some(u32::from(u16::from_le_bytes(*image.get(at..)?.first_chunk()?)));
    let light = |width, height| Facts { size: Size { width, height }, is_heavy: false };
    match format {
        Format::Jpeg => jpeg(image),
        Format::Gif => Some(light(little(6)?, little(8)?)),
        Format::Png => {
            let number = |at: usize| Some(u32::from_be_bytes(*image.get(at..)?.first_chunk()?));
            Some(light(number(16)?, number(20)?))
        }
        Format::Webp => {
            let byte = |at: usize| Some(u32::from(*image.get(at)?));
            // The minimum length of all formats.
            byte(29)?;
            match &image[12..16] {
                b"VP8 " => {
                    // A key frame, and its start code.
                    let is_valid = image[20] & 1 == 0 && image[23..26] == *b"\x9d\x01\x2a";
                    let side = |at| Some(little(at)? & 0x3fff);
                    is_valid.then_some(light(side(26)?, side(28)?))
                }
                b"VP8L" => {
                    let bits = u32::from_le_bytes(*image[21..].first_chunk()?);
                    let side = |bits: u32| (bits & 0x3fff) + 1;
                    (image[20] == 0x2f).then_some(light(side(bits), side(bits >> 14)))
                }
                b"VP8X" => {
                    let side = |at| Some((little(at)? | byte(at + 2)? << 16) + 1);
                    Some(light(side(24)?, side(27)?))
                }
                _ => None,
            }
        }
    }
}

/// Walks over the segments of a JPEG image.
fn jpeg(image: &[u8]) -> Option<Facts> {
    let mut size = None;
    let mut metadata = 0;
    let mut at = 2;
    while at + 10 < image.len() {
        let &[first, marker, ref rest @ ..] = &image[at..] else {
            break;
        };
        if first != 0xff || marker == 0xff {
            at += 1;
            continue;
        }
        let number = |at: usize| u32::from(u16::from_be_bytes([rest[at], rest[at + 1]]));
        let length = number(0) as usize;
        match marker {
            0xc0..=0xc3 | 0xc9..=0xcb if size.is_none() => {
                let (height, width) = (number(3), number(5));
                size = Some(Size { width, height }).filter(|_| width > 0 && height > 0);
            }
            0xe1..=0xef => metadata += length,
            _ => {}
        }
        // What follows is found even if a length is zero.
        at += 1 + length;
    }
    Some(Facts { size: size?, is_heavy: image.len() / 20 < metadata })
}
