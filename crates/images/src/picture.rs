//! Pixels in memory, and operations on them.

use crate::{Angle, Size};

/// Red, green, blue and opacity.
pub type Pixel = [u8; 4];

/// Decoded pixels, row by row; neither side is zero.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Picture {
    size: Size,
    pixels: Vec<Pixel>,
}

/// Which pixels of a row or column become one, and the weights of the first and last.
struct Span {
    first: usize,
    last: usize,
    first_weight: f32,
    last_weight: f32,
}

impl Span {
    /// Pixel `to` of `count`, made of `of` pixels.
    fn new(to: u32, count: u32, of: u32) -> Self {
        let scale = f64::from(of) / f64::from(count);
        let (start, end) = (f64::from(to) * scale, f64::from(to + 1) * scale);
        let last_of = of.saturating_sub(1) as usize;
        // Positions are not negative, and not beyond the last pixel.
        let first = (start as usize).min(last_of);
        let last = ((end.ceil() as usize).saturating_sub(1)).clamp(first, last_of);
        let first_weight = (first as f64 + 1.0).min(end) - start;
        let last_weight = if last == first { first_weight } else { end - last as f64 };
        Self { first, last, first_weight: first_weight as f32, last_weight: last_weight as f32 }
    }

    fn weight(&self, at: usize) -> f32 {
        if at == self.first {
            self.first_weight
        } else if at == self.last {
            self.last_weight
        } else {
            1.0
        }
    }
}

impl Picture {
    /// Of as many pixels as the size has.
    pub fn new(size: Size, pixels: Vec<Pixel>) -> Option<Self> {
        let count = u64::from(size.width) * u64::from(size.height);
        (count > 0 && pixels.len() as u64 == count).then_some(Self { size, pixels })
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn pixels(&self) -> &[Pixel] {
        &self.pixels
    }

    pub fn into_pixels(self) -> Vec<Pixel> {
        self.pixels
    }

    fn width(&self) -> usize {
        self.size.width as usize
    }

    fn height(&self) -> usize {
        self.size.height as usize
    }

    /// Without transparency.
    pub fn make_opaque(&mut self) {
        self.pixels.iter_mut().for_each(|pixel| pixel[3] = u8::MAX);
    }

    /// A smaller picture: each pixel is the mean of those that it covers.
    pub fn resampled(&self, to: Size) -> Self {
        let columns: Vec<Span> =
            (0..to.width).map(|x| Span::new(x, to.width, self.size.width)).collect();
        let mut sums = vec![[0_f32; 5]; columns.len()];
        let mut pixels = Vec::with_capacity(columns.len() * to.height as usize);
        for y in 0..to.height {
            let rows = Span::new(y, to.height, self.size.height);
            sums.fill([0.0; 5]);
            for row in rows.first..=rows.last {
                let weight = rows.weight(row);
                let row = &self.pixels[row * self.width()..][..self.width()];
                for (span, sum) in columns.iter().zip(&mut sums) {
                    for (pixel, column) in row[span.first..=span.last].iter().zip(span.first..) {
                        let [red, green, blue, alpha] = pixel.map(f32::from);
                        let weight = weight * span.weight(column);
                        // Transparent pixels have no colour.
                        let opaque = weight * alpha;
                        sum[0] += opaque * red;
                        sum[1] += opaque * green;
                        sum[2] += opaque * blue;
                        sum[3] += opaque;
                        sum[4] += weight;
                    }
                }
            }
            pixels.extend(sums.iter().map(|&[red, green, blue, opaque, weight]| {
                // Numbers from 0 to 255, but for rounding; the conversion saturates.
                let colour = |sum: f32| (sum / opaque.max(f32::MIN_POSITIVE)).round() as u8;
                [colour(red), colour(green), colour(blue), (opaque / weight).round() as u8]
            }));
        }
        Self { size: to, pixels }
    }

    /// Turned counter-clockwise.
    pub fn turned(&self, angle: Angle) -> Self {
        let (width, height) = (self.width(), self.height());
        let at = |x: usize, y: usize| self.pixels[y * width + x];
        let Size { width: columns, height: rows } = self.size;
        let turned = Size { width: rows, height: columns };
        match angle {
            Angle::Half => {
                Self { size: self.size, pixels: self.pixels.iter().rev().copied().collect() }
            }
            Angle::Quarter => {
                let row = |y: usize| (0..height).map(move |x| at(width - 1 - y, x));
                Self { size: turned, pixels: (0..width).flat_map(row).collect() }
            }
            Angle::ThreeQuarters => {
                let row = |y: usize| (0..height).map(move |x| at(y, height - 1 - x));
                Self { size: turned, pixels: (0..width).flat_map(row).collect() }
            }
        }
    }

    /// The middle, at most this large.
    pub fn cut(self, max: Size) -> Self {
        let size = Size {
            width: self.size.width.min(max.width).max(1),
            height: self.size.height.min(max.height).max(1),
        };
        if size == self.size {
            return self;
        }
        let left = (self.size.width - size.width) as usize / 2;
        let top = (self.size.height - size.height) as usize / 2;
        let (width, height) = (size.width as usize, size.height as usize);
        let rows = self.pixels.chunks_exact(self.width()).skip(top).take(height);
        let pixels = rows.flat_map(|row| &row[left..left + width]).copied().collect();
        Self { size, pixels }
    }

    /// Makes colours differ more from those beside, above and below, by this many percent. nginx:
    /// `gdImageSharpen`.
    pub fn sharpen(&mut self, percent: u32) {
        let outer = -(percent as f32) / 400.0;
        let inner = 1.0 - 2.0 * outer;
        let (width, height) = (self.width(), self.height());
        let mix = |before: Pixel, pixel: Pixel, after: Pixel| {
            let mut mixed = pixel;
            for channel in 0..3 {
                let [before, own, after] =
                    [before, pixel, after].map(|pixel| f32::from(pixel[channel]));
                mixed[channel] = (inner * own + outer * (before + after)).round() as u8;
            }
            mixed
        };
        let mut line = |start: usize, step: usize, count: usize| {
            let mut before = self.pixels[start];
            for number in 0..count {
                let at = start + number * step;
                let after =
                    if number + 1 < count { self.pixels[at + step] } else { self.pixels[at] };
                let pixel = self.pixels[at];
                self.pixels[at] = mix(before, pixel, after);
                before = pixel;
            }
        };
        (0..width).for_each(|x| line(x, width, height));
        (0..height).for_each(|y| line(y * width, 1, width));
    }
}
