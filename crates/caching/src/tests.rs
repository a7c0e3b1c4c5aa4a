//! Random inputs for the properties of the rules.

/// Runs a property with as many random inputs, the same in every run.
pub(crate) fn random_cases(count: usize, mut check: impl FnMut(&mut Xorshift)) {
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for _ in 0..count {
        check(&mut random);
    }
}

/// A small generator of numbers for tests (xorshift64*).
pub(crate) struct Xorshift(u64);

impl Xorshift {
    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
    }
}
