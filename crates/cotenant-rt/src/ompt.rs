//! OpenMP's tool interface (OpenMP 5.2, chapter 19): what the runtime saw the program do, counted as units.
//!
//! LLVM's and Intel's runtimes load the library where `OMP_TOOL_LIBRARIES` names it; gcc's has no such interface.
//! A unit is an iteration of a worksharing loop, a section, an explicit task, or a parallel region. Iterations that the
//! runtime hands out in chunks count when they are handed out, others when a thread has done its share.

use crate::thread;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem::transmute;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What the runtime is told of the tool, `ompt_start_tool_result_t`.
#[repr(C)]
struct Tool {
    initialize: extern "C" fn(Lookup, c_int, *mut u64) -> c_int,
    finalize: extern "C" fn(*mut u64),
    data: AtomicU64,
}

type Lookup = Option<extern "C" fn(*const c_char) -> Option<Entry>>;
type Entry = extern "C" fn();
type SetCallback = extern "C" fn(c_int, Entry) -> c_int;

/// A word of a task that is the tool's, `ompt_data_t`: of implicit tasks the number of threads of the team, and below
/// it the iterations that are to be counted when the loop ends.
type Word = *mut u64;

const SHARE: u64 = (1 << TEAM) - 1;
const TEAM: u32 = 48;

/// `ompt_callbacks_t`.
const PARALLEL_END: c_int = 4;
const TASK_SCHEDULE: c_int = 6;
const IMPLICIT_TASK: c_int = 7;
const WORK: c_int = 20;
const DISPATCH: c_int = 32;

/// `ompt_scope_endpoint_t`.
const BEGIN: c_int = 1;
const END: c_int = 2;

/// `ompt_work_t`: loops of which nothing more is said, sections, loops of static schedule.
const WHOLE: [c_int; 3] = [1, 2, 10];

/// `ompt_dispatch_t`: a chunk of a worksharing loop.
const CHUNK: c_int = 3;

/// `ompt_task_status_t`: complete.
const COMPLETE: c_int = 1;

/// Asked by the runtime, once. Null: no tool here. It is one only where the user asks for it by name, so that a program
/// that is linked with libcotenant keeps whatever other tool it is given; and none under `ThreadSanitizer`, which
/// needs its own (Archer).
///
/// # Safety
/// None of the arguments is used.
#[unsafe(no_mangle)]
extern "C" fn ompt_start_tool(_version: c_uint, _runtime: *const c_char) -> *const Tool {
    static TOOL: Tool = Tool { initialize, finalize, data: AtomicU64::new(0) };
    if is_asked_for() && !is_under_tsan() { &raw const TOOL } else { ptr::null() }
}

fn is_asked_for() -> bool {
    const OURS: &[u8] = b"libcotenant";
    // SAFETY: the name is a C string; what is returned is null or one. The runtime starts before the program could
    // change its environment elsewhere.
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
    // SAFETY: the entry point of this name has this type (OpenMP 5.2, 19.6.1.1).
    let set = unsafe { transmute::<Entry, SetCallback>(set) };
    // SAFETY: the runtime calls each with the arguments of its own type (19.5.2), which are those below.
    unsafe {
        set(PARALLEL_END, transmute::<unsafe extern "C" fn(Word, Word, c_int, *const c_void), Entry>(parallel_end));
        set(TASK_SCHEDULE, transmute::<unsafe extern "C" fn(Word, c_int, Word), Entry>(task_schedule));
        set(
            IMPLICIT_TASK,
            transmute::<unsafe extern "C" fn(c_int, Word, Word, c_uint, c_uint, c_int), Entry>(implicit_task),
        );
        set(WORK, transmute::<unsafe extern "C" fn(c_int, c_int, Word, Word, u64, *const c_void), Entry>(work));
        set(DISPATCH, transmute::<unsafe extern "C" fn(Word, Word, c_int, *const [u64; 2]), Entry>(dispatch));
    }
    let _ = thread::of_openmp(); // early, so that Cotenant finds it soon
    1
}

extern "C" fn finalize(_data: *mut u64) {}

fn count(units: u64) {
    thread::of_openmp().units.fetch_add(units, Relaxed);
}

unsafe extern "C" fn parallel_end(_parallel: Word, _task: Word, _flags: c_int, _code: *const c_void) {
    count(1);
}

unsafe extern "C" fn task_schedule(_prior: Word, status: c_int, _next: Word) {
    if status == COMPLETE {
        count(1);
    }
}

unsafe extern "C" fn implicit_task(
    endpoint: c_int,
    _parallel: Word,
    task: Word,
    team: c_uint,
    _index: c_uint,
    _flags: c_int,
) {
    // SAFETY: null or the task's own word, which no other thread uses.
    if let Some(word) = unsafe { task.as_mut() }.filter(|_| endpoint == BEGIN) {
        *word = u64::from(team.min(u32::from(u16::MAX))) << TEAM;
    }
}

unsafe extern "C" fn work(kind: c_int, endpoint: c_int, _parallel: Word, task: Word, all: u64, _code: *const c_void) {
    // SAFETY: as above.
    let Some(word) = (unsafe { task.as_mut() }) else { return };
    let (team, share) = (*word >> TEAM, *word & SHARE);
    if endpoint == END {
        count(share);
    }
    let next = if endpoint == BEGIN && WHOLE.contains(&kind) { all.div_ceil(team.max(1)).min(SHARE) } else { 0 };
    *word = team << TEAM | next;
}

unsafe extern "C" fn dispatch(_parallel: Word, task: Word, kind: c_int, chunk: *const [u64; 2]) {
    // SAFETY: as above; of this kind, the instance is a pointer to where the chunk starts and its iterations.
    unsafe {
        if kind == CHUNK
            && let (Some(word), Some([_, iterations])) = (task.as_ref(), chunk.as_ref())
            && word & SHARE == 0
        {
            count(*iterations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::from_mut;

    /// What the runtime tells of one thread of a team, in the order in which it does.
    struct Thread {
        word: u64,
        before: u64,
    }

    impl Thread {
        fn of_team(threads: c_uint) -> Self {
            let mut thread = Self { word: 0, before: units() };
            // SAFETY: the word is the task's.
            unsafe { implicit_task(BEGIN, ptr::null_mut(), from_mut(&mut thread.word), threads, 0, 1) };
            thread
        }

        fn work(&mut self, kind: c_int, endpoint: c_int, all: u64) {
            // SAFETY: as above.
            unsafe { work(kind, endpoint, ptr::null_mut(), from_mut(&mut self.word), all, ptr::null()) };
        }

        fn chunk(&mut self, kind: c_int, iterations: u64) {
            let chunk = [7, iterations];
            // SAFETY: as above; the chunk is readable.
            unsafe { dispatch(ptr::null_mut(), from_mut(&mut self.word), kind, &raw const chunk) };
        }

        fn counted(&self) -> u64 {
            units() - self.before
        }
    }

    fn units() -> u64 {
        thread::of_openmp().units.load(Relaxed)
    }

    const STATIC: c_int = 10;
    const DYNAMIC: c_int = 11;
    const SINGLE: c_int = 3;

    #[test]
    fn a_share_counts_when_it_is_done() {
        let mut thread = Thread::of_team(4);
        thread.work(STATIC, BEGIN, 1_000);
        thread.chunk(CHUNK, 3); // the first of its share
        assert_eq!(thread.counted(), 0);
        thread.work(STATIC, END, 0);
        assert_eq!(thread.counted(), 250);
        thread.work(SINGLE, BEGIN, 1);
        thread.work(SINGLE, END, 1);
        assert_eq!(thread.counted(), 250, "nobody else did it");
        thread.work(STATIC, BEGIN, u64::MAX);
        thread.work(STATIC, END, 0);
        assert_eq!((thread.counted() - 250, thread.word >> TEAM), (SHARE, 4));
    }

    #[test]
    fn chunks_count_as_they_are_handed_out() {
        let mut thread = Thread::of_team(4);
        thread.work(DYNAMIC, BEGIN, 1_000);
        thread.chunk(CHUNK, 7);
        thread.chunk(CHUNK, 5);
        thread.chunk(1, 1_000); // an iteration, of whose number nothing is said
        thread.work(DYNAMIC, END, 0);
        assert_eq!(thread.counted(), 12);
    }

    /// The loop of a nested team ends before that around it: each has a task, and so a word, of its own.
    #[test]
    fn teams_nest() {
        let mut outer = Thread::of_team(2);
        outer.work(STATIC, BEGIN, 10);
        let mut inner = Thread::of_team(5);
        inner.work(STATIC, BEGIN, 100);
        inner.work(STATIC, END, 0);
        // SAFETY: no argument is used.
        unsafe { parallel_end(ptr::null_mut(), ptr::null_mut(), 0, ptr::null()) };
        outer.work(STATIC, END, 0);
        assert_eq!(outer.counted(), 20 + 1 + 5);
    }

    #[test]
    fn ended_tasks_count_and_paused_ones_do_not() {
        let thread = Thread::of_team(1);
        for status in [COMPLETE, 2, 4, COMPLETE] {
            // SAFETY: no pointer is used.
            unsafe { task_schedule(ptr::null_mut(), status, ptr::null_mut()) };
        }
        assert_eq!(thread.counted(), 2);
        // SAFETY: a task of which the runtime tells nothing.
        unsafe { work(STATIC, BEGIN, ptr::null_mut(), ptr::null_mut(), 9, ptr::null()) };
        assert_eq!(thread.counted(), 2);
    }

    #[test]
    fn it_is_no_tool_where_nobody_asks() {
        assert!(std::env::var_os("OMP_TOOL_LIBRARIES").is_none() && ompt_start_tool(0, ptr::null()).is_null());
    }
}
