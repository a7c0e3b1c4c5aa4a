//! Memory of encoders: freed blocks are reused by the next encoder.
//!
//! Compressing 16 KB takes half a megabyte for tables. Returning that to the system and allocating
//! it again each time costs a quarter of the compression (28 page faults). So each encoder has its
//! own [`Store`] while it lives, and idle stores wait for the next encoder as [`SharedSpares`]. An
//! encoder that finds the list in use starts with an empty store, or frees its store.
//!
//! # Ownership
//!
//! A [`MemoryBlock`] owns its allocation. While the library uses the memory there is no `MemoryBlock`, only its
//! address and, in the bytes before it, its length, from which [`release`] recreates the `MemoryBlock`.
//! The library calls [`allocate`] and [`release`] only while it is being called itself, with the
//! store passed to `BrotliEncoderCreateInstance`; that happens under `&mut Encoder`, or while the
//! encoder is created or dropped, so the store has no other user then.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};

use nowait_spare::SharedSpares;

/// A block begins with its length; this is also the alignment of blocks, in bytes.
const HEAD_BYTES: usize = 16;

/// Maximum number of bytes kept by a store; enough for a compression of 256 KB at usual levels.
const STORE_BYTES_MAX: usize = 4 << 20;

/// Maximum number of blocks kept by a store.
const STORE_BLOCKS_MAX: usize = 64;

/// Maximum number of stores kept for later encoders.
const SPARE_MAX: usize = 4;

static SPARE: SharedSpares<Store> = SharedSpares::new(SPARE_MAX);

/// Free blocks.
#[derive(Debug, Default)]
struct Store {
    /// Oldest first.
    free: Vec<MemoryBlock>,
    /// Their total size.
    bytes: usize,
}

/// A piece of memory, without its head.
#[derive(Debug)]
struct MemoryBlock {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block belongs to its holder, and is not tied to a thread.
unsafe impl Send for MemoryBlock {}

impl MemoryBlock {
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(HEAD_BYTES)?, HEAD_BYTES).ok()
    }

    fn new(bytes: usize) -> Option<Self> {
        // SAFETY: including its head the block is not empty.
        let start = unsafe { alloc(Self::layout(bytes)?) };
        NonNull::new(start).map(|start| Self { start, bytes })
    }

    /// Gives up ownership; the address can be turned into a block again.
    fn into_address(self) -> *mut c_void {
        let (start, bytes) = (self.start, self.bytes);
        std::mem::forget(self);
        // SAFETY: the head is there, and aligned for a number; the rest follows it.
        unsafe {
            start.cast::<usize>().write(bytes);
            start.add(HEAD_BYTES).as_ptr().cast()
        }
    }

    /// # Safety
    /// The address comes from [`into_address`](Self::into_address), and is no longer used.
    unsafe fn of_address(address: NonNull<u8>) -> Self {
        // SAFETY: the head before the address contains the length.
        let (start, bytes) = unsafe {
            let start = address.sub(HEAD_BYTES);
            (start, start.cast::<usize>().read())
        };
        Self { start, bytes }
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.bytes) {
            // SAFETY: allocated with this layout, and owned.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl Store {
    /// The smallest block of at least `bytes` that is not much larger.
    fn take(&mut self, bytes: usize) -> Option<MemoryBlock> {
        let most = bytes.saturating_mul(2).max(1024);
        let fitting = self.free.iter().enumerate();
        let fitting = fitting.filter(|(_, block)| (bytes..=most).contains(&block.bytes));
        let (at, _) = fitting.min_by_key(|(_, block)| block.bytes)?;
        let block = self.free.remove(at);
        self.bytes -= block.bytes;
        Some(block)
    }

    /// Keeps a block, dropping the oldest ones to make room.
    fn keep(&mut self, block: MemoryBlock) {
        self.bytes += block.bytes;
        self.free.push(block);
        let mut old = 0;
        while self.bytes > STORE_BYTES_MAX || self.free.len() - old > STORE_BLOCKS_MAX {
            self.bytes -= self.free[old].bytes;
            old += 1;
        }
        self.free.drain(..old);
    }
}

/// The store of one encoder.
#[derive(Debug)]
pub(crate) struct Memory(NonNull<Store>);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(SPARE.take().unwrap_or_default()))))
    }

    /// The first argument of [`allocate`] and [`release`].
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and taken back only here.
        let store = unsafe { Box::from_raw(self.0.as_ptr()) };
        SPARE.keep(*store);
    }
}

/// # Safety
/// `store` is that of a [`Memory`] without any other user meanwhile.
pub(crate) unsafe extern "C" fn allocate(store: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as promised.
    let store = unsafe { &mut *store.cast::<Store>() };
    let block = store.take(bytes).or_else(|| MemoryBlock::new(bytes));
    block.map_or(ptr::null_mut(), MemoryBlock::into_address)
}

/// # Safety
/// As for [`allocate`]; the address comes from there, or is null.
pub(crate) unsafe extern "C" fn release(store: *mut c_void, address: *mut c_void) {
    if let Some(address) = NonNull::new(address.cast::<u8>()) {
        // SAFETY: as promised.
        unsafe { (*store.cast::<Store>()).keep(MemoryBlock::of_address(address)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lengths(store: &Store) -> Vec<usize> {
        store.free.iter().map(|block| block.bytes).collect()
    }

    #[test]
    fn blocks_go_to_the_library_and_back() {
        let mut store = Store::default();
        let opaque = ptr::from_mut(&mut store).cast::<c_void>();
        for bytes in [0, 1, 1000, 100_000] {
            // SAFETY: only this test uses the store, and the blocks within their lengths.
            unsafe {
                let address = allocate(opaque, bytes);
                assert!(!address.is_null() && address.addr().is_multiple_of(HEAD_BYTES));
                address.cast::<u8>().write_bytes(0xaa, bytes);
                release(opaque, address);
                release(opaque, ptr::null_mut());
                assert!(allocate(opaque, usize::MAX - 20).is_null());
            }
        }
        assert_eq!(lengths(&store), [0, 1, 1000, 100_000]);
    }

    #[test]
    fn the_smallest_block_that_fits_is_taken() {
        let mut store = Store::default();
        for bytes in [5000, 3000, 4000, 100] {
            store.keep(MemoryBlock::new(bytes).unwrap());
        }
        assert_eq!(store.take(2900).map(|block| block.bytes), Some(3000));
        // Too large for so small a request.
        assert_eq!(store.take(1500).map(|block| block.bytes), None);
        assert_eq!(store.take(5001).map(|block| block.bytes), None);
        assert_eq!(store.take(60).map(|block| block.bytes), Some(100));
        assert_eq!((lengths(&store), store.bytes), (vec![5000, 4000], 9000));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut store = Store::default();
        for n in 0..STORE_BLOCKS_MAX + 10 {
            store.keep(MemoryBlock::new(n).unwrap());
        }
        assert_eq!((store.free.len(), store.free[0].bytes), (STORE_BLOCKS_MAX, 10));
        store.keep(MemoryBlock::new(STORE_BYTES_MAX).unwrap());
        assert_eq!((lengths(&store), store.bytes), (vec![STORE_BYTES_MAX], STORE_BYTES_MAX));
        store.keep(MemoryBlock::new(STORE_BYTES_MAX + 1).unwrap());
        assert_eq!((lengths(&store), store.bytes), (vec![], 0));
    }
}
