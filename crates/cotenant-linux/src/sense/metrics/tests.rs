//! Working sources, and all their possible faults. Servers listen on the loopback only.

use super::log::Log;
use super::*;
use cotenant_model::histogram::Clipped;
use cotenant_testing::{TempDir, eventually};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

fn metrics(texts: &[&str]) -> Metrics {
    let parsed: Vec<Metric> = texts.iter().map(|text| text.parse().unwrap_or_else(|e| panic!("{e}"))).collect();
    Metrics::start(&parsed, Instant::now()).unwrap()
}

fn summary(metrics: &Metrics) -> MetricSummary {
    metrics.summaries().remove(0)
}

/// Why the first reading of a metric failed: not because this machine is slow, unless that is the point.
fn failure(text: &str) -> String {
    let patient = if text.contains(",timeout=") { text.to_owned() } else { format!("{text},timeout=40s") };
    let metrics = metrics(&[&patient]);
    eventually(text, || summary(&metrics).failed > 0);
    assert_eq!((summary(&metrics).readings, metrics.readings()), (0, vec![]), "{text}");
    let why = summary(&metrics).why.unwrap();
    assert!(!why.contains('\n'), "{why}");
    why
}

/// A server that answers with `answer(n)` to the `n`th request, whole: status line, headers, body. Returns its address.
pub(super) fn server(answer: impl Fn(usize) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (n, client) in listener.incoming().enumerate() {
            let mut client = client.unwrap();
            let mut request = Vec::new();
            let mut buffer = [0; 1024];
            while !request.ends_with(b"\r\n\r\n") {
                match client.read(&mut buffer) {
                    Ok(got @ 1..) => request.extend_from_slice(&buffer[..got]),
                    _ => break,
                }
            }
            let _ = client.write_all(answer(n).as_bytes());
        }
    });
    format!("http://{address}")
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len())
}

/// The same, as `OpenMetrics`.
fn open(body: &str) -> String {
    ok(body).replacen("Connection", "Content-Type: application/openmetrics-text; version=1.0.0\r\nConnection", 1)
}

/// An address without a listener, kept from other sockets by a connection from it.
pub(super) fn closed() -> ((TcpListener, TcpStream), SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let address = taken.local_addr().unwrap();
    ((listener, taken), address)
}

#[test]
fn a_command_is_read_again_and_again() {
    let folder = TempDir::new("metric");
    let file = folder.path().join("value");
    fs::write(&file, "1.5\n").unwrap();
    let metrics = metrics(&[&format!("cmd:cat {},lower,every=20ms,name=depth", file.display())]);
    eventually("the first value", || metrics.readings().first().is_some_and(|(_, r)| r.value == 1.5));
    fs::write(&file, "2.5e0\n").unwrap();
    let mut second = None; // as soon as available, because readings expire quickly
    eventually("the second value", || {
        second = metrics.readings().into_iter().find(|(_, r)| r.value == 2.5);
        second.is_some()
    });
    let (name, reading) = second.unwrap();
    assert_eq!((name.as_str(), reading.direction, reading.count), ("depth", Direction::LowerIsBetter, 1));
    fs::remove_file(&file).unwrap();
    eventually("the value is gone with its source", || metrics.readings().is_empty());
    eventually("and told once", || !metrics.news().is_empty());
    assert_eq!(metrics.news(), Vec::<String>::new());
    let summary = summary(&metrics);
    assert!(summary.readings >= 2 && summary.last == Some(2.5) && summary.failed > 0, "{summary:?}");
}

/// Promise speed/bad-metric: A metric that hangs, fails or is refused is one line with a remedy and no value; it
/// delays nothing and leaves nothing running.
#[test]
fn what_a_command_does_wrong_is_one_line() {
    for (text, why) in [
        ("cmd:true", "printed nothing"),
        ("cmd:echo 12 apples", "'12 apples', which is not a number"),
        ("cmd:printf '1\\n2\\n'", "not a number"),
        ("cmd:echo NaN", "NaN"),
        ("cmd:echo inf", "inf"),
        ("cmd:echo 5; exit 3", "exit code 3"),
        ("cmd:no-such-command-at-all", "exit code 127"),
        ("cmd:kill -9 $$", "exit code 137"),
        ("cmd:yes", "more than 64 KiB"),
        ("cmd:head -c 70000 /dev/zero", "more than 64 KiB"),
        ("cmd:sleep 1000,timeout=50ms", "longer than 50ms"),
    ] {
        let told = failure(text);
        assert!(told.contains(why), "{text}: {told}");
    }
}

#[test]
fn a_command_that_leaves_something_behind_is_not_waited_for() {
    let metrics = metrics(&["cmd:sleep 2 & echo 7"]);
    eventually("its number", || metrics.readings().first().is_some_and(|(_, r)| r.value == 7.0));
}

/// Holds speed/bad-metric.
#[test]
fn a_hanging_command_dies_with_its_group() {
    let folder = TempDir::new("metric");
    let pids = folder.path().join("pids");
    // A child, a grandchild in the background, and no ends.
    let text = format!("cmd:echo $$ >>{0}; sleep 1000 & echo $! >>{0}; wait,timeout=60min", pids.display());
    let hanging = metrics(&[&text]);
    let read = || -> Vec<u32> {
        fs::read_to_string(&pids).unwrap_or_default().lines().filter_map(|l| l.parse().ok()).collect()
    };
    eventually("both have started", || read().len() == 2);
    let begin = Instant::now();
    assert_eq!(hanging.readings(), vec![]);
    drop(hanging);
    assert!(begin.elapsed() < LONG, "nobody waits for it");
    let lives = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    };
    eventually("all are gone", || !read().iter().any(lives));
}

/// Taken in a test only by waits for impossible events.
const LONG: Duration = Duration::from_secs(25);

/// Holds speed/metrics.
#[test]
fn a_log_is_followed_through_rotation_and_truncation() {
    let folder = TempDir::new("metric");
    let path = folder.path().join("server.log");
    fs::write(&path, "took 1 ms\n").unwrap();
    let mut log = Log::new(path.to_str().unwrap(), r"took ([0-9.]+|many) ms").unwrap();
    assert_eq!(log.fetch().unwrap(), None, "what was there before is old");
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"took 2 ms\nsomething else\ntook 3 ms\r\ntook 4").unwrap();
    assert_eq!(log.fetch().unwrap(), Some((3.0, 2)), "a line without an end is not read yet");
    file.write_all(b".5 ms\n").unwrap();
    assert_eq!(log.fetch().unwrap(), Some((4.5, 1)));
    // Rotated: the last line of the old file and the first of the new one.
    file.write_all(b"took 5 ms\n").unwrap();
    fs::rename(&path, folder.path().join("server.log.1")).unwrap();
    fs::write(&path, "took 6 ms\n").unwrap();
    assert_eq!(log.fetch().unwrap(), Some((6.0, 2)));
    // Truncated.
    fs::write(&path, "").unwrap();
    assert_eq!(log.fetch().unwrap(), None);
    fs::write(&path, "took 7 ms\n").unwrap();
    assert_eq!(log.fetch().unwrap(), Some((7.0, 1)));
    // Too long a line, and non-text bytes.
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(&[b"x".repeat(100_000), b"took 8 ms\n\xff took 9 ms\n".to_vec()].concat()).unwrap();
    assert_eq!(log.fetch().unwrap(), Some((9.0, 1)));
    // More at once than is read: its end.
    file.write_all(&b"took 10 ms\n".repeat(500_000)).unwrap();
    let (value, count) = log.fetch().unwrap().unwrap();
    assert!(value == 10.0 && count < 500_000, "{count}");
    file.write_all(b"took many ms\n").unwrap();
    assert!(log.fetch().unwrap_err().to_string().contains("'many', which is not a number"));
    fs::remove_file(&path).unwrap();
    let why = log.fetch().unwrap_err().to_string();
    assert!(why.contains("server.log"), "{why}");
    fs::write(&path, "took 11 ms\n").unwrap();
    assert_eq!(log.fetch().unwrap(), Some((11.0, 1)), "it is there again");
    // As in the middle of a rotation.
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(b"took 12 ms\n").unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(log.fetch().unwrap(), Some((12.0, 1)), "what it held to its end is not lost");
    assert!(log.fetch().is_err());
}

/// Until something matches: then a server that is silent for long is no failure.
#[test]
fn a_pattern_that_never_matches_is_told() {
    let folder = TempDir::new("metric");
    let path = folder.path().join("server.log");
    fs::write(&path, "").unwrap();
    let mut log = Log::new(path.to_str().unwrap(), "took ([0-9]+) ms").unwrap();
    let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
    let mut write = |text: &str, n: usize| file.write_all(text.repeat(n).as_bytes()).unwrap();
    write("took 1 s\n", 99);
    assert_eq!(log.fetch().unwrap(), None);
    write("took 1 s\n", 1);
    for _ in 0..2 {
        let why = log.fetch().unwrap_err().to_string();
        assert!(why.ends_with("server.log: none of 100 new lines matches the pattern; try it with grep -E"), "{why}");
    }
    write("took 2 ms\n", 1);
    assert_eq!(log.fetch().unwrap(), Some((2.0, 1)));
    write("took 1 s\n", 200);
    assert_eq!(log.fetch().unwrap(), None);
}

/// Holds speed/bad-metric.
#[test]
fn what_is_no_log_says_so() {
    let folder = TempDir::new("metric");
    let why = failure(&format!("log:{}/none:x", folder.path().display()));
    assert!(why.contains("/none: No such file"), "{why}");
    let why = failure(&format!("log:{}:x", folder.path().display()));
    assert!(why.contains("not a regular file"), "{why}");
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let why = failure(&format!("log:{}:x", pipe.display()));
    assert!(why.contains("not a regular file"), "{why}");
    let metric = "log:/x:(".parse().unwrap();
    let why = Metrics::start(&[metric], Instant::now()).unwrap_err().to_string();
    assert!(why.contains("not a regular expression"), "{why}");
}

/// Holds speed/metrics.
#[test]
fn an_endpoint_tells_numbers_rates_and_quantiles() {
    let url = server(|n| {
        // A quarter of a second for each request but the first thousand, which are faster.
        let (n, old) = (n + 1, 1_000);
        ok(&format!(
            "# TYPE queue gauge\nqueue 3\n# TYPE done_total counter\ndone_total {}\n# TYPE t histogram\n\
             t_bucket{{le=\"0.2\"}} {old}\nt_bucket{{le=\"0.3\"}} {}\nt_bucket{{le=\"+Inf\"}} {}\n",
            n * 10,
            old + n,
            old + n
        ))
    });
    let series = ["queue", "done_total", "t"].map(|series| format!("{url}/metrics#{series},every=20ms"));
    let series: Vec<&str> = series.iter().map(String::as_str).collect();
    let series = metrics(&[series[0], series[1], "cmd:echo 1", series[2]]);
    let mut readings = Vec::new();
    eventually("all of them", || {
        readings = series.readings();
        readings.len() == 4
    });
    let value = |name: &str| readings.iter().find(|(n, _)| n == name).unwrap().1;
    assert_eq!(value("queue").value, 3.0);
    let rate = value("done_total");
    assert!(rate.value > 0.0 && rate.count >= 10 && rate.direction == Direction::HigherIsBetter, "{rate:?}");
    let quantile = value("t");
    assert!((0.2..=0.3).contains(&quantile.value) && quantile.direction == Direction::LowerIsBetter, "{quantile:?}");
    let higher = metrics(&[&format!("{url}/metrics#t,higher,every=20ms")]);
    eventually("the quantile that is better high", || {
        higher.readings().first().is_some_and(|(_, r)| r.direction == Direction::HigherIsBetter)
    });
}

/// All that is observed takes longer than the last bound, all is in a first bucket, in a wide one, or in the only one.
/// Holds speed/metrics.
#[test]
fn a_histogram_that_does_not_tell_its_quantile_says_so() {
    for (buckets, clipped, why) in [
        (
            &[("0.1", 0), ("1", 0)][..],
            Clipped::Beyond(1.0),
            "its p99 is beyond the last bound 1; give its histogram buckets that reach",
        ),
        (
            &[("0.1", 1), ("1", 1)],
            Clipped::Below(0.1),
            "its p99 is below the first bound 0.1; give its histogram finer buckets",
        ),
        (
            &[("0.001", 0), ("1000", 1)],
            Clipped::Between(0.001, 1_000.0),
            "its p99 is anywhere between the bounds 0.001 and 1000; its buckets are too wide",
        ),
        (&[], Clipped::Unbounded, "its p99 is in a histogram without a bound above 0; give it buckets"),
    ] {
        let url = server(move |n| {
            let all = buckets.iter().chain(&[("+Inf", 1)]);
            let lines: Vec<String> =
                all.map(|(le, of)| format!("h_bucket{{le=\"{le}\"}} {}\n", of * n * 100)).collect();
            ok(&format!("# TYPE h histogram\n{}", lines.concat()))
        });
        let metrics = metrics(&[&format!("{url}/m#h,every=20ms")]);
        eventually("it to be told", || metrics.failing().is_some());
        assert!(metrics.failing().unwrap().contains(why), "{:?}", metrics.failing());
        assert_eq!(metrics.readings(), []);
        assert_eq!(metrics.clipped().iter().map(|(_, read)| read.clipped).collect::<Vec<_>>(), [clipped]);
    }
}

#[test]
fn an_endpoint_may_answer_with_one_number() {
    let url = server(|_| ok(" 42.5\n"));
    let metrics = metrics(&[&format!("{url}/depth,name=depth")]);
    eventually("it", || metrics.readings().first().is_some_and(|(_, r)| r.value == 42.5));
}

/// Holds speed/metrics.
#[test]
fn prometheus_is_asked_by_a_query() {
    let url = server(|_| {
        ok(r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1.5,"0.25"]}]}}"#)
    });
    let query = r#"api/v1/query?query=max(t{job="a b"})"#;
    let metrics = metrics(&[&format!("{url}/{query},lower,name=slowest")]);
    eventually("its number", || metrics.readings().first().is_some_and(|(_, r)| r.value == 0.25));
    assert_eq!(metrics.readings()[0].1.direction, Direction::LowerIsBetter);
}

/// Holds speed/bad-metric.
#[test]
fn what_a_server_does_wrong_is_one_line() {
    let (_taken, closed) = closed();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let huge = ok(&"# x\n".repeat(5 << 20));
    let long = ok(&format!(r#"{{"status":"success","data":{{"resultType":"{}","result":1}}}}"#, "x".repeat(100_000)));
    let redirect = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.2/\r\nContent-Length: 0\r\n\r\n";
    for (url, why) in [
        (format!("http://{closed}/"), "refused"),
        (format!("http://{}/,timeout=50ms", silent.local_addr().unwrap()), "longer than 50ms"),
        (server(|_| "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()), "status 404"),
        (server(move |_| redirect.into()), "status 302"),
        (server(|_| "what?\r\n\r\n".into()), "check that"),
        (server(|_| ok("")), "printed nothing"),
        (server(|_| ok("nan")), "NaN"),
        (server(|_| ok(r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#)), "no result"),
        (server(|_| ok("up 1\n")) + "#down", "no series 'down'; it has up"),
        (server(|_| ok("up 1\nload 2\n")), "add #SERIES to the address, one of up, load"),
        (server(|_| ok("up 1\n")) + "#up,q=0.5", "not a histogram"),
        (server(|_| ok("up one\n")) + "#up", "line 1, column 4 of the answer: expected a value"),
        (server(|_| open("up 1\n")) + "#up", "was cut: OpenMetrics ends with # EOF"),
        (server(|_| open("up 1\n# EOF\n")) + "#down", "no series 'down'; it has up"),
        (server(move |_| huge.clone()) + "#up", "more than 16384 KiB"),
        (server(move |_| long.clone()), "unknown variant `xxx"),
    ] {
        let told = failure(&url);
        assert!(told.contains(why) && told.chars().count() <= 300, "{url}: {told}");
    }
}

#[test]
fn names_are_given_once() {
    let twice: Vec<Metric> = ["cmd:echo 1", "cmd:echo 2"].map(|text| text.parse().unwrap()).to_vec();
    assert!(matches!(Metrics::start(&twice, Instant::now()), Err(StartError::Twice(name)) if name == "cmd"));
    let reserved = ["cmd:echo 1,name=progress".parse().unwrap()];
    assert!(matches!(Metrics::start(&reserved, Instant::now()), Err(StartError::Reserved(_))));
}

#[test]
fn a_reading_counts_for_as_long_as_it_is_about() {
    let metrics = metrics(&["cmd:exit 1,every=60s"]);
    eventually("its first reading", || summary(&metrics).failed > 0);
    let measured = |value, ms| {
        let window = Duration::from_millis(ms);
        Ok(Some(Measured { value, window, count: 1, direction: Direction::HigherIsBetter }))
    };
    let mut shared = lock(&metrics.shared[0]);
    for (value, ms, mean) in [(7.0, 0, 7.0), (1_000.0, 100, 1_000.0), (10.0, 900, 109.0), (109.0, 500, 109.0)] {
        shared.take(measured(value, ms), Time::default());
        assert!((shared.summary.mean.unwrap() - mean).abs() < 1e-9, "{:?} after {value}", shared.summary.mean);
    }
}

/// As a resolver does that cannot make a thread.
#[test]
fn a_reader_that_panics_is_told_and_reads_again() {
    let metrics = metrics(&["cmd:echo 1,every=1h,name=panics"]);
    let shared = metrics.shared[0].clone();
    let (stopper, stop) = stop::pair().unwrap();
    let mut left = 4;
    let mut stopper = Some(stopper);
    let fetch = |_, window, _: &Stop| {
        left -= 1;
        assert!(left < 1, "failed to spawn thread");
        stopper = None;
        Ok(Some(Measured { value: 7.0, window, count: 1, direction: Direction::HigherIsBetter }))
    };
    let every = Duration::from_millis(1);
    thread::scope(|scope| {
        scope.spawn(|| read("metric panics", fetch, every, metrics.start, &stop, &shared));
    });
    let MetricSummary { failed, why, last, .. } = lock(&shared).summary.clone();
    assert_eq!((failed, last), (3, Some(7.0)));
    assert_eq!(why.as_deref(), Some("its reader failed: failed to spawn thread; it is tried again"));
}

/// Each once, at the same time, whatever they do.
/// Holds speed/bad-metric.
#[test]
fn what_is_asked_before_says_whether_it_will_ever_answer() {
    let (_taken, closed) = closed();
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().unwrap();
    let cases = [
        (format!("redis:{closed}:p99"), Some("refused (os error 111); nothing listens there: start"), true),
        (format!("http://{closed}/"), Some("nothing listens there: start"), true),
        (format!("http:{closed}:p99"), Some("nothing listens there: start"), true),
        ("postgres:/nowhere:p99".to_owned(), Some("error 2); start the server, or name the path"), true),
        (server(|_| ok("up 1\n")) + "#down", Some("no series 'down'"), true),
        (server(|_| ok("<html>\nup 1\n")) + "#up", Some("column 1 of the answer: expected a name"), true),
        (server(|_| "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()), Some("404"), true),
        (server(|_| "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n".into()), Some("503"), false),
        (server(|_| ok("# TYPE a counter\na 1\n")) + "#a", None, false),
        ("cmd:no-such-command-at-all".to_owned(), Some("127"), true),
        ("cmd:false".to_owned(), Some("exit code 1"), false),
        ("cmd:echo 1".to_owned(), None, false),
        ("cmd:sleep 1000".to_owned(), Some(""), false),
        (format!("redis:{silent}:p99"), Some(""), false),
        ("log:/nowhere:x".to_owned(), Some("No such file"), true),
        ("log:/proc:x".to_owned(), Some("not a regular file"), true),
        ("cmd:echo 12 apples".to_owned(), Some("not a number"), true),
        ("cmd:true".to_owned(), Some("printed nothing"), false),
        // Names that need no look-up.
        ("redis:no..host:6379:p99".to_owned(), Some("check the name of the host"), true),
        ("http://no..host/".to_owned(), Some("check the name of the host"), true),
        (server(|_| "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n".into()), Some("that logs in"), true),
    ];
    let parsed: Vec<Metric> = cases.iter().map(|(text, ..)| text.parse().unwrap()).collect();
    // Duration of the fast ones on a busy machine.
    let answers = ask(&parsed, Duration::from_secs(8)).unwrap();
    for ((text, why, certain), answer) in cases.iter().zip(answers) {
        let said = answer.as_ref().map(|no| (no.why.contains(why.unwrap_or("?")), no.certain));
        assert_eq!(said, why.map(|_| (true, *certain)), "{text}: {answer:?}");
    }
    let many: Vec<Metric> = (0..=MOST).map(|_| "cmd:echo 1".parse().unwrap()).collect();
    let last = ask(&many, Duration::from_secs(20)).unwrap().pop().unwrap();
    assert!(last.is_some_and(|no| no.why.contains("too many") && !no.certain));
}

/// A server that is not there is no reason to end while it may yet come, and one that came is none later.
#[test]
fn a_metric_is_refused_until_it_has_answered_once() {
    let (_taken, closed) = closed();
    let refused = metrics(&[&format!("redis:{closed}:p99,every=20ms")]);
    eventually("it is refused", || refused.refused_for(Duration::ZERO).is_some());
    assert_eq!(refused.refused_for(Duration::from_secs(3_600)), None);
    assert!(summary(&refused).refused);
    let folder = TempDir::new("metric");
    let file = folder.path().join("value");
    fs::write(&file, "1").unwrap();
    let once = metrics(&[&format!("cmd:cat {} || exit 127,every=20ms", file.display())]);
    eventually("it answers", || summary(&once).readings > 0);
    fs::remove_file(&file).unwrap();
    eventually("it fails", || summary(&once).failed > 0);
    assert_eq!((once.refused_for(Duration::ZERO), summary(&once).refused), (None, false));
}
