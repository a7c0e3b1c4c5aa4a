//! From pixels to bytes.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::decode::gif_rows;
use crate::picture::{Picture, Pixel};
use crate::{Format, ImageError, Plan};

/// Colours of a palette.
const COLOURS_MAX: usize = 256;

/// How thoroughly 256 colours are chosen for GIF images: from 1 to 30, which is the fastest.
const GIF_SPEED: i32 = 10;

/// Encodes a picture; `has_palette`: its source had one.
pub fn encode(
    format: Format,
    picture: Picture,
    plan: &Plan,
    has_palette: bool,
) -> Result<Vec<u8>, ImageError> {
    let failed = |why: String| ImageError::Unencodable(format, why);
    match format {
        Format::Jpeg => jpeg(&picture, plan),
        Format::Gif => gif(picture, plan.interlace),
        Format::Png => png(&picture, has_palette),
        Format::Webp => webp(&picture),
    }
    .map_err(failed)
}

/// The sides, in formats where they have 16 bits.
fn sides(picture: &Picture) -> Result<(u16, u16), String> {
    let side = |side: u32| u16::try_from(side).map_err(|_| "it is too large".to_owned());
    Ok((side(picture.size().width)?, side(picture.size().height)?))
}

fn jpeg(picture: &Picture, plan: &Plan) -> Result<Vec<u8>, String> {
    let (width, height) = sides(picture)?;
    let quality = plan.jpeg_quality.clamp(1, 100);
    let mut out = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut out, quality);
    encoder.set_progressive(plan.interlace);
    encoder.set_optimized_huffman_tables(true);
    encoder
        .encode(picture.pixels().as_flattened(), width, height, jpeg_encoder::ColorType::Rgba)
        .map_err(|error| error.to_string())?;
    // A comment after the first segment, which has to be JFIF's. libgd writes one, too.
    let comment = format!("quality = {quality}\n");
    if let Some(&[0xff, 0xe0, high, low]) = out.get(2..6).and_then(|head| head.first_chunk()) {
        let at = 4 + usize::from(u16::from_be_bytes([high, low]));
        let len = u16::try_from(2 + comment.len()).unwrap_or(2).to_be_bytes();
        let segment = [&[0xff, 0xfe], &len[..], comment.as_bytes()].concat();
        if at <= out.len() {
            out.splice(at..at, segment);
        }
    }
    Ok(out)
}

fn gif(picture: Picture, interlace: bool) -> Result<Vec<u8>, String> {
    let (width, height) = sides(&picture)?;
    let mut pixels = picture.into_pixels();
    // A pixel is transparent or not.
    pixels.iter_mut().for_each(|pixel| pixel[3] = if pixel[3] < 128 { 0 } else { u8::MAX });
    let mut frame =
        gif::Frame::from_rgba_speed(width, height, pixels.as_flattened_mut(), GIF_SPEED);
    drop(pixels);
    if interlace {
        let rows: Vec<&[u8]> = frame.buffer.chunks(usize::from(width)).collect();
        let order = gif_rows(rows.len(), true);
        let ordered: Vec<u8> = order.flat_map(|row| rows[row]).copied().collect();
        frame.buffer = Cow::Owned(ordered);
        frame.interlaced = true;
    }
    let mut out = Vec::new();
    let mut encoder =
        gif::Encoder::new(&mut out, width, height, &[]).map_err(|error| error.to_string())?;
    encoder.write_frame(&frame).map_err(|error| error.to_string())?;
    drop(encoder);
    Ok(out)
}

fn png(picture: &Picture, has_palette: bool) -> Result<Vec<u8>, String> {
    let size = picture.size();
    let pixels = picture.pixels();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, size.width, size.height);
    encoder.set_depth(png::BitDepth::Eight);
    let data = if let Some((colours, numbers)) = has_palette.then(|| palette(pixels)).flatten() {
        encoder.set_color(png::ColorType::Indexed);
        let rgb = |&[red, green, blue, _]: &Pixel| [red, green, blue];
        encoder.set_palette(colours.iter().flat_map(rgb).collect::<Vec<u8>>());
        if colours.iter().any(|colour| colour[3] < u8::MAX) {
            encoder.set_trns(colours.iter().map(|colour| colour[3]).collect::<Vec<u8>>());
        }
        Cow::Owned(numbers)
    } else if is_opaque(pixels) {
        encoder.set_color(png::ColorType::Rgb);
        Cow::Owned(without_alpha(pixels))
    } else {
        encoder.set_color(png::ColorType::Rgba);
        Cow::Borrowed(pixels.as_flattened())
    };
    let mut writer = encoder.write_header().map_err(|error| error.to_string())?;
    writer.write_image_data(&data).map_err(|error| error.to_string())?;
    writer.finish().map_err(|error| error.to_string())?;
    Ok(out)
}

/// The colours of pixels, and the number of each pixel's colour; `None` if there are too many.
fn palette(pixels: &[Pixel]) -> Option<(Vec<Pixel>, Vec<u8>)> {
    let mut known: HashMap<Pixel, u8> = HashMap::new();
    let mut colours = Vec::new();
    let mut numbers = Vec::with_capacity(pixels.len());
    for pixel in pixels {
        let number = match known.get(pixel) {
            Some(number) => *number,
            None if colours.len() == COLOURS_MAX => return None,
            None => {
                let number = u8::try_from(colours.len()).ok()?;
                known.insert(*pixel, number);
                colours.push(*pixel);
                number
            }
        };
        numbers.push(number);
    }
    Some((colours, numbers))
}

fn webp(picture: &Picture) -> Result<Vec<u8>, String> {
    let size = picture.size();
    let pixels = picture.pixels();
    let mut out = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut out);
    let (data, colours) = if is_opaque(pixels) {
        (Cow::Owned(without_alpha(pixels)), image_webp::ColorType::Rgb8)
    } else {
        (Cow::Borrowed(pixels.as_flattened()), image_webp::ColorType::Rgba8)
    };
    encoder.encode(&data, size.width, size.height, colours).map_err(|error| error.to_string())?;
    Ok(out)
}

fn is_opaque(pixels: &[Pixel]) -> bool {
    pixels.iter().all(|pixel| pixel[3] == u8::MAX)
}

fn without_alpha(pixels: &[Pixel]) -> Vec<u8> {
    pixels.iter().flat_map(|&[red, green, blue, _]| [red, green, blue]).collect()
}
