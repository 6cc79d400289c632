//! The log and the files of the loop's rounds: decisions, remarks, interference, shapes.

use crate::log::{self, Seldom};
use crate::services::Service;
use cotenant_linux::bounded;
use cotenant_model::interference::Interference;
use cotenant_model::{AppId, Round, Topology};
use cotenant_setup::calibrated;
use cotenant_setup::known::Known;
use cotenant_setup::replace::Writer;
use cotenant_status::status::Decision;
use cotenant_status::watch::Watch;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

/// State kept over a restart.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct State {
    interference: Interference,
}

/// The version of a file with any other content.
#[derive(Deserialize)]
struct Written {
    version: u32,
}

const VERSION: u32 = 1;

impl State {
    /// The kept state; otherwise an empty one with a remark. A refused file is put aside for another version.
    fn read(file: &Path) -> (Self, Option<String>) {
        let read = match bounded::named_text(file) {
            Err(why) if why.kind() == io::ErrorKind::NotFound => return Default::default(),
            Err(why) => Err(("damaged".to_owned(), why.to_string())),
            Ok(text) => Self::parse(&text),
        };
        let (aside, why) = match read {
            Ok(state) => return (state, None),
            Err(not) => not,
        };
        let mut to = file.as_os_str().to_owned();
        to.push(format!(".{aside}"));
        let kept = match fs::rename(file, &to) {
            Ok(()) => format!("kept as {}", Path::new(&to).display()),
            Err(why) => format!("cannot be put aside: {why}"),
        };
        (Self::default(), Some(format!("{}: {why}; it is left out, and {kept}", file.display())))
    }

    /// The content of a file; otherwise its new name and the reason of the refusal.
    pub fn parse(text: &str) -> Result<Self, (String, String)> {
        let damaged = |why: serde_json::Error| ("damaged".to_owned(), why.to_string());
        match serde_json::from_str::<Written>(text).map_err(damaged)?.version {
            VERSION => serde_json::from_str(text).map_err(damaged),
            other => Err((other.to_string(), format!("its version is {other}, and {VERSION} is read"))),
        }
    }
}

/// Names in the log besides the service.
#[derive(Default)]
struct Fields {
    rule: String,
    group: Option<String>,
}

/// The rounds so far, their log, and the files of learned state.
pub(crate) struct Logbook {
    /// The results of the rounds.
    pub watch: Watch,
    known: Known,
    services: BTreeMap<AppId, Fields>,
    /// Remarks about Cotenant itself.
    own: Seldom,
    /// Remarks that users can cause without limit, counted apart from the others.
    of_users: Seldom,
    /// Kinds of decisions logged for each service within an hour.
    logged: Seldom,
    /// The file of learned state, and its writer.
    file: Option<(PathBuf, Writer)>,
}

impl Logbook {
    /// With the state learned by an earlier daemon, and a remark if it is refused. The host's clock began this long
    /// after the daemon.
    pub fn begin(topology: &Topology, since: Duration) -> (Self, Option<String>) {
        let file = calibrated::data_folder().map(|folder| folder.join("daemon.json"));
        let (state, remark) = file.as_deref().map_or_else(Default::default, State::read);
        let watch = Watch::of_daemon(topology, state.interference, since);
        let file = file.map(|file| (file, Writer::begin()));
        (Self { file, ..Self::new(watch, Known::of(topology)) }, remark)
    }

    /// Without files.
    fn new(watch: Watch, known: Known) -> Self {
        Self {
            watch,
            known,
            services: BTreeMap::new(),
            own: Seldom::default(),
            of_users: Seldom::default(),
            logged: Seldom::default(),
            file: None,
        }
    }

    /// Takes over a round: see [`Watch::round`].
    pub fn round(&mut self, round: &Round<'_>, policies: &[String], judged: bool) {
        self.known.watch(round);
        let silences = self.watch.silences;
        for decided in self.watch.round(round, policies, judged) {
            let kind = |why: &cotenant_status::status::Why| format!("{} {}", why.means, why.stage);
            let kind = decided.decision.why.as_ref().map(kind).unwrap_or_default();
            // Naps are renewed ten times a second.
            let first = self.logged.is_due(&format!("{} {kind}", decided.decision.service));
            log_decision(&decided.decision, first, decided.app.and_then(|app| self.services.get(&app)));
        }
        for note in round.decision.iter().flat_map(|decision| &decision.notes) {
            if self.watch.silences == silences {
                self.remark(note);
            } else {
                warn(note); // each outage has a beginning and an end
            }
        }
    }

    /// Logs a remark, repeated ones rarely.
    pub fn remark(&mut self, text: &str) {
        self.remark_as(text, text);
    }

    /// Logs a remark with a changing text, rarely for the same kind.
    pub fn remark_as(&mut self, kind: &str, text: &str) {
        if self.of_users.is_due(kind) {
            warn(text);
        }
    }

    /// Logs the beginning of a lasting condition, independent of changes in its text; `None`: its end.
    pub fn remark_while(&mut self, kind: &str, text: Option<&str>) {
        match text {
            Some(text) => self.remark_as(kind, text),
            None => self.of_users.forget(kind),
        }
    }

    /// Logs a remark about Cotenant itself, independent of the number of remarks about services.
    pub fn remark_own(&mut self, text: &str) {
        if self.own.is_due(text) {
            // limited apart from all other remarks, by its place in the code
            tracing::warn!(MESSAGE_ID = log::NOTE, "{text}");
        }
    }

    /// Begins to manage a service under that rule.
    pub fn manage(&mut self, app: AppId, rule: &str, service: &Service) {
        let group = service.group().map(str::to_owned);
        self.services.insert(app, Fields { rule: rule.to_owned(), group });
        self.watch.manage(app, &service.name, service.uid, service.container.as_ref());
    }

    /// The rule of a service.
    pub fn rule_of(&self, app: AppId) -> Option<&str> {
        self.services.get(&app).map(|fields| &*fields.rule)
    }

    /// Ends the management of a service.
    pub fn forget(&mut self, app: AppId) {
        self.services.remove(&app);
        self.watch.forget(app);
    }

    /// Writes the state for the next daemon, and logs the last write's error.
    pub fn keep(&mut self) {
        let Some((file, writer)) = &self.file else { return };
        let state = serde_json::json!({ "version": VERSION, "interference": self.watch.learned() });
        let mut failed = writer.failed();
        failed.extend(writer.write(file.clone(), state.to_string()).err().map(|why| (file.clone(), why)));
        if let Some(file) = self.known.file() {
            let known = self.known.clone();
            failed.extend(writer.run(file.clone(), move || known.keep()).err().map(|why| (file.clone(), why)));
        }
        for (file, why) in failed {
            self.remark_own(&format!("{}: {why}; what was learnt is lost at a restart", file.display()));
        }
    }
}

fn warn(text: &str) {
    tracing::warn!(MESSAGE_ID = log::NOTE, "{text}");
}

/// Logs a decision; `first`: also at the level of those that are logged once an hour.
fn log_decision(decision: &Decision, first: bool, fields: Option<&Fields>) {
    let why = decision.why.as_ref();
    macro_rules! log {
        ($level:ident) => {
            tracing::$level!(
                MESSAGE_ID = log::DECISION,
                COTENANT_POLICY = why.map(|why| &*why.policy),
                COTENANT_RULE = fields.map(|fields| &*fields.rule),
                COTENANT_SERVICE = &*decision.service,
                COTENANT_CGROUP = fields.and_then(|fields| fields.group.as_deref()),
                COTENANT_DECISION = why.map(|why| &*why.means),
                COTENANT_REASON = why.map(|why| &*why.text),
                "{}",
                decision.line(),
            )
        };
    }
    if first {
        log!(info);
    } else {
        log!(debug);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::tests::logged;
    use cotenant_model::host::{HostError, drive};
    use cotenant_model::policy::Ctx;
    use cotenant_model::profile::MachineProfile;
    use cotenant_model::sample::AppSample;
    use cotenant_model::topology::synthetic;
    use cotenant_model::{Host, Mode, Order, Outcome, Sample, Time, Wake};
    use cotenant_policies::Qos;
    use cotenant_setup::protect::{Protected, keep};

    /// A server that hangs from the 10th second to the 20th and from the 30th to the 40th, and a program that gives
    /// way.
    struct Hangs(Topology, Time);

    impl Host for Hangs {
        fn topology(&self) -> &Topology {
            &self.0
        }

        fn sample(&mut self) -> Result<Sample, HostError> {
            let hangs = (self.1.as_secs_f64() / 10.0) as u64 % 2 == 1;
            let progress = (!hangs).then_some(self.1.0 / 1_000);
            let server = AppSample { name: "server".into(), progress, ..AppSample::default() };
            let batch = AppSample { id: AppId(1), name: "batch".into(), ..AppSample::default() };
            Ok(Sample { at: self.1, apps: vec![server, batch], ..Sample::default() })
        }

        fn watch(&mut self, _: Time) {}

        fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
            vec![Outcome::Applied; orders.len()]
        }

        fn wait(&mut self, until: Time) -> Wake {
            self.1 = until;
            if until >= Time::from_secs(50) { Wake::Exit } else { Wake::Tick }
        }
    }

    #[test]
    fn each_outage_of_a_metric_is_logged_with_its_end() {
        let machine = synthetic::parse("pack:1 l3:1 core:2 pu:1").unwrap();
        let mut logbook = Logbook::new(Watch::new(&machine, Duration::from_secs(1)), Known::of(&machine));
        let high = Protected { app: AppId(0), metric: "progress".parse().unwrap(), goal: Some(0.9) };
        let config = keep(&[high], vec![AppId(1)]);
        let policy = Qos(config.settings.of::<Qos>().unwrap());
        let (profile, apps) = (MachineProfile::default(), BTreeMap::new());
        let ctx = Ctx { topology: &machine, machine: &profile, apps: &apps, config: &config };
        let mut lines = logged(|| {
            let mut host = Hangs(machine.clone(), Time::default());
            let policies = ["qos".to_owned()];
            drive(&mut host, &policy, &ctx, Mode::Enforce, |round| logbook.round(round, &policies, true)).unwrap();
            for why in [Some("refused"), Some("reset"), None, Some("refused")] {
                logbook.remark_while("server: metric", why);
            }
        });
        lines.retain(|line| !line.contains("batch"));
        let outage = [
            "server: no reading of progress for 5.0 s; nothing is throttled for it until there is one",
            "server: there are readings of progress again",
        ];
        assert_eq!(lines, [&outage[..], &outage, &["refused", "refused"]].concat());
    }

    /// Services and threads that come and go cause remarks without limit.
    #[test]
    fn nobody_drowns_what_is_to_be_said_of_the_daemon_itself() {
        let machine = synthetic::parse("pack:1 l3:1 core:1 pu:1").unwrap();
        let mut logbook = Logbook::new(Watch::new(&machine, Duration::from_secs(1)), Known::of(&machine));
        for i in 0..1_000 {
            logbook.remark(&format!("service-{i} cannot be throttled"));
        }
        assert!(!logbook.of_users.is_due("one more"), "the log has enough of them");
        assert!(logbook.own.is_due("the journal cannot be written"));
    }

    /// Holds daemon/pause.
    #[test]
    fn what_another_version_has_learnt_is_refused_by_name_and_kept() {
        let folder = std::env::temp_dir().join(format!("cotenant-watch-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let file = folder.join("daemon.json");
        assert_eq!(State::read(&file).1, None, "there is none");
        for (text, aside, words) in [
            ("{\"version\":1,\"interference\":{}}", None, ""),
            ("{\"version\":2,\"interference\":[1]}", Some("2"), "its version is 2, and 1 is read; it is left out"),
            ("{\"version\":1,\"interference\":7}", Some("damaged"), "it is left out"),
            ("[", Some("damaged"), "it is left out"),
        ] {
            fs::write(&file, text).unwrap();
            let (_, remark) = State::read(&file);
            match aside {
                None => assert_eq!((remark, file.exists()), (None, true)),
                Some(aside) => {
                    assert!(remark.as_ref().is_some_and(|remark| remark.contains(words)), "{remark:?}");
                    assert!(!file.exists());
                    let kept = folder.join(format!("daemon.json.{aside}"));
                    assert_eq!(fs::read_to_string(kept).unwrap(), text);
                }
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
