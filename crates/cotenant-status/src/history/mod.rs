//! The last hours in bounded memory: fine for the last minutes, coarser for older times.
//!
//! Rows of time hold the values of the services at that time, so that ended services leave nothing behind.

use crate::plots::{Line, Plot, Plots, Role};
use crate::status::{CpuStatus, ServiceStatus};
use crate::values::{ServicePlot, Value};
use cotenant_model::{CpuId, Topology};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Stretches of time that can be looked at, and how much of it is one row; seconds.
pub const SPANS: [(f64, f64); 3] = [(600.0, 2.0), (3_600.0, 10.0), (21_600.0, 60.0)];

/// Seconds between two looks of the daemon.
const TICK: f64 = 1.0;

/// Limit of a recording's rows, and their shortest length, seconds.
const ROWS: usize = 480;
const SHORTEST: f64 = 0.1;

/// Limit of services per row; first those with a goal or throttled, then those with most CPU time.
const SERVICES: usize = 256;

/// Limit of a row's entries on use per service and place; the largest are kept.
const USES: usize = 512;

/// Names that are known at once.
const NAMES: usize = 1_024;

/// Index for no service among a row's uses: a place's total load. Names follow it.
const BUSY: u32 = 0;

/// Seconds over which other programs' use is shown, because the kernel counts CPU load in coarse ticks.
const OTHERS: f64 = 1.0;

/// Other programs' use of a place below this many CPUs counts as zero.
const LITTLE: f64 = 0.01;

/// Seconds of absence after which a service has ended.
const GONE: f64 = 5.0;

/// Parts of the machine with a plot of their own; on larger machines neighbours share one.
const PLACES: usize = 16;

/// The title for work without a known place.
const MOVED: &str = "Of threads that moved between CPUs";

/// Lines of a plot.
const LINES: usize = 7;

/// Number of services with plotted latencies.
const LATENCIES: usize = 4;

/// Values of a service that are kept.
const FIELDS: usize = Value::KEPT.len();

/// A service in a row; unknown values are not a number.
#[derive(Clone, Copy, Debug)]
struct Point {
    name: u32,
    values: [f32; FIELDS],
}

/// A service's use of a place in CPUs; for [`BUSY`], the total. The place after the last one is that of threads that
/// moved between unknown CPUs.
#[derive(Clone, Copy, Debug)]
struct Use {
    name: u32,
    place: u16,
    cpus: f32,
}

/// The interval until `at_s`, since the previous row. Points are in the order of their names.
#[derive(Clone, Debug)]
struct Row {
    at_s: f64,
    seconds: f32,
    points: Box<[Point]>,
    uses: Box<[Use]>,
}

/// Rows of one length.
#[derive(Clone, Debug)]
struct Resolution {
    /// Rows are dropped after this long, seconds.
    length: f64,
    step: f64,
    /// A row may be shorter than its step by this.
    slack: f64,
    /// Beyond this number, pairs of rows are merged, and steps are twice as long.
    most: usize,
    rows: VecDeque<Arc<Row>>,
    /// When the row that is being made began.
    since: Option<f64>,
    /// Seconds that it summarises.
    seconds: f32,
    /// Sums and seconds by service.
    sums: BTreeMap<u32, [(f32, f32); FIELDS]>,
    used: BTreeMap<(u32, u16), f32>,
}

impl Resolution {
    fn new(length: f64, step: f64, slack: f64, most: usize) -> Self {
        Self {
            length,
            step,
            slack,
            most,
            rows: VecDeque::new(),
            since: None,
            seconds: 0.0,
            sums: BTreeMap::new(),
            used: BTreeMap::new(),
        }
    }

    /// Adds values that held for some seconds.
    fn add(&mut self, at_s: f64, seconds: f32, points: &[Point], uses: &[Use]) {
        let since = *self.since.get_or_insert(at_s);
        self.seconds += seconds;
        for point in points {
            let sums = self.sums.entry(point.name).or_default();
            for (i, (sum, value)) in sums.iter_mut().zip(point.values).enumerate().filter(|(_, (_, v))| !v.is_nan()) {
                // A short time of slow answers must be visible in a long row, too.
                *sum = if Value::KEPT[i].peaks() {
                    (sum.0.max(value), 1.0)
                } else {
                    (sum.0 + value * seconds, sum.1 + seconds)
                };
            }
        }
        for one in uses {
            *self.used.entry((one.name, one.place)).or_default() += one.cpus * seconds;
        }
        if at_s - since >= self.step - self.slack {
            self.close(at_s);
        }
    }

    /// The values added since the last row, as one.
    fn take(&mut self, at_s: f64) -> Row {
        let mean = |(sum, n): (f32, f32)| if n > 0.0 { sum / n } else { f32::NAN };
        let mut points: Vec<Point> = std::mem::take(&mut self.sums)
            .into_iter()
            .map(|(name, sums)| Point { name, values: sums.map(mean) })
            .collect();
        if points.len() > SERVICES {
            points.sort_by(|a, b| b.rank().total_cmp(&a.rank()));
            points.truncate(SERVICES);
            points.sort_by_key(|point| point.name);
        }
        let seconds = self.seconds;
        let ran = std::mem::take(&mut self.used).into_iter().filter(|(_, cpus)| *cpus > 0.0);
        let mut uses: Vec<Use> = ran.map(|((name, place), cpus)| Use { name, place, cpus: cpus / seconds }).collect();
        if uses.len() > USES {
            uses.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
            uses.truncate(USES);
        }
        (self.since, self.seconds) = (Some(at_s), 0.0);
        Row { at_s, seconds, points: points.into(), uses: uses.into() }
    }

    fn close(&mut self, at_s: f64) {
        let row = self.take(at_s);
        self.rows.push_back(Arc::new(row));
        while self.rows.front().is_some_and(|row| at_s - row.at_s >= self.length) {
            self.rows.pop_front();
        }
        if self.rows.len() > self.most {
            self.step *= 2.0;
            let rows = self.rows.make_contiguous();
            self.rows = rows.chunks(2).map(|pair| Arc::new(Row::merged(pair))).collect();
        }
    }
}

impl Row {
    /// Neighbours as one.
    fn merged(rows: &[Arc<Self>]) -> Self {
        let mut resolution = Resolution::new(f64::INFINITY, f64::INFINITY, 0.0, usize::MAX);
        for row in rows {
            resolution.add(row.at_s, row.seconds, &row.points, &row.uses);
        }
        resolution.take(rows.last().map_or(0.0, |row| row.at_s))
    }
}

impl Point {
    fn of(name: u32, service: &ServiceStatus) -> Self {
        let number =
            |of: Value| of.of(service).filter(|value| value.is_finite()).map_or(f32::NAN, |value| value as f32);
        let values = Value::KEPT.map(number);
        Self { name, values }
    }

    fn get(&self, of: Value) -> Option<f32> {
        let place = Value::KEPT.iter().position(|kept| *kept == of)?;
        Some(self.values[place]).filter(|value| !value.is_nan())
    }

    /// Order of services when there is no room for all.
    fn rank(&self) -> f32 {
        let first = self.get(Value::Goal).is_some() || self.get(Value::Throttled).is_some();
        self.get(Value::Cpus).unwrap_or(0.0) + if first { f32::from(u16::MAX) } else { 0.0 }
    }
}

/// A part of the machine.
#[derive(Clone, Debug, PartialEq)]
struct Place {
    name: String,
    cpus: f64,
}

/// The parts of a machine: several cache domains, otherwise CPUs; if there are many, neighbours are merged.
#[derive(Clone, Debug, Default, PartialEq)]
struct Places {
    all: Vec<Place>,
    of: BTreeMap<CpuId, u16>,
    /// The place of each cache domain, where places are such.
    domains: Vec<u16>,
}

impl Places {
    fn of(topology: &Topology) -> Self {
        let (domains, packages) = (topology.llc_domains(), topology.packages().len());
        let parts: Vec<Vec<CpuId>> = if domains.len() > 1 {
            domains.iter().map(|domain| domain.cpus.iter().collect()).collect()
        } else {
            topology.usable().iter().map(|cpu| vec![cpu]).collect()
        };
        let together = parts.len().div_ceil(PLACES).max(1);
        let mut places = Self::default();
        for (i, parts) in parts.chunks(together).enumerate() {
            let first = i * together;
            let last = first + parts.len() - 1;
            let numbers = if first == last { first.to_string() } else { format!("{first} to {last}") };
            let plural = if first == last { "" } else { "s" };
            let name = match domains.get(first).filter(|_| domains.len() > 1) {
                Some(domain) if packages > 1 => format!("cache domain{plural} {numbers} (package {})", domain.package),
                Some(_) => format!("cache domain{plural} {numbers}"),
                None => {
                    let ends = [parts[0][0], parts[parts.len() - 1][0]];
                    if first == last { format!("CPU {}", ends[0]) } else { format!("CPUs {} to {}", ends[0], ends[1]) }
                }
            };
            let cpus: Vec<CpuId> = parts.iter().flatten().copied().collect();
            places.all.push(Place { name, cpus: cpus.len() as f64 });
            places.of.extend(cpus.into_iter().map(|cpu| (cpu, i as u16)));
            if domains.len() > 1 {
                places.domains.extend((first..=last).map(|_| i as u16));
            }
        }
        places
    }
}

/// All of it.
#[derive(Clone, Debug)]
pub struct History {
    places: Arc<Places>,
    /// When something was taken in last.
    last: Option<f64>,
    /// By name: its index in rows, and its last time.
    names: BTreeMap<Arc<str>, (u32, f64)>,
    next: u32,
    /// When there was no room for a name.
    crowded: Option<f64>,
    resolutions: Vec<Resolution>,
}

impl History {
    /// Whether nothing was taken in.
    pub fn is_empty(&self) -> bool {
        self.resolutions.iter().all(|resolution| resolution.since.is_none())
    }

    /// That of a daemon: see [`SPANS`].
    pub fn live(topology: &Topology) -> Self {
        let resolution = |(length, step): &(f64, f64)| Resolution::new(*length, *step, TICK / 2.0, usize::MAX);
        Self::new(topology, SPANS.iter().map(resolution).collect())
    }

    /// That of a recording, all of it.
    pub fn whole(topology: &Topology) -> Self {
        Self::new(topology, vec![Resolution::new(f64::INFINITY, SHORTEST, 0.0, ROWS)])
    }

    fn new(topology: &Topology, resolutions: Vec<Resolution>) -> Self {
        let (places, names) = (Arc::new(Places::of(topology)), BTreeMap::new());
        Self { places, last: None, names, next: 0, crowded: None, resolutions }
    }

    /// Adds services and CPUs at a time, in seconds since the beginning, and since the previous one.
    pub fn add(&mut self, at_s: f64, services: &[ServiceStatus], cpus: &[CpuStatus]) {
        let seconds = self.last.map_or(TICK, |last| (at_s - last).clamp(0.0, GONE));
        self.add_for(at_s, seconds, services, cpus);
    }

    /// The same for other times.
    pub fn add_for(&mut self, at_s: f64, seconds: f64, services: &[ServiceStatus], cpus: &[CpuStatus]) {
        self.last = Some(at_s);
        let mut points = Vec::with_capacity(services.len());
        let mut busy: BTreeMap<u16, f64> = BTreeMap::new();
        for cpu in cpus {
            if let Some(at) = self.places.of.get(&cpu.cpu) {
                *busy.entry(*at).or_default() += cpu.busy;
            }
        }
        let of_busy = |(place, cpus): (u16, f64)| Use { name: BUSY, place, cpus: cpus as f32 };
        let mut uses: Vec<Use> = busy.into_iter().map(of_busy).collect();
        for service in services.iter().filter(|service| !service.paused) {
            let Some(name) = self.name(&service.name, at_s) else { continue };
            points.push(Point::of(name, service));
            let mut on: BTreeMap<u16, f64> = BTreeMap::new();
            for place in &service.places {
                if let Some(at) = self.places.of.get(&place.cpu) {
                    *on.entry(*at).or_default() += place.cpus;
                }
            }
            for moved in &service.moved {
                let at = moved.domain.and_then(|domain| self.places.domains.get(domain)).copied();
                *on.entry(at.unwrap_or(self.places.all.len() as u16)).or_default() += moved.cpus;
            }
            uses.extend(on.into_iter().map(|(place, cpus)| Use { name, place, cpus: cpus as f32 }));
        }
        for resolution in &mut self.resolutions {
            resolution.add(at_s, seconds as f32, &points, &uses);
        }
    }

    /// Ends the history: an incomplete row counts, too.
    pub fn end(&mut self, at_s: f64) {
        self.resolutions
            .iter_mut()
            .filter(|resolution| resolution.seconds > 0.0)
            .for_each(|resolution| resolution.close(at_s));
    }

    /// The index of a name. With too many, those absent longest are dropped; if all are present, the new one is left
    /// out.
    fn name(&mut self, name: &str, at_s: f64) -> Option<u32> {
        if let Some((id, seen)) = self.names.get_mut(name) {
            *seen = at_s;
            return Some(*id);
        }
        if self.names.len() >= NAMES {
            if self.crowded == Some(at_s) {
                return None;
            }
            let mut seen: Vec<f64> = self.names.values().map(|(_, seen)| *seen).collect();
            seen.sort_by(f64::total_cmp);
            let oldest = seen[NAMES / 4].min(at_s - GONE);
            self.names.retain(|_, (_, seen)| *seen > oldest);
            if self.names.len() >= NAMES {
                self.crowded = Some(at_s);
                return None;
            }
        }
        self.next += 1;
        self.names.insert(name.into(), (self.next, at_s));
        Some(self.next)
    }

    /// The rows of a span, by its place in [`SPANS`].
    pub fn excerpt(&self, span: usize) -> Excerpt {
        Excerpt {
            rows: self
                .resolutions
                .get(span)
                .map_or_else(Vec::new, |resolution| resolution.rows.iter().cloned().collect()),
            names: self.names.iter().map(|(name, (id, _))| (*id, name.clone())).collect(),
            places: self.places.clone(),
        }
    }

    /// Limit of its heap memory in bytes, by the present content.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        use std::mem::size_of;
        let row = |row: &Arc<Row>| size_of::<Row>() + 16 + size_of_val(&*row.points) + size_of_val(&*row.uses);
        // Nodes of trees are at least half full.
        let resolution = |resolution: &Resolution| {
            let making = resolution.sums.len() * 2 * size_of::<(u32, [(f32, f32); FIELDS])>()
                + resolution.used.len() * 2 * size_of::<((u32, u16), f32)>();
            resolution.rows.iter().map(row).sum::<usize>() + making + resolution.rows.capacity() * size_of::<Arc<Row>>()
        };
        let name = |name: &Arc<str>| name.len() + 16 + 2 * size_of::<(Arc<str>, (u32, f64))>();
        self.resolutions.iter().map(resolution).sum::<usize>() + self.names.keys().map(name).sum::<usize>()
    }
}

/// The rows of a span, copied so that their use does not delay additions.
#[derive(Debug)]
pub struct Excerpt {
    rows: Vec<Arc<Row>>,
    names: BTreeMap<u32, Arc<str>>,
    places: Arc<Places>,
}

impl Excerpt {
    /// Its plots.
    pub fn plots(&self) -> Plots {
        let mut plots = self.goals();
        plots.extend(self.latencies());
        plots.extend(Value::KEPT.into_iter().filter_map(|value| self.of_value(value)));
        plots.extend(self.occupied());
        Plots { at_s: self.rows.iter().map(|row| (row.at_s * 1e3).round() / 1e3).collect(), plots }
    }

    /// A service over time.
    fn values(&self, name: u32, of: Value) -> Vec<Option<f64>> {
        let point = |row: &Arc<Row>| {
            let at = row.points.binary_search_by_key(&name, |point| point.name).ok()?;
            row.points[at].get(of).map(f64::from)
        };
        self.rows.iter().map(point).collect()
    }

    fn line(&self, name: u32, of: Value, called: String, role: Role) -> Option<Line> {
        let line = Line::new(called, role, self.values(name, of));
        line.values.iter().any(Option::is_some).then_some(line)
    }

    /// Those with a name and a known `rank`, by descending mean of it.
    fn known(&self, rank: impl Fn(&Point) -> Option<f32>) -> Vec<u32> {
        let mut sums: BTreeMap<u32, (f32, f32)> = BTreeMap::new();
        for (row, point) in self.rows.iter().flat_map(|row| row.points.iter().map(move |point| (row, point))) {
            if let Some(rank) = rank(point) {
                let (sum, seconds) = sums.entry(point.name).or_default();
                (*sum, *seconds) = (*sum + rank * row.seconds, *seconds + row.seconds);
            }
        }
        let named = sums.into_iter().filter(|(name, _)| self.names.contains_key(name));
        let mut known: Vec<(u32, f32)> = named.map(|(name, (sum, n))| (name, sum / n)).collect();
        known.sort_by(|a, b| b.1.total_cmp(&a.1));
        known.into_iter().map(|(name, _)| name).collect()
    }

    fn called(&self, name: u32) -> String {
        self.names.get(&name).map_or_else(String::new, ToString::to_string)
    }

    /// Lines of the first of them, and how many are left out.
    fn lines(&self, all: &[u32], of: Value) -> (Vec<Line>, usize) {
        let lines: Vec<Line> =
            all.iter().take(LINES).filter_map(|name| self.line(*name, of, self.called(*name), Role::Plain)).collect();
        (lines, all.len().saturating_sub(LINES))
    }

    fn goals(&self) -> Vec<Plot> {
        // The service furthest below its goal comes first.
        let all = self.known(|point| Some(point.get(Value::Goal)? - point.get(Value::Kept)?));
        let (mut lines, left_out) = self.lines(&all, Value::Kept);
        if lines.is_empty() {
            return Vec::new();
        }
        let goals: Vec<Line> = all
            .iter()
            .take(LINES)
            .filter_map(|name| self.line(*name, Value::Goal, format!("goal of {}", self.called(*name)), Role::Goal))
            .zip(&all)
            .map(|(line, name)| line.about(&self.called(*name)))
            .collect();
        let same = goals.windows(2).all(|pair| pair[0].last() == pair[1].last());
        if same {
            lines.extend(goals.into_iter().take(1).map(|goal| Line { name: "goal".to_owned(), of: None, ..goal }));
        } else {
            lines.extend(goals);
        }
        let title = "Speed kept in the last minute, of the speed alone".to_owned();
        vec![Plot { left_out, ..Plot::new("goals", "goals", title, "share", lines) }]
    }

    fn latencies(&self) -> Vec<Plot> {
        let all =
            self.known(|point| point.get(Value::P99).map(|_| f32::from(u8::from(point.get(Value::Goal).is_some()))));
        let plot = |(i, name): (usize, &u32)| {
            let lines = [
                (Value::P99, "p99", Role::Plain),
                (Value::P99Goal, "goal", Role::Goal),
                (Value::P99Alone, "alone", Role::Alone),
            ];
            let lines =
                lines.into_iter().filter_map(|(of, called, role)| self.line(*name, of, called.to_owned(), role));
            let lines = lines.map(|line| line.about(&self.called(*name)));
            let title = format!("p99 of {}", self.called(*name));
            let left_out = if i == 0 { all.len().saturating_sub(LATENCIES) } else { 0 };
            Plot { left_out, ..Plot::new(&format!("p99-{i}"), "goals", title, "seconds", lines.collect()) }
        };
        all.iter().take(LATENCIES).enumerate().map(plot).collect()
    }

    /// A plot of one value, with a line for each service.
    fn of_value(&self, value: Value) -> Option<Plot> {
        let ServicePlot { id, part, title, most } = value.plot()?;
        let all = self.known(|point| point.get(value));
        let (lines, left_out) = self.lines(&all, value);
        let plot = Plot::new(id, part, title.to_owned(), value.unit().name(), lines);
        (!plot.lines.is_empty()).then_some(Plot { most, left_out, ..plot })
    }

    /// The place of each service, by CPU time used.
    fn occupied(&self) -> Vec<Plot> {
        let mut sums: BTreeMap<u32, f32> = BTreeMap::new();
        for (row, one) in self.rows.iter().flat_map(|row| row.uses.iter().map(move |one| (row, one))) {
            *sums.entry(one.name).or_default() += one.cpus * row.seconds;
        }
        if sums.is_empty() {
            return Vec::new();
        }
        let mut all: Vec<(u32, f32)> = sums.into_iter().filter(|(name, _)| self.names.contains_key(name)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        let shown: Vec<u32> = all.iter().take(LINES).map(|(name, _)| *name).collect();
        // Rows, by place and by line; the last line is all other services. After the places: CPU time of threads that
        // moved.
        let mut used = vec![vec![vec![0.0_f64; self.rows.len()]; shown.len() + 1]; self.places.all.len() + 1];
        let mut busy = vec![vec![0.0_f64; self.rows.len()]; self.places.all.len()];
        for (at, row) in self.rows.iter().enumerate() {
            for one in &row.uses {
                let (place, cpus) = (usize::from(one.place), f64::from(one.cpus));
                if one.name == BUSY {
                    busy[place][at] = cpus;
                } else {
                    let line = shown.iter().position(|name| *name == one.name).unwrap_or(shown.len());
                    used[place][line][at] += cpus;
                }
            }
        }
        let moved = used.pop().unwrap_or_default();
        self.add_foreign(&mut used, &busy, &moved);
        let others = [("other services", Role::Others), ("other programs", Role::Foreign)];
        let plot = |id: &str, title: String, most: Option<f64>, used: Vec<Vec<f64>>| {
            let named = shown.iter().map(|name| (self.called(*name), Role::Plain));
            let named = named.chain(others.iter().map(|(name, role)| ((*name).to_owned(), *role)));
            let lines = named.zip(used).map(|((name, role), cpus)| {
                Line::new(name, role, cpus.into_iter().map(Some).collect()) //
            });
            // Services that never ran here need no line, but a place without any service is also shown.
            let (mut lines, idle): (Vec<Line>, Vec<Line>) =
                lines.partition(|line| line.values.iter().flatten().any(|cpus| *cpus > 0.0));
            if lines.is_empty() {
                lines.extend(idle.into_iter().take(1));
            }
            Plot { most, stacked: true, ..Plot::new(id, "places", title, "cpus", lines) }
        };
        let places = self.places.all.iter().zip(used).enumerate();
        let mut plots: Vec<Plot> = places
            .map(|(i, (place, used))| plot(&format!("place-{i}"), place.name.clone(), Some(place.cpus), used))
            .collect();
        if moved.iter().flatten().any(|cpus| *cpus > 0.0) {
            plots.push(plot("place-moved", MOVED.to_owned(), None, moved));
        }
        plots
    }

    /// Adds a line to each place for programs outside of services: its busy time beyond the known part.
    fn add_foreign(&self, used: &mut [Vec<Vec<f64>>], busy: &[Vec<f64>], moved: &[Vec<f64>]) {
        let known = |place: &[Vec<f64>], at: usize| place.iter().map(|line| line[at]).sum::<f64>();
        let mut foreign = vec![vec![0.0; self.rows.len()]; used.len()];
        let mut begin = 0;
        while begin < self.rows.len() {
            let (mut end, mut seconds) = (begin, 0.0);
            while end < self.rows.len() && seconds < OTHERS {
                seconds += f64::from(self.rows[end].seconds);
                end += 1;
            }
            let mean = |place: usize| {
                let beyond = |at: usize| busy[place][at] - known(&used[place], at);
                (begin..end).map(|at| beyond(at) * f64::from(self.rows[at].seconds)).sum::<f64>() / seconds
            };
            let beyond: Vec<f64> = (0..used.len()).map(mean).collect();
            // Threads that moved ran somewhere, and ticks are coarse: an excess in one place is missing in another.
            let moved = (begin..end).map(|at| known(moved, at) * f64::from(self.rows[at].seconds)).sum::<f64>();
            let above: f64 = beyond.iter().filter(|cpus| **cpus > 0.0).sum();
            let part = ((beyond.iter().sum::<f64>() - moved / seconds) / above).max(0.0);
            let told = beyond.iter().map(|cpus| cpus.max(0.0) * part).enumerate();
            for (place, cpus) in told.filter(|(_, cpus)| *cpus >= LITTLE) {
                for (at, foreign) in foreign[place].iter_mut().enumerate().take(end).skip(begin) {
                    let room = self.places.all[place].cpus - known(&used[place], at);
                    *foreign = cpus.min(room).max(0.0);
                }
            }
            begin = end;
        }
        for (place, foreign) in used.iter_mut().zip(foreign) {
            place.push(foreign);
        }
    }
}

#[cfg(test)]
mod tests;
