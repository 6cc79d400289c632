use super::*;
use cotenant_model::interference::Row;
use cotenant_model::usage::{Program, Usage};
use cotenant_model::{Behind, BehindKind};
use cotenant_status::class::Class;
use cotenant_status::identity::Identity;
use cotenant_status::status::{Decisions, Measured, Quantile, WithinGoal};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Only the values that always exist.
fn bare() -> Status {
    Status::of_nobody(Instant::now())
}

fn service(name: &str, class: Class) -> ServiceStatus {
    ServiceStatus {
        name: name.to_owned(),
        rule: "a rule".to_owned(),
        class,
        policy: "auto".to_owned(),
        ..ServiceStatus::default()
    }
}

/// Every value exists.
fn full() -> Status {
    let row = |loss: f64| Row {
        victim: "db".to_owned(),
        aggressor: format!("batch {loss}"),
        loss,
        low: loss,
        high: loss,
        events: 9,
    };
    let part = |what: &str, kind, threads| Behind { what: what.to_owned(), kind, threads, ..Behind::default() };
    let database = ServiceStatus {
        behind: vec![
            part("batch", BehindKind::Application, 0.125),
            part("rustc", BehindKind::Program, 0.0625),
            part("cc1", BehindKind::Program, 0.0625),
        ],
        threads: 12,
        cpus: Some(1.5),
        waiting: Some(0.25),
        pressure: Some(0.4),
        speed: Some(200.0),
        source: Some("progress".to_owned()),
        measured: Some(Measured {
            what: "p99".to_owned(),
            unit: "seconds".to_owned(),
            lower_is_better: true,
            now: Some(0.25),
            alone: Some(0.2),
            alone_interval: Some([0.19, 0.21]),
            alone_age_s: Some(40.0),
            goal: None,
        }),
        within_goal: Some(WithinGoal { share: 0.99, requests: true, seconds: 600.0 }),
        goal: Some(0.9),
        kept: Some(0.81),
        latencies: vec![Quantile { quantile: 0.5, seconds: 0.001 }, Quantile { quantile: 0.99, seconds: 0.25 }],
        ..service("db", Class::High)
    };
    let rustc = Program { program: "rustc".to_owned(), cgroup: "/".to_owned(), cpus: 1.5, waiting: Some(0.75) };
    let usage = Usage {
        seconds: 10.0,
        of_cpus: 2,
        others: 1.6,
        pressure: Some(0.9),
        programs: vec![rustc],
        ..Usage::default()
    };
    Status {
        resident_bytes: Some(20_000_000),
        signals: [("cpu_ns".to_owned(), true), ("cycles".to_owned(), false)].into(),
        changes: [("mask".to_owned(), 3), ("pause".to_owned(), 0)].into(),
        memory: [(1, 6.4e9)].into(),
        usage: Some(usage),
        services: vec![database, ServiceStatus { throttled: Some(0.25), ..service("batch", Class::Low) }],
        interference: (0..30).map(|i| row(0.5 - f64::from(i) / 100.0)).collect(),
        decisions: vec![Decisions { action: "placement".to_owned(), reason: "stage 1".to_owned(), count: 7 }],
        ..bare()
    }
}

fn text(status: Status, format: Format) -> String {
    render(&Arc::new(status), format)
}

/// The names of the metrics with series.
fn names(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(['{', ' ']).next().unwrap()).collect()
}

/// Promise daemon/metrics: Unknown values are absent from the metrics, never 0; Prometheus accepts metrics, alerts
/// and the queries of the dashboard.
#[test]
fn what_is_known_is_told_and_what_is_not_is_absent() {
    let told = text(full(), Format::Prometheus);
    for line in [
        "cotenant_decisions_total{action=\"placement\",reason=\"stage 1\"} 7",
        "cotenant_service_info{service=\"db\",workload=\"db\",rule=\"a rule\",class=\"high\",policy=\"auto\"} 1.0",
        "cotenant_service_speed{service=\"db\",source=\"progress\"} 200.0",
        "cotenant_service_waiting_behind_threads{service=\"db\",behind=\"batch\"} 0.125",
        "cotenant_service_waiting_behind_threads{service=\"db\",behind=\"other programs\"} 0.125",
        "cotenant_service_measured{service=\"db\",what=\"p99\",when=\"now\"} 0.25",
        "cotenant_service_measured{service=\"db\",what=\"p99\",when=\"alone\"} 0.2",
        "cotenant_service_measured{service=\"db\",what=\"p99\",when=\"alone_low\"} 0.19",
        "cotenant_service_within_goal_ratio{service=\"db\"} 0.99",
        "cotenant_service_alone_age_seconds{service=\"db\"} 40.0",
        "cotenant_service_speed_ratio{service=\"db\"} 0.81",
        "cotenant_service_goal_ratio{service=\"db\"} 0.9",
        "cotenant_service_throttled_ratio{service=\"batch\"} 0.25",
        "cotenant_service_latency_seconds{service=\"db\",q=\"0.99\"} 0.25",
        "cotenant_changes_outstanding{kind=\"mask\"} 3.0",
        "cotenant_changes_outstanding{kind=\"pause\"} 0.0",
        "cotenant_signal_available{signal=\"cycles\"} 0.0",
        "cotenant_memory_bandwidth_bytes{node=\"1\"} 6400000000.0",
        "cotenant_mode{mode=\"observe\"} 1.0",
        "cotenant_config_reload_success 1.0",
        "cotenant_interference_ratio{victim=\"db\",aggressor=\"batch 0.31\"} 0.31",
    ] {
        assert!(told.lines().any(|known| known == line), "{line}\n{told}");
    }
    assert!(!told.contains("cotenant_service_throttled_ratio{service=\"db\"}"), "{told}");
    assert_eq!(told.matches("cotenant_interference_ratio{").count(), PAIRS, "the worst ones");
    let always = [
        "cotenant_agent_cpu_seconds_total",
        "cotenant_build_info",
        "cotenant_config_reload_success",
        "cotenant_mode",
        "cotenant_sample_age_seconds",
    ];
    assert_eq!(names(&text(bare(), Format::Prometheus)), always.into());
}

#[test]
fn a_container_has_the_labels_that_a_cluster_knows_it_by() {
    let identity = Identity {
        namespace: "shop".to_owned(),
        pod: "db-0".to_owned(),
        container: "postgres".to_owned(),
        workload: Some("web".to_owned()),
        ..Identity::default()
    };
    let container = ServiceStatus {
        container: Some(identity),
        threads: 7,
        speed: Some(2.0),
        source: Some("ipc".to_owned()),
        latencies: vec![Quantile { quantile: 0.5, seconds: 0.001 }],
        ..service("shop/db-0/postgres", Class::High)
    };
    let told = text(Status { services: vec![container], ..bare() }, Format::Prometheus);
    let of = "service=\"shop/db-0/postgres\",namespace=\"shop\",pod=\"db-0\",container=\"postgres\"";
    for line in [
        format!("cotenant_service_threads{{{of}}} 7.0"),
        format!(
            "cotenant_service_info{{{of},workload=\"shop/web/postgres\",rule=\"a rule\",class=\"high\",policy=\"auto\"}} 1.0"
        ),
        format!("cotenant_service_speed{{{of},source=\"ipc\"}} 2.0"),
        format!("cotenant_service_latency_seconds{{{of},q=\"0.5\"}} 0.001"),
    ] {
        assert!(told.lines().any(|known| known == line), "{line}\n{told}");
    }
}

#[test]
fn a_service_that_is_left_alone_has_no_threads_and_a_refused_file_is_told() {
    let alone = ServiceStatus { paused: true, ..service("db", Class::High) };
    let error = Some("c.toml:1:1: what?".to_owned());
    let told = text(Status { paused: true, config_error: error, services: vec![alone], ..bare() }, Format::Prometheus);
    assert!(
        told.contains(
            "cotenant_service_info{service=\"db\",workload=\"db\",rule=\"\",class=\"\",policy=\"paused\"} 1.0"
        ),
        "{told}"
    );
    assert!(!told.contains("cotenant_service_threads"), "{told}");
    assert!(told.contains("cotenant_config_reload_success 0.0"), "{told}");
    assert!(told.contains("{mode=\"paused\"} 1.0") && told.contains("{mode=\"observe\"} 0.0"), "{told}");
}

#[test]
fn time_passes_between_snapshot_and_scrape() {
    let made = Instant::now().checked_sub(Duration::from_secs(60)).unwrap();
    let status = Status { sample_age_s: 1.0, ..Status::of_nobody(made) };
    assert!(status.is_stale() && status.age() >= Duration::from_secs(61));
    assert!(!Status { interval_s: 60.0, ..status }.is_stale(), "samples are wanted once a minute");
    assert!(!bare().is_stale());
}

/// A name is a label: it ends no line, and no quote.
#[test]
fn hostile_names_stay_labels() {
    let name = "a\"} 1\nevil_metric 2\\\u{1b}[2J";
    let long = "x".repeat(100_000);
    let services = vec![service(name, Class::High), service(&long, Class::High)];
    for format in [Format::OpenMetrics, Format::Prometheus] {
        let told = text(Status { services: services.clone(), ..bare() }, format);
        let own = |line: &str| line.starts_with("cotenant_") || line.starts_with("# ");
        assert!(told.lines().all(own) && !told.contains('\u{1b}'), "{told}");
        assert!(told.len() < 10_000, "{}", told.len());
        check(&told);
    }
}

/// Has `promtool` check the text, if it is installed.
fn check(text: &str) {
    // It reads Prometheus' own format.
    let text = text.replace("# EOF\n", "");
    if text.contains("# UNIT") {
        return;
    }
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let Ok(mut running) = promtool.spawn() else {
        return eprintln!("skipped in part: there is no promtool (scripts/setup --optional prometheus)");
    };
    running.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let out = running.wait_with_output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty() && out.stdout.is_empty(), "{out:?}\n{text}");
}

#[test]
fn promtool_finds_nothing_wrong() {
    check(&text(full(), Format::Prometheus));
    check(&text(bare(), Format::Prometheus));
}

#[test]
fn open_metrics_ends_as_it_must_and_says_units() {
    let told = text(full(), Format::OpenMetrics);
    assert!(told.ends_with("# EOF\n"));
    assert!(
        told.contains("# TYPE cotenant_agent_cpu_seconds counter\n# UNIT cotenant_agent_cpu_seconds seconds\n"),
        "{told}"
    );
    assert_eq!(names(&told), names(&text(full(), Format::Prometheus)), "both tell the same");
    let accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
    assert_eq!(Format::accepted(Some(accept)), Format::OpenMetrics);
    assert_eq!([None, Some("*/*"), Some("text/plain")].map(Format::accepted), [Format::Prometheus; 3]);
}

/// What alerts, dashboard and page speak of is what there is, and the page leaves nothing out.
#[test]
fn files_and_page_name_metrics_that_are_there() {
    let told = text(full(), Format::Prometheus);
    let known = names(&told);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for file in [
        "packaging/prometheus/cotenant.rules.yml",
        "packaging/grafana/cotenant.json",
        "docs/reference/metrics-endpoint.md",
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words.filter(|word| word.starts_with("cotenant_")).collect();
        let unknown: Vec<_> = named.difference(&known).collect();
        assert!(unknown.is_empty(), "{file}: {unknown:?}");
        if file.starts_with("docs") {
            assert!(known.is_subset(&named), "{file}: {:?}", known.difference(&named));
        }
    }
}
