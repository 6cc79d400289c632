//! The metrics of the daemon as text: `OpenMetrics` on request, otherwise the format of Prometheus.
//!
//! Unknown values are absent, never 0.

use cotenant_model::usage::Usage;
use cotenant_model::{BehindKind, Mode, text};
use cotenant_status::status::{Measured, ServiceStatus, Status};
use cotenant_status::values::Value;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, prometheus_text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Limits: pairs of services with interference, the worst first; and pairs of action and reason.
const PAIRS: usize = 20;
const REASONS: usize = 256;

/// Formats of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// The format requested by `Accept`; by default the one that every tool reads.
    pub fn accepted(accept: Option<&str>) -> Self {
        let wants = |accept: &str| accept.contains("application/openmetrics-text");
        if accept.is_some_and(wants) { Self::OpenMetrics } else { Self::Prometheus }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
        }
    }
}

/// The metrics of a snapshot.
pub(super) fn render(status: &Arc<Status>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Snapshot(status.clone())));
    let mut text = String::new();
    let done = match format {
        Format::OpenMetrics => prometheus_client::encoding::text::encode(&mut text, &registry),
        Format::Prometheus => prometheus_text::encode(&mut text, &registry),
    };
    debug_assert!(done.is_ok(), "a String takes everything");
    text
}

#[derive(Debug)]
struct Snapshot(Arc<Status>);

type Labels<'a> = Vec<(&'static str, &'a str)>;

/// One time series: its labels, and its value.
type Series<'a> = (Labels<'a>, f64);

impl Collector for Snapshot {
    fn encode(&self, mut to: DescriptorEncoder<'_>) -> fmt::Result {
        let Self(status) = self;
        about_the_agent(&mut to, status)?;
        about_the_machine(&mut to, status)?;
        about_services(&mut to, &status.services)?;
        let pairs = status.interference.iter().take(PAIRS);
        let pairs: Vec<(String, String, f64)> =
            pairs.map(|row| (clean(&row.victim), clean(&row.aggressor), row.loss)).collect();
        gauges(
            &mut to,
            "cotenant_interference_ratio",
            "Share of its speed that the victim loses while the aggressor runs (0.1: a tenth), where a loss is beyond \
             doubt. At most the worst 20 pairs",
            None,
            pairs
                .iter()
                .map(|(victim, aggressor, loss)| (vec![("victim", &**victim), ("aggressor", aggressor)], *loss)),
        )
    }
}

fn about_the_agent(to: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    gauges(
        to,
        "cotenant_build_info",
        "The version of the daemon; always 1",
        None,
        [(vec![("version", &*status.version)], 1.0)],
    )?;
    let cpu = ConstCounter::new(status.cpu_s);
    cpu.encode(to.encode_descriptor(
        "cotenant_agent_cpu",
        "CPU time that the daemon itself has used",
        Some(&Unit::Seconds),
        cpu.metric_type(),
    )?)?;
    gauges(
        to,
        "cotenant_agent_resident",
        "Memory of the daemon itself that is resident",
        Some(&Unit::Bytes),
        status.resident_bytes.map(|bytes| (Vec::new(), bytes as f64)),
    )?;
    gauges(
        to,
        "cotenant_sample_age",
        "Time since the services were last looked at",
        Some(&Unit::Seconds),
        [(Vec::new(), status.age().as_secs_f64())],
    )?;
    gauges(
        to,
        "cotenant_config_reload_success",
        "Whether the configuration on disk is the one in force (1), or was refused when it was last read (0)",
        None,
        [(Vec::new(), f64::from(status.config_error.is_none()))],
    )?;
    let mode = if status.paused { "paused" } else { mode_name(status.mode) };
    gauges(
        to,
        "cotenant_mode",
        "1 for what the daemon does now, 0 for the other modes; paused: it only observes until cotenant resume",
        None,
        ["observe", "advise", "enforce", "paused"].map(|each| (vec![("mode", each)], f64::from(each == mode))),
    )?;
    let decisions: Vec<(String, String, u64)> = status
        .decisions
        .iter()
        .take(REASONS)
        .map(|known| (clean(&known.action), clean(&known.reason), known.count))
        .collect();
    if decisions.is_empty() {
        return Ok(());
    }
    let mut family = to.encode_descriptor(
        "cotenant_decisions",
        "Decisions that were carried out, by what was done and by the part of the policy that asked for it",
        None,
        ConstCounter::new(0_u64).metric_type(),
    )?;
    for (action, reason, count) in &decisions {
        let labels = [("action", &**action), ("reason", reason)];
        ConstCounter::new(*count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn about_the_machine(to: &mut DescriptorEncoder<'_>, status: &Status) -> fmt::Result {
    let nodes: Vec<(String, f64)> = status.memory.iter().map(|(node, bytes)| (node.to_string(), *bytes)).collect();
    gauges(
        to,
        "cotenant_memory_bandwidth",
        "Bytes per second that services on the CPUs of a memory node read from memory in the last second: a cache line \
         for each miss of the last-level cache",
        Some(&Unit::Bytes),
        nodes.iter().map(|(node, bytes)| (vec![("node", &**node)], *bytes)),
    )?;
    let usage = status.usage.as_ref();
    gauges(
        to,
        "cotenant_cpu_pressure_ratio",
        "Share of the last ten seconds or so in which one thread at least of this machine was ready to run and had no \
         CPU, by the kernel's PSI",
        None,
        usage.and_then(|usage| usage.pressure).map(|share| (Vec::new(), share)),
    )?;
    gauges(
        to,
        "cotenant_others_cpus",
        "CPUs that programs which are not managed kept busy in the last ten seconds or so",
        None,
        usage.map(|usage| (Vec::new(), usage.others)),
    )?;
    gauges(
        to,
        "cotenant_others_waiting_threads",
        "Threads of the busiest programs that are not managed that were ready to run and had no CPU, on average over \
         the last ten seconds or so",
        None,
        usage.and_then(Usage::waiting).map(|threads| (Vec::new(), threads)),
    )?;
    gauges(
        to,
        "cotenant_signal_available",
        "Whether a signal can be counted on this machine (1) or not (0); cotenant doctor says why",
        None,
        status.signals.iter().map(|(signal, is)| (vec![("signal", &**signal)], f64::from(*is))),
    )?;
    gauges(
        to,
        "cotenant_changes_outstanding",
        "What is changed at the moment and will be undone: masks of threads, and services that are paused, limited in \
         CPU time or caches, or in the background",
        None,
        status.changes.iter().map(|(kind, count)| (vec![("kind", &**kind)], *count as f64)),
    )
}

fn about_services(to: &mut DescriptorEncoder<'_>, services: &[ServiceStatus]) -> fmt::Result {
    let info: Vec<[String; 5]> = services.iter().map(info).collect();
    gauges(
        to,
        "cotenant_service_info",
        "Services, with the name in the table of interference (workload), rule, class and policy; always 1",
        None,
        info.iter().zip(services).map(|([name, workload, rule, class, policy], service)| {
            let more = [("workload", &**workload), ("rule", rule), ("class", class), ("policy", policy)];
            (labels(name, service).into_iter().chain(more).collect(), 1.0)
        }),
    )?;
    // An ignored service has no further values.
    let services: Vec<(&str, &ServiceStatus)> =
        info.iter().map(|[name, ..]| &**name).zip(services).filter(|(_, service)| !service.paused).collect();
    for (value, metric) in Value::ALL.into_iter().filter_map(|value| Some((value, value.metric()?))) {
        let series = services.iter().filter_map(|(name, service)| Some((labels(name, service), value.of(service)?)));
        gauges(to, metric.name, metric.help, None, series)?;
    }
    let behind: Vec<(Labels<'_>, String, f64)> =
        services.iter().flat_map(|(name, service)| behind(name, service)).collect();
    gauges(
        to,
        "cotenant_service_waiting_behind_threads",
        "The part of cotenant_service_waiting_threads behind each cause: a service by its name, else the kind of cause. \
         Absent where BPF is not allowed",
        None,
        behind.iter().map(|(labels, behind, threads)| (with(labels, "behind", behind), *threads)),
    )?;
    let speeds = services
        .iter()
        .filter_map(|(name, service)| Some((labels(name, service), clean(service.source.as_deref()?), service.speed?)));
    let speeds: Vec<(Labels<'_>, String, f64)> = speeds.collect();
    gauges(
        to,
        "cotenant_service_speed",
        "How fast a service was by the last reading, in the unit of its source; compare it only with the same service \
         and source. Absent where the source is a latency",
        None,
        speeds.iter().map(|(labels, source, speed)| (with(labels, "source", source), *speed)),
    )?;
    let measured =
        services.iter().filter_map(|(name, service)| Some((labels(name, service), service.measured.as_ref()?)));
    let measured: Vec<(Labels<'_>, String, &Measured)> =
        measured.map(|(labels, measured)| (labels, clean(&measured.what), measured)).collect();
    gauges(
        to,
        "cotenant_service_measured",
        "How a service does, in the unit of its metric: in the last 10 s (when=\"now\"), alone, and at its goal. The \
         speed alone also has the ends of its 95 % interval, by block bootstrap",
        None,
        measured.iter().flat_map(|(labels, what, measured)| {
            let [low, high] = measured.alone_interval.map_or([None; 2], |ends| ends.map(Some));
            let (now, alone) = (("now", measured.now), ("alone", measured.alone));
            let all = [now, alone, ("alone_low", low), ("alone_high", high), ("goal", measured.goal)];
            all.into_iter()
                .filter_map(move |(when, value)| Some((with(&with(labels, "what", what), "when", when), value?)))
        }),
    )?;
    let latencies = services.iter().flat_map(|(name, service)| {
        service.latencies.iter().map(move |told| (labels(name, service), told.quantile.to_string(), told.seconds))
    });
    let latencies: Vec<(Labels<'_>, String, f64)> = latencies.collect();
    gauges(
        to,
        "cotenant_service_latency",
        "Latency of the answers of a service in the last complete window of 10 s, as it reports them or as questions \
         measure them",
        Some(&Unit::Seconds),
        // Not "quantile", which tools reserve for summaries.
        latencies.iter().map(|(labels, quantile, s)| (with(labels, "q", quantile), *s)),
    )
}

/// The identifying labels of a service, with a clean name; of a container also its names in the cluster.
fn labels<'a>(name: &'a str, service: &'a ServiceStatus) -> Labels<'a> {
    let of = service.container.iter();
    let of = of.flat_map(|of| [("namespace", &*of.namespace), ("pod", &*of.pod), ("container", &*of.container)]);
    [("service", name)].into_iter().chain(of).collect()
}

fn with<'a>(labels: &Labels<'a>, key: &'static str, value: &'a str) -> Labels<'a> {
    labels.iter().copied().chain([(key, value)]).collect()
}

/// Name, name of its profile, rule, class and policy; of an ignored service only the names.
fn info(service: &ServiceStatus) -> [String; 5] {
    let (name, workload) = (clean(&service.name), clean(&service.learnt()));
    if service.paused {
        return [name, workload, String::new(), String::new(), "paused".to_owned()];
    }
    [name, workload, clean(&service.rule), service.class.name().to_owned(), clean(&service.policy)]
}

/// Causes of a service's waits, by kind: each name of an unmanaged program would add a series for ever.
fn behind<'a>(name: &'a str, service: &'a ServiceStatus) -> Vec<(Labels<'a>, String, f64)> {
    let mut parts: BTreeMap<String, f64> = BTreeMap::new();
    for part in &service.behind {
        let what = match part.kind {
            BehindKind::Application => clean(&part.what),
            BehindKind::Program => "other programs".to_owned(),
            BehindKind::Kernel => "the kernel".to_owned(),
            _ => part.what.clone(),
        };
        *parts.entry(what).or_default() += part.threads;
    }
    parts.into_iter().map(|(what, threads)| (labels(name, service), what, threads)).collect()
}

/// A metric whose value may decrease; omitted without series.
fn gauges<'a>(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    unit: Option<&Unit>,
    series: impl IntoIterator<Item = Series<'a>>,
) -> fmt::Result {
    let mut series = series.into_iter().filter(|(_, value)| value.is_finite()).peekable();
    if series.peek().is_none() {
        return Ok(());
    }
    let kind = ConstGauge::new(0.0).metric_type();
    let mut family = to.encode_descriptor(name, help, unit, kind)?;
    series.try_for_each(|(labels, value)| ConstGauge::new(value).encode(family.encode_family(&labels)?))
}

/// A label for display: without control characters, and of bounded length.
fn clean(label: &str) -> String {
    text::within(label, text::NAME).into_owned()
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Observe => "observe",
        Mode::Advise => "advise",
        Mode::Enforce => "enforce",
    }
}

#[cfg(test)]
mod tests;
