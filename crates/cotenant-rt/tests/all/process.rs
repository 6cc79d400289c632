//! Reports of this process as another one would find them: in the anonymous file behind `/proc/self/fd`. Each test has
//! its own process, so that counts do not mix.

use cotenant_rt::layout::{BYTES, MAGIC, MAJOR, Region, SEALS, SLOTS, bucket_of};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Runs the test of that name in a fresh process; true in that process.
fn alone(name: &str) -> bool {
    if std::env::var_os("COTENANT_RT_ALONE").is_some() {
        return true;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("process::{name}"), "--test-threads=1"]).env("COTENANT_RT_ALONE", "1");
    let ended = command.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    false
}

/// The file among this process' descriptors, if there is one.
fn file_of(pid: u32) -> Option<File> {
    Some(File::open(paths_of(pid).into_iter().next()?).unwrap())
}

fn paths_of(pid: u32) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let ours = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy() == "/memfd:cotenant-progress (deleted)")
    };
    entries.map(|entry| entry.unwrap().path()).filter(ours).collect()
}

/// A copy of the words of the file.
fn words(pid: u32) -> Vec<u64> {
    let mut bytes = vec![0; BYTES];
    file_of(pid).expect("it reports").read_exact_at(&mut bytes, 0).unwrap();
    bytes.chunks_exact(8).map(|w| u64::from_ne_bytes(w.try_into().unwrap())).collect()
}

const SLOT_WORDS: usize = 2688 / 8;

fn units_by_slot(pid: u32) -> Vec<u64> {
    words(pid)[1024..].chunks_exact(SLOT_WORDS).map(|slot| slot[0]).collect()
}

fn units(pid: u32) -> u64 {
    units_by_slot(pid).iter().sum()
}

fn me() -> u32 {
    std::process::id()
}

#[test]
fn the_file_is_sealed_and_its_owners_alone() {
    if !alone("the_file_is_sealed_and_its_owners_alone") {
        return;
    }
    assert!(file_of(me()).is_none(), "nothing before the first report");
    assert!(cotenant_rt::init());
    let file = file_of(me()).unwrap();
    let meta = file.metadata().unwrap();
    assert_eq!((meta.mode() & 0o777, meta.len()), (0o600, BYTES as u64));
    // SAFETY: takes a descriptor that is open.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    assert_eq!(seals & SEALS, SEALS);
    assert!(meta.blocks() * 512 < 64 << 10, "{} blocks: what nobody uses takes no room", meta.blocks());
    let words = words(me());
    assert_eq!((words[0], (words[1] & 0xffff_ffff) >> 16), (MAGIC, u64::from(MAJOR)));
    assert_eq!(words[3] & 0xffff_ffff, u64::from(me()));
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let ticks: u64 = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap();
    assert_eq!(words[4], ticks);
}

#[test]
fn a_limit_of_file_sizes_does_not_end_the_program() {
    if !alone("a_limit_of_file_sizes_does_not_end_the_program") {
        return;
    }
    let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
    // SAFETY: the structure is readable.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
    assert!(!cotenant_rt::init(), "nobody will find it");
    cotenant_rt::units(3);
    cotenant_rt::latency(Duration::from_nanos(7));
    assert!(file_of(me()).is_none());
}

/// Promise speed/reports: Reports of all threads add up, also of those that ended; a forked child and an executed
/// program report for themselves.
#[test]
fn reports_of_all_threads_add_up_and_outlive_them() {
    if !alone("reports_of_all_threads_add_up_and_outlive_them") {
        return;
    }
    for _ in 0..3 {
        let report = || (0..1_000).for_each(|_| cotenant_rt::units(2));
        // Joined, not only scoped: a scope ends before its threads have given their slots back.
        let threads: Vec<_> = (0..16).map(|_| std::thread::spawn(report)).collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    cotenant_rt::latency(Duration::from_micros(1));
    cotenant_rt::latency_ns(u64::MAX);
    assert_eq!(units(me()), 3 * 16 * 1_000 * 2);
    let words = words(me());
    let used = (words[3] >> 32) as usize;
    assert!((2..=1 + 16 + 1).contains(&used), "{used} slots: those of ended threads are used again");
    let latencies =
        |bucket: usize| -> u64 { words[1024..].chunks_exact(SLOT_WORDS).map(|slot| slot[16 + bucket]).sum() };
    assert_eq!((latencies(bucket_of(1_000)), latencies(319)), (1, 1));
}

/// Holds speed/reports.
#[test]
fn more_threads_than_slots_share_one() {
    if !alone("more_threads_than_slots_share_one") {
        return;
    }
    let (threads, barrier) = (SLOTS + 50, Barrier::new(SLOTS + 50));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let work = || {
                cotenant_rt::units(1);
                barrier.wait(); // all at once
                (0..100).for_each(|_| cotenant_rt::units(1));
            };
            std::thread::Builder::new().stack_size(64 << 10).spawn_scoped(scope, work).unwrap();
        }
    });
    let by_slot = units_by_slot(me());
    assert_eq!(by_slot.iter().sum::<u64>(), threads as u64 * 101);
    assert_eq!(by_slot[0], 51 * 101, "SLOTS − 1 of them have one of their own");
    assert!(by_slot[1..].iter().all(|units| *units == 101));
}

/// Holds speed/reports.
#[test]
fn a_forked_child_reports_for_itself() {
    if !alone("a_forked_child_reports_for_itself") {
        return;
    }
    let slot = cotenant_rt::units_slot();
    cotenant_rt::units(5);
    // SAFETY: the child only calls this library, which allows that, reads its own file, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        cotenant_rt::units(7);
        slot.fetch_add(3, Relaxed);
        std::thread::spawn(|| cotenant_rt::units(100)).join().unwrap();
        let right = units(me()) == 110 && words(me())[3] & 0xffff_ffff == u64::from(me());
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!(right && paths_of(me()).len() == 1))) };
    }
    let mut status = 0;
    // SAFETY: the status is writable.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0, "the child counts from zero, in one file of its own");
    cotenant_rt::units(1);
    assert_eq!(units(me()), 6, "the parent's counts are its own");
}

unsafe extern "C" {
    /// The counter of `libcotenant-mpi`.
    fn cotenant_mpi_1() -> *const AtomicU64;
}

/// Holds speed/harmless.
#[test]
fn a_forked_child_counts_its_own_calls_of_mpi() {
    if !alone("a_forked_child_counts_its_own_calls_of_mpi") {
        return;
    }
    // SAFETY: it takes nothing, and its result stays valid forever.
    let calls = unsafe { &*cotenant_mpi_1() };
    calls.fetch_add(5, Relaxed);
    // SAFETY: the child adds to a count, and leaves by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let before = calls.fetch_add(7, Relaxed);
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(before != 0)) };
    }
    let mut status = 0;
    // SAFETY: the status is writable.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!((status, calls.load(Relaxed)), (0, 5), "from zero, and not in the parent's memory");
    assert!(file_of(me()).is_none(), "it is not a report");
}

#[test]
fn a_child_does_not_close_what_took_over_the_descriptor() {
    if !alone("a_child_does_not_close_what_took_over_the_descriptor") {
        return;
    }
    cotenant_rt::init();
    let fd: i32 = paths_of(me())[0].file_name().unwrap().to_str().unwrap().parse().unwrap();
    // SAFETY: daemons close unknown descriptors; then another file gets the number.
    unsafe { libc::close(fd) };
    let other = File::open("/proc/self/status").unwrap();
    assert_eq!(other.as_raw_fd(), fd);
    assert!(!cotenant_rt::init(), "nobody can find it any more");
    // SAFETY: as above.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        cotenant_rt::units(1);
        let right = other.metadata().is_ok_and(|meta| meta.is_file()) && units(me()) == 1;
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!right)) };
    }
    let mut status = 0;
    // SAFETY: the status is writable.
    unsafe { libc::waitpid(pid, &raw mut status, 0) };
    assert_eq!(status, 0);
}

/// Holds speed/reports.
#[test]
fn an_executed_program_begins_anew() {
    if !alone("an_executed_program_begins_anew") {
        return;
    }
    cotenant_rt::units(5);
    let listing = Command::new("ls").args(["-l", "/proc/self/fd"]).output().unwrap();
    assert!(listing.status.success());
    assert!(!String::from_utf8_lossy(&listing.stdout).contains("cotenant"), "the file stays behind");
}

/// Reports when its thread ends.
struct Late;

impl Drop for Late {
    fn drop(&mut self) {
        cotenant_rt::units(1);
    }
}

thread_local!(static LATE: Late = const { Late });

/// Holds speed/reports.
#[test]
fn a_thread_that_ends_can_still_report() {
    if !alone("a_thread_that_ends_can_still_report") {
        return;
    }
    // Destructors run in the reverse order of first use, or not: before and after the library's own.
    for late_first in [true, false] {
        std::thread::spawn(move || {
            if late_first {
                LATE.with(|_| ());
            }
            cotenant_rt::units(1);
            LATE.with(|_| ());
        })
        .join()
        .unwrap();
    }
    assert_eq!(units(me()), 4);
    assert_eq!(size_of::<Region>(), BYTES);
}
