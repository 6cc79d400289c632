//! The slot of each thread; forked children report for themselves.

use crate::asking;
use crate::layout::{Region, Slot};
use crate::region::{self, Place};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::LocalKey;

/// Marks a slot as owned: the thread's identity does not matter, and is not always available.
const TAKEN: u32 = 1;

/// Target of reports without memory.
static NOWHERE: Slot = Slot::new();

thread_local! {
    static PROGRAM: Cached = const { Cell::new(ptr::null()) };
    static PROGRAM_INDEX: Index = const { Cell::new(0) };
    static OPENMP: Cached = const { Cell::new(ptr::null()) };
    static OPENMP_INDEX: Index = const { Cell::new(0) };
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// Region of the program's own reports.
static ITS_OWN: Slots = Slots { place: &region::PROGRAM, cached: &PROGRAM, index: &PROGRAM_INDEX };

/// Region of OpenMP's counts.
static ITS_RUNTIMES: Slots = Slots { place: &region::OPENMP, cached: &OPENMP, index: &OPENMP_INDEX };

/// A region, and this thread's slot in it.
struct Slots {
    place: &'static Place,
    cached: &'static LocalKey<Cached>,
    index: &'static LocalKey<Index>,
}

/// This thread's slot; null before the first report. It has no destructor: if no memory were left to register one, the
/// C library would abort the program.
type Cached = Cell<*const Slot>;

/// Index of a slot owned by this thread; 0: none.
type Index = Cell<usize>;

/// Registers [`at_end`] for this thread's end; returns whether that succeeded.
fn is_told_of_end() -> bool {
    /// One more than the key; 0 = none yet.
    static KEY: AtomicU32 = AtomicU32::new(0);
    if KEY.load(Ordering::Relaxed) == 0 {
        let mut key = 0;
        // SAFETY: the key is writable; the destructor is a function for the whole life of the library.
        if unsafe { libc::pthread_key_create(&raw mut key, Some(at_end)) } != 0 {
            return false;
        }
        if KEY.compare_exchange(0, key + 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            // SAFETY: another thread was faster, and this key was not published.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
    // SAFETY: the key was created. The value is never read; it only must not be null.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed) - 1, (&raw const KEY).cast()) == 0 }
}

/// At a thread's end. Its counts stay, and the next thread continues from them.
extern "C" fn at_end(_value: *mut c_void) {
    HAS_ENDED.set(true);
    for slots in [&ITS_OWN, &ITS_RUNTIMES] {
        let index = slots.index.replace(0);
        if let Some(region) = slots.place.get()
            && let Some(owner) = region.owners.get(index).filter(|_| index > 0)
        {
            slots.cached.set(shared(region));
            owner.store(0, Ordering::Release);
        }
    }
}

/// The calling thread's slot for reports.
#[inline]
pub fn slot() -> &'static Slot {
    // SAFETY: it points to a slot of the region, which is never unmapped, or to a static.
    unsafe { PROGRAM.get().as_ref() }.unwrap_or_else(|| ITS_OWN.register())
}

/// The calling thread's slot for OpenMP's counts.
pub fn of_openmp() -> &'static Slot {
    // SAFETY: as above.
    unsafe { OPENMP.get().as_ref() }.unwrap_or_else(|| ITS_RUNTIMES.register())
}

/// The slot for MPI's calls, shared by all threads because most programs call from one.
pub fn of_mpi() -> &'static Slot {
    keeping_errno(|| region::MPI.get_or_make().map_or(&NOWHERE, shared))
}

impl Slots {
    #[cold]
    fn register(&self) -> &'static Slot {
        keeping_errno(|| {
            let slot = match self.place.get_or_make() {
                None => &NOWHERE,
                Some(region) => {
                    // A slot that could never be returned is not taken; the shared one is used.
                    let index = if !HAS_ENDED.get() && is_told_of_end() { claim(region) } else { 0 };
                    self.index.set(index);
                    region.slots.get(index).unwrap_or_else(|| shared(region))
                }
            };
            self.cached.set(slot);
            slot
        })
    }
}

/// A free slot, or 0, the shared one.
fn claim(region: &Region) -> usize {
    for (index, owner) in region.owners.iter().enumerate().skip(1) {
        if owner.load(Ordering::Relaxed) == 0
            && owner.compare_exchange(0, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            region.header.used.fetch_max(index as u32 + 1, Ordering::Release);
            return index;
        }
    }
    0
}

/// In a forked child with new memory at this place: its only thread keeps its slot.
pub fn claim_again(place: &Place) {
    let Some(slots) = [&ITS_OWN, &ITS_RUNTIMES].into_iter().find(|slots| ptr::eq(slots.place, place)) else { return };
    let index = slots.index.get();
    if let Some(region) = place.get()
        && let Some(owner) = region.owners.get(index).filter(|_| index > 0)
    {
        owner.store(TAKEN, Ordering::Relaxed);
        region.header.used.store(index as u32 + 1, Ordering::Release);
    }
}

fn shared(region: &'static Region) -> &'static Slot {
    let [first, ..] = &region.slots;
    first
}

/// Preserves `errno`, which the program may read after a report.
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

/// Registers [`in_child`] for every child that this process forks from now on.
pub fn renew_in_children() {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function for the whole life of the library; the installed one is marked to stay
        // loaded (`nodelete`).
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// A child made without it (`vfork`, `clone`, `_Fork`) adds to its parent's counts until it executes a program.
extern "C" fn in_child() {
    keeping_errno(|| {
        let mut asked = None;
        for place in region::ALL {
            if place.in_child(|| *asked.get_or_insert_with(asking::may_in_child)) {
                claim_again(place);
            } else {
                for slots in [&ITS_OWN, &ITS_RUNTIMES].into_iter().filter(|slots| ptr::eq(slots.place, place)) {
                    slots.cached.set(ptr::null());
                    slots.index.set(0);
                }
            }
        }
    });
}
