//! From bytes to pixels.

use std::io::Cursor;

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;

use crate::picture::{Picture, Pixel};
use crate::{Format, ImageError, PIXELS_MAX, Size};

/// Memory that a decoder may allocate besides the pixels, in bytes.
const SCRATCH_BYTES_MAX: usize = PIXELS_MAX as usize * 4;

/// A decoded image.
pub struct Decoded {
    pub picture: Picture,
    /// The colours are those of a palette.
    pub has_palette: bool,
}

/// Decodes an image.
pub fn decode(format: Format, image: &[u8]) -> Result<Decoded, ImageError> {
    match format {
        Format::Jpeg => jpeg(image),
        Format::Gif => gif(image),
        Format::Png => png(image),
        Format::Webp => webp(image),
    }
}

/// A complaint about an image of this format.
fn broken(format: Format) -> impl Fn(&dyn std::fmt::Display) -> ImageError {
    move |why| ImageError::Broken(format, why.to_string())
}

/// Number of pixels, before anything is decoded.
fn count(width: u32, height: u32) -> Result<usize, ImageError> {
    let pixels = u64::from(width) * u64::from(height);
    let allowed = Some(pixels).filter(|&pixels| pixels <= PIXELS_MAX);
    let count = allowed.and_then(|pixels| usize::try_from(pixels).ok());
    count.ok_or(ImageError::TooLarge(Size { width, height }))
}

fn finish(
    format: Format,
    (width, height): (u32, u32),
    pixels: Vec<Pixel>,
    has_palette: bool,
) -> Result<Decoded, ImageError> {
    let picture = Picture::new(Size { width, height }, pixels);
    let picture = picture.ok_or_else(|| broken(format)(&"it has no pixels"))?;
    Ok(Decoded { picture, has_palette })
}

fn jpeg(image: &[u8]) -> Result<Decoded, ImageError> {
    let broken = broken(Format::Jpeg);
    let side = usize::from(u16::MAX);
    let options = DecoderOptions::default()
        .set_max_width(side)
        .set_max_height(side)
        .jpeg_set_out_colorspace(ColorSpace::RGBA);
    let mut decoder = zune_jpeg::JpegDecoder::new_with_options(ZCursor::new(image), options);
    decoder.decode_headers().map_err(|error| broken(&format_args!("{error:?}")))?;
    let info = decoder.info().ok_or_else(|| broken(&"it has no head"))?;
    let size = (u32::from(info.width), u32::from(info.height));
    let mut pixels = vec![[0; 4]; count(size.0, size.1)?];
    decoder
        .decode_into(pixels.as_flattened_mut())
        .map_err(|error| broken(&format_args!("{error:?}")))?;
    finish(Format::Jpeg, size, pixels, false)
}

fn gif(image: &[u8]) -> Result<Decoded, ImageError> {
    let broken = broken(Format::Gif);
    let mut options = gif::DecodeOptions::new();
    options.set_color_output(gif::ColorOutput::RGBA);
    options.check_frame_consistency(true);
    let bytes_max = u64::try_from(SCRATCH_BYTES_MAX).ok().and_then(std::num::NonZeroU64::new);
    options
        .set_memory_limit(bytes_max.map_or(gif::MemoryLimit::Unlimited, gif::MemoryLimit::Bytes));
    let mut decoder = options.read_info(image).map_err(|error| broken(&error))?;
    let (width, height) = (decoder.width(), decoder.height());
    let size = (u32::from(width), u32::from(height));
    let mut pixels = vec![[0; 4]; count(size.0, size.1)?];
    let frame = decoder.next_frame_info().map_err(|error| broken(&error))?;
    let frame = frame.ok_or_else(|| broken(&"it has no picture"))?;
    let (left, top) = (usize::from(frame.left), usize::from(frame.top));
    let (columns, height) = (usize::from(frame.width), usize::from(frame.height));
    let order = gif_rows(height, frame.interlaced);
    // All at once, in the order of the file: the library's reading of interlaced frames, row by row, loses
    // rows that one of the last codes stands for.
    let mut drawn = vec![[0; 4]; columns * height];
    let is_whole = decoder.fill_buffer(drawn.as_flattened_mut()).map_err(|error| broken(&error))?;
    if !is_whole {
        return Err(broken(&"image truncated"));
    }
    // A frame may be a part of the picture.
    let mut canvas: Vec<_> =
        pixels.chunks_mut(usize::from(width).max(1)).skip(top).take(height).collect();
    for (row, drawn) in order.zip(drawn.chunks(columns.max(1))) {
        if let Some(row) = canvas.get_mut(row) {
            row.iter_mut().skip(left).zip(drawn).for_each(|(pixel, drawn)| *pixel = *drawn);
        }
    }
    finish(Format::Gif, size, pixels, true)
}

/// The rows of a frame in the order of the file (GIF89a, appendix E).
pub(crate) fn gif_rows(count: usize, interlaced: bool) -> impl Iterator<Item = usize> {
    let passes: &[(usize, usize)] =
        if interlaced { &[(0, 8), (4, 8), (2, 4), (1, 2)] } else { &[(0, 1)] };
    passes.iter().flat_map(move |&(from, step)| (from..count).step_by(step))
}

fn png(image: &[u8]) -> Result<Decoded, ImageError> {
    let broken = broken(Format::Png);
    let limits = png::Limits { bytes: SCRATCH_BYTES_MAX };
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(image), limits);
    decoder.set_ignore_text_chunk(true);
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_transformations(
        png::Transformations::EXPAND | png::Transformations::STRIP_16 | png::Transformations::ALPHA,
    );
    let info = decoder.read_header_info().map_err(|error| broken(&error))?;
    let (size, colours) = (info.size(), info.color_type);
    let count = count(size.0, size.1)?;
    let mut reader = decoder.read_info().map_err(|error| broken(&error))?;
    let pixels = match reader.output_color_type().0 {
        png::ColorType::Rgba => {
            let mut pixels = vec![[0; 4]; count];
            reader.next_frame(pixels.as_flattened_mut()).map_err(|error| broken(&error))?;
            pixels
        }
        png::ColorType::GrayscaleAlpha => {
            let mut grey = vec![[0; 2]; count];
            reader.next_frame(grey.as_flattened_mut()).map_err(|error| broken(&error))?;
            grey.iter().map(|&[grey, alpha]| [grey, grey, grey, alpha]).collect()
        }
        other => return Err(broken(&format_args!("unexpected colours {other:?}"))),
    };
    finish(Format::Png, size, pixels, colours == png::ColorType::Indexed)
}

fn webp(image: &[u8]) -> Result<Decoded, ImageError> {
    let broken = broken(Format::Webp);
    let mut decoder =
        image_webp::WebPDecoder::new(Cursor::new(image)).map_err(|error| broken(&error))?;
    decoder.set_memory_limit(SCRATCH_BYTES_MAX);
    let size = decoder.dimensions();
    let count = count(size.0, size.1)?;
    let pixels = if decoder.has_alpha() {
        let mut pixels = vec![[0; 4]; count];
        decoder.read_image(pixels.as_flattened_mut()).map_err(|error| broken(&error))?;
        pixels
    } else {
        let mut pixels = vec![[0; 3]; count];
        decoder.read_image(pixels.as_flattened_mut()).map_err(|error| broken(&error))?;
        pixels.iter().map(|&[red, green, blue]| [red, green, blue, u8::MAX]).collect()
    };
    finish(Format::Webp, size, pixels, false)
}
