//! Screens of made-up machines, compared with text files.

use super::super::text_of;
use super::super::ui::{Act, Drawn, Order, Page, Ui};
use super::draw;
use cotenant_model::interference::Row;
use cotenant_model::policy::{Bound, Statement};
use cotenant_model::testing::golden;
use cotenant_model::topology::synthetic;
use cotenant_model::{Behind, CpuId, CpuSet};
use cotenant_status::class::Class;
use cotenant_status::picture::{self, Moment, Picture, Pressure};
use cotenant_status::status::{
    CpuStatus, Decision, Measured, Place, Quantile, ServiceStatus, ThreadStatus, Why, WithinGoal,
};
use cotenant_status::verdict::Verdict;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};
use std::path::Path;

/// The shown sizes.
const SIZES: [(u16, u16); 2] = [(80, 24), (200, 50)];

fn at(places: &[(u32, f64)]) -> Vec<Place> {
    places.iter().map(|&(cpu, cpus)| Place { cpu: CpuId(cpu), cpus, misses_per_s: None }).collect()
}

fn thread(tid: u32, name: &str, cpu: u32, cpus: f64) -> ThreadStatus {
    ThreadStatus {
        tid,
        name: name.to_owned(),
        cpu: Some(CpuId(cpu)),
        cpus,
        allowed: CpuSet::parse_list("0-3").unwrap(),
    }
}

/// A database that misses its goal, with a backup, a web server that is only placed, and a paused service.
fn services() -> Vec<ServiceStatus> {
    let database = ServiceStatus {
        name: "postgresql@15-main.service".to_owned(),
        rule: "database".to_owned(),
        class: Class::High,
        policy: "none".to_owned(),
        processes: 9,
        pid: Some(4700),
        resident_bytes: Some(412_000_000),
        within: "/system.slice".to_owned(),
        threads: 9,
        waiting: Some(0.25),
        behind: vec![Behind { what: "gzip".to_owned(), threads: 0.25, ..Behind::default() }],
        pressure: Some(0.4),
        cpus: Some(1.42),
        source: Some("latency_p99_s".to_owned()),
        measured: Some(Measured {
            what: "p99".to_owned(),
            unit: "seconds".to_owned(),
            lower_is_better: true,
            now: Some(3.15e-4),
            alone: Some(2.668e-4),
            alone_interval: Some([2.5e-4, 2.9e-4]),
            alone_age_s: Some(40.0),
            goal: Some(2.964e-4),
        }),
        within_goal: Some(WithinGoal { share: 0.9731, requests: true, seconds: 3_590.0 }),
        goal: Some(0.9),
        kept: Some(0.847),
        kept_interval: Some([0.821, 0.873]),
        verdict: Some(Verdict::Missed),
        judgement: Some("missed: 85 % (82 to 87; goal 90 %)".to_owned()),
        said: Statement { bound: Some(Bound { quantile: 0.99, alone_s: 2.668e-4, goal_s: 2.964e-4 }) },
        bandwidth: Some(1.23e9),
        latencies: [(0.5, 1.2e-4), (0.95, 2.4e-4), (0.99, 3.15e-4)]
            .map(|(quantile, seconds)| Quantile { quantile, seconds })
            .to_vec(),
        places: at(&[(0, 0.9), (1, 0.52)]),
        busiest: vec![
            thread(4711, "postgres", 0, 0.9),
            thread(4712, "postgres", 1, 0.52),
            thread(4700, "walwriter", 1, 0.0),
        ],
        ..ServiceStatus::default()
    };
    let batch = ServiceStatus {
        name: "backup.service".to_owned(),
        rule: "batch".to_owned(),
        class: Class::Low,
        policy: "none".to_owned(),
        processes: 1,
        threads: 4,
        pid: Some(815),
        command: Some("/usr/bin/gzip -9 --keep /var/lib/postgresql/base.tar".to_owned()),
        resident_bytes: Some(2_100_000),
        within: "/user.slice/user-1000.slice/session-3.scope".to_owned(),
        cpus: Some(0.75),
        source: Some("io_bytes/s".to_owned()),
        speed: Some(8.2e7),
        measured: Some(Measured {
            what: "io_bytes/s".to_owned(),
            unit: "bytes_per_s".to_owned(),
            lower_is_better: false,
            now: Some(8.2e7),
            alone: None,
            alone_interval: None,
            alone_age_s: None,
            goal: None,
        }),
        throttled: Some(0.32),
        places: at(&[(1, 0.3), (3, 0.45)]),
        ..ServiceStatus::default()
    };
    let web = ServiceStatus {
        name: "nginx.service".to_owned(),
        rule: "services".to_owned(),
        policy: "auto".to_owned(),
        within: "/system.slice".to_owned(),
        processes: 3,
        threads: 3,
        cpus: Some(0.08),
        places: at(&[(2, 0.08)]),
        ..ServiceStatus::default()
    };
    let resting = ServiceStatus { name: "mail.service".to_owned(), paused: true, ..ServiceStatus::default() };
    vec![database, batch, web, resting]
}

fn busy(cpus: &[f64]) -> Vec<CpuStatus> {
    (0..).zip(cpus).map(|(cpu, &busy)| CpuStatus { cpu: CpuId(cpu), busy }).collect()
}

fn four_cpus() -> Picture {
    let topology = synthetic::parse("pack:1 l3:1 core:4 pu:1").unwrap();
    let services = services();
    let decision = |at_s: f64, service: &str, what: &str, outcome: Option<&str>, of: [&str; 2], from: Option<u32>| {
        let [thread, to] = of;
        let why = Why {
            policy: "auto".to_owned(),
            stage: String::new(),
            means: String::new(),
            thread: from.map(|_| thread.to_owned()),
            from_cpu: from.map(CpuId),
            to: to.to_owned(),
            may_use: None,
            evidence: None,
            text: what.split_once("; ").unwrap().1.to_owned(),
        };
        Decision {
            at_s,
            service: service.to_owned(),
            uid: Some(0),
            what: what.to_owned(),
            outcome: outcome.map(str::to_owned),
            why: Some(why),
        }
    };
    Picture {
        source: "daemon 0.1.0 (812) enforces, 5 changes to be undone, own cost 0.31 % of a CPU".to_owned(),
        host: String::new(),
        state: String::new(),
        at_s: 93_780.0,
        moment: None,
        pressure: Some(Pressure { cpu: Some(0.41), io: Some(0.0), memory: Some(0.02) }),
        unknown: picture::unknown(&services, picture::From::Daemon),
        packages: picture::packages(&topology, &busy(&[0.93, 0.85, 0.1, 0.97]), &services),
        services,
        interference: vec![Row {
            victim: "postgresql@15-main.service".to_owned(),
            aggressor: "backup.service".to_owned(),
            loss: 0.23,
            low: 0.18,
            high: 0.281,
            events: 14,
        }],
        last: vec![
            decision(
                93_700.2,
                "nginx.service",
                "task 7 (nginx, tid 4801): CPU 0 → 2; trial: another shape",
                None,
                ["nginx (4801)", "CPU 2"],
                Some(0),
            ),
            decision(
                93_770.0,
                "postgresql@15-main.service",
                "task 9 (postgres, tid 4711): CPU 1 → 0; keep: faster by 3.1 % than the kernel's placement, 2.2 to 4.0",
                None,
                ["postgres (4711)", "CPU 0"],
                Some(1),
            ),
            decision(
                93_779.5,
                "backup.service",
                "app 1 (backup.service) → naps for 100 ms; steady: postgresql@15-main.service keeps 84.7 % of 90 %",
                Some("denied"),
                ["", "naps for 100 ms"],
                None,
            ),
        ],
        trials: Vec::new(),
        notes: vec!["no counter of cycles here".to_owned()],
    }
}

/// Two packages of four cache domains with four cores of two contexts each, and many programs.
fn many_cpus() -> Picture {
    let topology = synthetic::parse("pack:2 l3:4 core:4 pu:2").unwrap();
    let mut services = services();
    for i in 0..70_u32 {
        let cpus = f64::from(i % 7) / 10.0;
        services.push(ServiceStatus {
            name: format!("worker-{i}"),
            cpus: Some(cpus),
            threads: 2,
            places: at(&[(i % 50 + 4, cpus)]),
            ..ServiceStatus::default()
        });
    }
    let load: Vec<f64> = (0..64).map(|i| if i % 9 == 8 { 0.95 } else { f64::from(i % 7) / 8.0 }).collect();
    let interference = (0..3).flat_map(|_| four_cpus().interference).collect();
    Picture {
        packages: picture::packages(&topology, &busy(&load), &services),
        services,
        interference,
        moment: Some(Moment { number: 12, of: 400 }),
        at_s: 12.25,
        source: "recording a.rec, managed by shapes".to_owned(),
        notes: Vec::new(),
        ..four_cpus()
    }
}

fn keyed() -> Ui {
    Ui { keys: true, ..Ui::default() }
}

fn held(name: &str, picture: &Picture, ui: &Ui) {
    for (width, height) in SIZES {
        let text = text_of(picture, ui, width, height);
        assert_eq!(text.lines().count(), usize::from(height));
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/top/draw/golden");
        golden(&Path::new(folder).join(format!("{name}-{width}x{height}.txt")), &text);
    }
}

/// As a user sees their own programs without a daemon.
fn own() -> Picture {
    let program = |name: &str, cpus, waiting, resident: u64, command: &str| ServiceStatus {
        name: name.to_owned(),
        processes: 1,
        threads: 2,
        pid: Some(99),
        command: Some(command.to_owned()),
        resident_bytes: Some(resident),
        within: "/user.slice/user-1000.slice/session-3.scope".to_owned(),
        cpus: Some(cpus),
        waiting: Some(waiting),
        places: at(&[(0, cpus)]),
        busiest: vec![thread(99, name, 0, cpus)],
        ..ServiceStatus::default()
    };
    let services = vec![
        program("redis-server", 0.21, 0.43, 14_200_000, "/usr/bin/redis-server 127.0.0.1:6379"),
        program("xz", 1.7, 0.6, 690_000_000, "xz -9 -T2 --stdout /var/backups/all.tar"),
        ServiceStatus {
            within: "/user.slice/user-1000.slice".to_owned(),
            ..program("bash", 0.0, 0.0, 5_100_000, "-bash")
        },
    ];
    Picture {
        source: "no daemon, own look at your 3 programs, own cost 0.60 % of a CPU".to_owned(),
        at_s: 12.0,
        pressure: Some(Pressure { cpu: Some(0.72), io: Some(0.0), memory: None }),
        packages: picture::packages(
            &synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap(),
            &busy(&[0.99, 0.97]),
            &services,
        ),
        unknown: picture::unknown(&services, picture::From::Own { root: false }),
        services,
        ..Picture::default()
    }
}

#[test]
fn machines_and_services() {
    held("own", &own(), &keyed());
    held("tree", &own(), &Ui { tree: true, order: Order::Memory, ..keyed() });
    held("help", &own(), &Ui { page: Page::Help, ..keyed() });
    held("four-cpus", &four_cpus(), &keyed());
    held("many-cpus", &many_cpus(), &keyed());
    held("nothing", &Picture { source: "looking for the first time".to_owned(), ..Picture::default() }, &keyed());
}

#[test]
fn details() {
    let name = || "postgresql@15-main.service".to_owned();
    held("service", &four_cpus(), &Ui { page: Page::Service(name()), thread: 1, ..keyed() });
    held("thread", &four_cpus(), &Ui { page: Page::Thread(name(), 4711), ..keyed() });
    held("gone", &four_cpus(), &Ui { page: Page::Service("gone".to_owned()), paused: true, ..keyed() });
}

/// However narrow the screen is; those that are missed come first, and how many there is no room for is said.
/// Holds qos/verdict.
#[test]
fn verdicts_are_not_cut() {
    let long = "not judged: this machine is busy (1.9 of 2 CPUs by other programs: rustc 0.9, qemu 0.7, others 0.3)";
    let mut picture = four_cpus();
    let judged = |i: usize, verdict, said: &str| ServiceStatus {
        name: format!("service-{i}"),
        verdict: Some(verdict),
        judgement: Some(said.to_owned()),
        ..ServiceStatus::default()
    };
    picture.services = vec![
        judged(0, Verdict::Kept, "kept 95 % (91 to 99; goal 90 %)"),
        judged(1, Verdict::Unsure, long),
        judged(2, Verdict::Missed, "missed: 53 % (49 to 57; goal 90 %)"),
        judged(3, Verdict::Kept, "kept 96 % (92 to 99; goal 90 %)"),
        judged(4, Verdict::Kept, "kept 97 % (93 to 99; goal 90 %)"),
    ];
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for width in [40, 80, 200] {
        let text = text_of(&picture, &keyed(), width, 24);
        let first = text.lines().nth(1).unwrap();
        assert!(words(&text).contains("service-2: missed: 53 % (49 to 57; goal 90 %)"), "{text}");
        assert!(first.starts_with("service-2: missed"), "{text}");
        assert_eq!(words(&text).contains(&format!("service-1: {long}")), width > 40, "there is no room: {text}");
        assert!(text.contains("more with a goal: g lists them"), "{text}");
        let page = Page::Service("service-1".to_owned());
        let details = text_of(&picture, &Ui { page, ..keyed() }, width, 24);
        assert!(words(&details).contains(&format!("verdict {long}")), "{details}");
    }
}

/// Columns of which nothing is known give their place to those that tell something.
/// Holds daemon/top.
#[test]
fn without_a_daemon_no_column_is_empty() {
    for width in [80, 120, 200] {
        let text = text_of(&own(), &keyed(), width, 24);
        let head = text.lines().find(|line| line.contains("SERVICE (3)")).unwrap();
        assert!(
            ["CLASS", "NOW", "SPEED KEPT", "THROTTLED", "POLICY"].iter().all(|gone| !head.contains(gone)),
            "{text}"
        );
        assert!(["CPUS", "WAITS", "RSS"].iter().all(|there| head.contains(there)), "{text}");
        assert_eq!(head.contains("COMMAND"), text.contains("redis-server 127"), "{text}");
        assert!(text.lines().nth(1).unwrap().starts_with("redis-server waits most for a CPU: 0.43 threads"), "{text}");
        assert!(text.contains("sudo cotenant top"), "what would tell more: {text}");
    }
    let chosen = text_of(&own(), &keyed(), 80, 24);
    assert!(chosen.contains("x▸xz") && !chosen.contains("r▸"), "{chosen}");
}

/// Holds daemon/top.
#[test]
fn the_heading_and_the_chosen_row_look_different() {
    let area = Rect { x: 0, y: 0, width: 80, height: 24 };
    let mut buffer = Buffer::empty(area);
    let drawn = draw(&own(), &keyed(), area, &mut buffer);
    let style = |y: u16| buffer[(4, y)].modifier;
    let (head, chosen) = (style(drawn.list.y - 1), style(drawn.list.y));
    assert!(chosen.contains(Modifier::REVERSED) && !head.contains(Modifier::REVERSED));
    assert!(head.contains(Modifier::UNDERLINED) && !style(drawn.list.y + 1).contains(Modifier::REVERSED));
}

#[test]
fn what_is_filtered_and_old_is_said() {
    let ui = Ui { filter: "HIGH".to_owned(), trouble: Some("no daemon answers".to_owned()), ..keyed() };
    let text = text_of(&four_cpus(), &ui, 80, 24);
    assert!(text.contains("SERVICE (1 of 4)") && text.contains("filter: HIGH"), "{text}");
    assert!(text.contains("! no daemon answers") && !text.contains("mail.service"), "{text}");
    let typing = text_of(&four_cpus(), &Ui { typing: true, filter: "zz".to_owned(), ..keyed() }, 80, 24);
    assert!(typing.contains("filter: zz█") && typing.contains("no service matches the filter"), "{typing}");
}

/// Whatever the terminal's size is, and whatever the names are.
/// Holds daemon/top.
#[test]
fn nothing_leaves_the_screen_or_moves_the_cursor() {
    let mut hostile = many_cpus();
    let name = "\x1b[2J\u{202e}\n日本語のとても長い名前".repeat(20);
    for service in &mut hostile.services {
        service.name.insert_str(0, &name);
        service.source = Some(name.clone());
        service.measured.iter_mut().for_each(|measured| measured.what.clone_from(&name));
        service.busiest = vec![thread(1, &name, 0, 1.0); 20];
    }
    hostile.source.clone_from(&name);
    hostile.notes = vec![name.clone()];
    for decision in &mut hostile.last {
        decision.what.clone_from(&name);
        decision.service.clone_from(&hostile.services[0].name);
    }
    let first = hostile.services[0].name.clone();
    for page in [Page::All, Page::Service(first.clone()), Page::Thread(first.clone(), 1)] {
        for (width, height) in [(0, 0), (1, 1), (7, 3), (20, 5), (40, 9), (80, 24), (81, 25), (120, 30), (500, 120)] {
            let text = text_of(&hostile, &Ui { page: page.clone(), ..keyed() }, width, height);
            assert!(
                !text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'),
                "{width}x{height}: {text:?}"
            );
        }
    }
}

/// Holds daemon/top.
#[test]
fn classes_are_told_by_words_and_by_colours_only_where_they_are_wanted() {
    let area = Rect { x: 0, y: 0, width: 80, height: 24 };
    let colours = |colour: bool| {
        let mut buffer = Buffer::empty(area);
        draw(&four_cpus(), &Ui { colour, ..keyed() }, area, &mut buffer);
        buffer.content().iter().filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset).count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 50);
}

/// The selection after these keys.
fn after(keys: &[KeyCode]) -> Ui {
    let (picture, mut ui) = (four_cpus(), keyed());
    for key in keys {
        let _ = ui.event(&Event::Key(KeyEvent::new(*key, KeyModifiers::NONE)), &picture, Drawn::default());
    }
    ui
}

#[test]
fn keys_choose_open_and_close() {
    use KeyCode::{Backspace, Char, Down, Enter, Esc, Up};
    assert_eq!(after(&[Down, Down, Up]).chosen.as_deref(), Some("backup.service"));
    assert_eq!(after(&[Char('j'), Char('j'), Char('k')]).chosen.as_deref(), Some("backup.service"));
    assert_eq!(after(&[Down; 9]).chosen.as_deref(), Some("mail.service"), "the last one");
    let by_name = after(&[Char('n'), Down]);
    assert_eq!(by_name.chosen.as_deref(), Some("mail.service"), "the second by name");
    assert_eq!(after(&[Char('s')]).order, Order::Waits);
    assert_eq!(after(&[Char('s'); Order::ALL.len()]).order, Order::Cpus, "and around");
    assert_eq!(after(&[Char('w'), Down, Char('c')]).chosen.as_deref(), Some("backup.service"), "it stays chosen");
    assert_eq!((after(&[Char('?')]).page, after(&[Char('?'), Esc]).page), (Page::Help, Page::All));
    assert_eq!(after(&[Char('?'), Char('?')]).page, Page::All);
    let database = || "postgresql@15-main.service".to_owned();
    assert_eq!(after(&[Enter]).page, Page::Service(database()));
    assert_eq!(after(&[Enter, Down, Enter]).page, Page::Thread(database(), 4712));
    assert_eq!(after(&[Enter, Down, Enter, Esc]).page, Page::Service(database()));
    assert_eq!(after(&[Enter, Esc]).page, Page::All);
    assert!(after(&[Char(' ')]).paused && !after(&[Char(' '), Char(' ')]).paused);
    let filter = after(&[Char('/'), Char('q'), Char('x'), Backspace, Enter]);
    assert_eq!((filter.filter.as_str(), filter.typing), ("q", false), "q is a character here");
    assert_eq!(after(&[Char('/'), Char('q'), Esc]).filter, "");
}

#[test]
fn keys_that_need_somebody_else() {
    let act = |code, modifiers, picture: &Picture| {
        keyed().event(&Event::Key(KeyEvent::new(code, modifiers)), picture, Drawn::default())
    };
    let (live, recorded) = (four_cpus(), many_cpus());
    for (code, modifiers, wanted) in [
        (KeyCode::Char('q'), KeyModifiers::NONE, Act::Quit),
        (KeyCode::Char('c'), KeyModifiers::CONTROL, Act::Quit),
        (KeyCode::Char('z'), KeyModifiers::CONTROL, Act::Suspend),
        (KeyCode::Left, KeyModifiers::NONE, Act::Travel(-1)),
        (KeyCode::Home, KeyModifiers::NONE, Act::Travel(isize::MIN)),
        (KeyCode::F(1), KeyModifiers::NONE, Act::None),
        (KeyCode::Char('q'), KeyModifiers::ALT, Act::None),
    ] {
        assert_eq!(act(code, modifiers, &recorded), wanted, "{code:?}");
    }
    assert_eq!(act(KeyCode::End, KeyModifiers::NONE, &live), Act::Draw, "the end of the list");
}

#[test]
fn the_mouse_chooses_and_opens() {
    let (picture, mut ui) = (four_cpus(), keyed());
    let area = Rect { x: 0, y: 0, width: 80, height: 24 };
    let mouse = |ui: &mut Ui, kind, row| {
        let drawn = draw(&picture, ui, area, &mut Buffer::empty(area));
        let row = drawn.list.y + row;
        ui.event(&Event::Mouse(MouseEvent { kind, column: 3, row, modifiers: KeyModifiers::NONE }), &picture, drawn)
    };
    let left = MouseEventKind::Down(MouseButton::Left);
    assert_eq!(mouse(&mut ui, left, 1), Act::Draw);
    assert_eq!((ui.chosen.as_deref(), &ui.page), (Some("backup.service"), &Page::All));
    mouse(&mut ui, left, 1);
    assert_eq!(ui.page, Page::Service("backup.service".to_owned()));
    let mut tree = Ui { tree: true, ..keyed() };
    mouse(&mut tree, left, 0);
    assert_eq!(tree.chosen, None, "that is what is around services");
    mouse(&mut tree, left, 2);
    assert_eq!(tree.chosen.as_deref(), Some("nginx.service"));
    mouse(&mut ui, MouseEventKind::Down(MouseButton::Right), 0);
    mouse(&mut ui, MouseEventKind::ScrollDown, 0);
    assert_eq!((ui.chosen.as_deref(), &ui.page), (Some("nginx.service"), &Page::All));
    assert_eq!(mouse(&mut ui, left, 20), Act::None, "nothing stands there");
}
