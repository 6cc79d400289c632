//! The programs.

use super::clients::{self, Pace, Talk, served};
use super::place::{Place, Running, drained, fed, mapped, told};
use std::fmt::Write as _;
use std::io;

/// A program with its requirements.
pub struct Program {
    pub name: &'static str,
    pub cpus: usize,
    pub needs: &'static [&'static str],
    pub start: fn(&Place) -> io::Result<Running>,
}

/// Text with the statistics of natural language: words of a small vocabulary, some more common.
fn text(bytes: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    let words: Vec<String> =
        (0..4_000).map(|_| (0..random.usize(2..10)).map(|_| random.lowercase()).collect()).collect();
    let mut out = Vec::with_capacity(bytes + 16);
    while out.len() < bytes {
        let rank = (words.len() as f64).powf(random.f64()) as usize;
        out.extend_from_slice(words[rank.min(words.len() - 1)].as_bytes());
        out.push(if random.usize(..12) == 0 { b'\n' } else { b' ' });
    }
    out
}

fn feed(place: &Place, words: &[&str]) -> io::Result<Running> {
    fed(place, words, text(32 << 20))
}

/// A shell that repeats a command.
fn again(place: &Place, what: &str) -> io::Result<Running> {
    told(place, &["sh", "-c", &format!("while {what}; do echo; done")], None)
}

const HTTP: Talk =
    Talk { port: 47_210, hello: b"", request: b"GET /file HTTP/1.1\r\nHost: a\r\n\r\n", answer: clients::http };
const REDIS: Talk = Talk { port: 47_211, hello: b"", request: b"GET key\r\n", answer: clients::redis };

fn redis(place: &Place, how: Pace) -> io::Result<Running> {
    // Set by the first client; repeating it per connection would be harmless.
    let talk = Talk { hello: b"SET key 0123456789012345678901234567890123456789012345678901234567890123\r\n", ..REDIS };
    served(place, &["redis-server", "--port", "47211", "--save", "", "--appendonly", "no"], talk, how)
}

fn nginx(place: &Place, how: Pace) -> io::Result<Running> {
    let dir = place.dir.display();
    place.file("file", text(10_000))?;
    place.file(
        "nginx.conf",
        format!(
            "daemon off; user root; worker_processes 1; pid {dir}/pid; error_log /dev/null; events {{}}\n\
             http {{ access_log off; sendfile on; keepalive_requests 100000000;\n\
             server {{ listen 127.0.0.1:47210; root {dir}; }} }}\n"
        ),
    )?;
    served(place, &["nginx", "-c", &format!("{dir}/nginx.conf")], HTTP, how)
}

fn gcc(place: &Place) -> io::Result<Running> {
    let function = |n: usize| {
        format!(
            "int f{n}(int *a, int n) {{ int s = {n}; for (int i = 0; i < n; i++) s += a[i] * (i ^ s); return s; }}\n"
        )
    };
    let source: String = (0..4).map(function).collect();
    place.file("a.c", format!("#include <stddef.h>\n{source}"))?;
    again(place, "gcc -O1 -c a.c -o a.o")
}

fn ffmpeg(place: &Place) -> io::Result<Running> {
    let source =
        ["-f", "lavfi", "-i", "testsrc2=size=640x360:duration=10", "-c:v", "mpeg4", "-q:v", "3", "-y", "in.mkv"];
    place.finish(&[&["ffmpeg", "-v", "error"], &source[..]].concat())?;
    let run = "exec ffmpeg -v error -stream_loop -1 -i in.mkv -c:v libx264 -preset veryfast -threads 1 -f matroska \
               -stats_period 0.1 -progress pipe:3 -y /dev/null 3>&1 >/dev/null";
    let frames = |line: &str| line.strip_prefix("frame=")?.trim().parse().ok();
    told(place, &["sh", "-c", run], Some(frames))
}

fn sqlite(place: &Place, cache: &str) -> io::Result<Running> {
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000)";
    place.file(
        "fill.sql",
        format!("CREATE TABLE t(i INTEGER PRIMARY KEY, j INT, s TEXT); INSERT INTO t {rows} SELECT i, i * 7919 % 200000, hex(randomblob(40)) FROM n; CREATE INDEX k ON t(j);"),
    )?;
    place.finish(&["sh", "-c", "sqlite3 db < fill.sql"])?;
    let mut queries = format!("PRAGMA cache_size = {cache};\n");
    let mut random = fastrand::Rng::with_seed(3);
    for _ in 0..2_000 {
        let from = random.usize(..199_000);
        let to = from + 100;
        writeln!(queries, "SELECT sum(length(s)) FROM t WHERE j BETWEEN {from} AND {to};").expect("it is a string");
    }
    place.file("queries.sql", queries)?;
    told(place, &["sh", "-c", "while cat queries.sql; do :; done | exec sqlite3 db"], None)
}

/// The start-up message and a query, each with its length.
const HELLO: &[u8] = b"\0\0\0\x29\0\x03\0\0user\0postgres\0database\0postgres\0\0";
const QUERY: &[u8] = b"Q\0\0\0\x46select sum(i * i % 7) from generate_series(1, 500) as i, now() n;\0";

fn postgres(place: &Place) -> io::Result<Running> {
    let bin = ["/usr/lib/postgresql/15/bin", "/usr/lib/postgresql/16/bin", "/usr/lib/postgresql/17/bin"];
    let bin =
        bin.into_iter().find(|dir| std::path::Path::new(dir).exists()).ok_or_else(|| io::Error::other("no server"))?;
    let dir = place.dir.display();
    let (initdb, server, data) = (format!("{bin}/initdb"), format!("{bin}/postgres"), format!("{dir}/data"));
    let user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"];
    place.finish(&["chown", "postgres", &dir.to_string()])?;
    place.finish(&[&user[..], &[&initdb, "-D", &data, "-A", "trust", "-U", "postgres", "--no-sync"]].concat())?;
    let talk = Talk { port: 47_212, hello: HELLO, request: QUERY, answer: clients::postgres };
    let options =
        [&server, "-D", &data, "-p", "47212", "-k", "", "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"];
    served(place, &[&user[..], &options].concat(), talk, Pace::Closed(2))
}

/// With LLVM, whose runtime lets libcotenant count.
fn open_mp(place: &Place, source: &str) -> io::Result<Running> {
    place.file("omp.c", source)?;
    place.finish(&["clang-19", "-O2", "-fopenmp", "omp.c", "-o", "omp"])?;
    mapped(place, &["env", &format!("OMP_TOOL_LIBRARIES={}", libcotenant(place)?), "./omp"])
}

/// Installs it; the path of its shared library.
fn libcotenant(place: &Place) -> io::Result<String> {
    let prefix = place.dir.join("prefix").display().to_string();
    let install = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/install-lib");
    place.finish(&[install, "--prefix", &prefix])?;
    Ok(format!("{prefix}/lib/libcotenant.so.0"))
}

fn mpi(place: &Place, local: bool) -> io::Result<Running> {
    place.file("mpi.c", include_str!("programs/mpi.c"))?;
    place.finish(&["mpicc", "-O2", "mpi.c", "-o", "mpi"])?;
    let (by_ofi, by_ucx) =
        if local { ("FI_PROVIDER=shm", "UCX_TLS=all") } else { ("FI_PROVIDER=tcp", "UCX_TLS=tcp,self") };
    let apart = if local { "MPIR_CVAR_NOLOCAL=0" } else { "MPIR_CVAR_NOLOCAL=1" };
    let preload = format!("LD_PRELOAD={}", libcotenant(place)?.replace(".so", "-mpi.so"));
    mapped(place, &["env", &preload, apart, by_ofi, by_ucx, "mpirun.mpich", "-n", "2", "./mpi"])
}

fn go(place: &Place) -> io::Result<Running> {
    place.file("server.go", include_str!("programs/server.go"))?;
    place.finish(&[
        "env",
        &format!("GOCACHE={}/gocache", place.dir.display()),
        "go",
        "build",
        "-o",
        "server",
        "server.go",
    ])?;
    served(place, &["./server"], HTTP, Pace::Closed(2))
}

fn java(place: &Place) -> io::Result<Running> {
    place.file("Server.java", include_str!("programs/Server.java"))?;
    place.finish(&["javac", "Server.java"])?;
    served(place, &["java", "-XX:+UseSerialGC", "Server"], HTTP, Pace::Closed(2))
}

fn node(place: &Place) -> io::Result<Running> {
    place.file("server.js", include_str!("programs/server.js"))?;
    served(place, &["node", "server.js"], HTTP, Pace::Closed(2))
}

fn files(place: &Place, number: usize) -> io::Result<()> {
    let all = text(80_000 * number);
    std::fs::create_dir_all(place.dir.join("files"))?;
    (0..number).try_for_each(|n| place.file(&format!("files/{n}.txt"), &all[n * 80_000..][..80_000]))
}

/// All of them.
#[allow(clippy::too_many_lines)] // a table
pub fn all() -> Vec<Program> {
    let program = |name, cpus, needs, start| Program { name, cpus, needs, start };
    vec![
        program("xz", 1, &["xz"], |place| feed(place, &["xz", "-1", "-T1", "-c"])),
        program("xz, two threads", 2, &["xz"], |place| feed(place, &["xz", "-1", "-T2", "-c"])),
        program("zstd", 1, &["zstd"], |place| feed(place, &["zstd", "-3", "--single-thread", "-c"])),
        program("gzip", 1, &["gzip"], |place| feed(place, &["gzip", "-c"])),
        program("bzip2", 1, &["bzip2"], |place| feed(place, &["bzip2", "-c"])),
        program("openssl", 1, &["openssl"], |place| {
            feed(place, &["openssl", "enc", "-aes-256-ctr", "-pbkdf2", "-k", "key"])
        }),
        program("tar", 1, &["tar"], |place| {
            files(place, 200)?;
            drained(place, &["sh", "-c", "while tar -cf - files; do :; done"])
        }),
        program("grep", 1, &["grep"], |place| {
            files(place, 16)?;
            again(place, "grep -rEc 'ab+c[de]f' files > /dev/null || true")
        }),
        program("rsync", 1, &["rsync"], |place| {
            files(place, 16)?;
            again(place, "rsync -a --checksum files/ copy/")
        }),
        program("gcc", 1, &["gcc"], gcc),
        program("ffmpeg", 1, &["ffmpeg"], ffmpeg),
        program("sqlite", 1, &["sqlite3"], |place| sqlite(place, "100")),
        program("sqlite, all cached", 1, &["sqlite3"], |place| sqlite(place, "-200000")),
        program("redis", 1, &["redis-server"], |place| redis(place, Pace::Closed(2))),
        program("redis, 500 requests/s", 1, &["redis-server"], |place| redis(place, Pace::Open(500))),
        program("memcached", 1, &["memcached"], |place| {
            let talk = Talk {
                port: 47_213,
                hello: b"set key 0 0 10\r\n0123456789\r\n",
                request: b"get key\r\n",
                answer: clients::memcached,
            };
            served(
                place,
                &["memcached", "-u", "root", "-p", "47213", "-l", "127.0.0.1", "-t", "1"],
                talk,
                Pace::Closed(2),
            )
        }),
        program("postgres", 1, &["psql", "setpriv"], postgres),
        program("nginx", 1, &["nginx"], |place| nginx(place, Pace::Closed(2))),
        program("nginx, a connection per request", 1, &["nginx"], |place| nginx(place, Pace::Anew)),
        program("go server", 1, &["go"], go),
        program("java server", 1, &["java", "javac"], java),
        program("node server", 1, &["node"], node),
        program("python", 1, &["python3"], |place| {
            place.file("work.py", include_str!("programs/work.py"))?;
            mapped(place, &["python3", "work.py"])
        }),
        program("openmp", 2, &["clang-19"], |place| open_mp(place, include_str!("programs/omp.c"))),
        program("openmp, LU", 2, &["clang-19"], |place| open_mp(place, include_str!("programs/lu.c"))),
        program("openmp, tasks", 2, &["clang-19"], |place| open_mp(place, include_str!("programs/sort.c"))),
        program("mpi, shared memory", 2, &["mpicc", "mpirun.mpich"], |place| mpi(place, true)),
        program("mpi, tcp", 2, &["mpicc", "mpirun.mpich"], |place| mpi(place, false)),
    ]
}
