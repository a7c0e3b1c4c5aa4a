//! Writes the archive that the kernel unpacks as its first root: cpio in the format "newc"
//! (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel).

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const CONSOLE: u32 = 0o020_600;

/// An archive in memory.
pub struct Initrd {
    bytes: Vec<u8>,
    entries: u32,
}

impl Initrd {
    /// An archive with the device that the first process finds as its standard output.
    pub fn new() -> Initrd {
        let mut initrd = Initrd { bytes: Vec::new(), entries: 0 };
        initrd.directory("dev");
        initrd.add("dev/console", CONSOLE, (5, 1), &[]);
        initrd
    }

    /// Adds a directory, whose parent must have been added before.
    pub fn directory(&mut self, path: &str) {
        self.add(path, DIRECTORY, (0, 0), &[]);
    }

    /// Adds a file that may be executed.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.add(path, PROGRAM, (0, 0), content);
    }

    /// The complete archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, (0, 0), &[]);
        self.bytes
    }

    fn add(&mut self, path: &str, mode: u32, (major, minor): (u32, u32), content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("kernels and modules are small");
        let name_size = u32::try_from(path.len()).expect("paths are short") + 1;
        // Magic number, then inode, mode, owner, group, links, time, size, device, device of the
        // node, size of the name, checksum (none).
        let inode = self.entries;
        self.bytes.extend_from_slice(b"070701");
        let fields = [inode, mode, 0, 0, 1, 0, size, 0, 0, major, minor, name_size, 0];
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    /// Names and contents begin at multiples of four.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_ended() {
        let mut initrd = Initrd::new();
        initrd.program("init", b"#!/bin/sh");
        let bytes = initrd.finish();
        assert_eq!(bytes.len() % 4, 0);
        let text = String::from_utf8(bytes).expect("all of it is text here");
        let entries: Vec<_> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(entries.len(), 4);
        assert!(entries.iter().all(|at| at % 4 == 0), "{entries:?}");
        assert!(text[entries[2]..].starts_with(&format!("070701{:08x}{PROGRAM:08x}", 3)));
        assert!(text[entries[3]..].contains("TRAILER!!!"));
    }
}
