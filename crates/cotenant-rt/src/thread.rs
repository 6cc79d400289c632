//! Which slot a thread counts in; forked children report for themselves.

use crate::asking;
use crate::layout::{Region, Slot};
use crate::region::{self, Place};
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::LocalKey;

/// What an owner of a slot is called: which thread it is does not matter, and cannot always be asked.
const TAKEN: u32 = 1;

/// Where reports go when there is no memory.
static NOWHERE: Slot = Slot::new();

thread_local! {
    static PROGRAM: Cached = const { Cell::new(ptr::null()) };
    static PROGRAM_INDEX: Index = const { Cell::new(0) };
    static OPENMP: Cached = const { Cell::new(ptr::null()) };
    static OPENMP_INDEX: Index = const { Cell::new(0) };
    static HAS_ENDED: Cell<bool> = const { Cell::new(false) };
}

/// Where the threads of a program report.
static ITS_OWN: Slots = Slots { place: &region::PROGRAM, cached: &PROGRAM, index: &PROGRAM_INDEX };

/// Where OpenMP's runtime counts what they do.
static ITS_RUNTIMES: Slots = Slots { place: &region::OPENMP, cached: &OPENMP, index: &OPENMP_INDEX };

/// A region, with a slot of it for each thread.
struct Slots {
    place: &'static Place,
    cached: &'static LocalKey<Cached>,
    index: &'static LocalKey<Index>,
}

/// The slot where this thread counts; null before the first report. Nothing of a thread has a destructor: where there
/// is no memory to register one, the C library ends the program.
type Cached = Cell<*const Slot>;

/// A slot that is this thread's own; 0 = none is.
type Index = Cell<usize>;

/// Has [`at_end`] called at the end of this thread; whether that will be.
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
            // SAFETY: another thread was quicker, and this one was not published.
            unsafe { libc::pthread_key_delete(key) };
        }
    }
    // SAFETY: the key was made. The value is never looked at; it only must not be null.
    unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed) - 1, (&raw const KEY).cast()) == 0 }
}

/// The thread ends. What it counted stays; the next thread goes on from there.
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

/// The slot where the calling thread reports.
#[inline]
pub fn slot() -> &'static Slot {
    // SAFETY: it points to a slot of the region, which is never unmapped, or to a static.
    unsafe { PROGRAM.get().as_ref() }.unwrap_or_else(|| ITS_OWN.register())
}

/// The slot where OpenMP's runtime counts for the calling thread.
pub fn of_openmp() -> &'static Slot {
    // SAFETY: as above.
    unsafe { OPENMP.get().as_ref() }.unwrap_or_else(|| ITS_RUNTIMES.register())
}

/// The slot where MPI's calls are counted: all threads share it, for most programs call from one.
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
                    // Where another one would never be given back, it uses the shared slot.
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

/// In a forked child, whose memory at this place is new: its only thread keeps its slot.
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

/// Has [`in_child`] called in every child that this process forks from now on.
pub fn renew_in_children() {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if !ONCE.swap(true, Ordering::Relaxed) {
        // SAFETY: the handler is a function for the whole life of the library; the installed one is marked to stay
        // loaded (`nodelete`).
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

/// Where a child is made without it (`vfork`, `clone`, `_Fork`), the child adds to its parent's counts until it
/// executes a program.
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
