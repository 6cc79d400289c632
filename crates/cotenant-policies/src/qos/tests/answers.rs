//! `steady` keeps the p99 of a server with a hundred requests per second, whose answers are known one by one.

use super::*;

/// The effect of the running low-priority program on the server's answers.
#[derive(Clone, Copy, Debug)]
struct Harm {
    /// Factor for all answers.
    slower: f64,
    /// Fraction of the moments in which a request first waits for a CPU.
    waits: f64,
    /// Mean of that wait, microseconds.
    wait_us: f64,
    /// Whether they do so in the background too, unless a CPU is left free.
    crowds: bool,
    /// Fraction of requests that wait so in the first 10 ms of each run, even in the background.
    starts: f64,
    /// Fraction of requests that wait for half a millisecond on average, whatever runs.
    tail: f64,
    /// Unseen others make all answers five times as long for a second on average, at mean intervals of this many
    /// seconds.
    spells_s: f64,
    /// From and to these seconds, unseen others fill the machine: three tenths of the requests wait for two
    /// milliseconds on average, whatever of ours runs.
    others_s: [f64; 2],
}

/// No other program runs.
const ALONE: Harm = Harm {
    slower: 0.0,
    waits: 0.0,
    wait_us: 3_000.0,
    crowds: false,
    starts: 0.0,
    tail: 0.0,
    spells_s: f64::INFINITY,
    others_s: [0.0; 2],
};

/// A server that takes 100 µs for an answer alone, with a deviation of 0.3 in logarithms, and random arrivals.
struct Server {
    topology: Topology,
    harm: Harm,
    now: Time,
    end: Time,
    napping_until: Time,
    /// Start of the other program's run.
    since: Time,
    /// Whether a spell is on, and the end of it or of its absence, seconds.
    spell: (bool, f64),
    /// Number of naps after runs.
    naps: u32,
    background: bool,
    /// Whether a CPU is left free.
    aside: bool,
    ran_s: f64,
    /// Fraction of the wanted CPU time that it gets in the background, if threads are observed, and its time beside the
    /// server.
    gets: Option<f64>,
    beside_s: f64,
    /// Requests a second, and the time until which there are five times as many.
    rate: f64,
    watched_until: Time,
    random: u64,
    /// The answers.
    seen: Histogram,
    /// Latencies of a probe each millisecond, from a time on.
    truth: Histogram,
    /// The same without the other program.
    alone: Histogram,
    from: Time,
    ran_from: f64,
}

impl Server {
    fn new(harm: Harm, rate: f64, seconds: u64) -> Self {
        Self {
            topology: machine(1, 1, 2, 1),
            harm,
            now: Time::default(),
            end: Time::from_secs(seconds),
            napping_until: Time::default(),
            since: Time::default(),
            spell: (true, 0.0),
            naps: 0,
            background: false,
            aside: false,
            ran_s: 0.0,
            gets: None,
            beside_s: 0.0,
            rate,
            watched_until: Time::default(),
            random: 1,
            seen: Histogram::default(),
            truth: Histogram::default(),
            alone: Histogram::default(),
            from: Time::default(),
            ran_from: 0.0,
        }
    }

    /// The next random number, above 0 and below 1.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Duration of an answer, nanoseconds.
    fn answer(&mut self, runs: bool) -> u64 {
        let normal = (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos();
        let alone_us = 100.0 * (0.3 * normal).exp();
        let starts = runs && self.now < self.since + MS(10) && self.uniform() < self.harm.starts;
        let there = runs && (!self.background || self.harm.crowds && !self.aside);
        let waits = starts || there && self.uniform() < self.harm.waits;
        let wait_us = if waits { -self.uniform().ln() * self.harm.wait_us } else { 0.0 };
        let tail = self.harm.tail > 0.0 && self.uniform() < self.harm.tail;
        let wait_us = wait_us - if tail { self.uniform().ln() * 500.0 } else { 0.0 };
        let [from, to] = self.harm.others_s;
        let others = (from..to).contains(&self.now.as_secs_f64()) && self.uniform() < 0.3;
        let wait_us = wait_us - if others { self.uniform().ln() * 2_000.0 } else { 0.0 };
        let slower = if runs { 1.0 + self.harm.slower } else { 1.0 } * if self.spell.0 { 5.0 } else { 1.0 };
        ((alone_us * slower + wait_us) * 1e3) as u64
    }

    fn advance(&mut self, to: Time) {
        while self.now < to {
            let step = (to - self.now).min(MS(1));
            let runs = self.now >= self.napping_until;
            if !runs {
                self.since = self.now + step;
            }
            if self.now.as_secs_f64() >= self.spell.1 {
                let (on, mean_s) = if self.spell.0 { (false, self.harm.spells_s) } else { (true, 1.0) };
                self.spell = (on, self.now.as_secs_f64() - mean_s * self.uniform().ln());
            }
            self.ran_s += if runs { step.as_secs_f64() } else { 0.0 };
            self.beside_s += if runs && !self.background { step.as_secs_f64() } else { 0.0 };
            let rate = if self.now < self.watched_until { 5.0 * self.rate } else { self.rate };
            if self.uniform() < rate * step.as_secs_f64() {
                let answer = self.answer(runs);
                self.seen.count_one(answer);
            }
            if self.now >= self.from {
                self.ran_from += if runs { step.as_secs_f64() } else { 0.0 };
                let answer = self.answer(runs);
                self.truth.count_one(answer);
                let answer = self.answer(false);
                self.alone.count_one(answer);
            }
            self.now = self.now + step;
        }
    }

    /// The p99 alone over that in the run, and the fraction of time in which the other program ran.
    fn came(&mut self) -> (f64, f64) {
        let alone = self.alone.quantile(0.99).unwrap();
        (alone / self.truth.quantile(0.99).unwrap(), self.ran_from / (self.now - self.from).as_secs_f64())
    }
}

impl Host for Server {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let high = AppSample { id: AppId(0), latency_ns: Some(self.seen.clone()), ..AppSample::default() };
        let low = AppSample { id: AppId(1), ..AppSample::default() };
        // Two threads on two CPUs.
        let thread = |id: u32, gets: f64| {
            let mut counters = Counters::default();
            let ns = |share: f64| Count::exact((self.ran_s * share * 1e9) as u64);
            counters.set(Signal::CpuTime, ns(gets));
            counters.set(Signal::RunQueueWait, ns(1.0 - gets));
            let allowed = self.topology.usable().clone();
            let info = TaskInfo { id: TaskId(id), app: AppId(1), allowed, ..TaskInfo::default() };
            TaskSample { info: Arc::new(info), counters, ..TaskSample::default() }
        };
        let tasks = self.gets.map_or_else(Vec::new, |gets| vec![thread(0, gets), thread(1, gets)]);
        Ok(Sample { at: self.now, apps: vec![high, low], tasks, ..Sample::default() })
    }

    fn watch(&mut self, until: Time) {
        self.watched_until = until;
    }

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        let apply = |order: &Order| {
            match order.action {
                Action::Nap { until, .. } => {
                    self.naps += u32::from(self.now >= self.napping_until);
                    self.napping_until = until;
                }
                Action::Background { on, .. } => self.background = on,
                Action::Place { ref contexts, .. } => self.aside = contexts.len() == 1,
                Action::Release { .. } => self.aside = false,
                _ => return Outcome::NotThisMachine,
            }
            Outcome::Applied
        };
        orders.iter().map(apply).collect()
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.advance(until);
        if self.now >= self.end { Wake::Exit } else { Wake::Tick }
    }
}

/// Results from `from` on.
fn serve(harm: Harm, rate: f64, background: bool, seed: u64, from: u64, seconds: u64) -> (f64, f64) {
    let config = Config { interval: MS(100), ..config("steady", "latency_p99_s", false) };
    let config = with(config, |qos| qos.climb = background);
    let from = Time::from_secs(from);
    let mut plant = Server { random: seed * 7_919, from, ..Server::new(harm, rate, seconds) };
    for _ in 0..20 {
        plant.uniform(); // similar seeds begin alike
    }
    driven(&mut plant, &config);
    // Each stop and start of a program disturbs answers in progress: a few times a second, not with each of them.
    assert!(plant.naps <= 7 * seconds as u32, "{} naps in {seconds} s", plant.naps);
    plant.came()
}

/// Mean over several runs of 120 s, of which the first quarter is learning.
fn mean(harm: Harm, rate: f64, background: bool) -> (f64, f64) {
    let rows: Vec<(f64, f64)> = (1..=6).map(|seed| serve(harm, rate, background, seed, 30, 120)).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
    (mean(|row| row.0), mean(|row| row.1))
}

#[test]
fn a_hundred_answers_a_second_keep_a_p99() {
    // The largest duty that keeps it, by the distribution: the harm, and the least result expected of `steady`.
    let harm = |slower, waits, wait_us| Harm { slower, waits, wait_us, ..ALONE };
    for (harm, least) in [
        (ALONE, 0.75),                    // 1
        (harm(0.2, 0.0, 0.0), 0.15),      // 0.41
        (harm(0.3, 0.0, 0.0), 0.08),      // 0.18
        (harm(0.0, 0.05, 3_000.0), 0.06), // 0.12
    ] {
        let (kept, ran) = mean(harm, 100.0, false);
        assert!(kept >= 0.87 && ran >= least, "{harm:?}: kept {kept}, ran {ran}");
    }
    // A third of the answers are disturbed, mostly by milliseconds: a duty of 0.0175 keeps the goal, one of 0.04
    // multiplies the p99. Five bad answers of 500 are uncertain by two.
    let (kept, ran) = mean(harm(0.5, 0.3, 3_000.0), 100.0, false);
    assert!(kept >= 0.75 && (0.005..0.03).contains(&ran), "kept {kept}, ran {ran}");
}

/// Who waits for nobody else's CPU does so little harm that the other one may run nearly all the time, where beside the
/// server it would be less than a tenth.
/// Holds qos/means.
#[test]
fn in_the_background_nobody_is_waited_for() {
    let (kept, ran) = mean(Harm { waits: 0.3, ..ALONE }, 100.0, true);
    // A failed trial outside the background is followed by a pause of 5 s: 16, 32 and 64 readings of a second or two
    // are between two.
    assert!(kept >= 0.87 && ran >= 0.7, "kept {kept}, ran {ran}");
}

/// With CPUs to spare it gets nearly all that is idle in the background, and beside the server only what the server's
/// clients wait for. The speed alone takes 3 s; a p99 that is slow by chance takes nothing.
#[test]
fn with_cpus_to_spare_nobody_runs_beside_the_server() {
    let config = Config { interval: MS(100), ..config("steady", "latency_p99_s", false) };
    let config = with(config, |qos| qos.climb = true);
    for (seconds, least) in [(20, 0.8), (42, 0.88)] {
        let mut rows = Vec::new();
        for seed in 1..=12 {
            let harm = Harm { waits: 0.05, ..ALONE };
            let mut plant = Server { gets: Some(0.9), random: seed * 7_919, ..Server::new(harm, 100.0, seconds) };
            driven(&mut plant, &config);
            assert!(plant.beside_s < 0.2, "seed {seed}: beside it for {} s", plant.beside_s);
            rows.push(plant.came());
        }
        let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        let (kept, ran) = (mean(|row| row.0), mean(|row| row.1));
        assert!(kept >= 0.95 && ran >= least, "{seconds} s: kept {kept}, ran {ran}");
    }
}

/// Where only a CPU that is really idle lets nobody wait, the other one leaves one of two free: it runs for most of the
/// time on the other, and would nap for nearly all of it otherwise.
/// Holds qos/means.
#[test]
fn a_cpu_is_left_free_before_anybody_naps() {
    let harm = Harm { waits: 0.1, crowds: true, ..ALONE };
    let rows = |place: bool| {
        let config = Config { interval: MS(100), ..config("steady", "latency_p99_s", false) };
        let mut config = with(config, |qos| (qos.climb, qos.place) = (true, place));
        config.pin = cotenant_model::pin::Pin::Cpu;
        let run = |seed: u64| {
            let mut plant = Server { gets: Some(0.9), random: seed * 7_919, ..Server::new(harm, 100.0, 42) };
            driven(&mut plant, &config);
            plant.came()
        };
        let mut rows: Vec<(f64, f64)> = (1..=12).map(run).collect();
        rows.sort_by(|a, b| a.0.total_cmp(&b.0));
        (rows[6].0, rows.iter().map(|row| row.1).sum::<f64>() / 12.0)
    };
    let (kept, ran) = rows(true);
    assert!(kept >= 0.88 && ran >= 0.6, "kept {kept}, ran {ran}");
    let (kept, ran) = rows(false);
    assert!(ran < 0.3, "without: kept {kept}, ran {ran}");
}

/// Of all answers of a short run, learning included, a hundredth may be bad: the median of twelve runs, and what the
/// worst of them keeps.
/// Holds qos/controllers.
#[test]
fn learning_leaves_the_goal_in_sight() {
    let harm = |slower, waits, wait_us| Harm { slower, waits, wait_us, ..ALONE };
    for (harm, background, seconds, median, least) in [
        // Beside the server nearly a third of the answers are disturbed: two seconds of that would exceed a minute's
        // allowance.
        (harm(0.0, 0.3, 3_000.0), true, 20, 0.88, 0.8),
        (harm(0.0, 0.3, 3_000.0), true, 60, 0.88, 0.8),
        // All are slower by half, in the background as well: a duty of a tenth keeps the goal, and a quarter is tried
        // first.
        (harm(0.5, 0.0, 0.0), true, 12, 0.82, 0.75),
        (harm(0.3, 0.0, 0.0), true, 12, 0.87, 0.8),
        // Without a background a duty of 0.02 keeps it; the excess during learning is repaid within a minute.
        (harm(0.0, 0.3, 3_000.0), false, 60, 0.9, 0.72),
        (harm(0.0, 0.3, 3_000.0), false, 20, 0.88, 0.7),
        // Alone nearly the allowed number is beyond the goal: a thousandth remains, and a program beside it takes more
        // than that.
        (Harm { tail: 0.02, ..harm(0.0, 0.3, 3_000.0) }, true, 60, 0.88, 0.78),
        (Harm { tail: 0.02, ..harm(0.0, 0.05, 3_000.0) }, true, 20, 0.88, 0.65),
    ] {
        let mut kept: Vec<f64> = (1..=12).map(|seed| serve(harm, 100.0, background, seed, 0, seconds).0).collect();
        kept.sort_by(f64::total_cmp);
        assert!(kept[6] >= median && kept[0] >= least, "{harm:?} {seconds} s: {kept:?}");
    }
}

/// Who does no harm runs nearly all the time from the beginning: also where what disturbs is only that he begins to
/// run, and where others that nobody here sees make the answers slower for a second now and then, whose doing that is
/// not.
/// Holds qos/cause.
#[test]
fn who_does_no_harm_runs_from_the_beginning() {
    for (harm, least) in [
        (ALONE, 0.65),
        (Harm { starts: 0.1, ..ALONE }, 0.65),
        (Harm { starts: 0.1, spells_s: 20.0, ..ALONE }, 0.55),
        (Harm { spells_s: 5.0, ..ALONE }, 0.45),
    ] {
        let rows: Vec<(f64, f64)> = (1..=12).map(|seed| serve(harm, 100.0, true, seed, 0, 20)).collect();
        let mean = |of: fn(&(f64, f64)) -> f64| rows.iter().map(of).sum::<f64>() / rows.len() as f64;
        let (kept, ran) = (mean(|row| row.0), mean(|row| row.1));
        assert!(kept >= 0.97 && ran >= least, "{harm:?}: kept {kept}, ran {ran}");
    }
}

/// Compilers fill the machine from the twentieth second on: whatever of ours runs, the goal is missed by far. So they
/// run on, and stand still for hardly any of the time to find that out; when the compilers are gone, all is as before.
/// Holds qos/innocent.
#[test]
fn nobody_stands_still_for_what_others_do() {
    // In the background it does no harm; without one, a duty of 0.02 keeps the goal.
    let waits = Harm { waits: 0.3, ..ALONE };
    for (harm, background) in [(waits, true), (ALONE, true), (ALONE, false)] {
        let filled = Harm { others_s: [20.0, f64::INFINITY], ..harm };
        let rows: Vec<(f64, f64)> = (1..=6).map(|seed| serve(filled, 100.0, background, seed, 40, 140)).collect();
        let ran = rows.iter().map(|row| row.1).sum::<f64>() / 6.0;
        assert!(ran >= 0.9, "{harm:?}, {background}: {rows:?}");
    }
    let filled = Harm { others_s: [20.0, 80.0], ..waits };
    for background in [true, false] {
        let rows: Vec<(f64, f64)> = (1..=6).map(|seed| serve(filled, 100.0, background, seed, 110, 200)).collect();
        let kept = rows.iter().map(|row| row.0).sum::<f64>() / 6.0;
        assert!(kept >= 0.85, "{background}: {rows:?}");
    }
}
