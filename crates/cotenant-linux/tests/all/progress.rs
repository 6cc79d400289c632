//! Progress reported through libcotenant, counted by OpenMP and MPI, or forged.

use crate::program::Program;
use cotenant_linux::sense::observer::{AppTarget, Observer, Options};
use cotenant_linux::sense::perf::Counting;
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sense::progress;
use cotenant_model::topology::{Cpu, Parts};
use cotenant_model::{AppId, AppSample, CpuSet, Time, Topology};
use cotenant_testing::eventually;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Long enough for every awaited event.
const PATIENCE: Duration = Duration::from_secs(300);

struct Watch {
    observer: Observer,
    begin: Instant,
}

impl Watch {
    fn new(pid: u32) -> Self {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let cpu = |id| Cpu { id, online: true, allowed: true, efficiency_class: None, coord: None };
        let cpus = CpuSet::parse_list(&online).unwrap().iter().map(cpu).collect();
        let topology = Topology::new(Parts { cpus, ..Parts::default() }).unwrap();
        let target = AppTarget { name: "program".into(), target: Target::Trees(vec![pid]) };
        let options = Options { counting: Counting::Nothing, ..Options::default() };
        let observer = Observer::new(&topology, vec![target], options).unwrap();
        Self { observer, begin: Instant::now() }
    }

    fn app(&mut self) -> AppSample {
        let at = Time(self.begin.elapsed().as_nanos() as u64);
        self.observer.sample(at, &mut |new| new.mask.clone()).unwrap().apps.remove(0)
    }

    /// Samples until `done`; returns the result.
    fn until(&mut self, what: &str, mut done: impl FnMut(&AppSample) -> bool) -> AppSample {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let app = self.app();
            if done(&app) {
                return app;
            }
            assert!(Instant::now() < deadline, "waited for: {what}; {app:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Samples until a report is refused; returns the remark.
    fn refusal(&mut self) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let app = self.app();
            if let Some(refused) = self.observer.refused_reports().next() {
                assert_eq!((app.progress, app.latency_ns), (None, None));
                return refused.clone();
            }
            assert!(Instant::now() < deadline, "nothing was refused; {app:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// libcotenant, installed in a new folder; its prefix.
fn installed(folder: &Path) -> PathBuf {
    let prefix = folder.join("prefix");
    std::fs::create_dir_all(folder).unwrap();
    done(Command::new(format!("{ROOT}/scripts/install-lib")).arg("--prefix").arg(&prefix).arg("--debug"));
    prefix
}

#[test]
fn what_a_program_reports_is_read() {
    let mut program = Program::start(3);
    let mut watch = Watch::new(program.pid());
    assert_eq!(watch.app().progress, None, "who reports nothing has no progress, not 0");
    program.ask("units 5");
    assert_eq!(watch.until("the first report", |app| app.progress.is_some()).progress, Some(5));
    program.ask("units-of-thread 7");
    let app = watch.app();
    assert_eq!((app.progress, app.latency_ns), (Some(12), None), "and the thread is gone");
    for ns in ["1000", "1001", "500000"] {
        program.ask(&format!("latency {ns}"));
    }
    let latency = watch.app().latency_ns.unwrap();
    let buckets: Vec<_> = latency.buckets().iter().map(|b| (b.low, b.high, b.count)).collect();
    assert_eq!(buckets, [(960.0, 1_024.0, 2), (491_520.0, 524_288.0, 1)]);
    assert_eq!(watch.observer.refused_reports().count(), 0);
}

#[test]
fn who_only_looks_for_orders_has_no_progress() {
    let mut program = Program::start(2);
    let mut watch = Watch::new(program.pid());
    program.ask("mark");
    let shown = || matches!(crate::program::orders::of(program.pid()), Ok(Some(_)));
    watch.until("its memory", |_| shown());
    for _ in 0..2 {
        watch = Watch::new(program.pid()); // which looks at once
        assert_eq!(watch.app().progress, None, "not 0");
    }
    program.ask("units 5");
    assert_eq!(watch.until("the first report", |app| app.progress.is_some()).progress, Some(5));
}

/// Holds speed/reports.
#[test]
fn what_was_reported_outlives_who_did() {
    let mut program = Program::start(2);
    let mut watch = Watch::new(program.pid());
    program.ask("units 5");
    watch.until("the first report", |app| app.progress == Some(5));
    program.ask("units 6"); // after the last look
    program.kill_without_reaping();
    let deadline = Instant::now() + PATIENCE;
    while !watch.observer.is_empty() {
        assert!(Instant::now() < deadline, "its end is noticed");
        watch.app();
    }
    assert_eq!(watch.app().progress, Some(11));
    assert_eq!(watch.observer.reported(AppId(0)).unwrap().units, 11);
}

/// Holds speed/reports.
#[test]
fn children_and_other_programs_in_its_place_are_added_up() {
    let mut program = Program::start(2);
    let mut watch = Watch::new(program.pid());
    program.ask("units 5");
    watch.until("the first report", |app| app.progress == Some(5));
    let child = program.ask("fork-and-report 20");
    watch.until("the child's report", |app| app.progress == Some(25));
    program.ask(&format!("end-child {child}"));
    program.ask("units 1");
    watch.until("the child's end", |app| app.progress == Some(26));
    program.tell("exec");
    let name = || std::fs::read_to_string(format!("/proc/{}/comm", program.pid())).unwrap();
    watch.until("another program in its place", |_| name() == "sleep\n");
    assert_eq!(watch.app().progress, Some(26));
}

/// Promise speed/foreign-memory: Shared memory that is foreign, truncated, unsealed or of another version is refused;
/// it gets no orders and takes no memory.
#[test]
fn what_no_libcotenant_made_is_refused_with_a_reason() {
    for (how, why) in [
        ("truncated", "bytes instead of"),
        ("unsealed", "not sealed"),
        ("mode", "mode 666"),
        ("owner", "user 12345"),
        ("magic", "does not begin"),
        ("version", "version 2"),
        ("process", "the memory of process"),
        ("start", "the memory of process"),
    ] {
        if how == "owner" && cotenant_linux::sys::euid() != 0 {
            eprintln!("skipped in part: only root can give a file away");
            continue;
        }
        let mut program = Program::start(1);
        program.ask(&format!("forge {how}"));
        let mut watch = Watch::new(program.pid());
        watch.app();
        assert_eq!(watch.observer.refused_reports().next(), None, "{how}: it may be made just now");
        let refusal = watch.refusal();
        assert!(refusal.contains(why) && !refusal.contains('\n'), "{how}: {refusal}");
    }
}

#[test]
fn what_is_still_being_made_is_no_forgery() {
    let mut program = Program::start(1);
    program.ask("forge unbegun");
    let mut watch = Watch::new(program.pid());
    watch.app(); // a process is checked as soon as it exists
    assert_eq!(watch.observer.refused_reports().next(), None);
    program.ask("units 3");
    assert_eq!(watch.until("the report", |app| app.progress.is_some()).progress, Some(3));
    assert_eq!(watch.observer.refused_reports().next(), None);
}

/// Holds speed/foreign-memory.
#[test]
fn counts_that_cannot_be_are_absent() {
    let mut program = Program::start(1);
    program.ask("forge nothing"); // valid except for its numbers
    let remark = Watch::new(program.pid()).refusal();
    assert!(remark.contains("2^50"), "{remark}");
    let mut program = Program::start(1);
    program.ask("units 5");
    let mut watch = Watch::new(program.pid());
    watch.until("the report", |app| app.progress == Some(5));
    let (jump, one_less) = (u64::MAX / 2, u64::MAX);
    for (units, progress) in [(jump, None), (0, Some(5)), (7, Some(12)), (one_less, None), (0, Some(12)), (1, Some(13))]
    {
        program.ask(&format!("units {units}"));
        assert_eq!(watch.app().progress, progress, "{units}");
    }
    assert_eq!(watch.observer.reported(AppId(0)).unwrap().units, 13);
    assert_eq!(watch.observer.refused_reports().count(), 1, "it is said once");
}

/// Reading holes takes no memory, and only so much is read.
/// Holds speed/foreign-memory.
#[test]
fn reports_full_of_holes_take_no_memory() {
    const LIARS: usize = 200;
    let mut program = Program::start(1);
    program.ask(&format!("forge in children {LIARS}"));
    let shared_kib = || -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssShmem:")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let children = || {
        let pid = program.pid();
        std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default()
    };
    let of = |pid: &str| {
        let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
        let mut memory = files.filter(|file| {
            std::fs::read_link(file.path()).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:cotenant-"))
        });
        memory.next().and_then(|file| std::fs::metadata(file.path()).ok()).map_or(0, |meta| meta.blocks() / 2)
    };
    let theirs = || children().split_whitespace().map(of).collect::<Vec<_>>();
    eventually("all lie", || theirs().iter().filter(|kib| **kib >= 8).count() == LIARS);
    let (ours, before) = (shared_kib(), theirs());
    let mut watch = Watch::new(program.pid());
    watch.observer.sample(Time(0), &mut |new| new.mask.clone()).unwrap();
    // Some are checked in each sample, and all of them at most so often.
    for _ in 0..LIARS / 4 {
        watch.app();
    }
    assert!(shared_kib() < ours + 1024, "{ours} KiB shared before, {} KiB after", shared_kib());
    assert_eq!(theirs(), before, "the kernel has filled no hole");
    let refused: Vec<&String> = watch.observer.refused_reports().collect();
    assert!(refused.iter().any(|why| why.contains("its user reports more than 8 MiB at a time")), "{refused:?}");
}

#[test]
fn an_honest_report_beside_a_forged_one_is_found() {
    let mut program = Program::start(1);
    program.ask("forge process");
    program.ask("units 3");
    let mut watch = Watch::new(program.pid());
    assert_eq!(watch.until("the report", |app| app.progress.is_some()).progress, Some(3));
}

/// Runs a command to its end; its standard output.
fn done(command: &mut Command) -> String {
    let output = command.stderr(Stdio::inherit()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn has(program: &str) -> bool {
    Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// Promise speed/harmless: The libraries build into C and Rust programs as installed, end no program, and count MPI
/// and OpenMP without changing a call.
#[test]
fn the_example_in_c_reports_through_the_installed_library() {
    for tool in ["gcc", "pkg-config"] {
        if !has(tool) {
            eprintln!("skipped: no {tool} to build the example with; apt-get install {tool}");
            return;
        }
    }
    let page = std::fs::read_to_string(format!("{ROOT}/docs/how-to/report-progress.md")).unwrap();
    let example = page.split("```c file=server.c\n").nth(1).unwrap().split("```").next().unwrap();
    let folder = std::env::temp_dir().join(format!("cotenant-example-{}", std::process::id()));
    let prefix = installed(&folder);
    std::fs::write(folder.join("server.c"), example).unwrap();
    let flags = |what: &[&str]| -> Vec<String> {
        let pkg_config = ["lib/pkgconfig"].map(|dir| prefix.join(dir));
        let flags = done(Command::new("pkg-config").args(what).arg("cotenant").env("PKG_CONFIG_PATH", &pkg_config[0]));
        flags.split_whitespace().map(str::to_owned).collect()
    };
    let archive = prefix.join("lib/libcotenant.a").display().to_string();
    for (kind, libraries) in [("shared", flags(&["--libs"])), ("archive", vec![archive])] {
        let binary = folder.join(kind);
        let mut gcc = Command::new("gcc");
        gcc.args(["-Wall", "-Wextra", "-Werror", "-O1"]).arg(folder.join("server.c")).args(flags(&["--cflags"]));
        done(gcc.args(libraries).arg("-o").arg(&binary));
        let mut server = Command::new(&binary);
        server.env("LD_LIBRARY_PATH", prefix.join("lib")).stdin(Stdio::piped()).stdout(Stdio::piped());
        // Without an observer it behaves the same.
        let unseen = server.spawn().unwrap().wait_with_output().unwrap();
        assert_eq!((unseen.status.code(), unseen.stdout), (Some(0), b"7484.471\n".to_vec()), "{kind}");
        let mut running = server.spawn().unwrap();
        let mut watch = Watch::new(running.id());
        let app = watch.until("all its reports", |app| app.progress == Some(1_000));
        assert_eq!(app.latency_ns.unwrap().count(), 1_000, "{kind}");
        drop(running.stdin.take());
        assert_eq!(running.wait().unwrap().code(), Some(0));
    }
    if has("g++") {
        let header = prefix.join("include/cotenant.h");
        done(Command::new("g++").args(["-Wall", "-Werror", "-fsyntax-only", "-x", "c++"]).arg(header));
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A thousand iterations in each of four schedules, of which the chunked static one reports six; a hundred tasks, five
/// parallel regions.
const LOOPS: &str = r#"
#include <stdio.h>
static double sum;
#define LOOP(how) \
    _Pragma("omp parallel num_threads(2)") \
    _Pragma(#how) \
    for (int i = 0; i < 1000; i++) { \
        _Pragma("omp atomic") \
        sum += i; \
    }
int main(void) {
    LOOP(omp for)
    LOOP(omp for schedule(static, 3))
    LOOP(omp for schedule(dynamic, 7))
    LOOP(omp for schedule(guided))
    #pragma omp parallel num_threads(2)
    #pragma omp single
    for (int i = 0; i < 100; i++)
        #pragma omp task
        {
            #pragma omp atomic
            sum += 1;
        }
    printf("%.0f\n", sum);
    fflush(stdout);
    getchar();
    return 0;
}
"#;

/// Holds speed/harmless.
#[test]
fn what_openmp_sees_done_is_counted() {
    let library = Command::new("clang-19").arg("-print-file-name=libomp.so").output();
    if !library.is_ok_and(|out| out.stdout.starts_with(b"/")) {
        eprintln!("skipped: no OpenMP of LLVM; apt-get install clang-19 libomp-19-dev");
        return;
    }
    let folder = std::env::temp_dir().join(format!("cotenant-openmp-{}", std::process::id()));
    let prefix = installed(&folder);
    std::fs::write(folder.join("loops.c"), LOOPS).unwrap();
    let binary = folder.join("loops");
    done(Command::new("clang-19").args(["-O1", "-fopenmp"]).arg(folder.join("loops.c")).arg("-o").arg(&binary));
    let mut loops = Command::new(&binary);
    loops.env("LD_LIBRARY_PATH", prefix.join("lib")).stdin(Stdio::piped()).stdout(Stdio::piped());
    progress::counted_by_openmp(&mut loops);
    let mut running = loops.spawn().unwrap();
    let mut watch = Watch::new(running.id());
    let app = watch.until("all that it does", |app| app.openmp >= Some(3_111));
    assert_eq!((app.openmp, app.progress, app.mpi), (Some(3_111), None, None), "it reports nothing itself");
    drop(running.stdin.take());
    let output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"1998100\n".to_vec()));

    // A named tool is kept, and without naming ours there is none.
    loops.env("OMP_TOOL_LIBRARIES", "another.so");
    progress::counted_by_openmp(&mut loops);
    let mut running = loops.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(running.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!((line.as_str(), Watch::new(running.id()).app().openmp), ("1998100\n", None));
    drop(running.stdin.take());
    assert_eq!(running.wait().unwrap().code(), Some(0));
    std::fs::remove_dir_all(folder).unwrap();
}

/// The part of MPI used by the program below: each call answers by its arguments.
const MPI: &str = r"
#ifndef LOADED
int MPI_Sendrecv(const void *a, int b, void *c, int d, int e, const void *f, int g, void *h, int i, int j, void *k, long *l) {
    return a && c && f && h && k ? b + 10 * d + 100 * e + 1000 * g + 10000 * i + 100000 * j + (int)*l : -1;
}
void mpi_sendrecv_(int *a, int *b, int *c, int *d, int *e, int *f, int *g, int *h, int *i, int *j, int *k, int *l, int *m) {
    *m = *a + *b + *c + *d + *e + *f + *g + *h + *i + *j + *k + *l;
}
int MPI_Test(void) { return 7; }
#else
int MPI_Wait(void *a, int *b) { return a ? *b : -1; }
int go(int n) { return MPI_Wait(&n, &n); }
#endif
";

const CALLS: &str = r#"
#include <dlfcn.h>
#include <stdio.h>
int MPI_Sendrecv(const void *, int, void *, int, int, const void *, int, void *, int, int, void *, long *);
void mpi_sendrecv_(int *, int *, int *, int *, int *, int *, int *, int *, int *, int *, int *, int *, int *);
int MPI_Test(void);
int main(int argc, char **argv) {
    int x = 1, y = 0, sum = 0;
    long z = 9000000;
    for (int i = 0; i < 10; i++) sum = MPI_Sendrecv(&x, 1, &x, 2, 3, &x, 4, &x, 5, 6, &x, &z);
    mpi_sendrecv_(&x, &x, &x, &x, &x, &x, &x, &x, &x, &x, &x, &x, &y);
    for (int i = 0; i < 100; i++) x = MPI_Test();
    void *loaded = dlopen(argv[argc - 1], RTLD_NOW | RTLD_LOCAL);
    int (*go)(int) = (int (*)(int))dlsym(loaded, "go");
    printf("%d %d %d %d\n", sum, y, x, go(3));
    fflush(stdout);
    getchar();
    return 0;
}
"#;

/// Ten calls with twelve arguments, one of Fortran with thirteen, one of a library that the program loads for itself;
/// and a hundred that only ask.
/// Holds speed/harmless.
#[test]
fn calls_of_mpi_are_counted_and_change_nothing() {
    if !has("gcc") {
        eprintln!("skipped: no gcc; apt-get install gcc");
        return;
    }
    let folder = std::env::temp_dir().join(format!("cotenant-mpi-{}", std::process::id()));
    let prefix = installed(&folder);
    let at = |name: &str| folder.join(name);
    std::fs::write(at("mpi.c"), MPI).unwrap();
    std::fs::write(at("calls.c"), CALLS).unwrap();
    let gcc = |words: &[&str], from: &str, to: &str| {
        done(Command::new("gcc").arg("-O1").arg(at(from)).args(words).arg("-o").arg(at(to)));
    };
    gcc(&["-shared", "-fPIC"], "mpi.c", "libmpi.so");
    gcc(&["-shared", "-fPIC", "-DLOADED"], "mpi.c", "loaded.so");
    gcc(&["-L", &folder.display().to_string(), "-lmpi", "-ldl", "-Wl,-rpath,$ORIGIN"], "calls.c", "calls");
    let mut calls = Command::new(at("calls"));
    calls.arg(at("loaded.so")).env("LD_PRELOAD", prefix.join("lib/libcotenant-mpi.so.0"));
    let mut running = calls.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut watch = Watch::new(running.id());
    let app = watch.until("all its calls", |app| app.mpi >= Some(12));
    assert_eq!((app.mpi, app.progress, app.openmp), (Some(12), None, None));
    drop(running.stdin.take());
    let output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"9654321 12 7 3\n".to_vec()));
    std::fs::remove_dir_all(folder).unwrap();
}

/// A program with a seccomp filter that kills it for one call, before or after its first report, and its child that
/// reports, too.
const FILTERED: &str = r#"
#define _GNU_SOURCE
#include <cotenant.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void ends_for(int call, unsigned how) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, how),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {4, rules};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) _exit(77);
}
static void nobody(int signal) { (void)signal, _exit(5); }
static void *thread(void *none) { return cotenant_units(1), none; }
int main(int argc, char **argv) {
    int call = atoi(argv[2]), status = 0;
    pthread_t other;
    if (argc < 4) return 2;
    signal(SIGSYS, nobody);
    if (!strcmp(argv[1], "early")) cotenant_units(1);
    struct rlimit little = {1 << 20, 1 << 20};
    if (!strcmp(argv[3], "room")) return setrlimit(RLIMIT_AS, &little), cotenant_units(1), 0;
    ends_for(call, strcmp(argv[3], "trap") ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_TRAP);
    errno = 7;
    cotenant_units(1), cotenant_latency_ns(5), cotenant_mark(), cotenant_units_slot();
    if (errno != 7) return 3;
    if (call == SYS_clone) return 0;
    if (pthread_create(&other, 0, thread, 0) == 0) pthread_join(other, 0);
    pid_t child = fork();
    if (child == 0) {
        cotenant_units(1), cotenant_mark();
        _exit(0);
    }
    waitpid(child, &status, 0);
    return status ? 4 : 0;
}
"#;

/// Holds speed/harmless.
#[test]
fn no_filter_ends_a_program_for_what_the_library_asks() {
    if !has("gcc") {
        eprintln!("skipped: no gcc; apt-get install gcc");
        return;
    }
    let folder = std::env::temp_dir().join(format!("cotenant-filtered-{}", std::process::id()));
    let prefix = installed(&folder);
    std::fs::write(folder.join("filtered.c"), FILTERED).unwrap();
    let calls = [
        libc::SYS_memfd_create,
        libc::SYS_ftruncate,
        libc::SYS_fchmod,
        libc::SYS_fcntl,
        libc::SYS_fstat,
        libc::SYS_newfstatat,
        libc::SYS_openat,
        libc::SYS_read,
        libc::SYS_close,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_prlimit64,
        libc::SYS_clock_nanosleep,
        libc::SYS_clone,
    ];
    for library in ["libcotenant.so", "libcotenant.a"] {
        let program = folder.join(library.replace('.', "-"));
        let (include, lib) = (prefix.join("include"), prefix.join("lib"));
        let mut gcc = Command::new("gcc");
        gcc.arg("-O1").arg("-I").arg(include).arg(folder.join("filtered.c")).arg("-o").arg(&program);
        gcc.arg(lib.join(library)).args(["-lpthread", "-ldl"]).arg(format!("-Wl,-rpath,{}", lib.display()));
        done(&mut gcc);
        // The library has no memory to allocate either.
        let status = Command::new(&program).args(["late", "0", "room"]).status().unwrap();
        assert!(status.success(), "{library}: {status}");
        for (when, how) in [("early", "kill"), ("late", "kill"), ("late", "trap")] {
            for call in calls {
                let status = Command::new(&program).args([when, &call.to_string(), how]).status().unwrap();
                if status.code() == Some(77) {
                    eprintln!("skipped: no filter can be set here");
                    return;
                }
                assert!(status.success(), "{library} {when} {how} {call}: {status}");
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

const JUMPING: &str = r#"
#include <dlfcn.h>
#include <setjmp.h>
#include <stdio.h>
extern jmp_buf *jump;
int MPI_Send(const void *, int, int, int, int, long);
int MPI_Allreduce(const void *, void *, int, int, int, long) __attribute__((weak));
int MPI_Barrier(long) __attribute__((weak));
__attribute__((noinline)) static void deeper(int n) {
    volatile char room[256];
    room[0] = 0;
    if (n) deeper(n - 1); else MPI_Send(0, 0, 0, 0, 0, 0);
    room[1] = 0;
}
int main(void) {
    jmp_buf here;
    for (int i = 0; i < 10; i++) MPI_Send(0, 0, 0, 0, 0, 0);
    jump = &here;
    if (!setjmp(here)) deeper(0);
    jump = 0;
    for (int i = 0; i < 100; i++) deeper(i % 8);
    printf("%d %d\n", MPI_Barrier ? MPI_Barrier(0) : 0, MPI_Allreduce ? !MPI_Allreduce(0, 0, 0, 0, 0, 0) : 0);
    fflush(stdout);
    getchar();
    return 0;
}
"#;

/// An error handler that jumps out of a call, and calls that a program asks for and no MPI has.
/// Holds speed/harmless.
#[test]
fn what_becomes_of_a_call_of_mpi_is_the_programs() {
    if !has("gcc") {
        eprintln!("skipped: no gcc; apt-get install gcc");
        return;
    }
    let folder = std::env::temp_dir().join(format!("cotenant-mpi-jumps-{}", std::process::id()));
    let prefix = installed(&folder);
    let at = |name: &str| folder.join(name);
    // Fortran's calls use those of C.
    let mpi = "#include <setjmp.h>\njmp_buf *jump;\n\
               int MPI_Send(const void *a, int b, int c, int d, int e, long f) { if (jump) longjmp(*jump, 1); return 0; }\n\
               void mpi_send_(int *a) { MPI_Send(0, 0, 0, 0, 0, 0); *a = 0; }\n";
    std::fs::write(at("mpi.c"), mpi).unwrap();
    std::fs::write(
        at("jumps.c"),
        JUMPING.replace("jump = &here;", "int e; extern void mpi_send_(int *); mpi_send_(&e); jump = &here;"),
    )
    .unwrap();
    done(Command::new("gcc").args(["-O1", "-shared", "-fPIC"]).arg(at("mpi.c")).arg("-o").arg(at("libmpi.so")));
    let mut gcc = Command::new("gcc");
    gcc.arg("-O1").arg(at("jumps.c")).arg("-L").arg(&folder).args(["-lmpi", "-ldl", "-Wl,-rpath,$ORIGIN"]);
    done(gcc.arg("-o").arg(at("jumps")));
    let mut jumps = Command::new(at("jumps"));
    jumps.env("LD_PRELOAD", prefix.join("lib/libcotenant-mpi.so.0"));
    let mut running = jumps.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut watch = Watch::new(running.id());
    let app = watch.until("all its calls", |app| app.mpi >= Some(112));
    assert_eq!(app.mpi, Some(112), "10, one of Fortran, one that was left, 100; none that MPI has not");
    drop(running.stdin.take());
    let output = running.wait_with_output().unwrap();
    assert_eq!(
        (output.status.code(), output.stdout),
        (Some(0), b"0 0\n".to_vec()),
        "nothing was moved, and it says so"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// A handler of errors that throws, as those of C++ may, and one of a child: what catches it goes on, and all calls
/// count.
#[test]
fn an_exception_out_of_a_call_of_mpi_reaches_who_catches_it() {
    if !has("gcc") || !has("g++") {
        eprintln!("skipped: no g++; apt-get install g++");
        return;
    }
    let folder = std::env::temp_dir().join(format!("cotenant-mpi-throws-{}", std::process::id()));
    let prefix = installed(&folder);
    let at = |name: &str| folder.join(name);
    let mpi = "#include <stdexcept>\nextern \"C\" int MPI_Send(const void *, int, int, int, int, long to) {\n\
               if (to) throw std::runtime_error(\"refused\"); return 0; }\n";
    let throws = "#include <stdexcept>\n#include <cstdio>\n#include <sys/wait.h>\n#include <unistd.h>\n\
                  extern \"C\" int MPI_Send(const void *, int, int, int, int, long);\n\
                  struct Held { int *count; ~Held() { ++*count; } };\n\
                  static int caught, left;\n\
                  static void calls() { for (int i = 0; i < 100; i++) try { Held held{&left};\n\
                  MPI_Send(0, 0, 0, 0, 0, i % 2);\n\
                  } catch (const std::runtime_error &) { caught++; } }\n\
                  int main() { calls(); int status = 0; pid_t child = fork();\n\
                  if (!child) { calls(); _exit(caught == 100 && left == 200 ? 0 : 1); }\n\
                  waitpid(child, &status, 0);\n\
                  std::printf(\"%d %d %d\\n\", caught, left, status); std::fflush(stdout);\n\
                  return std::getchar() != EOF; }\n";
    std::fs::write(at("mpi.cpp"), mpi).unwrap();
    std::fs::write(at("throws.cpp"), throws).unwrap();
    done(Command::new("g++").args(["-O1", "-shared", "-fPIC"]).arg(at("mpi.cpp")).arg("-o").arg(at("libmpi.so")));
    let mut gcc = Command::new("g++");
    gcc.arg("-O1").arg(at("throws.cpp")).arg("-L").arg(&folder).args(["-lmpi", "-Wl,-rpath,$ORIGIN"]);
    done(gcc.arg("-o").arg(at("throws")));
    let mut throws = Command::new(at("throws"));
    throws.env("LD_PRELOAD", prefix.join("lib/libcotenant-mpi.so.0"));
    let mut running = throws.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut watch = Watch::new(running.id());
    let app = watch.until("all its calls", |app| app.mpi >= Some(100));
    assert!(app.mpi == Some(100) || app.mpi == Some(200), "{:?}: its own, and its child's while that lives", app.mpi);
    drop(running.stdin.take());
    let output = running.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout), (Some(0), b"50 100 0\n".to_vec()));
    std::fs::remove_dir_all(folder).unwrap();
}
