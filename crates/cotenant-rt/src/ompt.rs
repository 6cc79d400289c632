//! OpenMP's tool interface (OpenMP 5.2, chapter 19): events of the runtime, counted as units.
//!
//! LLVM's and Intel's runtimes load the library named by `OMP_TOOL_LIBRARIES`; gcc's has no such interface. A unit is
//! an iteration of a worksharing loop, a section, an explicit task, or a parallel region. Iterations and sections count
//! when the runtime hands them out: for static chunked loops, the first chunk of each thread.
//!
//! The `work` event would report all iterations, but it makes LLVM's runtime warn on the standard error of programs
//! from Flang and old compilers. Without it the task data of `dispatch` may be dangling, so it is not read.

use crate::thread;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The tool's answer to the runtime, `ompt_start_tool_result_t`.
#[repr(C)]
struct Tool {
    initialize: extern "C" fn(Lookup, c_int, *mut u64) -> c_int,
    finalize: extern "C" fn(*mut u64),
    data: AtomicU64,
}

type Lookup = Option<extern "C" fn(*const c_char) -> Option<Entry>>;
type Entry = extern "C" fn();
type StartTool = extern "C" fn(c_uint, *const c_char) -> *const Tool;
type SetCallback = extern "C" fn(c_int, Entry) -> c_int;

/// A tool's data for a parallel region or a task (`ompt_data_t`): unused.
type Data = *mut u64;

/// `ompt_callbacks_t`.
const PARALLEL_END: c_int = 4;
const TASK_SCHEDULE: c_int = 6;
const DISPATCH: c_int = 32;

/// `ompt_dispatch_t`: an iteration or a section, without a number; a chunk of a worksharing loop.
const SINGLE: [c_int; 2] = [1, 2];
const CHUNK: c_int = 3;

/// `ompt_task_status_t`: complete.
const COMPLETE: c_int = 1;

/// Called by the runtime once. It becomes the tool only if the user names it, so that a program linked with libcotenant
/// keeps any other tool; never under `ThreadSanitizer`, which needs its own (Archer).
#[unsafe(no_mangle)]
extern "C" fn ompt_start_tool(version: c_uint, runtime: *const c_char) -> *const Tool {
    static TOOL: Tool = Tool { initialize, finalize, data: AtomicU64::new(0) };
    if is_asked_for() && !is_under_tsan() {
        return &raw const TOOL;
    }
    // SAFETY: the name is a C string; the function of this name has this type.
    unsafe {
        let next = libc::dlsym(libc::RTLD_NEXT, c"ompt_start_tool".as_ptr());
        transmute::<*mut c_void, Option<StartTool>>(next).map_or(ptr::null(), |next| next(version, runtime))
    }
}

pub fn is_asked_for() -> bool {
    const OURS: &[u8] = b"libcotenant";
    // SAFETY: the name is a C string; the result is null or one. The runtime has just read the same variable.
    let named = unsafe {
        let value = libc::getenv(c"OMP_TOOL_LIBRARIES".as_ptr());
        if value.is_null() { &[] } else { CStr::from_ptr(value).to_bytes() }
    };
    named.windows(OURS.len()).any(|part| part == OURS)
}

fn is_under_tsan() -> bool {
    // SAFETY: the name is a C string.
    let found: *mut c_void = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tsan_init".as_ptr()) };
    !found.is_null()
}

extern "C" fn initialize(lookup: Lookup, _device: c_int, _data: *mut u64) -> c_int {
    let Some(set) = lookup.and_then(|lookup| lookup(c"ompt_set_callback".as_ptr())) else { return 0 };
    // SAFETY: the entry point of this name has this type (OpenMP 5.2, 19.6.1: `ompt_set_callback_t`).
    let set = unsafe { transmute::<Entry, SetCallback>(set) };
    // SAFETY: the runtime calls each with the arguments of its own type (19.5.2), which are those below.
    unsafe {
        set(PARALLEL_END, transmute::<unsafe extern "C" fn(Data, Data, c_int, *const c_void), Entry>(parallel_end));
        set(TASK_SCHEDULE, transmute::<unsafe extern "C" fn(Data, c_int, Data), Entry>(task_schedule));
        set(DISPATCH, transmute::<unsafe extern "C" fn(Data, Data, c_int, *const [u64; 2]), Entry>(dispatch));
    }
    let _ = thread::of_openmp(); // early, so that Cotenant finds it soon
    1
}

extern "C" fn finalize(_data: *mut u64) {}

fn count(units: u64) {
    thread::of_openmp().units.fetch_add(units, Relaxed);
}

unsafe extern "C" fn parallel_end(_parallel: Data, _task: Data, _flags: c_int, _code: *const c_void) {
    count(1);
}

unsafe extern "C" fn task_schedule(_prior: Data, status: c_int, _next: Data) {
    if status == COMPLETE {
        count(1);
    }
}

unsafe extern "C" fn dispatch(_parallel: Data, _task: Data, kind: c_int, chunk: *const [u64; 2]) {
    if SINGLE.contains(&kind) {
        count(1);
    } else if kind == CHUNK {
        // SAFETY: for this kind, the instance points to the chunk's start and iterations.
        if let Some([_, iterations]) = unsafe { chunk.as_ref() } {
            count(*iterations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task without data from the runtime, as LLVM's for static loops.
    const NOWHERE: Data = 0x60 as Data;

    fn counted(work: impl FnOnce()) -> u64 {
        let units = || thread::of_openmp().units.load(Relaxed);
        let before = units();
        work();
        units() - before
    }

    /// Holds speed/harmless.
    #[test]
    fn chunks_sections_tasks_and_regions_count() {
        let dispatched = |kind: c_int, instance: &[u64; 2]| {
            // SAFETY: the chunk is readable; no other pointer is used.
            counted(|| unsafe { dispatch(NOWHERE, NOWHERE, kind, instance) })
        };
        assert_eq!([1, 2, CHUNK, 4, 5].map(|kind| dispatched(kind, &[7, 250])), [1, 1, 250, 0, 0]);
        // SAFETY: no pointer is used.
        unsafe {
            let scheduled = |status| counted(|| task_schedule(NOWHERE, status, NOWHERE));
            assert_eq!([COMPLETE, 2, 3, 4].map(scheduled), [1, 0, 0, 0], "yielded, cancelled, detached");
            assert_eq!(counted(|| parallel_end(NOWHERE, NOWHERE, 0, ptr::null())), 1);
        }
    }

    /// Holds speed/harmless.
    #[test]
    fn it_is_no_tool_where_nobody_asks() {
        assert!(std::env::var_os("OMP_TOOL_LIBRARIES").is_none() && ompt_start_tool(0, ptr::null()).is_null());
    }
}
