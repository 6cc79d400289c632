//! `tracking` beside a program that empties caches, which fill slowly, with batched progress: the goal holds over the
//! whole run.

use super::*;
use proptest::prelude::*;

/// A step of the plant.
const STEP: Duration = Duration::from_micros(500);

/// Effect of a running program on another one.
#[derive(Clone, Debug)]
struct Harm {
    /// Fraction of the speed that is lost with cold caches.
    cold: f64,
    /// Fraction of the rest that is lost while the other one runs.
    beside: f64,
    /// Time constant of filling caches, seconds.
    fill_s: f64,
    /// Time constant of emptying them.
    empty_s: f64,
    /// Work in a batch, seconds alone.
    batch_s: f64,
    /// Relative error of the speed of each 10 ms.
    noise: f64,
    /// Relative change of the machine's capacity for both, up or down: unseen others share its memory.
    swing: f64,
    /// Mean duration of such a change, seconds.
    lasts_s: f64,
}

/// The first program does a second of work in a second alone and reports it in batches; the second one naps as ordered.
struct Caches {
    topology: Topology,
    harm: Harm,
    now: Time,
    end: Time,
    warm: f64,
    work_s: f64,
    ran_s: f64,
    /// Work that the first program would have done alone, seconds.
    alone_s: f64,
    /// The machine's current capacity, and its end.
    gives: (f64, f64),
    napping_until: Time,
    /// Fixed turns of 200 ms instead of orders: the fraction in which the second program runs.
    fixed: Option<f64>,
    random: u64,
    /// The kept speed according to the policy at the end.
    told: Option<f64>,
    /// Work, time in which the second program ran, and work alone, at the ends of seconds.
    log: Vec<[f64; 3]>,
}

impl Caches {
    fn new(harm: &Harm, seconds: u64) -> Self {
        Self {
            topology: machine(1, 1, 2, 1),
            harm: harm.clone(),
            now: Time::default(),
            end: Time::from_secs(seconds),
            warm: 1.0,
            work_s: 0.0,
            ran_s: 0.0,
            alone_s: 0.0,
            gives: (1.0, 0.0),
            told: None,
            napping_until: Time::default(),
            fixed: None,
            random: 1,
            log: Vec::new(),
        }
    }

    fn runs(&self) -> bool {
        let in_turn = (self.now.as_secs_f64() / 0.2).fract();
        self.fixed.map_or(self.now >= self.napping_until, |duty| in_turn >= 1.0 - duty)
    }

    fn advance(&mut self, to: Time) {
        let harm = self.harm.clone();
        while self.now < to {
            let step = (to - self.now).min(STEP).as_secs_f64();
            let before = self.now;
            let runs = self.runs();
            let (goal, time_s) = if runs { (0.0, harm.empty_s) } else { (1.0, harm.fill_s) };
            self.warm += (goal - self.warm) * (1.0 - (-step / time_s).exp());
            let beside = if runs { harm.beside } else { 0.0 };
            let noise = harm.noise * ((self.random >> 33) as f64 / f64::from(1_u32 << 30) - 1.0);
            if harm.swing > 0.0 && self.now.as_secs_f64() >= self.gives.1 {
                let level = 1.0 + harm.swing * (2.0 * self.uniform() - 1.0);
                self.gives = (level, self.now.as_secs_f64() - harm.lasts_s * self.uniform().ln());
            }
            let given = step * self.gives.0;
            self.alone_s += given;
            self.work_s += given * (1.0 - harm.cold * (1.0 - self.warm)) * (1.0 - beside) * (1.0 + noise);
            self.ran_s += if runs { step } else { 0.0 };
            self.now = self.now + Duration::from_secs_f64(step);
            if before.0 / 10_000_000 != self.now.0 / 10_000_000 {
                self.uniform();
            }
            if before.0 / 1_000_000_000 != self.now.0 / 1_000_000_000 {
                self.log.push([self.work_s, self.ran_s, self.alone_s]);
            }
        }
        self.now = to;
    }

    /// The next random number, above 0 and below 1.
    fn uniform(&mut self) -> f64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    /// Fraction of its work alone done by the first program, and of the time in which the second one ran, between two
    /// seconds.
    fn came(&self, from: usize, to: usize) -> (f64, f64) {
        let at = |second: usize| if second == 0 { [0.0; 3] } else { self.log[second - 1] };
        let (a, b, seconds) = (at(from), at(to), (to - from) as f64);
        ((b[0] - a[0]) / (b[2] - a[2]), (b[1] - a[1]) / seconds)
    }

    /// The largest fixed duty that keeps a goal.
    fn best(harm: &Harm, goal: f64) -> f64 {
        let quiet = Harm { noise: 0.0, swing: 0.0, ..harm.clone() };
        let keeps = |duty: f64| {
            let mut plant = Self { fixed: Some(duty), ..Self::new(&quiet, 3) };
            plant.advance(Time::from_secs(3));
            plant.came(1, 3).0 >= goal
        };
        let (mut low, mut high) = (0.0, 1.0);
        if keeps(high) {
            return high;
        }
        for _ in 0..7 {
            let middle = f64::midpoint(low, high);
            *(if keeps(middle) { &mut low } else { &mut high }) = middle;
        }
        low
    }
}

impl Host for Caches {
    fn topology(&self) -> &Topology {
        &self.topology
    }

    fn sample(&mut self) -> Result<Sample, HostError> {
        let batches = (self.work_s / self.harm.batch_s).floor();
        let app = |id, progress| AppSample { id: AppId(id), progress, ..AppSample::default() };
        let apps = vec![app(0, Some(batches as u64 * 100)), app(1, None)];
        Ok(Sample { at: self.now, apps, ..Sample::default() })
    }

    fn watch(&mut self, _: Time) {}

    fn apply(&mut self, orders: &[Order]) -> Vec<Outcome> {
        for order in orders {
            let Action::Nap { until, .. } = order.action else { panic!("{order:?}") };
            assert!(until - self.now <= LONGEST_NAP);
            self.napping_until = until;
        }
        vec![Outcome::Applied; orders.len()]
    }

    fn wait(&mut self, until: Time) -> Wake {
        self.advance(until);
        if self.now >= self.end { Wake::Exit } else { Wake::Tick }
    }
}

const SECONDS: usize = 30;

fn kept(harm: &Harm, goal: f64) -> Caches {
    kept_by(harm, goal, 1)
}

/// With other random numbers.
fn kept_by(harm: &Harm, goal: f64, seed: u64) -> Caches {
    let mut config = config("tracking", "progress", false);
    config.interval = MS(100);
    config = with(config, |qos| qos.controller = Controller::preset("tracking", goal).unwrap());
    let mut plant = Caches { random: seed, ..Caches::new(harm, SECONDS as u64 + 1) };
    for _ in 0..20 {
        plant.uniform(); // similar seeds begin alike
    }
    let told = first(&driven(&mut plant, &config), &config).kept();
    Caches { told, ..plant }
}

fn harms() -> impl Strategy<Value = Harm> {
    let batches = prop_oneof![Just(1e-4), 0.001..0.05f64];
    (0.0..0.5f64, 0.0..0.4f64, 0.005..0.08f64, 0.002..0.02f64, batches).prop_map(
        |(cold, beside, fill_s, empty_s, batch_s)| {
            let (noise, swing, lasts_s) = (0.02, 0.0, 0.0);
            Harm { cold, beside, fill_s, empty_s, batch_s, noise, swing, lasts_s }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whole run, learning included: at most two points below the goal; so from 3 s on, at most five. And the other
    /// program runs for most of what a fixed duty that is just right would let it. Where that is below the least duty,
    /// naps cannot do more than the least duty does.
    /// Promise qos/goal: Goals are kept on average, whatever the loss, from the beginning on, and pauses are bounded.
    #[test]
    fn the_goal_holds_from_the_beginning(harm in harms(), goal in prop::sample::select(&[0.8, 0.9, 0.95][..])) {
        let best = Caches::best(&harm, goal);
        let plant = kept(&harm, goal);
        let (whole, begin) = (plant.came(0, SECONDS), plant.came(0, 3));
        if best < 0.05 {
            prop_assert!(whole.1 < 0.12, "{whole:?}, best {best}");
            return Ok(());
        }
        prop_assert!(whole.0 >= goal - 0.02, "kept and ran {whole:?} in all, best {best}");
        prop_assert!(begin.0 >= goal - 0.05, "kept and ran {begin:?} in the first 3 s, best {best}");
        prop_assert!(whole.1 >= 0.6 * best - 0.02, "kept and ran {whole:?}, best {best}");
    }
}

/// The same machines, and a program that does the other no harm: it naps no more than it takes to learn that, for
/// nobody who has run all the time is made to nap before a pause has told that the machine does not merely give less.
/// Promise qos/innocent: Programs are not throttled where nothing is wrong, nothing is known, or something else is
/// the cause.
#[test]
fn who_does_no_harm_naps_little() {
    let swings = [(0.2, 0.3), (0.2, 1.0), (0.2, 3.0), (0.4, 1.0), (0.4, 3.0)];
    let ran = |(i, (swing, lasts_s)): (usize, (f64, f64))| {
        let batch_s = if i % 2 == 0 { 1e-4 } else { 0.02 };
        let (cold, beside, fill_s, empty_s) = (0.0, 0.0, 0.02, 0.005);
        let harm = Harm { cold, beside, fill_s, empty_s, batch_s, noise: 0.02, swing, lasts_s };
        (1..=8).map(|seed| kept_by(&harm, 0.9, seed * 7_919).came(0, SECONDS).1).sum::<f64>() / 8.0
    };
    let ran: Vec<f64> = swings.into_iter().enumerate().map(ran).collect();
    let mean = ran.iter().sum::<f64>() / 5.0;
    assert!(mean >= 0.82 && ran.iter().all(|ran| *ran >= 0.68), "{mean}: {ran:?}");
}

/// What the machine gives changes by a fifth or two up and down, as on shared hosts, and lasts for 0.3 to 3 s. A single
/// run is chance to a few points; the mean over eight of 30 s is at most two points below the goal in four of five such
/// worlds, five in any, and not below it over all of them. What the policy says of itself is off by seven points at
/// most, and the other program is not starved by it.
#[test]
fn the_goal_holds_where_the_machine_gives_more_and_less() {
    let (mut all, mut best_of_all) = (Vec::new(), 0.0);
    for (cold, beside, fill_s) in
        [(0.0, 0.3, 0.02), (0.3, 0.1, 0.02), (0.0, 0.13, 0.02), (0.2, 0.3, 0.05), (0.0, 0.6, 0.02)]
    {
        let swings = [(0.2, 0.3), (0.2, 1.0), (0.2, 3.0), (0.4, 1.0), (0.4, 3.0)];
        for (i, (swing, lasts_s)) in swings.into_iter().enumerate() {
            let batch_s = if i % 2 == 0 { 1e-4 } else { 0.02 };
            let harm = Harm { cold, beside, fill_s, empty_s: 0.005, batch_s, noise: 0.02, swing, lasts_s };
            let best = Caches::best(&harm, 0.9);
            let runs: Vec<Caches> = (1..=8).map(|seed| kept_by(&harm, 0.9, seed * 7_919)).collect();
            let mean = |of: &dyn Fn(&Caches) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
            let (kept, ran) = (mean(&|plant| plant.came(0, SECONDS).0), mean(&|plant| plant.came(0, SECONDS).1));
            let told = mean(&|plant| plant.told.unwrap()) - kept;
            let case = format!("{kept} kept, {ran} ran, best {best}, told {told} more: {harm:?}");
            assert!(kept >= 0.85 && told.abs() < 0.07 && ran >= 0.4 * best, "{case}");
            all.push(kept);
            best_of_all += ran / best / 25.0;
        }
    }
    let near = all.iter().filter(|kept| **kept >= 0.88).count();
    let kept = all.iter().sum::<f64>() / all.len() as f64;
    assert!(
        near >= 20 && (0.9..0.93).contains(&kept) && best_of_all > 0.8,
        "{near} near, {kept} kept, {best_of_all} ran"
    );
}
