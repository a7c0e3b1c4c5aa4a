//! The origin's objects, whose every byte follows from number and version.

/// How many objects there are.
pub const OBJECTS: usize = 120;

/// Sizes at the limits of different code paths: empty, one read, one buffer, many trips to the
/// disk.
const SIZES: [usize; 8] = [0, 1, 900, 4_096, 30_000, 70_001, 600_000, 2_500_000];

/// The bytes of an object. Most are small.
pub fn size(object: usize) -> usize {
    match object % 16 {
        small @ 0..10 => SIZES[small % 5],
        large => SIZES[large % SIZES.len()],
    }
}

/// An object's body in one version.
pub fn body(object: usize, version: u64) -> Vec<u8> {
    let mut random = Xorshift::new((object as u64) << 32 ^ version);
    let mut body = Vec::with_capacity(size(object) + 8);
    while body.len() < size(object) {
        body.extend_from_slice(&random.next().to_le_bytes());
    }
    body.truncate(size(object));
    body
}

/// The path of an object.
pub fn path(object: usize) -> String {
    format!("/{}/{object}", object % 5)
}

/// The object of a path.
pub fn of_path(path: &str) -> Option<usize> {
    let (path, _) = path.split_once('?').unwrap_or((path, ""));
    let object = path.rsplit_once('/')?.1.parse().ok()?;
    (object < OBJECTS && path == self::path(object)).then_some(object)
}

/// xorshift64: enough for bodies and choices.
pub struct Xorshift(u64);

impl Xorshift {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }
}
