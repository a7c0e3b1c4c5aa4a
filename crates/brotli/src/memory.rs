//! Memory of encoders: blocks that one gives back serve the next one.
//!
//! A compression of 16 KB takes half a megabyte for its tables. Given back to the system and taken
//! again each time, that costs a fourth of the compression (28 page faults). So an encoder has a
//! [`Store`] of its own while it lives, and stores wait for the next encoder under a lock that is
//! only tried: who does not get it at once begins with an empty store, or frees what it has.
//!
//! # Who owns what
//!
//! A [`Block`] owns its allocation. While the library uses it there is no `Block`, but its address
//! and, in the bytes before it, its length, of which [`release`] makes the `Block` again. The library
//! calls [`allocate`] and [`release`] only while it is called itself, with the store that was given to
//! `BrotliEncoderCreateInstance`; that happens under `&mut Encoder`, or where the encoder is made or
//! dropped, so nobody else uses the store then.

use std::alloc::{Layout, alloc, dealloc};
use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::sync::Mutex;

/// A block begins with its length; this is also how blocks are aligned, in bytes.
const HEAD_BYTES: usize = 16;

/// Most bytes that a store keeps; enough for all that a compression of 256 KB takes at usual levels.
const STORE_BYTES_MAX: usize = 4 << 20;

/// Most blocks that a store keeps.
const STORE_BLOCKS_MAX: usize = 64;

/// Most stores that wait for an encoder.
const SPARE_MAX: usize = 4;

static SPARE: Mutex<Vec<Store>> = Mutex::new(Vec::new());

/// Blocks that are free.
#[derive(Debug, Default)]
struct Store {
    /// The oldest first.
    free: Vec<Block>,
    /// Their sum.
    bytes: usize,
}

/// A piece of memory, without its head.
#[derive(Debug)]
struct Block {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a block belongs to whoever has it, and to no thread.
unsafe impl Send for Block {}

impl Block {
    fn layout(bytes: usize) -> Option<Layout> {
        Layout::from_size_align(bytes.checked_add(HEAD_BYTES)?, HEAD_BYTES).ok()
    }

    fn new(bytes: usize) -> Option<Self> {
        // SAFETY: with its head the block is not empty.
        let start = unsafe { alloc(Self::layout(bytes)?) };
        NonNull::new(start).map(|start| Self { start, bytes })
    }

    /// Gives the memory away; its address can be made a block again.
    fn into_address(self) -> *mut c_void {
        let (start, bytes) = (self.start, self.bytes);
        std::mem::forget(self);
        // SAFETY: the head is there, and aligned for a number; behind it there is the rest.
        unsafe {
            start.cast::<usize>().write(bytes);
            start.add(HEAD_BYTES).as_ptr().cast()
        }
    }

    /// # Safety
    /// The address comes from [`into_address`](Self::into_address), and is not used any more.
    unsafe fn of_address(address: NonNull<u8>) -> Self {
        // SAFETY: before the address there is the head, with the length.
        let (start, bytes) = unsafe {
            let start = address.sub(HEAD_BYTES);
            (start, start.cast::<usize>().read())
        };
        Self { start, bytes }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Some(layout) = Self::layout(self.bytes) {
            // SAFETY: allocated with this layout, and owned.
            unsafe { dealloc(self.start.as_ptr(), layout) };
        }
    }
}

impl Store {
    /// A block of at least so many bytes, not much larger: the smallest one.
    fn take(&mut self, bytes: usize) -> Option<Block> {
        let most = bytes.saturating_mul(2).max(1024);
        let fitting = self.free.iter().enumerate();
        let fitting = fitting.filter(|(_, block)| (bytes..=most).contains(&block.bytes));
        let (at, _) = fitting.min_by_key(|(_, block)| block.bytes)?;
        let block = self.free.remove(at);
        self.bytes -= block.bytes;
        Some(block)
    }

    /// Keeps a block; the oldest ones make room.
    fn keep(&mut self, block: Block) {
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
        let spare = SPARE.try_lock().ok().and_then(|mut spare| spare.pop());
        Self(NonNull::from(Box::leak(Box::new(spare.unwrap_or_default()))))
    }

    /// What [`allocate`] and [`release`] want first.
    pub(crate) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr().cast()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and taken back only here.
        let store = unsafe { Box::from_raw(self.0.as_ptr()) };
        if let Ok(mut spare) = SPARE.try_lock()
            && spare.len() < SPARE_MAX
        {
            spare.push(*store);
        }
    }
}

/// # Safety
/// `store` is that of a [`Memory`] that nobody else uses meanwhile.
pub(crate) unsafe extern "C" fn allocate(store: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: as promised.
    let store = unsafe { &mut *store.cast::<Store>() };
    let block = store.take(bytes).or_else(|| Block::new(bytes));
    block.map_or(ptr::null_mut(), Block::into_address)
}

/// # Safety
/// As for [`allocate`]; the address comes from there, or is null.
pub(crate) unsafe extern "C" fn release(store: *mut c_void, address: *mut c_void) {
    if let Some(address) = NonNull::new(address.cast::<u8>()) {
        // SAFETY: as promised.
        unsafe { (*store.cast::<Store>()).keep(Block::of_address(address)) };
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
            // SAFETY: the store is used here only, and the blocks within their lengths.
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
            store.keep(Block::new(bytes).unwrap());
        }
        assert_eq!(store.take(2900).map(|block| block.bytes), Some(3000));
        // Too large to be spent on so little.
        assert_eq!(store.take(1500).map(|block| block.bytes), None);
        assert_eq!(store.take(5001).map(|block| block.bytes), None);
        assert_eq!(store.take(60).map(|block| block.bytes), Some(100));
        assert_eq!((lengths(&store), store.bytes), (vec![5000, 4000], 9000));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut store = Store::default();
        for n in 0..STORE_BLOCKS_MAX + 10 {
            store.keep(Block::new(n).unwrap());
        }
        assert_eq!((store.free.len(), store.free[0].bytes), (STORE_BLOCKS_MAX, 10));
        store.keep(Block::new(STORE_BYTES_MAX).unwrap());
        assert_eq!((lengths(&store), store.bytes), (vec![STORE_BYTES_MAX], STORE_BYTES_MAX));
        store.keep(Block::new(STORE_BYTES_MAX + 1).unwrap());
        assert_eq!((lengths(&store), store.bytes), (vec![], 0));
    }
}
