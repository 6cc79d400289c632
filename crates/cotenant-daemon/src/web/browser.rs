//! The page in a real browser: its content by user, and the escaping of names.

use super::*;
use cotenant_model::action::{Evidence, Unit};
use cotenant_model::interference::Row;
use cotenant_model::policy::{Bound, Statement};
use cotenant_model::profile::MachineProfile;
use cotenant_model::topology::synthetic;
use cotenant_model::{Behind, CpuId, CpuSet, Mode, Signal};
use cotenant_status::class::Class;
use cotenant_status::status::{
    CpuStatus, Decision, Measured, Place, Quantile, ServiceStatus, ThreadStatus, Trial, Why, WithinGoal,
};
use cotenant_status::verdict::Judgement;
use cotenant_testing::browser::Browser;

/// A hostile name of a program.
const EVIL: &str = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&\"'";

fn service(name: &str, class: Class, places: &[(u32, f64)]) -> ServiceStatus {
    let places = places.iter().map(|&(cpu, cpus)| Place { cpu: CpuId(cpu), cpus, misses_per_s: None });
    let cpus: f64 = places.clone().map(|place| place.cpus).sum();
    let (rule, policy, source) = match class {
        Class::High => ("servers", "qos", Some("latency_p99_s")),
        Class::Low => ("batch", "qos", Some("progress")),
        Class::Normal | Class::Ignore => ("rest", "none", None),
    };
    ServiceStatus {
        name: name.to_owned(),
        rule: rule.to_owned(),
        policy: policy.to_owned(),
        class,
        processes: 1,
        threads: 4,
        cpus: Some(cpus),
        waiting: Some(0.4 * cpus),
        speed: source.map(|_| 3_174.6 * cpus),
        source: source.map(str::to_owned),
        places: places.collect(),
        bandwidth: Some(2.5e9 * cpus),
        ..ServiceStatus::default()
    }
}

fn decision(at_s: f64, service: &str, thread: Option<&str>, outcome: Option<&str>, stranger: &str) -> Decision {
    let to = if thread.is_some() { "4-5" } else { "naps for 100 ms" };
    let evidence = Evidence { signal: Signal::Inter, unit: Unit::PerCycle, value: 9.1e-4, threshold: 2.5e-4 };
    let why = Why {
        policy: "qos".to_owned(),
        stage: "steady".to_owned(),
        means: "nap".to_owned(),
        thread: thread.map(str::to_owned),
        from_cpu: thread.map(|_| CpuId(1)),
        to: to.to_owned(),
        may_use: thread.map(|_| CpuSet::parse_list("4-5").unwrap()),
        evidence: thread.map(|_| evidence),
        text: format!("steady: postgresql@15-main.service keeps 84.7 % of 90 % beside {stranger}"),
    };
    let what = format!("app 1 → {to}");
    let outcome = outcome.map(str::to_owned);
    Decision { at_s, service: service.to_owned(), uid: Some(0), what, outcome, why: Some(why) }
}

/// The status of a daemon after so many seconds. One of its services has any name.
fn status(second: u32, stranger: &str) -> Status {
    let t = f64::from(second);
    let pressed = !(second / 40).is_multiple_of(2);
    let p99 = if pressed { 4.1e-4 } else { 1.8e-4 } * (1.0 + 0.1 * (t / 7.0).sin());
    let thread = |tid, name: &str, cpu| ThreadStatus {
        tid,
        name: name.to_owned(),
        cpu: Some(CpuId(cpu)),
        cpus: 0.42,
        allowed: CpuSet::parse_list("0-7").unwrap(),
    };
    let behind = |what: &str, threads| Behind { what: what.to_owned(), threads, ..Behind::default() };
    let judged = |service: ServiceStatus| {
        let interval = service.kept.map(|kept| [kept - 0.02, kept + 0.02]);
        let goal = service.goal.unwrap();
        service.clone().with(&Judgement::of(goal, service.kept, interval, None, |_| String::new()))
    };
    let database = judged(ServiceStatus {
        goal: Some(0.9),
        kept: Some(if pressed { 0.84 } else { 0.96 }),
        latencies: [(0.5, 1.2e-4), (0.95, 1.6e-4), (0.99, p99)]
            .map(|(quantile, seconds)| Quantile { quantile, seconds })
            .to_vec(),
        measured: Some(Measured {
            what: "p99".to_owned(),
            unit: "seconds".to_owned(),
            lower_is_better: true,
            now: Some(p99),
            alone: Some(1.67e-4),
            alone_interval: Some([1.6e-4, 1.71e-4]),
            alone_age_s: Some(t / 2.0),
            goal: Some(1.86e-4),
        }),
        within_goal: Some(WithinGoal { share: 0.973, requests: true, seconds: t }),
        said: Statement { bound: Some(Bound { quantile: 0.99, alone_s: 1.67e-4, goal_s: 1.86e-4 }) },
        behind: vec![behind("backup.service", 0.41), behind(stranger, 0.16)],
        busiest: vec![thread(4_711, "postgres", 0), thread(4_712, stranger, 1)],
        ..service("postgresql@15-main.service", Class::High, &[(0, 0.9), (1, 0.52)])
    });
    let cache = judged(ServiceStatus {
        goal: Some(0.8),
        kept: Some(0.93 + 0.02 * (t / 11.0).cos()),
        ..service("redis.service", Class::High, &[(4, 0.3)])
    });
    let batch = ServiceStatus {
        throttled: Some(if pressed { 0.35 } else { 0.1 }),
        ..service("backup.service", Class::Low, &[(if pressed { 2 } else { 6 }, 0.8), (3, 0.2 + 0.1 * (t / 5.0).sin())])
    };
    let strange = ServiceStatus { throttled: Some(0.05), ..service(stranger, Class::Low, &[(7, 0.15)]) };
    let mut services = vec![database, cache, batch, strange];
    services.extend((0..9).map(|i| service(&format!("worker-{i}.service"), Class::Normal, &[(i % 8, 0.04)])));
    services.push(ServiceStatus { name: "mail.service".to_owned(), paused: true, ..ServiceStatus::default() });
    // CPU 5 is fully used outside of services.
    let busy = |cpu: u32| {
        let there = services.iter().flat_map(|service| &service.places).filter(|place| place.cpu == CpuId(cpu));
        (there.map(|place| place.cpus).sum::<f64>() + if cpu == 5 { 0.85 } else { 0.03 }).min(1.0)
    };
    let row = |victim: &str, aggressor: &str, loss: f64| Row {
        victim: victim.to_owned(),
        aggressor: aggressor.to_owned(),
        loss,
        low: loss * 0.8,
        high: loss * 1.2,
        events: 14,
    };
    let trial = |at_s, gain: f64, kept| Trial {
        at_s,
        shape: "postgres 2+0+2+0, backup 0+2+0+2; backup shares cores first".to_owned(),
        gain,
        interval: (gain < 0.2).then_some([gain - 0.02, gain + 0.02]),
        pairs: 8,
        kept,
    };
    Status {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: stranger.to_owned(),
        mode: Mode::Enforce,
        uptime_s: t,
        cpu_s: 0.003 * t,
        interval_s: 1e6,
        cpus: (0..8).map(|cpu| CpuStatus { cpu: CpuId(cpu), busy: busy(cpu) }).collect(),
        listen: Some(Listen { address: String::new(), error: None }),
        interference: vec![
            row("postgresql@15-main.service", "backup.service", 0.231),
            row("redis.service", "backup.service", 0.04),
            row("redis.service", stranger, 0.5),
        ],
        last: vec![
            decision(250.2, "nginx.service", Some("nginx (4801)"), None, stranger),
            decision(280.0, stranger, None, Some("denied"), stranger),
            decision(t.min(299.0), "backup.service", None, None, stranger),
        ],
        trials: vec![trial(200.0, 0.042, true), trial(220.0, -0.031, false), trial(240.0, 0.3, false)],
        notes: vec![format!("memory bandwidth is not limited here: {stranger}")],
        services,
        ..Status::of_nobody(Instant::now())
    }
}

/// Five minutes of a busy daemon.
fn busy(stranger: &str) -> Arc<Shared> {
    let shared = Arc::new(Shared::default());
    shared.set_machine(&synthetic::parse("pack:2 l3:2 core:2 pu:1").unwrap(), &MachineProfile::default());
    (1..=300).for_each(|second| shared.set_status(status(second, stranger)));
    shared
}

fn serving(shared: &Arc<Shared>) -> (Web, String) {
    let mut web = Web::default();
    web.serve_at(Some("127.0.0.1:0".parse().unwrap()), shared);
    let deadline = Instant::now() + Duration::from_secs(300);
    loop {
        if let Some(Listen { address, error: None }) = web.state() {
            return (web, format!("http://{address}/"));
        }
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
}

const SIZES: [(u32, u32); 2] = [(1440, 900), (390, 844)];

/// On a desk and on a phone, by day and by night.
/// Holds daemon/page.
#[test]
fn a_browser_draws_it_all_without_a_complaint() {
    let Some(mut browser) = Browser::start("page") else { return };
    let (_web, url) = serving(&busy(EVIL));
    for (size, dark) in SIZES.into_iter().flat_map(|size| [(size, false), (size, true)]) {
        browser.dress(size, dark);
        browser.go(&url);
        browser.until("document.querySelectorAll('figure[data-plot] canvas').length >= 8");
        let plots = browser.plots();
        let ids: Vec<&str> = plots.iter().map(|plot| plot.0.as_str()).collect();
        let goals = ["goals", "p99-0", "waiting", "within", "throttled"];
        let wanted = [&goals[..], &["place-0", "place-1", "place-2", "place-3", "bandwidth"]].concat();
        assert_eq!(ids, wanted);
        assert!(plots.iter().all(|(_, inked)| *inked > 1_000), "{plots:?}");
        assert_eq!(browser.value("document.title"), format!("Cotenant on {EVIL}"), "names stay names");
        let text = browser.value("document.body.textContent").to_string();
        for part in [
            "postgresql@15-main.service misses its goal; 1 goal kept; backup.service is throttled 35 % of the time",
            "0.41 behind backup.service, 0.16 behind <img",
            "missed: 84 % (82 to 86; goal 90 %)",
            "throttled 35.0 %",
            "postgresql@15-main.service +2",
            "(others)",
            "other programs",
            "23.1 % (18.5 % to 27.7 %), 14 events",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(browser.value("document.querySelectorAll('main img, main script').length"), 0);
        assert_eq!(browser.pale(), [] as [serde_json::Value; 0], "{size:?}, dark: {dark}");
        // Nothing is wider than the screen: wide content has its own scrolling box.
        assert_eq!(browser.value("document.documentElement.scrollWidth"), size.0, "{size:?}");
        browser.shoot(&format!("page-{}-{}", size.0, if dark { "dark" } else { "light" }));
    }
    assert_eq!(browser.complaints, [] as [String; 0]);
}

/// Pixels of the page's height in the picture of the book.
const SCREEN: f64 = 1_400.0;

/// A picture of all of the page shows something of each part. `cargo xtask pictures` names a folder for it.
#[test]
fn its_picture_has_every_part() {
    let Some(mut browser) = Browser::start("picture") else { return };
    let (_web, url) = serving(&busy("thumbnails.service"));
    browser.dress((1_100, 900), false);
    browser.go(&url);
    browser.until("document.querySelectorAll('figure[data-plot] canvas').length >= 8");
    let empty = "[...document.querySelectorAll('main > section')]
        .filter(it => !it.querySelector('td, li, canvas')).map(it => it.id)";
    assert_eq!(browser.value(empty), serde_json::json!([]));
    let png = browser.whole(f64::INFINITY);
    let sides = [16, 20].map(|at| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()));
    assert!(sides[0] == 1_100 && sides[1] > 2_000, "{sides:?}");
    if let Some(folder) = std::env::var_os("COTENANT_PICTURES") {
        // What a screen shows of it: the picture of the book is not as long as the page.
        let screen = browser.whole(SCREEN);
        std::fs::write(std::path::Path::new(&folder).join("page.png"), screen).unwrap();
    }
}

/// The details of a service on the page.
const DETAILS: [&str; 6] = [
    "Verdictmissed: 84 % (82 to 86; goal 90 %)",
    "4711",
    "Alone167 µs (95 % 160 µs to 171 µs by block bootstrap",
    "At the goal186",
    "97.30 % of requests",
    "p99",
];

/// Everything can be reached and opened by keys alone, and what is new does not take the focus away.
/// Holds daemon/page.
#[test]
fn a_keyboard_is_enough() {
    let Some(mut browser) = Browser::start("keys") else { return };
    let shared = busy(EVIL);
    let (_web, url) = serving(&shared);
    browser.dress(SIZES[0], false);
    browser.go(&url);
    browser.until("document.querySelectorAll('figure[data-plot] canvas').length >= 8");
    let mut reached = Vec::new();
    let mut second = 300;
    for _ in 0..200 {
        browser.press("Tab");
        let at = browser.value(
            "(() => { const at = document.activeElement; const box = at.getBoundingClientRect();
              return [at.tagName, at.closest('section')?.id ?? '', at.textContent.slice(0, 40), box.width > 0,
                      getComputedStyle(at).outlineStyle, at.getAttribute('aria-label') ?? at.textContent ?? '']; })()",
        );
        let (tag, section) = (at[0].as_str().unwrap().to_owned(), at[1].as_str().unwrap().to_owned());
        if tag == "BODY" {
            break;
        }
        assert!(at[3] == true && at[4] != "none", "the focus is seen: {at}");
        reached.push((tag.clone(), section.clone()));
        match (tag.as_str(), section.as_str()) {
            ("BUTTON", "services") if at[2] == "postgresql@15-main.service" => {
                browser.press("Enter");
                browser.until("!document.querySelector('.panel').hidden");
                assert_eq!(browser.value("document.activeElement.getAttribute('aria-expanded')"), "true");
                let details = browser.value("document.querySelector('.panel').textContent").to_string();
                for part in DETAILS {
                    assert!(details.contains(part), "{part}: {details}");
                }
                // A second passes.
                second += 1;
                shared.set_status(status(second, EVIL));
                let before = browser.value("document.querySelector('#source').textContent");
                browser.until(
                    "performance.getEntriesByType('resource').filter(it => it.name.endsWith('now.json')).length > 2",
                );
                assert_ne!(before, "Asking the daemon …");
                assert_eq!(browser.value("document.activeElement.textContent"), "postgresql@15-main.service");
            }
            ("DIV", "goals") => {
                if at[5].as_str().unwrap().contains("Values") {
                    continue;
                }
                let mut said = |key: &str| {
                    browser.press(key);
                    browser.value("document.activeElement.closest('figure').querySelector('[aria-live]').textContent")
                };
                let [first, next, on] = ["Home", "ArrowRight", "PageDown"].map(&mut said);
                let [last, before, back] = ["End", "ArrowLeft", "PageUp"].map(&mut said);
                assert!(first.to_string().contains(':'), "{at}: {first}");
                assert!(first != next && next != on && on != last && last != before && before != back, "{at}: {next}");
            }
            ("INPUT", "services") => find_one(&mut browser),
            ("BUTTON", "") => {
                for now in ["Go on", "Pause"] {
                    browser.press("Enter");
                    assert_eq!(browser.value("document.activeElement.textContent"), now);
                }
            }
            ("INPUT", "") => {
                browser.press("ArrowRight");
                browser
                    .until("performance.getEntriesByType('resource').some(it => it.name.endsWith('/plots/3600.json'))");
                browser.press("ArrowLeft");
            }
            ("SUMMARY", "decisions") => {
                browser.press("Enter");
                assert_eq!(browser.value("document.activeElement.parentElement.open"), true);
                let why = browser.value("document.activeElement.parentElement.textContent").to_string();
                assert!(why.contains("policy qos, its part steady") && why.contains("keeps 84.7 %"), "{why}");
            }
            ("SUMMARY", "goals") => {
                browser.press("Enter");
                browser.until("document.activeElement.parentElement.querySelectorAll('tbody tr').length > 5");
            }
            _ => {}
        }
    }
    for (tag, section) in [
        ("A", ""),
        ("INPUT", ""),
        ("BUTTON", ""),
        ("INPUT", "services"),
        ("BUTTON", "services"),
        ("DIV", "hurts"),
        ("DIV", "goals"),
        ("SUMMARY", "goals"),
        ("DIV", "places"),
        ("DIV", "memory"),
        ("DIV", "trials"),
        ("SUMMARY", "decisions"),
    ] {
        assert!(reached.contains(&(tag.to_owned(), section.to_owned())), "{tag} in {section}: {reached:?}");
    }
    browser.shoot("page-opened");
    assert_eq!(browser.pale(), [] as [serde_json::Value; 0], "what was opened");
    assert_eq!(browser.complaints, [] as [String; 0]);
}

/// As much as a page is meant for, of which six hours are looked at.
/// Holds daemon/page.
#[test]
fn two_hundred_services_and_six_hours_are_drawn() {
    let Some(mut browser) = Browser::start("many") else { return };
    let shared = Arc::new(Shared::default());
    shared.set_machine(&synthetic::parse("pack:2 l3:8 core:8 pu:2").unwrap(), &MachineProfile::default());
    for minute in 0..=360 {
        let one = |i: u32| {
            let class = [Class::High, Class::Low, Class::Normal][i as usize % 3];
            let places = [(i % 256, 0.3), ((i + 16) % 256, 0.1 + 0.1 * f64::from(minute % 7))];
            let service = service(&format!("service-{i}.service"), class, &places);
            let goal = (class == Class::High).then_some(0.9);
            ServiceStatus { goal, kept: goal.map(|goal| goal + 0.01), ..service }
        };
        let (services, uptime_s) = ((0..200).map(one).collect(), f64::from(minute * 60));
        shared.set_status(Status { uptime_s, services, ..status(300, "job.service") });
    }
    let (_web, url) = serving(&shared);
    for (size, dark) in [(SIZES[0], false), (SIZES[1], true)] {
        browser.dress(size, dark);
        browser.go(&url);
        browser.until("document.querySelectorAll('#spans input').length === 3");
        browser.value("document.querySelectorAll('#spans input')[2].click()");
        browser.until("performance.getEntriesByType('resource').some(it => it.name.endsWith('/plots/21600.json'))");
        browser.until("document.querySelectorAll('figure[data-plot] canvas').length >= 14");
        let plots = browser.plots();
        assert!(plots.iter().all(|(_, inked)| *inked > 1_000), "{plots:?}");
        assert!(browser.value("document.querySelectorAll('#services tbody tr').length").as_u64() >= Some(200));
        assert_eq!(browser.value("document.documentElement.scrollWidth"), size.0, "{size:?}");
        assert_eq!(browser.pale(), [] as [serde_json::Value; 0], "{size:?}, dark: {dark}");
        browser.shoot(&format!("page-many-{}", size.0));
    }
    assert_eq!(browser.complaints, [] as [String; 0]);
}

/// Finds a service by typing into the focused field.
fn find_one(browser: &mut Browser) {
    let shown = "[...document.querySelectorAll('#services tbody tr')].filter(row => row.checkVisibility()).length";
    let all = browser.value(shown);
    browser.types("redis");
    browser.until(&format!("{shown} === 1"));
    browser.value("document.activeElement.select(); document.execCommand('delete')");
    browser.until(&format!("{shown} === {all}"));
}

/// A reader of the screen hears tables with heads and captions, and a name for everything that can be chosen.
/// Holds daemon/page.
#[test]
fn what_is_seen_can_be_heard() {
    let Some(mut browser) = Browser::start("heard") else { return };
    let (_web, url) = serving(&busy(EVIL));
    browser.dress(SIZES[0], false);
    browser.go(&url);
    browser.until("document.querySelectorAll('figure[data-plot] canvas').length >= 8");
    let nameless = "[...document.querySelectorAll('a, button, input, summary, [tabindex], section, table, figure')].filter(it =>
        !(it.getAttribute('aria-label') || it.getAttribute('aria-labelledby') || it.caption?.textContent || it.labels?.length
          || it.querySelector('figcaption')?.textContent || (!it.matches('section, table, figure, input') && it.textContent.trim())))
        .map(it => it.outerHTML.slice(0, 120))";
    assert_eq!(browser.value(nameless), serde_json::json!([]));
    let headless = "[...document.querySelectorAll('table')].filter(it => it.rows.length > 1
        && (!it.querySelector('thead th[scope=col]') || [...it.tBodies[0].rows].some(row => !row.querySelector('th[scope=row]'))))
        .map(it => it.caption.textContent)";
    assert_eq!(browser.value(headless), serde_json::json!([]));
    let levels = browser.value("[...document.querySelectorAll('h1, h2, h3, h4')].map(it => Number(it.tagName[1]))");
    let levels: Vec<i64> = levels.as_array().unwrap().iter().map(|level| level.as_i64().unwrap()).collect();
    assert!(levels[0] == 1 && levels.windows(2).all(|pair| pair[1] <= pair[0] + 1), "no level is left out: {levels:?}");
    let twice = "(all => all.filter((id, i) => all.indexOf(id) !== i))([...document.querySelectorAll('[id]')].map(it => it.id))";
    assert_eq!(browser.value(twice), serde_json::json!([]));
    // An hour of plots has its own rows; a pause keeps the present ones.
    browser.value("document.querySelectorAll('#spans input')[1].click()");
    browser.until("performance.getEntriesByType('resource').some(it => it.name.endsWith('/plots/3600.json'))");
    browser.value("document.querySelector('#pause').click()");
    assert_eq!(browser.value("document.querySelector('#pause').textContent"), "Go on");
    assert_eq!(browser.complaints, [] as [String; 0]);
}

#[test]
fn who_has_just_begun_says_so_on_the_page() {
    let Some(mut browser) = Browser::start("begun") else { return };
    let (_web, url) = serving(&Arc::new(Shared::default()));
    browser.dress(SIZES[1], true);
    browser.go(&url);
    browser.until("!document.querySelector('#trouble').hidden");
    let said = browser.value("document.querySelector('#trouble').textContent");
    assert_eq!(said, "What is shown is old: the daemon does not answer (the daemon has just begun).");
    browser.shoot("page-begun");
}
