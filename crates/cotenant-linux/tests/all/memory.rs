//! The memory of difficult processes: they end at any moment, have as many mappings as the kernel allows, or belong to
//! other users.

use cotenant_linux::FsRoot;
use cotenant_linux::sense::memory::{Choice, Memory, Options, areas_of};
use cotenant_model::Time;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

const ACCESSES: Options = Options { placement: true, accesses: true, choice: Choice::Accessed, budget: 1.0 };

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn notes(memory: &Memory) -> Vec<String> {
    memory.notes().cloned().collect()
}

/// Ends before, between and after looks, reaped and not: the looks go on, and nobody is told.
/// Holds see/memory.
#[test]
fn processes_may_end_at_any_moment() {
    let mut memory = Memory::new(ACCESSES, &FsRoot::live(), false);
    if memory.collector().is_none() {
        eprintln!("skipped: {:?}", notes(&memory));
        return;
    }
    for end_after in 0..6 {
        for reaped in [false, true] {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
            let live = BTreeMap::from([(child.id(), vec![child.id()])]);
            for look in 0..8 {
                if look == end_after {
                    child.kill().unwrap();
                    if reaped {
                        child.wait().unwrap();
                    }
                }
                memory.look(&live, at(100_000 * look));
            }
            child.wait().unwrap();
            memory.look(&BTreeMap::new(), at(900_000));
            assert_eq!(notes(&memory), Vec::<String>::new(), "ended before look {end_after}, reaped: {reaped}");
        }
    }
    // During the look another thread ends it at some moment.
    for _ in 0..20 {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let live = BTreeMap::from([(child.id(), vec![child.id()])]);
        let killer = std::thread::spawn(move || {
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let mut look = 0;
        while !killer.is_finished() {
            memory.look(&live, at(100_000 * look));
            look += 1;
        }
        killer.join().unwrap();
        memory.look(&live, at(100_000 * look));
        memory.look(&BTreeMap::new(), at(100_000 * (look + 1)));
    }
    assert_eq!(notes(&memory), Vec::<String>::new());
}

/// Not a million, which a kernel's usual limit (`vm.max_map_count`, 65,530) does not allow;
/// `a_million_mappings_are_one_note` makes those up.
/// Holds see/large-processes.
#[test]
fn tens_of_thousands_of_mappings_are_read() {
    let (me, fs) = (std::process::id(), FsRoot::live());
    if areas_of(&fs, me).is_err() {
        eprintln!("skipped: this kernel has no numa_maps");
        return;
    }
    // SAFETY: takes a constant and has no other effect.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
    let pairs = 20_000;
    // SAFETY: a new mapping without other references; writes and protections are inside it. Every second page is made
    // read-only, which splits it.
    let (start, made) = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let start = libc::mmap(std::ptr::null_mut(), 2 * pairs * page, protection, flags, -1, 0);
        assert_ne!(start, libc::MAP_FAILED);
        libc::madvise(start, 2 * pairs * page, libc::MADV_NOHUGEPAGE);
        (0..2 * pairs).for_each(|i| start.cast::<u8>().add(i * page).write_volatile(1));
        let split = |i: &usize| libc::mprotect(start.add(2 * i * page), page, libc::PROT_READ) == 0;
        (start, (0..pairs).take_while(split).count())
    };
    if made < pairs {
        eprintln!("skipped: vm.max_map_count allows no {} mappings", 2 * pairs);
        return;
    }
    let mut memory = Memory::new(ACCESSES, &fs, false);
    let live = BTreeMap::from([(me, vec![me])]);
    (0..4).for_each(|look| memory.look(&live, at(1_000_000 * look)));
    let pages: u64 = memory.pages(me).unwrap().iter().map(|(_, n)| n).sum();
    assert!(pages >= 2 * pairs as u64, "{pages} pages");
    assert!(areas_of(&fs, me).unwrap().len() > 2 * pairs - 2);
    let looked = memory.collector().is_none() || memory.touches(me, me).is_some();
    assert!(looked, "{:?}", notes(&memory));
    // SAFETY: the mapping from above, without any references left. It would slow each fork of another test.
    unsafe { libc::munmap(start, 2 * pairs * page) };
}

/// Holds see/memory.
#[test]
fn another_users_process_is_one_note() {
    let looked = std::thread::spawn(|| {
        // SAFETY: the system call, unlike the C library's function, changes the user of this thread alone, which does
        // nothing else.
        let nobody = unsafe { libc::syscall(libc::SYS_setresuid, 65_534, 65_534, 65_534) };
        if nobody != 0
            && ["numa_maps", "smaps"].iter().any(|file| std::fs::File::open(format!("/proc/1/{file}")).is_ok())
        {
            return None;
        }
        let mut memory = Memory::new(ACCESSES, &FsRoot::live(), false);
        let live = BTreeMap::from([(1, vec![1])]);
        (0..4).for_each(|look| memory.look(&live, at(1_000_000 * look)));
        Some((notes(&memory), memory.pages(1), memory.touches(1, 1)))
    });
    let Some((notes, pages, touches)) = looked.join().unwrap() else {
        eprintln!("skipped: process 1 is ours");
        return;
    };
    assert_eq!((pages, touches), (None, None));
    let of_it: Vec<&String> = notes.iter().filter(|note| note.starts_with("process 1:")).collect();
    assert!(of_it.len() <= 1, "{notes:?}");
    // If /proc hides other users' processes, it looks ended.
    assert!(of_it.iter().all(|note| note.contains("CAP_SYS_PTRACE")), "{notes:?}");
}
