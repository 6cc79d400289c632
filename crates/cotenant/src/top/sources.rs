//! The source of a [`Picture`]: the running daemon, a look by this process, or a recording.

use crate::open::open_recording;
use crate::recorded;
use anyhow::Result;
use cotenant_cli::messages::{chain, count};
use cotenant_cli::usage;
use cotenant_daemon::client::ask;
use cotenant_daemon::programs::{Program, programs};
use cotenant_daemon::protocol::Request;
use cotenant_linux::FsRoot;
use cotenant_linux::host::{AppSpec, HostOptions, LinuxHost, Until, What};
use cotenant_linux::sense::census::Census;
use cotenant_linux::{address_space, bounded, sys, worker};
use cotenant_model::host::{Drive, Ended};
use cotenant_model::policy::{Config, Ctx};
use cotenant_model::{AppId, Mode, Rule, Sample, Time, Topology, proc_text, text};
use cotenant_policies::None as Nobody;
use cotenant_record::{Header, RecordedRound, Tail};
use cotenant_setup::settings;
use cotenant_status::picture::{self, From, Moment, Picture, Pressure};
use cotenant_status::status::{ServiceStatus, Status};
use cotenant_status::watch::Watch;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Time between two pictures of a live source, and the window for CPU time.
const EVERY: Duration = Duration::from_secs(1);

/// The same where a recording is read: many are short.
const RECORDED: Duration = Duration::from_millis(250);

/// Time between two samples of this process, and between two looks for applications.
const INTERVAL: Duration = Duration::from_millis(200);
const LOOK: Duration = Duration::from_secs(2);

/// The wait of a single picture for causes of waits.
const PATIENCE: Time = Time::from_millis(3_500);

/// Moments of a recording that are kept; of a longer one, every second, fourth, … round.
const MOMENTS: usize = 1_000;

/// Of a recording, remarks are shown for this long after they were made.
const LATELY: Duration = Duration::from_secs(10);

/// News of a live source.
pub(crate) enum News {
    Picture(Box<Picture>),
    /// Why there is none for the moment.
    Trouble(String),
    /// A signal asked to stop.
    Signal(i32),
}

/// The shown source.
pub(crate) enum Source {
    /// The present, as seen by the daemon or by this process.
    Live(Live),
    Recording(Recorded),
}

/// A live source.
pub(crate) enum Live {
    Daemon { socket: Option<PathBuf>, topology: Box<Topology> },
    Own,
}

impl Source {
    /// A file, otherwise the daemon if it answers, otherwise a look by this process.
    ///
    /// # Errors
    /// The file is not a recording, or a `wanted` daemon does not answer.
    pub fn of(file: Option<&Path>, socket: Option<&Path>, own: bool) -> Result<Self> {
        if let Some(file) = file {
            return Recorded::read(file).map(Self::Recording);
        }
        if own {
            return Ok(Self::Live(Live::Own));
        }
        match ask::<Status>(socket, Request::Status) {
            Err(why) if socket.is_some() => Err(why),
            Err(_) => Ok(Self::Live(Live::Own)),
            Ok(_) => {
                let topology = Box::new(settings::live_machine(None)?.0);
                Ok(Self::Live(Live::Daemon { socket: socket.map(Path::to_owned), topology }))
            }
        }
    }
}

impl Live {
    /// Starts sending its pictures. `first`: the first picture ends it.
    pub fn begin(self, first: bool) -> Result<Receiver<News>> {
        let (to, news) = channel();
        let run = move || {
            for line in worker::news() {
                let _ = to.send(News::Trouble(line)); // it has failed before
            }
            let told = match &self {
                Self::Daemon { socket, topology } => {
                    daemon(socket.as_deref(), topology, first, &to);
                    Ok(())
                }
                Self::Own => own(first, &to),
            };
            if let Err(why) = told {
                let _ = to.send(News::Trouble(chain(&why))); // the receiver may be gone
            }
        };
        worker::spawn("top", 2 << 20, run)?;
        Ok(news)
    }
}

/// Queries the daemon repeatedly; it may be restarted meanwhile.
fn daemon(socket: Option<&Path>, topology: &Topology, first: bool, to: &Sender<News>) {
    let (mut shortage, mut commands) = (Shortage::default(), Commands::default());
    loop {
        let news = match ask::<Status>(socket, Request::Status) {
            Ok(status) => {
                let mut picture = Picture::of_status(topology, &status);
                picture.pressure = shortage.look();
                commands.fill(&mut picture.services);
                News::Picture(Box::new(picture))
            }
            Err(why) => News::Trouble(chain(&why)),
        };
        if to.send(news).is_err() || first {
            return;
        }
        thread::sleep(EVERY);
    }
}

/// Looks at the programs visible to this user, and changes nothing.
fn own(first: bool, to: &Sender<News>) -> Result<()> {
    let (topology, machine) = settings::live_machine(None)?;
    let options = HostOptions {
        until: Until::Asked,
        other_users: sys::euid() == 0,
        proxies: true,
        waits: true,
        ..HostOptions::default()
    };
    let mut host = LinuxHost::new(&topology, Vec::new(), options)?;
    let mut drive = Drive::begin(&mut host)?;
    let mut watch = Watch::new(&topology, EVERY);
    let (mut census, mut roster) = (Census::new(FsRoot::live()).with_patience(), BTreeMap::new());
    let (policy, config) = (Nobody, Config { interval: INTERVAL, ..Config::default() });
    let apps = BTreeMap::new();
    let ctx = Ctx { topology: &topology, machine: &machine, apps: &apps, config: &config };
    let (mut shortage, mut commands) = (Shortage::default(), Commands::default());
    shortage.look();
    let mut looked = None;
    loop {
        if looked.is_none_or(|looked| host.now() - looked >= LOOK) {
            looked = Some(host.now());
            census.look()?;
            look(&census, &mut host, &mut watch, &mut roster)?;
        }
        host.call_at(host.now() + EVERY);
        let ended = drive
            .go(&mut host, &[Rule::all(&policy, &ctx)], Mode::Observe, |round| drop(watch.round(round, &[], false)))?;
        if ended == Ended::Over {
            let _ = host.take_signal().map(|signal| to.send(News::Signal(signal)));
            return Ok(());
        }
        if watch.cpus().is_empty() {
            continue; // the first second is not over
        }
        let mut picture = Box::new(seen(&topology, &host, &watch, &roster));
        picture.pressure = shortage.look();
        commands.fill(&mut picture.services);
        // BPF takes a moment to load; until then causes of waits are not known.
        let is_early = first && sys::euid() == 0 && host.now() < PATIENCE && picture::is_blind(&picture.services);
        if is_early {
            continue;
        }
        if to.send(News::Picture(picture)).is_err() || first {
            return Ok(());
        }
    }
}

/// The shortage of this machine since the previous look.
#[derive(Default)]
struct Shortage(Option<(Instant, [Option<u64>; 3])>);

impl Shortage {
    /// `None` at the first look, and where nothing is counted.
    fn look(&mut self) -> Option<Pressure> {
        let read = |of: &str| {
            let text = bounded::read(format!("/proc/pressure/{of}"), bounded::Limit::Value).ok()?;
            proc_text::pressure_us(&text).ok()
        };
        let (at, now) = (Instant::now(), ["cpu", "io", "memory"].map(read));
        let (since, before) = self.0.replace((at, now))?;
        let share = |i: usize| {
            let short = Duration::from_micros(now[i]?.checked_sub(before[i]?)?);
            Some((short.as_secs_f64() / (at - since).as_secs_f64()).min(1.0))
        };
        let pressure = Pressure { cpu: share(0), io: share(1), memory: share(2) };
        (pressure != Pressure::default()).then_some(pressure)
    }
}

/// Command lines of services, each read once.
#[derive(Default)]
struct Commands(BTreeMap<(u32, String), String>);

impl Commands {
    /// Characters that are kept.
    const MOST: usize = 1_000;

    fn fill(&mut self, services: &mut [ServiceStatus]) {
        let mut before = std::mem::take(&mut self.0);
        for service in services {
            let Some(pid) = service.pid else { continue };
            let key = (pid, service.name.clone());
            // One that did not answer is asked again.
            let read = || text::within(&address_space::command_line(pid).join(" "), Self::MOST).into_owned();
            let command = before.remove(&key).filter(|known| !known.is_empty()).unwrap_or_else(read);
            service.command = (!command.is_empty()).then(|| command.clone());
            self.0.insert(key, command);
        }
    }
}

/// New applications are observed, too.
fn look(
    census: &Census,
    host: &mut LinuxHost,
    watch: &mut Watch,
    roster: &mut BTreeMap<String, (Program, AppId)>,
) -> Result<()> {
    let mut found = programs(census, std::process::id());
    roster.retain(|name, (_, app)| {
        let stays = found.contains_key(name);
        if !stays {
            host.remove(*app);
            watch.forget(*app);
        }
        stays
    });
    for (name, (known, app)) in roster.iter_mut() {
        let Some(service) = found.remove(name) else { continue };
        if service.target != known.target {
            host.retarget(*app, service.target.clone());
        }
        *known = service;
    }
    for (name, service) in found {
        let app = host.add(AppSpec::new(name.clone(), What::Running(service.target.clone())))?;
        roster.insert(name, (service, app));
    }
    Ok(())
}

fn seen(topology: &Topology, host: &LinuxHost, watch: &Watch, roster: &BTreeMap<String, (Program, AppId)>) -> Picture {
    let services: Vec<ServiceStatus> = roster
        .iter()
        .map(|(name, (service, app))| {
            let known = ServiceStatus { name: name.clone(), uid: service.uid, ..ServiceStatus::default() };
            watch.fill(*app, service.summary.fill(known))
        })
        .collect();
    let uptime = host.now().as_secs_f64();
    let cost = sys::own_cpu_time().as_secs_f64() / uptime.max(1.0) * 100.0;
    let root = sys::euid() == 0;
    let whose = if root { "" } else { "your " };
    let programs = count(services.len() as u64, "program");
    Picture {
        source: format!("no daemon, own look at {whose}{programs}, own cost {cost:.2} % of a CPU"),
        host: bounded::host_name(),
        state: picture::state(&services, None),
        at_s: uptime,
        moment: None,
        pressure: None,
        packages: picture::packages(topology, &watch.cpus(), &services),
        unknown: picture::unknown(&services, From::Own { root }),
        services,
        interference: watch.interference(),
        last: picture::last(&watch.last()),
        trials: watch.trials(),
        notes: host.notes(),
    }
}

/// A recording, as pictures of its moments.
pub(crate) struct Recorded {
    moments: Vec<Picture>,
}

impl Recorded {
    /// Reads all of it.
    ///
    /// # Errors
    /// It is not a recording, or has no rounds.
    pub fn read(file: &Path) -> Result<Self> {
        let mut recording = open_recording(file, true)?;
        let header = recording.header().clone();
        let name = file.file_name().unwrap_or(file.as_os_str()).to_string_lossy();
        let mut made = Film::new(&header, text::name(name.as_bytes()));
        while let Some(round) = recording.next() {
            made.recorded.used(recording.usage());
            made.round(&round);
        }
        made.recorded.used(recording.usage());
        let mut moments = made.end();
        if moments.is_empty() {
            return Err(usage(format!("{}: the recording has no rounds", file.display())));
        }
        let note =
            recording.tail().filter(|tail| **tail != Tail::Complete).map(|tail| format!("the recording is {tail}"));
        let of = moments.len();
        for (number, picture) in (1..).zip(&mut moments) {
            picture.moment = Some(Moment { number, of });
            picture.notes.extend(note.clone());
        }
        Ok(Self { moments })
    }

    pub fn len(&self) -> usize {
        self.moments.len()
    }

    /// The last moment at which something ran.
    pub fn end(&self) -> usize {
        self.moments.iter().rposition(|picture| !picture.services.is_empty()).unwrap_or(self.moments.len() - 1)
    }

    /// When the last moment was.
    pub fn ends(&self) -> Time {
        self.moments
            .last()
            .map_or_else(Time::default, |picture| Time::default() + Duration::from_secs_f64(picture.at_s))
    }

    /// The last moment at or before that time, else the first one.
    pub fn at(&self, time: Time) -> usize {
        self.moments.partition_point(|picture| picture.at_s <= time.as_secs_f64()).saturating_sub(1)
    }

    pub fn picture(&self, moment: usize) -> &Picture {
        &self.moments[moment.min(self.moments.len() - 1)]
    }
}

/// Pictures while a recording is read.
struct Film<'a> {
    header: &'a Header,
    name: String,
    recorded: recorded::Recorded,
    /// Remarks, and when each was last shown.
    notes: BTreeMap<String, Time>,
    moments: Vec<Picture>,
    rounds: usize,
    /// Number of rounds between two.
    every: usize,
}

impl<'a> Film<'a> {
    fn new(header: &'a Header, name: String) -> Self {
        Self {
            header,
            name,
            recorded: recorded::Recorded::new(header, RECORDED),
            notes: BTreeMap::new(),
            moments: Vec::new(),
            rounds: 0,
            every: 1,
        }
    }

    fn round(&mut self, round: &RecordedRound) {
        self.recorded.round(round);
        let notes = round.decision.iter().flat_map(|decision| decision.notes.iter().cloned());
        self.notes.extend(notes.map(|note| (note, round.sample.at)));
        if self.rounds.is_multiple_of(self.every) {
            self.moments.push(self.picture(&round.sample));
        }
        self.rounds += 1;
        if self.moments.len() > MOMENTS {
            let mut odd = true;
            self.moments.retain(|_| {
                odd = !odd;
                !odd
            });
            self.every *= 2;
        }
    }

    /// The pictures, the last round among them.
    fn end(mut self) -> Vec<Picture> {
        if let Some(last) = self.recorded.last.take()
            && self.moments.last().is_some_and(|picture| picture.at_s < last.at.as_secs_f64())
        {
            self.moments.push(self.picture(&last));
        }
        self.moments
    }

    fn picture(&self, sample: &Sample) -> Picture {
        let (watch, policies) = (&self.recorded.watch, self.recorded.policies.join(", "));
        let services = self.recorded.services(sample);
        let simulated = self.header.host.tier == "simulated";
        let did = match self.header.mode {
            Mode::Observe => "observed".to_owned(),
            Mode::Advise => format!("advised by {policies}"),
            Mode::Enforce => format!("managed by {policies}"),
        };
        Picture {
            source: format!("recording {}, {did}", self.name),
            host: String::new(),
            state: picture::state(&services, None),
            at_s: sample.at.as_secs_f64(),
            moment: None,
            pressure: None,
            packages: picture::packages(&self.header.topology, &watch.cpus(), &services),
            // A simulation knows all that it counts.
            unknown: if simulated { Vec::new() } else { picture::unknown(&services, From::Recording) },
            services,
            interference: watch.interference(),
            last: picture::last(&watch.last()),
            trials: watch.trials(),
            notes: self
                .notes
                .iter()
                .filter(|(_, said)| sample.at < **said + LATELY)
                .map(|(note, _)| note.clone())
                .collect(),
        }
    }
}
