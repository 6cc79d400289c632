//! One run on this machine, for any command: setup → host → observers → end.
//!
//! A command brings a [`Setup`] (machine, profiles, the policies with their settings), the applications or the queue
//! that it manages, and observers of its own. Recording, metrics, live view, summary and exit code are the runner's:
//! the same for all.

mod learnt;
pub(crate) mod lived;
pub(crate) mod one;
pub(crate) mod progress;
pub mod recorder;
pub(crate) mod summary;
pub(crate) mod targets;

use anyhow::Result;
use cotenant_cli::live_view::LiveView;
use cotenant_cli::messages::tell;
use cotenant_cli::usage;
use cotenant_linux::bounded::{self, Limit};
use cotenant_linux::host::queue::Queue;
use cotenant_linux::host::{AppSpec, Finish, HostOptions, LinuxHost, What, probe_tier};
use cotenant_linux::sense::usage::{Own, Watch};
use cotenant_linux::{sys, worker};
use cotenant_model::host::drive_all;
use cotenant_model::interference::Interference;
use cotenant_model::speed::Source;
use cotenant_model::text::{LINE, within};
use cotenant_model::usage::{Seen, Usage};
use cotenant_model::{AppId, Round, Topology};
use cotenant_record::{DEFAULTS, Header, HostDescription, RecordedRule};
use cotenant_setup::known::Known;
use cotenant_setup::settings::{Decider, Setup};
use recorder::Recorder;
use std::sync::Once;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use summary::{Recorded, Summary, Tally};

/// An observer of a run.
pub(crate) trait Observer {
    /// The programs run, and the loop is about to begin.
    fn begin(&mut self, _host: &LinuxHost) {}

    /// A round of the loop is over.
    fn round(&mut self, round: &Round<'_>);

    /// Other use of this machine in about the last ten seconds.
    fn usage(&mut self, _usage: &Usage) {}

    /// The state of the run for the live view, within these columns and lines. `None`: another observer shows it.
    fn view(&mut self, _room: (usize, usize)) -> Option<String> {
        None
    }

    /// Messages to show while the loop runs; otherwise they are noted in the summary.
    fn news(&mut self) -> Vec<String> {
        Vec::new()
    }

    /// The loop has ended, and nothing has been given back yet.
    fn end(&mut self, _host: &LinuxHost) {}

    /// Remarks for the summary, when everything has been given back.
    fn notes(&mut self) -> Vec<String> {
        Vec::new()
    }
}

/// Whether each application is protected.
fn protected(apps: &[AppSpec]) -> Vec<bool> {
    apps.iter().map(|app| app.protected).collect()
}

/// These processes, by application.
fn own<P: IntoIterator<Item = u32>>(apps: impl IntoIterator<Item = (AppId, P)>, protected: &[bool]) -> Own {
    let mut own = Own::default();
    for (app, pids) in apps {
        let pids: Vec<u32> = pids.into_iter().collect();
        if protected.get(app.0 as usize) == Some(&true) {
            own.servers.extend(&pids);
        }
        own.pids.extend(pids);
    }
    own
}

/// Remarks, unless they are printed now, on what cannot be done without root.
fn unprivileged(options: &HostOptions, told: bool) -> Vec<String> {
    if !options.other_users || sys::euid() == 0 {
        return Vec::new();
    }
    let text = "--all-users: without root, programs of other users can hardly be seen, and not be changed";
    if told {
        UNPRIVILEGED.call_once(|| tell(text));
        return Vec::new();
    }
    vec![text.to_owned()]
}

/// A comparison makes several runs: messages common to all appear once.
static UNPRIVILEGED: Once = Once::new();

/// A run that is about to begin.
pub(crate) struct Run<'a> {
    setup: &'a Setup,
    recorder: Option<Recorder>,
    /// Applications managed from the beginning.
    pub apps: Vec<AppSpec>,
    /// Jobs to start when possible, and their time to end after a requested stop.
    pub queue: Option<(Box<dyn Queue>, Duration)>,
    /// The setup's options, to which the command may add.
    pub options: HostOptions,
    /// The live view, if any.
    pub view: Option<LiveView>,
    /// The use of this machine before the start and during the run.
    usage: Watch,
    seen: Seen,
    /// Whether messages are printed while it runs; failures are noted in the summary anyway.
    pub told: bool,
}

impl<'a> Run<'a> {
    /// Opens the requested recording, so that an unwritable path does not cost a run. `command` is the recorded command
    /// line.
    pub fn new(setup: &'a Setup, to: Option<recorder::Target<'_>>, command: Vec<String>) -> Result<Self> {
        let recorder = to.map(|to| to.open(|redacted| header(setup, command, redacted))).transpose()?;
        let options = setup.host_options(recorder.is_some());
        let usage = Watch::new(setup.topology.usable());
        let seen = Seen::default();
        Ok(Self { setup, recorder, apps: Vec::new(), queue: None, options, view: None, usage, seen, told: true })
    }

    /// Measures for a moment the use of this machine before the start, apart from programs to manage.
    pub fn look_first(&mut self) -> &Seen {
        let running = self.apps.iter().enumerate().filter_map(|(i, app)| match &app.what {
            What::Running(target) => Some((AppId(i as u32), target.pids())),
            What::Command(_) => None,
        });
        self.seen.before = self.usage.moment(&own(running, &protected(&self.apps)));
        if let Some(recorder) = &mut self.recorder {
            recorder.used(&self.seen);
        }
        &self.seen
    }

    /// Runs it to its end, and gives everything back.
    pub fn go(self, observers: &mut [&mut dyn Observer]) -> Result<Summary> {
        let Self { setup, mut recorder, apps, queue, options, mut view, mut usage, mut seen, told } = self;
        let (start, cpu_before) = (Instant::now(), sys::own_cpu_time());
        let proxies = options.proxies;
        let names: Vec<String> = apps.iter().map(|app| app.name.clone()).collect();
        let protected = protected(&apps);
        let early = unprivileged(&options, told);
        let mut live = LinuxHost::new(&setup.topology, apps, options)?;
        let remedy = if queue.is_some() { "jobs that still run go on" } else { "everything was given back" };
        if let Some((queue, grace)) = queue {
            live = live.with_queue(queue, grace);
        }
        for observer in observers.iter_mut() {
            observer.begin(&live);
        }
        let startup = start.elapsed().as_secs_f64();
        let sources = live.metrics();
        let mut tally = Tally::default();
        tally.speeds = proxies.then(Default::default);
        let mut interference = Interference::default();
        let mut known = Known::of(&setup.topology);
        let ended = drive_all(&mut live, &setup.rules(), setup.mode, |round| {
            tally.add(&setup.topology, round);
            interference.watch(&setup.topology, round);
            known.watch(round);
            let tasks = || round.sample.tasks.iter().map(|task| (task.info.app, [task.info.pid]));
            if let Some(usage) = usage.tend(|| own(tasks(), &protected)) {
                for observer in observers.iter_mut() {
                    observer.usage(&usage);
                }
            }
            for observer in observers.iter_mut() {
                observer.round(round);
            }
            let news = observers.iter_mut().flat_map(|observer| observer.news());
            for line in sources.iter().flat_map(|metrics| metrics.news()).chain(worker::news()).chain(news) {
                if told {
                    view.iter_mut().for_each(LiveView::aside);
                    tell(line);
                } else {
                    tally.notes.insert(line);
                }
            }
            if let Some(view) = &mut view {
                view.show(|room| observers.iter_mut().find_map(|observer| observer.view(room)));
            }
            tally.notes.extend(recorder.as_mut().and_then(|recorder| recorder.round(round)));
        });
        usage.catch_up(&own(live.processes(), &protected));
        seen.during = usage.whole().cloned();
        for observer in observers.iter_mut() {
            observer.end(&live);
        }
        drop(view);
        let tier = live.tier().to_string();
        let speeds = tally.speeds.take().map_or_else(Vec::new, |speeds| speeds.summary());
        let lived = tally.lived.each(&names);
        let progress = live.reported().map(|reported| tally.progress.summary(&reported));
        let mut notes: Vec<String> =
            early.into_iter().chain(std::mem::take(&mut tally.notes)).chain(live.notes()).collect();
        drop(sources); // the host waits for their commands to end
        let metrics = live.summaries();
        let Finish { exit_code, signal, restored } = live.finish();
        let seconds = start.elapsed().as_secs_f64();
        notes.extend(restored.notes);
        notes.extend(known.keep().err().map(|why| format!("the shapes that were found could not be kept: {why}")));
        notes.extend(seen.during.as_ref().and_then(Usage::remark_of_steal));
        notes.extend(observers.iter_mut().flat_map(|observer| observer.notes()));
        for note in &mut notes {
            *note = within(note, LINE).into_owned();
        }
        let recording = recorder.map(|recorder| Recorded::finish(recorder, &seen, &mut notes));
        let overhead = sys::own_cpu_time().saturating_sub(cpu_before).as_secs_f64() / seconds.max(f64::MIN_POSITIVE);
        Ok(Summary {
            policy: setup.policy(),
            mode: setup.mode,
            exit_code,
            seconds,
            startup,
            tally,
            tier,
            overhead,
            restored: restored.restored,
            progress,
            metrics,
            speeds,
            lived,
            interference: interference.rows(),
            recording,
            signal,
            usage: seen,
            notes,
            learnt: None,
            failed: ended.err().map(|why| (why, remedy)),
        })
    }
}

/// Hardware counters exist if one of these needs them.
///
/// # Errors
/// They do not exist.
pub(crate) fn can_count(sources: &[Source], topology: &Topology) -> Result<()> {
    if sources.contains(&Source::Ipc) && !probe_tier(topology)?.to_string().contains("instructions") {
        return Err(usage(
            "the metric ipc needs hardware counters, which this machine lacks (cotenant doctor says why); use \
             progress or a metric from outside",
        ));
    }
    Ok(())
}

/// A recording's description of the run.
fn header(setup: &Setup, command: Vec<String>, redacted: bool) -> Result<Header> {
    let policy = |decider: &Decider| decider.policy.name().to_owned();
    let rule = |decider: &Decider| RecordedRule {
        policy: policy(decider),
        owns: decider.owns.clone(),
        config: decider.config.clone(),
    };
    let (first, several) = (&setup.deciders[0], setup.deciders.len() > 1);
    Ok(Header {
        cotenant: env!("CARGO_PKG_VERSION").to_owned(),
        topology: setup.topology.clone(),
        machine: setup.machine.clone(),
        apps: setup.apps.clone(),
        config: first.config.clone(),
        defaults: DEFAULTS,
        policy: policy(first),
        rules: setup.deciders.iter().filter(|_| several).map(rule).collect(),
        mode: setup.mode,
        seeds: Vec::new(),
        host: HostDescription { kernel: kernel_release(), tier: probe_tier(&setup.topology)?.to_string() },
        command,
        started_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|d| d.as_secs()),
        redacted,
    })
}

fn kernel_release() -> String {
    bounded::text("/proc/sys/kernel/osrelease", Limit::Value)
        .map_or_else(|_| "unknown".to_owned(), |t| t.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cotenant_linux::sense::processes;
    use cotenant_model::action::Effect;
    use cotenant_model::policy::{Config, Policy, Settings};
    use cotenant_model::topology::notation::format_map;
    use cotenant_model::{Mode, Order, Owns};
    use cotenant_policies::{Static, StaticSettings};
    use cotenant_record::Recording;
    use cotenant_setup::settings;
    use recorder::{How, Target};
    use std::collections::BTreeMap;
    use std::process::Command;

    #[derive(Default)]
    struct Orders(Vec<(usize, Vec<Order>)>);

    impl Observer for Orders {
        fn round(&mut self, round: &Round<'_>) {
            self.0.push((round.rule, round.orders.to_vec()));
        }
    }

    #[test]
    fn two_rules_decide_and_are_recorded() {
        let machine = settings::live_machine(None).unwrap();
        let map = format_map(&machine.0, |cpu| machine.0.usable().contains(cpu).then_some('X'));
        // Both would place; the one without ownership of placement does not.
        let decider = |effect, interval| {
            let map = StaticSettings { map: Some(map.clone()) };
            let settings = Settings::default().with::<Static>(&map);
            let config = Config { interval: Duration::from_millis(interval), settings, ..Config::default() };
            let owns = Owns { effects: Some([effect].into()), ..Owns::default() };
            Decider { policy: Box::new(Static(map)), config, owns }
        };
        let deciders = vec![decider(Effect::Nap, 20), decider(Effect::Placement, 50)];
        let mut setup = Setup::of(machine, None, BTreeMap::default(), deciders).unwrap();
        setup.mode = Mode::Advise;
        let scratch = cotenant_cli::scratch::Scratch::new("rules").unwrap();
        let path = scratch.path().join("a.rec");
        let how = How { record_limit: 1 << 30, record_redacted: false };
        let mut run = Run::new(&setup, Some(Target { path: &path, how: &how }), Vec::new()).unwrap();
        // Attached to, not started: the news of a child's end may go to another thread of the tests.
        let mut target = Command::new("sleep").arg("0.5").spawn().unwrap();
        let running = What::Running(processes::Target::Trees(vec![target.id()]));
        let reaper = std::thread::spawn(move || target.wait());
        run.apps = vec![AppSpec::new("sleep".to_owned(), running)];
        let mut seen = Orders::default();
        let summary = run.go(&mut [&mut seen]).unwrap();
        reaper.join().unwrap().unwrap();
        assert_eq!((summary.policy, summary.exit_code), (Static::SECTION, 0));
        let bytes = std::fs::read(&path).unwrap();
        let recording = Recording::read(&bytes[..]).unwrap();
        let header = recording.header().clone();
        let recorded: Vec<(&str, Duration, &Owns)> =
            header.rules.iter().map(|rule| (&*rule.policy, rule.config.interval, &rule.owns)).collect();
        let rule = |i: usize| (Static::SECTION, setup.deciders[i].config.interval, &setup.deciders[i].owns);
        assert_eq!(recorded, [rule(0), rule(1)]);
        let rounds: Vec<(usize, Vec<Order>)> = recording.map(|round| (round.rule, round.orders)).collect();
        assert_eq!(rounds, seen.0);
        let of = |i| rounds.iter().filter(move |(rule, _)| *rule == i);
        assert!(of(0).count() > of(1).count(), "each at its own time");
        assert!(of(0).all(|(_, orders)| orders.is_empty()) && of(1).any(|(_, orders)| !orders.is_empty()));
    }
}
