use super::*;
use cotenant_model::CpuId;
use cotenant_model::profile::MachineProfile;
use cotenant_model::topology::synthetic;
use cotenant_status::class::Class;
use cotenant_status::status::{Place, ServiceStatus};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener as Listener, TcpStream};

const ANY: &str = "127.0.0.1:0";

/// A condition brought about by one of our threads.
fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn serving(shared: &Arc<Shared>) -> (Web, String) {
    let mut web = Web::default();
    web.serve_at(Some(ANY.parse().unwrap()), shared);
    let address = eventually("it listens", || web.state()).address;
    (web, address)
}

/// The complete answer to this.
fn say(address: &str, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let _ = stream.write_all(request); // it may be refused before it is complete
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

fn ask(address: &str, path: &str) -> (u16, String) {
    let answer = say(address, format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
    (answer[9..12].parse().unwrap(), answer.split_once("\r\n\r\n").unwrap().1.to_owned())
}

#[test]
fn healthy_is_who_has_looked_just_now() {
    let shared = Arc::new(Shared::default());
    let (_web, address) = serving(&shared);
    let begun = (503, "the daemon has just begun\n".to_owned());
    assert_eq!(["/healthz", "/metrics"].map(|path| ask(&address, path)), [begun.clone(), begun]);
    shared.set_status(Status::of_nobody(Instant::now()));
    assert_eq!(ask(&address, "/healthz"), (200, "ok\n".to_owned()));
    shared.set_status(Status { sample_age_s: 12.0, ..Status::of_nobody(Instant::now()) });
    assert_eq!(ask(&address, "/healthz"), (503, "the last sample is 12 s old\n".to_owned()));
    let (code, text) = ask(&address, "/metrics");
    assert!(code == 200 && text.contains("\ncotenant_sample_age_seconds 12."), "{text}");
    assert_eq!(ask(&address, "/etc/passwd"), (404, "there are /, /metrics and /healthz\n".to_owned()));
    assert!(
        say(&address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n").starts_with("HTTP/1.1 405")
    );
}

#[test]
fn a_client_gets_the_format_that_it_asks_for() {
    let shared = Arc::new(Shared::default());
    let (_web, address) = serving(&shared);
    shared.set_status(Status::of_nobody(Instant::now()));
    let with = |accept: &str| say(&address, format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{accept}\r\n").as_bytes());
    let open = with("Accept: application/openmetrics-text; version=1.0.0, text/plain;q=0.5\r\n");
    assert!(open.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"), "{open}");
    assert!(open.ends_with("# EOF\n"));
    let plain = with("");
    assert!(plain.contains("content-type: text/plain; version=0.0.4"), "{plain}");
    assert!(plain.contains("\r\nconnection: close\r\n"), "{plain}");
}

/// However often it is asked for.
#[test]
fn a_page_is_made_once_for_a_snapshot_and_anew_for_the_next() {
    let shared = Arc::new(Shared::default());
    let pages = Pages { shared: shared.clone(), last: Mutex::default() };
    let page = || pages.answer(Kind::Metrics(Format::Prometheus)).unwrap();
    shared.set_status(Status::of_nobody(Instant::now()));
    let first = page();
    // Within a second of each other, sooner or later.
    eventually("the same page", || (page().as_ptr() == page().as_ptr()).then_some(()));
    shared.set_status(Status { cpu_s: 77.0, ..Status::of_nobody(Instant::now()) });
    assert!(!first.ends_with(&page()[..]) && page().windows(6).any(|text| text == b" 77.0\n"));
}

#[test]
fn it_moves_and_waits_for_an_address_that_is_in_use() {
    let shared = Arc::new(Shared::default());
    let (mut web, first) = serving(&shared);
    let taken = Listener::bind(ANY).unwrap();
    let second = taken.local_addr().unwrap();
    web.serve_at(Some(second), &shared);
    let state = eventually("it is refused", || web.state().filter(|now| now.error.is_some()));
    assert_eq!(
        (state.address, state.error.unwrap()),
        (second.to_string(), "Address already in use (os error 98)".into())
    );
    assert!(TcpStream::connect(&first).is_err(), "it is gone from where it was");
    drop(taken);
    eventually("it is there", || web.state().filter(|now| now.error.is_none()));
    assert_eq!(ask(&second.to_string(), "/healthz").0, 503);
    web.serve_at(None, &shared);
    eventually("it is nowhere", || web.state().is_none().then_some(()));
    assert!(TcpStream::connect(second).is_err());
}

/// Who says nothing, half of a request, too much or nonsense keeps nobody from being answered.
#[test]
fn hostile_clients_are_sent_away() {
    let shared = Arc::new(Shared::default());
    let (_web, address) = serving(&shared);
    shared.set_status(Status { interval_s: 1e6, ..Status::of_nobody(Instant::now()) });
    let silent: Vec<TcpStream> = (0..4 * AT_ONCE)
        .map(|i| {
            let mut stream = TcpStream::connect(&address).unwrap();
            if i % 2 == 0 {
                stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").unwrap();
            }
            stream
        })
        .collect();
    assert_eq!(ask(&address, "/healthz").0, 200, "whoever came behind all of them");
    drop(silent);
    let long = [b"GET /metrics HTTP/1.1\r\nX: ", &*vec![b'a'; 1 << 20], b"\r\n\r\n"].concat();
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(1_000));
    for refused in [long, many.into_bytes()] {
        let answer = say(&address, &refused);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    for nonsense in [&b"\0\xff\r\n\r\n"[..], b"GET /metrics HTTP/9\r\n\r\n", b"GET  \r\n\r\n", b"\r\n\r\n"] {
        let answer = say(&address, nonsense);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    // Two at once in one connection: one is answered.
    let two = say(&address, &b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(2));
    assert_eq!(two.matches("HTTP/1.1 200").count(), 1, "{two}");
    assert_eq!(ask(&address, "/healthz").0, 200);
}

/// By whatever name a browser was led here.
/// Holds daemon/page.
#[test]
fn names_that_may_be_somebody_elses_are_refused() {
    let shared = Arc::new(Shared::default());
    let (_web, address) = serving(&shared);
    shared.set_machine(&synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(), &MachineProfile::default());
    shared.set_status(Status::of_nobody(Instant::now()));
    for path in ["/", "/now.json", "/plots/600.json", "/parts.js", "/metrics"] {
        for (host, code) in
            [(&*address, 200), ("localhost:9844", 200), ("evil.example", 421), ("localhost.evil.example:80", 421)]
        {
            let answer = say(&address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{path} of {host}: {answer}");
            let told = answer.to_lowercase();
            for header in ["content-security-policy: default-src 'none';", "x-content-type-options: nosniff"] {
                assert!(told.contains(header), "{header}: {answer}");
            }
            assert!(!told.contains("access-control-allow-origin"), "{answer}");
        }
    }
    let post = say(&address, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n");
    assert!(post.starts_with("HTTP/1.1 405"), "{post}");
    assert_eq!(ask(&address, "/plots/601.json").0, 404);
}

/// What the page says of a moment is what `top` says, as far as there is room.
/// Promise daemon/page: The page shows what `top` shows, by keyboard, to screen readers and with readable contrast;
/// no other site can read it, and names never become markup.
#[test]
fn the_page_says_what_top_says_and_not_too_much() {
    let shared = Arc::new(Shared::default());
    let (_web, address) = serving(&shared);
    let topology = synthetic::parse("pack:2 l3:16 core:8 pu:2").unwrap();
    shared.set_machine(&topology, &MachineProfile::default());
    assert_eq!(ask(&address, "/now.json").0, 503);
    let name = "\u{1f480}\"<&>\\".repeat(20);
    let services = |n: u32, cpus: u32| -> Vec<ServiceStatus> {
        (0..n)
            .map(|i| ServiceStatus {
                name: format!("{name}{i}"),
                class: if i == n - 1 { Class::High } else { Class::Normal },
                cpus: Some(f64::from(i)),
                places: (0..cpus).map(|cpu| Place { cpu: CpuId(cpu), cpus: 0.001, misses_per_s: None }).collect(),
                ..ServiceStatus::default()
            })
            .collect()
    };
    let of = |n, cpus| Status {
        services: services(n, cpus),
        listen: Some(web_of(&address)),
        ..Status::of_nobody(Instant::now())
    };
    shared.set_status(of(2, 8));
    let (code, text) = ask(&address, "/now.json");
    let told: Value = serde_json::from_str(&text).unwrap();
    let picture = Picture::of_status(&topology, &shared.status().unwrap());
    let top = serde_json::to_value(&picture).unwrap();
    assert_eq!((code, &told["left_out"]), (200, &Value::from(0)));
    for (key, value) in top.as_object().unwrap() {
        assert_eq!(&told[key], value, "{key}");
    }
    shared.set_status(of(2_048, 512));
    let (_, text) = ask(&address, "/now.json");
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((told["services"].as_array().unwrap().len(), &told["left_out"]), (256, &Value::from(1_792)));
    assert_eq!(told["services"][0]["class"], "high", "those with a class first");
    assert!(text.len() < 2_000_000, "{} bytes", text.len());
    let (code, text) = ask(&address, "/plots/600.json");
    assert!(code == 200 && text.len() < 2_000_000, "{} bytes", text.len());
}

fn web_of(address: &str) -> Listen {
    Listen { address: address.to_owned(), error: None }
}

/// A history takes memory: whoever serves nothing keeps none.
#[test]
fn what_nobody_can_see_is_not_kept() {
    let shared = Shared::default();
    shared.set_machine(&synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(), &MachineProfile::default());
    let rows = |listen: Option<Listen>| {
        (0..10).for_each(|at| {
            let uptime_s = f64::from(at);
            shared.set_status(Status { uptime_s, listen: listen.clone(), ..Status::of_nobody(Instant::now()) });
        });
        shared.of_scene(|scene| scene.excerpt(0)).unwrap().plots().at_s.len()
    };
    assert_eq!(rows(None), 0);
    assert!(rows(Some(web_of("127.0.0.1:1"))) > 3);
}
