//! CRC-32 as in Ethernet and zip (polynomial 0xEDB88320), computed incrementally: nginx hashes keys
//! and servers with it. Keys are short, so a table of 256 entries is enough.

/// A checksum in progress.
#[derive(Clone, Copy)]
pub(crate) struct Crc(u32);

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut value = n as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 { 0xEDB8_8320 ^ (value >> 1) } else { value >> 1 };
            bit += 1;
        }
        table[n] = value;
        n += 1;
    }
    table
}

impl Crc {
    /// Of empty input.
    pub(crate) fn new() -> Crc {
        Crc(u32::MAX)
    }

    /// Appends these bytes.
    pub(crate) fn update(self, bytes: &[u8]) -> Crc {
        let step = |crc: u32, byte: &u8| TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8);
        Crc(bytes.iter().fold(self.0, step))
    }

    /// The sum.
    pub(crate) fn finish(self) -> u32 {
        !self.0
    }
}

/// The sum of a whole text.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    Crc::new().update(bytes).finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The check value of the catalogue of CRCs.
    #[test]
    fn known_value() {
        assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
        assert_eq!(Crc::new().update(b"1234").update(b"56789").finish(), 0xCBF4_3926);
    }
}
