//! Which slot a thread counts in.

use crate::layout::{Region, Slot};
use crate::region;
use std::cell::Cell;
use std::ptr;
use std::sync::atomic::Ordering;

/// Where reports go when there is no memory.
static NOWHERE: Slot = Slot::new();

thread_local! {
    /// Null before the first report. Without a destructor, so that it can be used in those of others.
    static SLOT: Cell<*const Slot> = const { Cell::new(ptr::null()) };
    static CLAIM: Claim = const { Claim(Cell::new(0)) };
}

/// A slot that is this thread's own; 0 = none is.
struct Claim(Cell<usize>);

impl Drop for Claim {
    /// The thread ends. What it counted stays; the next thread goes on from there.
    fn drop(&mut self) {
        let Some(region) = region::get() else { return };
        SLOT.set(shared(region));
        if let Some(owner) = region.owners.get(self.0.get()).filter(|_| self.0.get() > 0) {
            owner.store(0, Ordering::Release);
        }
    }
}

/// The calling thread's slot.
#[inline]
pub fn slot() -> &'static Slot {
    // SAFETY: it points to a slot of the region, which is never unmapped, or to a static.
    unsafe { SLOT.get().as_ref() }.unwrap_or_else(register)
}

#[cold]
fn register() -> &'static Slot {
    keeping_errno(|| {
        let slot = match region::get_or_make() {
            None => &NOWHERE,
            Some(region) => {
                let index = claim(region);
                // Where the thread is ending already, it uses the shared slot: nobody would give another one back.
                let kept = CLAIM.try_with(|claim| claim.0.set(index)).is_ok();
                if !kept && let Some(owner) = region.owners.get(index).filter(|_| index > 0) {
                    owner.store(0, Ordering::Release);
                }
                region.slots.get(index).filter(|_| kept).unwrap_or_else(|| shared(region))
            }
        };
        SLOT.set(slot);
        slot
    })
}

/// A free slot, or 0, the shared one.
fn claim(region: &Region) -> usize {
    // SAFETY: takes nothing and cannot fail.
    let tid = unsafe { libc::gettid() }.cast_unsigned();
    for (index, owner) in region.owners.iter().enumerate().skip(1) {
        if owner.load(Ordering::Relaxed) == 0
            && owner.compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            region.header.used.fetch_max(index as u32 + 1, Ordering::Release);
            return index;
        }
    }
    0
}

/// In a forked child, whose memory is new: its only thread keeps its place.
pub fn claim_again() {
    let index = CLAIM.try_with(|claim| claim.0.get()).unwrap_or(0);
    if let Some(region) = region::get()
        && let Some(owner) = region.owners.get(index).filter(|_| index > 0)
    {
        // SAFETY: takes nothing and cannot fail.
        owner.store(unsafe { libc::gettid() }.cast_unsigned(), Ordering::Relaxed);
        region.header.used.store(index as u32 + 1, Ordering::Release);
    }
}

fn shared(region: &'static Region) -> &'static Slot {
    let [first, ..] = &region.slots;
    first
}

/// Leaves `errno` as it is: the program may look at it after a report.
pub fn keeping_errno<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: the address of this thread's errno is always valid.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let result = work();
        *errno = before;
        result
    }
}
