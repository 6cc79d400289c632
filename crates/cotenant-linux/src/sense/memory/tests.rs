use super::*;
use cotenant_model::areas::page_samples::Stratum;
use cotenant_testing::TempDir;
use std::fmt::Write as _;

fn at(ms: u64) -> Time {
    Time::from_millis(ms)
}

fn accesses(choice: Choice) -> Options {
    Options { accesses: true, choice, ..Options::default() }
}

/// A made-up machine with one process, 7, with 1,000 pages on two nodes in two areas.
fn machine(name: &str) -> (TempDir, FsRoot) {
    let tree = TempDir::new(name);
    tree.write("proc/7/numa_maps", "1000 default anon=600 N0=600\n9000000 default anon=400 N1=400\n");
    for pid in ["self", "7"] {
        tree.write(&format!("proc/{pid}/clear_refs"), "");
        tree.write(
            &format!("proc/{pid}/smaps"),
            "1000-259000 rw-p 0 0 0\nReferenced: 40 kB\n9000000-9190000 rw-p 0 0 0\nReferenced: 80 kB\n",
        );
    }
    let fs = FsRoot::at(tree.path());
    (tree, fs)
}

fn one() -> BTreeMap<u32, Vec<u32>> {
    BTreeMap::from([(7, vec![7, 8])])
}

/// Holds see/memory.
#[test]
fn accessed_pages_are_counted_by_node_and_shared_out_among_threads() {
    let (tree, fs) = machine("accessed");
    let mut memory = Memory::new(accesses(Choice::Auto), &fs, false);
    assert_eq!(memory.collector(), Some("accessed"));
    memory.look(&one(), at(0));
    assert_eq!(memory.pages(7), Some(vec![(NodeId(0), 600), (NodeId(1), 400)]));
    assert_eq!(memory.touches(7, 7), None, "it has only begun");
    assert_eq!(std::fs::read_to_string(tree.path().join("proc/7/clear_refs")).unwrap(), "1");
    memory.look(&one(), at(100));
    let page = files::page_kb();
    let first = vec![(NodeId(0), 40 / page / 2), (NodeId(1), 80 / page / 2)];
    assert_eq!(memory.touches(7, 7), Some(first.clone()), "two threads");
    // The next look is due when its cost fits the budget, after at least 50 ms: not at once.
    memory.look(&one(), at(101));
    memory.look(&one(), at(102));
    assert_eq!((memory.touches(7, 7), memory.spent().1), (Some(first), 1));
    memory.look(&one(), at(60_000));
    memory.look(&one(), at(60_100));
    assert_eq!(memory.touches(7, 7), Some(vec![(NodeId(0), 40 / page), (NodeId(1), 80 / page)]), "cumulative");
    assert_eq!(memory.notes().count(), 0);
}

#[test]
fn placement_alone_clears_nothing() {
    let (tree, fs) = machine("placement");
    let mut memory = Memory::new(accesses(Choice::Placement), &fs, false);
    for i in 0..10 {
        memory.look(&one(), at(1_000 * i));
    }
    assert_eq!((memory.collector(), memory.touches(7, 7)), (None, None));
    assert!(memory.pages(7).is_some());
    assert_eq!(std::fs::read_to_string(tree.path().join("proc/7/clear_refs")).unwrap(), "");
    // A policy that needs no accesses clears nothing either.
    let mut memory = Memory::new(Options { placement: true, ..Options::default() }, &fs, false);
    for i in 0..10 {
        memory.look(&one(), at(1_000 * i));
    }
    assert_eq!(std::fs::read_to_string(tree.path().join("proc/7/clear_refs")).unwrap(), "");
}

/// Holds see/memory.
#[test]
fn a_process_that_ends_while_it_is_watched_is_no_failure() {
    let (tree, fs) = machine("ends");
    let mut memory = Memory::new(accesses(Choice::Accessed), &fs, false);
    memory.look(&one(), at(0));
    std::fs::remove_dir_all(tree.path().join("proc/7")).unwrap();
    memory.look(&one(), at(100));
    memory.look(&one(), at(2_000));
    assert_eq!((memory.touches(7, 7), memory.pages(7), memory.notes().count()), (None, None, 0));
    memory.look(&BTreeMap::new(), at(2_100));
    assert!(memory.processes.is_empty());
}

/// Holds see/large-processes.
#[test]
fn a_million_mappings_are_one_note() {
    let (tree, fs) = machine("million");
    let mut text = String::new();
    for i in 0..1_000_000_u64 {
        writeln!(text, "{:x} default anon=1 N0=1", i * 8192).unwrap();
    }
    tree.write("proc/7/numa_maps", text);
    let mut memory = Memory::new(accesses(Choice::Accessed), &fs, false);
    for i in 0..5 {
        memory.look(&one(), at(1_000_000 * i));
    }
    let notes: Vec<&String> = memory.notes().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("more than 65536 mappings"), "{notes:?}");
    assert_eq!((memory.pages(7), memory.touches(7, 7)), (None, None));
}

/// A collector that is refused.
#[derive(Debug)]
struct Refused;

impl Collector for Refused {
    fn name(&self) -> &'static str {
        "refused"
    }

    fn begin(&mut self, _of: &Watched<'_>) -> io::Result<()> {
        Err(ErrorKind::PermissionDenied.into())
    }

    fn end(&mut self, _of: &Watched<'_>) -> io::Result<Found> {
        unreachable!("it never began")
    }

    fn forget(&mut self, _pid: u32) {}
}

/// Holds see/memory.
#[test]
fn no_permission_is_one_note_with_the_remedy() {
    let (_tree, fs) = machine("permission");
    let mut memory = Memory::new(accesses(Choice::Accessed), &fs, false);
    memory.collector = Some(Box::new(Refused));
    for i in 0..5 {
        memory.look(&one(), at(60_000 * i));
    }
    let notes: Vec<&String> = memory.notes().collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].contains("CAP_SYS_PTRACE"), "{notes:?}");
    assert!(memory.pages(7).is_some(), "where its pages are is known all the same");
}

#[test]
fn what_is_not_to_be_had_is_said() {
    let tree = TempDir::new("bare-memory");
    let fs = FsRoot::at(tree.path());
    for (choice, why) in [
        (Choice::Hardware, "cannot be counted here"),
        (Choice::Damon, "CONFIG_DAMON_SYSFS"),
        (Choice::Faults, "CONFIG_SCHED_DEBUG"),
        (Choice::Accessed, "CONFIG_PROC_PAGE_MONITOR"),
        (Choice::Auto, "CONFIG_PROC_PAGE_MONITOR"),
    ] {
        let memory = Memory::new(accesses(choice), &fs, false);
        let notes: Vec<&String> = memory.notes().collect();
        assert!(notes.len() == 1 && notes[0].contains(why), "{choice:?}: {notes:?}");
    }
    // With events, no other means is needed.
    let memory = Memory::new(accesses(Choice::Auto), &fs, true);
    assert_eq!((memory.collector(), memory.notes().count()), (None, 0));
    for (name, choice) in Choice::ALL {
        assert_eq!(name.parse(), Ok(choice));
    }
    assert!("perf".parse::<Choice>().is_err());
}

/// The relevant lines of Linux on a thread.
fn sched_file(comm: &str, ran: u64, nodes: [[u64; 2]; 2]) -> String {
    let mut text = format!(
        "{comm} (7, #threads: 2)\n\
         -------------------------------------------------------------------\n\
         se.sum_exec_runtime                          :{ran:14}.000000\n\
         mm->numa_scan_seq                            :                    3\n\
         current_node=1, numa_group_id=0\n"
    );
    for (node, [private, shared]) in nodes.iter().enumerate() {
        let own = format!("task_private={private} task_shared={shared}");
        writeln!(text, "numa_faults node={node} {own} group_private=5000 group_shared=6000").unwrap();
    }
    text
}

/// The machine with a kernel that balances, and its counts for the two threads.
fn balanced(name: &str) -> (TempDir, FsRoot) {
    let (tree, fs) = machine(name);
    tree.write("proc/sys/kernel/numa_balancing", "1\n");
    tree.write("proc/self/sched", sched_file("cotenant", 1, [[0, 0], [0, 0]]));
    tree.write("proc/7/task/7/sched", sched_file("a", 1, [[100, 0], [0, 0]]));
    tree.write("proc/7/task/8/sched", sched_file("b", 1, [[0, 0], [40, 20]]));
    (tree, fs)
}

fn by_node(a: u64, b: u64) -> Vec<(NodeId, u64)> {
    vec![(NodeId(0), a), (NodeId(1), b)]
}

/// Holds see/memory.
#[test]
fn hinting_faults_tell_threads_apart() {
    for (choice, name) in [(Choice::Faults, "faults"), (Choice::Auto, "faults and accessed")] {
        let (tree, fs) = balanced(name);
        let mut memory = Memory::new(accesses(choice), &fs, false);
        assert_eq!(memory.collector(), Some(name));
        let mut look = |second: u64| {
            memory.look(&one(), at(60_000 * second));
            memory.look(&one(), at(60_000 * second + 100));
            (memory.touches(7, 7).unwrap(), memory.touches(7, 8).unwrap())
        };
        // Half of the kernel's count: the average of its scans.
        assert_eq!(look(0), (by_node(50, 0), by_node(0, 30)));
        assert_eq!(look(1), (by_node(50, 0), by_node(0, 30)), "neither has run since");
        tree.write("proc/7/task/7/sched", sched_file("a", 2, [[100, 0], [0, 0]]));
        assert_eq!(look(2), (by_node(100, 0), by_node(0, 30)), "the second one sleeps");
        // A scan later 100 became 50, and 8 private and 4 shared pages were found; 8 of the other node.
        tree.write("proc/7/task/7/sched", sched_file("a", 3, [[58, 4], [8, 0]]));
        tree.write("proc/7/task/8/sched", sched_file("b", 2, [[0, 0], [20, 10]]));
        assert_eq!(look(3), (by_node(131, 4), by_node(0, 45)));
        // A thread that ends, and a process that ends.
        std::fs::remove_dir_all(tree.path().join("proc/7/task/8")).unwrap();
        assert_eq!(look(4).0, by_node(131, 4));
        std::fs::remove_dir_all(tree.path().join("proc/7")).unwrap();
        assert_eq!(look(5).0, by_node(131, 4));
        assert_eq!(memory.notes().count(), 0);
    }
}

/// Of one thread accessed bits say the same sooner; of memory that the kernel does not scan, faults say nothing.
/// Holds see/memory.
#[test]
fn accessed_bits_are_for_what_hinting_faults_do_not_tell() {
    let (tree, fs) = balanced("faults-else");
    let page = files::page_kb();
    let bits = |threads: u64| by_node(40 / page / threads, 80 / page / threads);
    let mut memory = Memory::new(accesses(Choice::Auto), &fs, false);
    for ms in [0, 100] {
        memory.look(&BTreeMap::from([(7, vec![7])]), at(ms));
    }
    assert_eq!(memory.touches(7, 7), Some(bits(1)));
    let mut memory = Memory::new(accesses(Choice::Auto), &fs, false);
    for tid in [7, 8] {
        tree.write(&format!("proc/7/task/{tid}/sched"), sched_file("a", 1, [[0, 0], [0, 0]]));
    }
    for ms in [0, 100] {
        memory.look(&one(), at(ms));
    }
    assert_eq!((memory.touches(7, 7), memory.touches(7, 8)), (Some(bits(2)), Some(bits(2))));
    // From the first scan on, faults are used, and earlier counts kept.
    tree.write("proc/7/task/8/sched", sched_file("a", 2, [[0, 0], [1000, 0]]));
    for ms in [60_000, 60_100] {
        memory.look(&one(), at(ms));
    }
    let (first, second) = (memory.touches(7, 7).unwrap(), memory.touches(7, 8).unwrap());
    assert_eq!((first, second[1]), (bits(2), (NodeId(1), 80 / page / 2 + 500)));
}

/// The name is the program's own choice, line ends included, and a dump may hold anything.
/// Holds see/memory.
#[test]
fn a_hostile_thread_names_no_faults() {
    let (tree, fs) = balanced("faults-hostile");
    let mut memory = Memory::new(accesses(Choice::Faults), &fs, false);
    let mut look = |second: u64, content: &[u8]| {
        tree.write("proc/7/task/7/sched", content);
        memory.look(&one(), at(60_000 * second));
        memory.look(&one(), at(60_000 * second + 100));
        (memory.touches(7, 7).unwrap(), memory.notes().count())
    };
    let names = ["x\nnuma_faults n", "numa_faults nod", "\nnuma_faults no", "\nnuma_faults", "(#)\nnode=0\n:"];
    for (second, comm) in (0..).zip(names) {
        let text = sched_file(comm, second, [[6, 0], [0, 0]]);
        assert_eq!(look(second, text.as_bytes()), (by_node(3 * (second + 1), 0), 0), "{comm:?}");
    }
    let most = u64::MAX;
    let line = format!(
        "se.sum_exec_runtime:{most}{most}\nnuma_faults node=4294967295 task_private={most} task_shared={most} g"
    );
    assert_eq!(look(10, line.as_bytes()).0[2], (NodeId(u32::MAX), most / 2 + 1));
    look(11, b"numa_faults node=-1 task_private=1\n\xff\xfe numa_faults");
    look(12, b"");
    let endless = "numa_faults node=0 task_private=1 task_shared=1\n".repeat(30_000);
    let (_, notes) = look(13, endless.as_bytes());
    assert_eq!(notes, 1, "more than a mebibyte is read of no file");
}

/// Holds see/memory.
#[test]
fn why_there_are_no_hinting_faults() {
    let (tree, fs) = balanced("faults-none");
    let why = || HintingFaults::new(&fs).map(drop).unwrap_err();
    assert!(HintingFaults::new(&fs).is_ok());
    for mode in ["0\n", "2\n", ""] {
        tree.write("proc/sys/kernel/numa_balancing", mode);
        assert!(why().contains("sysctl kernel.numa_balancing=1"), "{mode}");
    }
    tree.write("proc/sys/kernel/numa_balancing", "3\n");
    assert!(HintingFaults::new(&fs).is_ok());
    tree.write("proc/self/sched", "cotenant (7, #threads: 2)\n");
    assert!(why().contains("CONFIG_NUMA_BALANCING"));
    std::fs::remove_file(tree.path().join("proc/self/sched")).unwrap();
    assert!(why().contains("CONFIG_SCHED_DEBUG"));
    assert_eq!(Memory::new(accesses(Choice::Auto), &fs, false).collector(), Some("accessed"));
    let of = |fs: &FsRoot| capabilities(fs).into_iter().find(|c| c.name == "NUMA hinting faults").unwrap();
    assert_eq!(of(&fs).standing, Standing::Missing);
    let (_tree, fs) = balanced("faults-there");
    assert_eq!(of(&fs).standing, Standing::Available);
}

/// The kernel's files of DAMON with one monitor, as they appear once its numbers are written.
fn monitors(tree: &TempDir) {
    let admin = "sys/kernel/mm/damon/admin/kdamonds";
    tree.write("proc/kallsyms", "0000000000000000 t damon_va_check_accesses\n");
    tree.write(&format!("{admin}/nr_kdamonds"), "0\n");
    let context = format!("{admin}/0/contexts/0");
    for file in ["0/state", "0/contexts/nr_contexts"] {
        tree.write(&format!("{admin}/{file}"), "");
    }
    let attributes =
        ["intervals/sample_us", "intervals/aggr_us", "intervals/update_us", "nr_regions/min", "nr_regions/max"];
    for file in attributes {
        tree.write(&format!("{context}/monitoring_attrs/{file}"), "");
    }
    for file in ["operations", "targets/nr_targets", "targets/0/pid_target", "schemes/nr_schemes", "schemes/0/action"] {
        tree.write(&format!("{context}/{file}"), "");
    }
    for what in ["sz", "nr_accesses", "age"] {
        tree.write(&format!("{context}/schemes/0/access_pattern/{what}/max"), "");
    }
    let regions = [(0, 0x1000, 0x3000, 5), (1, 0x3000, 0x20_0000, 0), (2, 0x900_0000, 0x900_1000, 20)];
    for (n, start, end, accesses) in regions {
        let region = format!("{context}/schemes/0/tried_regions/{n}");
        tree.write(&format!("{region}/start"), format!("{start}\n"));
        tree.write(&format!("{region}/end"), format!("{end}\n"));
        tree.write(&format!("{region}/nr_accesses"), format!("{accesses}\n"));
    }
    tree.write(&format!("{context}/schemes/0/tried_regions/total_bytes"), "0\n");
}

/// Holds see/memory.
#[test]
fn damon_tells_ranges_and_is_switched_off_again() {
    let (tree, fs) = machine("damon");
    monitors(&tree);
    let read = |file: &str| {
        std::fs::read_to_string(tree.path().join("sys/kernel/mm/damon/admin/kdamonds").join(file)).unwrap()
    };
    let mut memory = Memory::new(accesses(Choice::Damon), &fs, false);
    assert_eq!(memory.collector(), Some("damon"));
    assert_eq!(read("nr_kdamonds"), "0\n", "asking changes nothing");
    memory.look(&one(), at(0));
    assert_eq!((read("0/state"), read("0/contexts/0/operations")), ("on".to_owned(), "vaddr".to_owned()));
    assert_eq!(read("0/contexts/0/targets/0/pid_target"), "7");
    memory.look(&one(), at(100));
    // In pages of 4 KiB: two of node 0 five times and one of node 1 twenty times, for two threads.
    if files::page_kb() == 4 {
        assert_eq!(memory.touches(7, 7), Some(vec![(NodeId(0), 5), (NodeId(1), 10)]));
    }
    memory.look(&BTreeMap::new(), at(200));
    assert_eq!(read("0/state"), "off");
    drop(memory);
    assert_eq!(read("nr_kdamonds"), "0");
}

/// Holds see/memory.
#[test]
fn monitors_of_somebody_else_are_left_alone() {
    let (tree, fs) = machine("damon-taken");
    monitors(&tree);
    tree.write("sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds", "1\n");
    let mut memory = Memory::new(accesses(Choice::Damon), &fs, false);
    assert!(memory.notes().next().unwrap().contains("another program has made 1 monitor(s)"));
    memory.look(&one(), at(0));
    drop(memory);
    let state = std::fs::read_to_string(tree.path().join("sys/kernel/mm/damon/admin/kdamonds/0/state")).unwrap();
    assert_eq!(state, "", "nothing was written");
}

/// This process itself: what is touched between two looks is seen, what is not is not.
/// Promise see/memory: Accesses by node come from accessed bits, DAMON, hinting faults or events; a missing
/// permission is one note with the remedy.
#[test]
fn accessed_bits_of_this_kernel() {
    let fs = FsRoot::live();
    let mut accessed = match Accessed::new(&fs, 1) {
        Ok(accessed) => accessed,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let me = std::process::id();
    let Ok(areas) = files::areas(&fs, me) else {
        eprintln!("skipped: this kernel has no numa_maps");
        return;
    };
    assert!(!areas.is_empty());
    let size = 64 << 20;
    let mut touched = vec![1_u8; size];
    let left = vec![1_u8; 4 * size];
    if let Err(e) = accessed.begin(&Watched { pid: me, threads: &[me], areas: &areas }) {
        eprintln!("skipped: accessed bits cannot be cleared here ({e})");
        return;
    }
    for byte in touched.iter_mut().step_by(1024) {
        *byte = byte.wrapping_add(1);
    }
    let areas = files::areas(&fs, me).unwrap();
    let found = accessed.end(&Watched { pid: me, threads: &[me], areas: &areas }).unwrap();
    let Found::Together(found) = found else { panic!("{found:?}") };
    let found: f64 = found.values().sum();
    let pages = |bytes: usize| (bytes >> 10) as f64 / files::page_kb() as f64;
    assert!(found >= 0.9 * pages(size), "{found} pages");
    // Other tests touch their own memory meanwhile.
    assert!(found < pages(size) + 0.9 * pages(4 * size), "{found} pages");
    assert_eq!(left.len() + touched.len(), 5 * size);
}

/// An area of small pages, every `n`-th resident; it ends with the process.
fn area(pages: usize, n: usize) -> *mut u8 {
    let page = (files::page_kb() * 1024) as usize;
    // SAFETY: a new mapping without other references; writes are inside it.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let at = libc::mmap(std::ptr::null_mut(), pages * page, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        assert_ne!(at, libc::MAP_FAILED);
        libc::madvise(at, pages * page, libc::MADV_NOHUGEPAGE);
        (0..pages).step_by(n).for_each(|i| at.cast::<u8>().add(i * page).write_volatile(1));
        at.cast()
    }
}

/// This process itself: half of an area's pages are there, and so many are estimated from some of them.
/// Holds see/large-processes.
#[test]
fn pages_drawn_at_random_of_this_kernel() {
    let pages = 8192;
    let stratum = Stratum { start: area(pages, 2) as u64, pages: pages as u64, draws: 2048 };
    let found = match page_samples::placement(std::process::id(), &[stratum], &mut fastrand::Rng::with_seed(1)) {
        Ok(found) => found,
        Err(e) => {
            eprintln!("skipped: pages cannot be asked for here ({e})");
            return;
        }
    };
    let all: f64 = found.pages.values().sum();
    // The seed determines the random pages, so this is the same in every run.
    assert!((all - 4096.0).abs() < 4.0 * found.error, "{found:?}");
    assert!((80.0..100.0).contains(&found.error), "8192 · √(¼ / 2048) = 90.5: {found:?}");
}

/// The same with accessed bits, where this kernel lets single pages be asked for theirs.
/// Holds see/large-processes.
#[test]
fn accessed_bits_of_pages_drawn_at_random_of_this_kernel() {
    let idle = match IdlePages::new(&FsRoot::live()) {
        Ok(idle) => idle,
        Err(why) => {
            eprintln!("skipped: {why}");
            return;
        }
    };
    let (pages, me, page) = (32_768, std::process::id(), (files::page_kb() * 1024) as usize);
    let start = area(pages, 1);
    let stratum = Stratum { start: start as u64, pages: pages as u64, draws: 2048 };
    let marked = idle.mark(me, vec![stratum], &mut fastrand::Rng::with_seed(1)).unwrap();
    // SAFETY: inside the area, without other users.
    (0..pages).step_by(4).for_each(|i| unsafe { start.add(i * page).write_volatile(2) });
    let found = idle.look(me, &marked).unwrap();
    let all: f64 = found.pages.values().sum();
    // Pages cached in a TLB are accessed without setting their bits, as the kernel documents.
    assert!(all < 8192.0 + 4.0 * found.error && all > 0.6 * 8192.0, "{found:?}");
}

/// Holds see/large-processes.
#[test]
fn a_large_process_is_looked_at_by_some_of_its_pages_in_between() {
    let (me, fs) = (std::process::id(), FsRoot::live());
    let mut memory = Memory::new(Options { placement: true, ..Options::default() }, &fs, false);
    let live = BTreeMap::from([(me, vec![me])]);
    memory.look(&live, at(0));
    let Some(before) = memory.pages(me) else {
        eprintln!("skipped: this kernel has no numa_maps");
        return;
    };
    // Treated as large: later mappings are found without a full look.
    let known = memory.processes.get_mut(&me).unwrap();
    known.ends = files::ends(&fs, me).unwrap();
    (known.placed_next, known.drawn_next) = (at(1_000_000), at(1_000));
    let pages = 1 << 14;
    let new = Stratum { start: area(pages, 2) as u64, pages: pages as u64, draws: 1 };
    if let Err(e) = page_samples::placement(me, &[new], &mut fastrand::Rng::with_seed(1)) {
        eprintln!("skipped: pages cannot be asked for here ({e})");
        return;
    }
    memory.look(&live, at(999));
    assert_eq!(memory.pages(me), Some(before), "it is not its turn");
    memory.look(&live, at(1_000));
    let all: u64 = memory.pages(me).unwrap().iter().map(|(_, n)| n).sum();
    assert!(all > pages as u64 / 2 * 7 / 10, "{all} of {} at least", pages / 2);
    // An ended process is dropped.
    memory.look(&BTreeMap::new(), at(3_000));
    assert_eq!(memory.pages(me), None);
}

#[test]
fn what_is_mapped_anew_is_drawn_by_its_size() {
    let page = files::page_kb() * 1024;
    let areas = [Area {
        start: 0,
        binding: Binding::Free,
        backing: areas::Backing::Anonymous,
        pages: vec![(NodeId(0), 3_000)],
    }];
    let before = BTreeMap::from([(0, 4_000 * page), (1 << 40, (1 << 40) + 9_000 * page)]);
    let mut now = before.clone();
    now.insert(0, 5_000 * page);
    now.insert(1 << 41, (1 << 41) + 4_000 * page);
    let found: Vec<_> =
        page_samples::strata(&areas, &before, &now).iter().map(|s| (s.start, s.pages, s.draws)).collect();
    // 3,000 that existed and 1,000 of growth; nothing was in the second one, and the third is unknown.
    assert_eq!(found, [(0, 5_000, 512), (1 << 41, 4_000, 512)]);
}

/// Large processes are sampled where the kernel has the means, small ones are looked at as a whole.
/// Holds see/large-processes.
#[test]
fn single_pages_of_large_processes_are_asked_for() {
    let (tree, fs) = machine("accessed-large");
    let page = files::page_kb() * 1024;
    tree.write("proc/7/maps", format!("0-{:x} rw-p 0 0 0\n", 200_000 * page));
    tree.write("proc/7/numa_maps", "0 default anon=200000 N0=200000\n");
    let entries: Vec<u8> = (0..200_000_u64).flat_map(|i| (1 << 63 | i).to_ne_bytes()).collect();
    tree.write("proc/7/pagemap", entries);
    tree.write("proc/kpageflags", (0..200_000).flat_map(|_| (1_u64 << 5).to_ne_bytes()).collect::<Vec<u8>>());
    tree.write("sys/kernel/mm/page_idle/bitmap", vec![0; 200_000 / 8]);
    let mut memory = Memory::new(accesses(Choice::Accessed), &fs, false);
    memory.look(&one(), at(0));
    let read = |file: &str| std::fs::read(tree.path().join(file)).unwrap();
    assert_eq!(read("proc/7/clear_refs"), b"", "the bits of all its pages are left alone");
    let marked: u32 = read("sys/kernel/mm/page_idle/bitmap").iter().map(|byte| byte.count_ones()).sum();
    assert!((1_000..=1_024).contains(&marked), "{marked}");
    // All marked ones have been accessed.
    tree.write("sys/kernel/mm/page_idle/bitmap", vec![0; 200_000 / 8]);
    memory.look(&one(), at(100));
    assert_eq!(memory.touches(7, 7), Some(vec![(NodeId(0), 100_000)]), "each of two threads");
}
