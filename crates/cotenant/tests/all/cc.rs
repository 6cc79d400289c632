//! `cotenant cc` and `cotenant c++` with a real clang, and a program that naps on request. Without clang 19 they are
//! skipped, visibly.

use cotenant_linux::FsRoot;
use cotenant_linux::act::nap::Orders;
use cotenant_linux::sense::ends::Ends;
use cotenant_linux::sense::processes::{Follower, Target};
use cotenant_linux::sys;
use cotenant_model::Time;
use cotenant_testing::pass;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Long enough for every awaited event.
const PATIENCE: Duration = Duration::from_secs(300);

/// `cotenant WORDS…`, for that user.
fn cotenant(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cotenant"));
    command.env("XDG_DATA_HOME", data).env_remove("COTENANT_CC").args(words).stdin(Stdio::null());
    command
}

fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    output
}

/// A folder for this test, with a program in C that computes for so many rounds and prints a number.
fn folder(test: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("cc-{test}"));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    let source = "#include <stdio.h>\n#include <stdlib.h>\n\
        unsigned work(const unsigned *a, long n, unsigned x) { for (long i = 0; i < n; i++) x = x * 5 + a[i]; return x; }\n\
        int main(int argc, char **argv) {\n    static unsigned a[100000];\n    unsigned x = 1;\n\
            for (long k = atol(argv[1]); k > 0; k--) { a[k % 100000] = x; x = work(a, 100000, x); }\n\
            printf(\"%u\\n\", x);\n    return argc == 2 ? 0 : 3;\n}\n";
    fs::write(path.join("a.c"), source).unwrap();
    path
}

/// Promise compile/cc: `cotenant cc` takes clang's command lines and passes on its exit code; wrong settings and
/// other architectures are an error in one line.
#[test]
fn it_behaves_as_clang() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let folder = folder("behaves");
    let here = |words: &[&str]| {
        let mut command = cotenant(data, words);
        command.current_dir(&folder);
        command
    };
    let version = done(&mut here(&["cc", "--version"]));
    assert!(String::from_utf8_lossy(&version.stdout).contains("clang version 19"), "{version:?}");
    let nothing = here(&["cc"]).output().unwrap();
    assert_eq!(nothing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nothing.stderr).contains("no input files"), "{nothing:?}");
    let missing = here(&["cc", "-O2", "nothing.c"]).output().unwrap();
    assert!(missing.status.code() == Some(1) && String::from_utf8_lossy(&missing.stderr).contains("nothing.c"));
    // Options added by `cotenant cc` cause no warning about unused arguments.
    for words in [
        &["cc", "-Werror", "-Wall", "-O1", "-c", "a.c"][..],
        &["cc", "-Werror", "-E", "a.c", "-o", "a.i"],
        &["cc", "-Werror", "-S", "-x", "c", "--", "a.c"],
        &["cc", "-Werror", "a.o", "-o", "linked"],
        &["cc", "-Werror", "-shared", "-fPIC", "a.c", "-o", "a.so"],
        &["cc", "-Werror", "-O2", "-flto", "a.c", "-o", "lto"],
        &["cc", "-Werror", "-O2", "-flto=thin", "--cotenant-mode=naps", "a.c", "-o", "thin"],
        &["cc", "-Werror", "-O2", "--cotenant-mode=padding", "a.c", "-o", "padded"],
        &["cc", "-Werror", "-O2", "--cotenant-mode=off", "a.c", "-o", "plain"],
        &["c++", "-Werror", "-O2", "-x", "c++", "-include", "string", "a.c", "-o", "cxx"],
    ] {
        let output = done(&mut here(words));
        assert!(output.stderr.is_empty(), "{words:?}: {output:?}");
    }
    let expected = done(Command::new(folder.join("plain")).arg("50")).stdout;
    for program in ["linked", "lto", "thin", "padded", "cxx"] {
        let output = done(Command::new(folder.join(program)).arg("50"));
        assert_eq!(output.stdout, expected, "{program}");
    }
    // The environment's options, and a program on standard input.
    let mut command = here(&["c++", "-O2", "-x", "c++", "-", "-o", "stdin"]);
    let mut child = command.env("COTENANT_CC", "--cotenant-mode=naps").stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"#include <vector>\nint main() { return std::vector<int>(7).size(); }\n")
        .unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(Command::new(folder.join("stdin")).status().unwrap().code(), Some(7));
}

/// Holds run/wrong-input.
#[test]
fn wrong_words_and_missing_parts_are_one_line_with_a_remedy() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let folder = folder("wrong");
    fs::write(folder.join("bad.toml"), "[[region]]\nfunction = 'f'\nscore = 'high'\n").unwrap();
    for (words, part) in [
        (&["cc", "--cotenant-mode=x", "a.c"][..], "give markers, naps, padding or off"),
        (&["cc", "--cotenant-regions=none.toml", "a.c"], "none.toml: No such file"),
        (&["cc", "--cotenant-regions=bad.toml", "a.c"], "bad.toml:3:9:"),
        (&["cc", "--cotenant-plugin=none.so", "a.c"], "build it with scripts/install-pass"),
        (&["cc", "--cotenant-clang=/proc/nonexistent", "a.c"], "name a clang 19"),
        (&["cc", "-flto", "-fuse-ld=bfd", "a.c"], "use -fuse-ld=lld"),
    ] {
        let output = cotenant(data, words).current_dir(&folder).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {error}");
        assert!(error.contains(part) && error.lines().count() == 1, "{words:?}: {error}");
    }
}

/// Holds compile/regions.
#[test]
fn regions_decide_what_is_slowed_down() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let folder = folder("regions");
    let region = "[[region]]\nfunction = 'work'\nfile = 'a.c'\nlines = [3, 3]\nscore = 0.9\ncoverage = 0.9\n";
    fs::write(folder.join("work.toml"), region).unwrap();
    fs::write(folder.join("none.toml"), region.replace("'work'", "'other'")).unwrap();
    let marks = |words: &[&str]| {
        let mut command = cotenant(data, &["cc", "-O1", "-g", "-S", "a.c", "-o", "a.s"]);
        let said = done(command.args(words).current_dir(&folder)).stderr;
        let text = fs::read_to_string(folder.join("a.s")).unwrap();
        let marks = text.lines().filter(|line| line.contains("call") && line.contains("__cotenant_marked")).count();
        (marks, String::from_utf8(said).unwrap())
    };
    let silent = |words: &[&str]| {
        let (marks, said) = marks(words);
        assert_eq!(said, "", "{words:?}");
        marks
    };
    assert!(silent(&[]) > 0);
    assert!(silent(&["--cotenant-regions=work.toml"]) > 0);
    assert_eq!(silent(&["--cotenant-regions=none.toml"]), 0);
    // Strictly above; and a file without a slowed region is probably a mistake.
    let (none, said) = marks(&["--cotenant-regions=work.toml", "--cotenant-min-score=0.9"]);
    assert!(none == 0 && said.contains("work.toml: no region is above score 0.9"), "{none}: {said}");
    assert!(said.contains("The highest score is 0.900") && said.lines().count() == 1, "{said}");
}

/// A walk in which each step waits for a line of the last-level cache, and a stream from memory.
const RANK: &str = r#"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
enum { LINES = 8 << 20 >> 6, WORDS = 128 << 20 >> 3 };
struct line { struct line *next; char room[56]; };
__attribute__((noinline)) struct line *chase(struct line *p, long n) {
    for (long i = 0; i < n; i++)
        p = p->next;
    return p;
}
__attribute__((noinline)) uint64_t stream(uint64_t *a, long n) {
    uint64_t sum = 0;
    for (long i = 0; i < n; i++) {
        a[i] += 1;
        sum ^= a[i];
    }
    return sum;
}
int main(void) {
    struct line *lines = aligned_alloc(64, (size_t)LINES * 64);
    uint32_t *order = malloc(LINES * sizeof *order);
    uint64_t *words = calloc(WORDS, 8), x = 7, sum = 0;
    for (uint32_t i = 0; i < LINES; i++)
        order[i] = i;
    for (uint32_t i = LINES - 1; i; i--) {
        x = x * 6364136223846793005ull + 1;
        uint32_t j = (x >> 33) % i, t = order[i];
        order[i] = order[j], order[j] = t;
    }
    for (uint32_t i = 0; i < LINES; i++)
        lines[order[i]].next = &lines[order[(i + 1) % LINES]];
    struct line *p = lines;
    for (int round = 0; round < 4; round++) {
        p = chase(p, 200000);
        sum += stream(words, WORDS);
    }
    printf("%lx %ld\n", sum, (long)(p - lines));
}
"#;

/// As `docs/how-to/qos.md` has it, on a machine without a PMU.
/// Holds compile/regions.
#[test]
fn what_streams_is_slowed_down_and_what_waits_is_left_alone() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    if Command::new("valgrind").arg("--version").output().is_err() {
        eprintln!("skipped: there is no valgrind");
        return;
    }
    let folder = folder("rank");
    fs::write(folder.join("rank.c"), RANK).unwrap();
    done(Command::new("clang-19").args(["-O2", "rank.c", "-o", "rank"]).current_dir(&folder));
    let words = ["regions", "--source", "cachegrind", "-o", "hot.toml", "--", "./rank"];
    let said = done(cotenant(data, &words).current_dir(&folder)).stderr;
    let said = String::from_utf8_lossy(&said);
    if said.contains("time is estimated") {
        eprintln!("skipped: {said}");
        return;
    }
    done(cotenant(data, &["cc", "--cotenant-regions=hot.toml", "-O2", "-S", "rank.c"]).current_dir(&folder));
    let text = fs::read_to_string(folder.join("rank.s")).unwrap();
    let is_marked = |name: &str| {
        let (_, body) = text.split_once(&format!("\n{name}:")).expect(name);
        body.split_once(".cfi_endproc").expect(name).0.contains("__cotenant_marked")
    };
    assert_eq!((is_marked("stream"), is_marked("chase")), (true, false), "{said}");
}

/// The orders of a program, once it has reached a mark.
fn orders(pid: u32) -> Option<Orders> {
    let mut follower = Follower::new(&FsRoot::live(), vec![Target::Pids(vec![pid])], None);
    follower.update(Time::default(), &[], &[], &Ends::new().unwrap());
    Orders::of(pid, follower.processes().get(&pid)?, None)
        .ok()
        .flatten()
        .filter(|orders| orders.naps().looked.is_some())
}

fn until<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(Instant::now() < deadline, "waited for: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Holds compile/naps.
#[test]
fn a_marked_program_naps_when_it_is_told_to() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let folder = folder("naps");
    for (name, words) in [("plain", &["-O2"][..]), ("lto", &["-O2", "-flto"]), ("unoptimised", &["-O0"])] {
        done(cotenant(data, &["cc", "a.c", "-o", name]).args(words).current_dir(&folder));
        let mut program = Command::new(folder.join(name)).arg("1000000000").stdout(Stdio::null()).spawn().unwrap();
        let orders = until("the first mark", || orders(program.id()));
        until("a nap that ended", || {
            orders.nap(sys::monotonic() + Duration::from_millis(50), Duration::from_millis(100));
            orders.naps().end
        });
        assert!(orders.naps().napped > Duration::ZERO, "{name}");
        program.kill().unwrap();
        program.wait().unwrap();
    }
}

/// Promise compile/naps: Compiled programs nap when ordered to, within 5 % of the ordered rate, also in short
/// threads and forked children.
#[test]
fn forked_children_and_short_threads_nap_for_what_they_run() {
    let Some(data) = pass::installed(env!("CARGO_TARGET_TMPDIR")) else { return };
    let folder = folder("short");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../llvm/test/short.c");
    let words = ["cc", "--cotenant-mode=naps", "-O2", "-pthread", source, "-o", "short"];
    done(cotenant(data, &words).current_dir(&folder));
    let counted = Command::new(folder.join("short")).output().unwrap();
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stdout));
}
