//! The atoms of a track.

use crate::Mp4Error;
use crate::atom::{Atom, Atoms, SampleTable, u32_at, u64_at};

/// The `mvhd`, `tkhd` or `mdhd` atom.
#[derive(Debug, Clone, Copy)]
pub struct Times<'a> {
    /// The atom's data.
    pub data: &'a [u8],
    /// Units per second; 0 in `tkhd`, which has those of the movie.
    pub timescale: u32,
    /// In units.
    pub duration: u64,
    /// Where the duration is in the data.
    at: usize,
}

impl<'a> Times<'a> {
    /// Reads an atom whose duration is at this position, after the timescale if it has one, and that
    /// has at least this many bytes; each for versions 0 and 1.
    fn read(
        name: &'static str,
        data: &'a [u8],
        at: [usize; 2],
        len: [usize; 2],
    ) -> Result<Self, Mp4Error> {
        let version = usize::from(data.first().is_none_or(|&version| version != 0));
        let at = at[version];
        let duration = match version {
            0 => u32_at(data, at).map(u64::from),
            _ => u64_at(data, at),
        };
        match (duration, u32_at(data, at - 4)) {
            (Some(duration), Some(timescale)) if data.len() >= len[version] => {
                Ok(Self { data, timescale, duration, at })
            }
            _ => Err(Mp4Error::Fields(name)),
        }
    }

    /// Of a movie.
    pub fn mvhd(data: &'a [u8]) -> Result<Self, Mp4Error> {
        Self::read("mvhd", data, [16, 24], [100, 112])
    }

    fn tkhd(data: &'a [u8]) -> Result<Self, Mp4Error> {
        let times = Self::read("tkhd", data, [20, 28], [84, 96])?;
        Ok(Self { timescale: 0, ..times })
    }

    fn mdhd(data: &'a [u8]) -> Result<Self, Mp4Error> {
        Self::read("mdhd", data, [16, 24], [24, 36])
    }

    /// The data with another duration.
    pub fn with(&self, duration: u64) -> Vec<u8> {
        let mut data = self.data.to_vec();
        if data[0] == 0 {
            let duration = u32::try_from(duration).unwrap_or(u32::MAX);
            data[self.at..self.at + 4].copy_from_slice(&duration.to_be_bytes());
        } else {
            data[self.at..self.at + 8].copy_from_slice(&duration.to_be_bytes());
        }
        data
    }
}

/// The sizes of samples.
#[derive(Debug, Clone, Copy)]
pub enum Sizes<'a> {
    /// All samples have the same one.
    Uniform {
        /// Bytes of a sample.
        size: u32,
        /// Number of samples.
        count: u32,
    },
    /// One by one.
    Each(SampleTable<'a, 4>),
}

/// Where chunks are in the file.
#[derive(Debug, Clone, Copy)]
pub enum Offsets<'a> {
    /// `stco`
    Narrow(SampleTable<'a, 4>),
    /// `co64`
    Wide(SampleTable<'a, 8>),
}

impl Offsets<'_> {
    /// Number of chunks.
    pub fn count(&self) -> usize {
        match self {
            Self::Narrow(table) => table.entries().len(),
            Self::Wide(table) => table.entries().len(),
        }
    }
}

/// A track, as the file describes it.
#[derive(Debug, Default)]
pub struct Track<'a> {
    pub tkhd: Option<Times<'a>>,
    pub mdhd: Option<Times<'a>>,
    pub hdlr: Option<&'a [u8]>,
    pub vmhd: Option<&'a [u8]>,
    pub smhd: Option<&'a [u8]>,
    pub dinf: Option<&'a [u8]>,
    pub stsd: Option<&'a [u8]>,
    pub stts: Option<SampleTable<'a, 8>>,
    pub stss: Option<SampleTable<'a, 4>>,
    pub ctts: Option<(SampleTable<'a, 8>, &'a [u8])>,
    pub stsc: Option<SampleTable<'a, 12>>,
    pub stsz: Option<Sizes<'a>>,
    pub offsets: Option<Offsets<'a>>,
    mdia: Option<()>,
    minf: Option<()>,
    stbl: Option<()>,
}

/// Keeps what was read, once.
fn once<T>(slot: &mut Option<T>, name: &'static str, value: T) -> Result<(), Mp4Error> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(Mp4Error::Duplicate(name)),
    }
}

impl<'a> Track<'a> {
    /// Reads the data of a `trak` atom.
    ///
    /// # Errors
    /// [`Mp4Error`]
    pub fn read(data: &'a [u8]) -> Result<Self, Mp4Error> {
        let mut track = Self::default();
        for atom in Atoms(data) {
            let Atom { name, data } = atom?;
            match name {
                b"tkhd" => once(&mut track.tkhd, "tkhd", Times::tkhd(data)?)?,
                b"mdia" => {
                    once(&mut track.mdia, "mdia", ())?;
                    track.read_mdia(data)?;
                }
                _ => {}
            }
        }
        Ok(track)
    }

    fn read_mdia(&mut self, data: &'a [u8]) -> Result<(), Mp4Error> {
        for atom in Atoms(data) {
            let Atom { name, data } = atom?;
            match name {
                b"mdhd" => once(&mut self.mdhd, "mdhd", Times::mdhd(data)?)?,
                b"hdlr" => once(&mut self.hdlr, "hdlr", data)?,
                b"minf" => {
                    once(&mut self.minf, "minf", ())?;
                    self.read_minf(data)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_minf(&mut self, data: &'a [u8]) -> Result<(), Mp4Error> {
        for atom in Atoms(data) {
            let Atom { name, data } = atom?;
            match name {
                b"vmhd" | b"smhd" if self.vmhd.is_some() || self.smhd.is_some() => {
                    return Err(Mp4Error::Duplicate("vmhd/smhd"));
                }
                b"vmhd" => self.vmhd = Some(data),
                b"smhd" => self.smhd = Some(data),
                b"dinf" => once(&mut self.dinf, "dinf", data)?,
                b"stbl" => {
                    once(&mut self.stbl, "stbl", ())?;
                    self.read_stbl(data)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_stbl(&mut self, data: &'a [u8]) -> Result<(), Mp4Error> {
        for atom in Atoms(data) {
            let Atom { name, data } = atom?;
            match name {
                // Its version, the number of entries, and the header of the first one.
                b"stsd" if data.len() < 16 => return Err(Mp4Error::Fields("stsd")),
                b"stsd" => once(&mut self.stsd, "stsd", data)?,
                b"stts" => once(&mut self.stts, "stts", SampleTable::read("stts", data, 4)?)?,
                b"stss" => once(&mut self.stss, "stss", SampleTable::read("stss", data, 4)?)?,
                // The version says whether offsets are signed.
                b"ctts" => {
                    let table = SampleTable::read("ctts", data, 4)?;
                    once(&mut self.ctts, "ctts", (table, &data[..4]))?;
                }
                b"stsc" => once(&mut self.stsc, "stsc", SampleTable::read("stsc", data, 4)?)?,
                b"stsz" => once(&mut self.stsz, "stsz", Self::sizes(data)?)?,
                b"stco" | b"co64" if self.offsets.is_some() => {
                    return Err(Mp4Error::Duplicate("stco/co64"));
                }
                b"stco" => {
                    self.offsets = Some(Offsets::Narrow(SampleTable::read("stco", data, 4)?))
                }
                b"co64" => self.offsets = Some(Offsets::Wide(SampleTable::read("co64", data, 4)?)),
                _ => {}
            }
        }
        Ok(())
    }

    fn sizes(data: &'a [u8]) -> Result<Sizes<'a>, Mp4Error> {
        let (Some(size), Some(count)) = (u32_at(data, 4), u32_at(data, 8)) else {
            return Err(Mp4Error::Fields("stsz"));
        };
        Ok(match size {
            0 => Sizes::Each(SampleTable::read("stsz", data, 8)?),
            _ => Sizes::Uniform { size, count },
        })
    }
}
