use super::*;
use crate::status::{CpuStatus, Place as Ran, Quantile, WithinGoal};
use cotenant_model::policy::{Bound, Statement};
use cotenant_model::topology::synthetic;

/// Two packages of two cache domains with two cores each.
fn machine() -> Topology {
    synthetic::parse("pack:2 l3:2 core:2 pu:1").unwrap()
}

fn on(cpus: &[(u32, f64)]) -> Vec<Ran> {
    cpus.iter().map(|&(cpu, cpus)| Ran { cpu: CpuId(cpu), cpus, misses_per_s: None }).collect()
}

fn service(name: &str, places: &[(u32, f64)]) -> ServiceStatus {
    let cpus = places.iter().map(|place| place.1).sum();
    ServiceStatus { name: name.to_owned(), cpus: Some(cpus), places: on(places), ..ServiceStatus::default() }
}

fn busy(cpus: &[f64]) -> Vec<CpuStatus> {
    (0..).zip(cpus).map(|(cpu, busy)| CpuStatus { cpu: CpuId(cpu), busy: *busy }).collect()
}

fn plot<'a>(plots: &'a Plots, id: &str) -> &'a Plot {
    plots.plots.iter().find(|plot| plot.id == id).unwrap_or_else(|| panic!("{id}: {plots:?}"))
}

fn line<'a>(plot: &'a Plot, name: &str) -> &'a [Option<f64>] {
    &plot.lines.iter().find(|line| line.name == name).unwrap_or_else(|| panic!("{name}: {plot:?}")).values
}

/// Holds daemon/page.
#[test]
fn what_was_used_of_each_place_is_what_is_drawn() {
    let mut history = History::live(&machine());
    // Each row covers two seconds: in the second half of the second row, `b` has moved to another domain.
    for (at, cpu) in [(1, 4), (2, 4), (3, 4), (4, 4), (5, 6)] {
        history.add(f64::from(at), &[service("a", &[(0, 0.5), (1, 0.25)]), service("b", &[(cpu, 1.0)])], &[]);
    }
    let plots = history.excerpt(0).plots();
    assert_eq!(plots.at_s, [3.0, 5.0]);
    let places: Vec<&Plot> = plots.plots.iter().filter(|plot| plot.part == "places").collect();
    let names: Vec<&str> = places.iter().map(|plot| plot.title.as_str()).collect();
    assert_eq!(names[0], "cache domain 0 (package 0)");
    assert_eq!((names.len(), names[3]), (4, "cache domain 3 (package 1)"));
    assert_eq!(line(places[0], "a"), [Some(0.75); 2]);
    assert_eq!(line(places[2], "b"), [Some(1.0), Some(0.5)]);
    assert_eq!(line(places[3], "b"), [Some(0.0), Some(0.5)]);
    assert!(places.iter().all(|plot| plot.stacked && plot.most == Some(2.0)));
    // No CPU time is lost or made up.
    let all: f64 = places.iter().flat_map(|plot| &plot.lines).filter_map(|line| line.values[1]).sum();
    assert!((all - 1.75).abs() < 1e-3, "{all}");
    assert!(plots.plots.iter().all(|plot| plot.part == "places"), "nothing is known of goals: {plots:?}");
}

/// A CPU is drawn as busy as it is: what no service used, other programs did.
#[test]
fn other_programs_use_what_services_do_not() {
    let small = synthetic::parse("pack:1 l3:1 core:3 pu:1").unwrap();
    let mut history = History::live(&small);
    for at in 1..=5 {
        let services = [service("a", &[(0, 0.1)]), service("b", &[(2, 0.3)])];
        // CPU 2 is as busy as its service, within the resolution.
        history.add(f64::from(at), &services, &busy(&[0.99, 0.5, 0.305]));
    }
    let plots = history.excerpt(0).plots();
    let [first, second, third] = ["place-0", "place-1", "place-2"].map(|id| plot(&plots, id));
    assert_eq!((line(first, "a"), line(first, "other programs")), (&[Some(0.1); 2][..], &[Some(0.89); 2][..]));
    assert_eq!((second.lines.len(), line(second, "other programs")), (1, &[Some(0.5); 2][..]));
    assert_eq!((third.lines.len(), line(third, "b")), (1, &[Some(0.3); 2][..]));
    assert_eq!(first.lines.last().map(|line| line.role), Some(Role::Foreign), "it lies on top");
}

/// A thread's time counts where it was seen last, and ticks are coarse: neither makes programs that are not there.
#[test]
fn a_thread_that_went_elsewhere_is_no_other_program() {
    let small = synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap();
    let mut moved = History::live(&small);
    (1..=5).for_each(|at| moved.add(f64::from(at), &[service("a", &[(0, 1.5)])], &busy(&[1.0, 0.5])));
    let mut ticks = History::whole(&small);
    for eighth in 0..24 {
        // Half of the ticks come a round too late.
        let told = if eighth % 2 == 0 { 0.0 } else { 1.0 };
        ticks.add_for(f64::from(eighth) / 8.0, 0.125, &[service("a", &[(0, 0.5)])], &busy(&[told, 0.0]));
    }
    for history in [moved, ticks] {
        let plots = history.excerpt(0).plots();
        let names: Vec<&str> = plots.plots.iter().flat_map(|plot| &plot.lines).map(|line| &*line.name).collect();
        assert!(!names.contains(&"other programs"), "{names:?}");
    }
}

/// Of many with a goal those have a line of whom something is known, those that miss it most first.
#[test]
fn who_is_not_known_takes_nobodys_line() {
    let mut history = History::live(&machine());
    for at in 1..=5 {
        let known = |name: &str, kept: Option<f64>| ServiceStatus { goal: Some(0.9), kept, ..service(name, &[]) };
        let mut services: Vec<ServiceStatus> = (0..LINES).map(|i| known(&format!("new {i}"), None)).collect();
        services.push(known("keeps it", Some(0.95)));
        services.extend((at > 3).then(|| known("misses it", Some(0.8))));
        history.add(f64::from(at), &services, &[]);
    }
    let plots = history.excerpt(0).plots();
    let goals = plot(&plots, "goals");
    let names: Vec<&str> = goals.lines.iter().map(|line| &*line.name).collect();
    assert_eq!((names, goals.left_out), (vec!["misses it", "keeps it", "goal"], 0));
}

/// Holds daemon/page.
#[test]
fn goals_latencies_and_waiting_are_means_but_the_worst_p99_is_seen() {
    let mut history = History::live(&machine());
    for at in 1..=21 {
        let seconds = if at == 7 { 0.2 } else { 0.001 };
        let high = ServiceStatus {
            goal: Some(0.9),
            kept: (at > 1).then_some(if at % 2 == 0 { 0.8 } else { 1.0 }),
            within_goal: Some(WithinGoal { share: if at < 12 { 0.5 } else { 0.75 }, requests: true, seconds: 1.0 }),
            latencies: vec![Quantile { quantile: 0.99, seconds }],
            said: Statement { bound: Some(Bound { quantile: 0.99, alone_s: 0.000_9, goal_s: 0.001 }) },
            ..service("high", &[(0, 0.1)])
        };
        let low = ServiceStatus { throttled: Some(0.25), ..service("low", &[(1, 0.9)]) };
        history.add(f64::from(at), &[high, low], &[]);
    }
    let fine = history.excerpt(0).plots();
    assert_eq!(line(plot(&fine, "p99-0"), "p99")[..4], [0.001, 0.001, 0.2, 0.001].map(Some));
    let coarse = history.excerpt(1).plots();
    let (goals, p99) = (plot(&coarse, "goals"), plot(&coarse, "p99-0"));
    assert_eq!(coarse.at_s, [11.0, 21.0]);
    assert_eq!(line(goals, "high")[1], Some(0.9), "half of the looks 0.8, half of them 1");
    assert_eq!(line(goals, "goal"), [Some(0.9); 2]);
    assert_eq!(p99.title, "p99 of high");
    assert_eq!(line(p99, "p99"), [Some(0.2), Some(0.001)], "the worst");
    assert_eq!((line(p99, "goal"), line(p99, "alone")), (&[Some(0.001); 2][..], &[Some(0.000_9); 2][..]));
    assert_eq!(line(plot(&coarse, "throttled"), "low"), [Some(0.25); 2]);
    assert_eq!(line(plot(&coarse, "within"), "high"), [Some(0.5), Some(0.75)]);
    assert_eq!(history.excerpt(2).plots().at_s, [] as [f64; 0], "no minute is over");
}

/// Who was not there, or told nothing, has a gap; nothing is 0 that is not known.
/// Holds daemon/page.
#[test]
fn what_is_not_known_is_null() {
    let mut history = History::live(&machine());
    for at in 1..=9 {
        let mut services = vec![ServiceStatus { goal: Some(0.9), ..service("always", &[]) }];
        if (4..=5).contains(&at) {
            services.push(ServiceStatus { goal: Some(0.8), kept: Some(0.7), ..service("guest", &[(0, 1.0)]) });
        }
        history.add(f64::from(at), &services, &[]);
    }
    let plots = history.excerpt(0).plots();
    let goals = plot(&plots, "goals");
    assert_eq!(line(goals, "guest"), [None, Some(0.7), None, None]);
    assert_eq!(line(goals, "goal"), [None, Some(0.8), None, None], "one that is nobody else's");
    assert!(!goals.lines.iter().any(|line| line.name == "always"), "its speed was never known");
    let told = serde_json::to_string(&plots).unwrap();
    assert!(told.contains("[null,0.7,null,null]") && !told.contains("NaN"), "{told}");
}

/// Rows go when they are older than their span; names go when nobody has them any more.
#[test]
fn it_ends_with_its_spans() {
    let mut history = History::live(&machine());
    for at in 0..30_000 {
        history.add(f64::from(at), &[service(&format!("job {}", at / 7), &[(0, 1.0)])], &[]);
    }
    let rows: Vec<usize> = history.resolutions.iter().map(|resolution| resolution.rows.len()).collect();
    assert_eq!(rows, [300, 360, 360]);
    assert!(history.names.len() <= NAMES, "{}", history.names.len());
    let plots = history.excerpt(2).plots();
    assert_eq!(plots.at_s.last(), Some(&29_940.0));
    assert!(plot(&plots, "place-0").lines.len() == LINES + 1, "others together");
    assert!(plots.at_s.iter().all(|at| *at >= 30_000.0 - 21_600.0 - 60.0));
}

/// Two hundred services on sixteen cache domains, each with all that can be known, for six hours.
/// Holds daemon/page.
#[test]
fn six_hours_of_two_hundred_services_are_below_30_mb() {
    let large = synthetic::parse("pack:2 l3:8 core:8 pu:2").unwrap();
    let fed = |services: usize, seconds: u32, churn: bool| {
        let mut history = History::live(&large);
        for at in 0..seconds {
            let all: Vec<ServiceStatus> = (0..services)
                .map(|i| {
                    let turn = if churn { at as usize / 10 + i } else { i };
                    let i = i as u32;
                    ServiceStatus {
                        goal: Some(0.9),
                        kept: Some(0.95),
                        throttled: Some(0.1),
                        bandwidth: Some(1e9),
                        latencies: vec![Quantile { quantile: 0.99, seconds: 0.001 }],
                        said: Statement { bound: Some(Bound { quantile: 0.99, alone_s: 0.000_9, goal_s: 0.001 }) },
                        ..service(
                            &format!("{turn:0200}"),
                            &[(i % 256, 0.3), ((i + 16) % 256, 0.2), ((i + 99) % 256, 0.1)],
                        )
                    }
                })
                .collect();
            history.add(f64::from(at) * 60.0, &all, &busy(&[1.0; 256]));
        }
        history
    };
    // A look each minute makes a row of each span at once: as many as there can be.
    let history = fed(200, 361, false);
    let (rows, bytes) =
        (history.resolutions.iter().map(|resolution| resolution.rows.len()).sum::<usize>(), history.bytes());
    println!("200 services: {:.1} MB in {rows} rows of {:?}", bytes as f64 / 1e6, SPANS);
    let all: usize = SPANS.iter().map(|(length, step)| (length / step) as usize).sum();
    assert!(bytes / rows * all < 30_000_000, "{bytes} bytes in {rows} rows");
    // More services and names than it takes.
    let crowd = fed(1_500, 60, true);
    let (rows, bytes) =
        (crowd.resolutions.iter().map(|resolution| resolution.rows.len()).sum::<usize>(), crowd.bytes());
    println!("a crowd: {:.1} MB in {rows} rows", bytes as f64 / 1e6);
    assert!(bytes / rows * all < 30_000_000, "{bytes} bytes in {rows} rows");
    assert!(crowd.resolutions.iter().flat_map(|resolution| &resolution.rows).all(|row| row.points.len() <= SERVICES));
    let text = serde_json::to_vec(&history.excerpt(2).plots()).unwrap();
    println!("an answer: {:.0} kB", text.len() as f64 / 1e3);
    assert!(text.len() < 1_500_000, "{}", text.len());
}

#[test]
fn large_machines_have_a_few_places_and_small_ones_their_cpus() {
    let names = |machine: &str| -> Vec<String> {
        let places = Places::of(&synthetic::parse(machine).unwrap());
        assert!(places.all.len() <= PLACES);
        places.all.into_iter().map(|place| place.name).collect()
    };
    assert_eq!(names("pack:1 l3:1 core:2 pu:1"), ["CPU 0", "CPU 1"]);
    assert_eq!(names("pack:1 l3:1 core:64 pu:1")[1], "CPUs 4 to 7");
    assert_eq!(names("pack:1 l3:2 core:4 pu:1"), ["cache domain 0", "cache domain 1"]);
    let many = names("pack:2 l3:12 core:4 pu:2");
    assert_eq!((many.len(), many[0].as_str()), (12, "cache domains 0 to 1 (package 0)"));
}
