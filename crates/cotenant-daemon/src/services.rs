//! The services of this machine by the rules: those to manage now, with their rule.

use crate::config::{Matches, Rule, Terms};
use crate::containers::{CONTAINERS, Container, Containers};
use crate::parties::{Parties, Party, may_all};
use crate::summary::ProcessSummary;
use cotenant_linux::FsRoot;
use cotenant_linux::act::throttle::Enforcer;
use cotenant_linux::sense::called::Called;
use cotenant_linux::sense::census::{Census, Resident};
use cotenant_linux::sense::processes::Target;
use cotenant_linux::sys;
use cotenant_model::text;
use cotenant_status::class::Class;
use cotenant_status::identity::{Identity, PEOPLE};
use globset::GlobSet;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The unit of management: all of a systemd unit, all of a control group, or the processes with one program and their
/// descendants, according to the rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Service {
    /// Its name, which no other service has.
    pub name: String,
    /// Its permanent name: the container's, otherwise its control group or program.
    pub key: String,
    /// The place of its rule when it was found, and its control group or program.
    pub place: Key,
    /// The place of its rule.
    pub rule: usize,
    /// The terms of its rule.
    pub terms: Terms,
    /// Its container, if it is one.
    pub container: Option<Identity>,
    pub target: Target,
    /// The user of its processes; root if they have several.
    pub uid: u32,
    /// Whether others are among its processes. Of a control group of class low: some that are not to wait, and that a
    /// pause would reach, too. Of a program: some that a rule names otherwise, or that opted out, and that would come
    /// with those they descend from.
    pub mixed: bool,
    /// For a program, its current processes, with accompanying ones.
    pub members: Vec<u32>,
    /// Processes now that the rule itself names, for people.
    pub summary: ProcessSummary,
}

impl Service {
    /// Why the managed service cannot continue as the one found now under the same rule. Processes are followed
    /// anywhere; a control group is managed as a whole, by its path.
    pub fn ends_as(&self, now: &Self) -> Option<&'static str> {
        let in_group = |service: &Self| matches!(service.target, Target::Cgroup(_));
        if self.target != now.target && (in_group(self) || in_group(now)) {
            return Some("its control group has changed");
        }
        if self.container != now.container {
            return Some("it is another container");
        }
        let why = if in_group(self) {
            "whether it can be throttled has changed"
        } else {
            "the processes that it starts \
                 belong to another"
        };
        (self.mixed != now.mixed).then_some(why)
    }

    /// Defines its processes: for a program mixed with others, exactly these, without their children.
    pub fn set_apart(&mut self, mixed: bool) {
        self.mixed = mixed;
        if mixed && self.group().is_none() {
            self.target = Target::Pids(self.members.clone());
        }
    }

    /// Whether one of its followed processes no longer belongs to it: it executes another program, or was moved.
    pub fn has_lost(&self, followed: &[u32], whose: &Whose, census: &Census) -> bool {
        let residents = census.residents();
        let outside = |cgroup: &str| !is_below(cgroup, &self.place.1);
        followed.iter().any(|pid| match (self.group(), residents.get(pid)) {
            (_, None) => false,
            // It may have moved in after the look read its place.
            (Some(_), Some(was)) => outside(&was.cgroup) && census.group_now(*pid).is_some_and(|now| outside(&now)),
            (None, Some(_)) => whose.get(pid).is_some_and(|of| of.as_ref().is_none_or(|of| of.0 != self.place.0)),
        })
    }

    /// Somebody's, of which nothing else is known.
    #[cfg(test)]
    pub fn called(name: &str, key: &str, uid: u32) -> Self {
        let (name, key) = (name.to_owned(), key.to_owned());
        let (place, members, target) = ((0, key.clone()), Vec::new(), Target::Pids(Vec::new()));
        let terms = Terms::default();
        Self {
            name,
            key,
            place,
            rule: 0,
            terms,
            container: None,
            target,
            uid,
            mixed: false,
            members,
            summary: ProcessSummary::default(),
        }
    }

    /// Its control group, if it is one.
    pub fn group(&self) -> Option<&str> {
        if let Target::Cgroup(path) = &self.target { path.to_str() } else { None }
    }

    /// How it is throttled, if at all. Containers of pods are never made `cpu.idle`: they would only yield to their own
    /// pods, and the kernel refuses the weight with which a runtime begins an update. Slurm's jobs are siblings without
    /// weights. A program shares its session, and so its weight, with other programs among its processes.
    pub fn enforcer(&self) -> Enforcer {
        match &self.container {
            Some(container) if !container.job => Enforcer::Outside,
            None if self.mixed && self.group().is_none() => Enforcer::Outside,
            _ => Enforcer::Auto,
        }
    }
}

/// Limit of managed services: each container may be one.
pub(crate) const SERVICES: usize = CONTAINERS;

/// Limit of managed services per user; root has none.
const OF_ONE: usize = 512;

/// Identity of a service: the index of the rule, and the control group or the program.
type Key = (usize, String);

/// To which service each process belongs that a rule names, that has opted out or that is ours; `None`: to none.
pub(crate) type Whose = BTreeMap<u32, Option<Key>>;

/// The services that run now, before anything is known of containers. Processes below our own count: we have started
/// none yet, but a script that becomes this command has.
pub(crate) fn now(rules: &[Rule]) -> io::Result<BTreeMap<String, Service>> {
    let mut census = Census::new(FsRoot::live()).with_patience();
    census.look()?;
    Ok(find_beside(rules, &census, &Containers::default(), std::process::id(), |_| false).0)
}

/// Finds the services of the rules, including those left alone (class ignore). `own` is the daemon's process: it, its
/// children and its group are never managed.
pub(crate) fn find(
    rules: &[Rule],
    census: &Census,
    containers: &Containers,
    own: u32,
) -> (BTreeMap<String, Service>, Whose) {
    let we = BTreeSet::from([own]);
    find_beside(rules, census, containers, own, |pid| descends(pid, &we, census.residents()))
}

fn find_beside(
    rules: &[Rule],
    census: &Census,
    containers: &Containers,
    own: u32,
    is_started: impl Fn(u32) -> bool,
) -> (BTreeMap<String, Service>, Whose) {
    let (ours, residents) = (sys::euid(), census.residents());
    let our_group = residents.get(&own).map(|me| &*me.cgroup).filter(|path| *path != "/");
    let by_command = rules.iter().any(|rule| rule.matches.command.is_some());
    let mut found: BTreeMap<Key, Found> = BTreeMap::new();
    let mut belongs = Whose::new();
    // Control groups of processes that must not wait: without a rule, with one of another class, or opted out.
    let mut others: BTreeSet<&str> = BTreeSet::new();
    for (&pid, resident) in residents {
        if pid == own || is_started(pid) {
            belongs.insert(pid, None);
            continue;
        }
        let inside = containers.around(&resident.cgroup);
        let script = by_command.then(|| census.script(pid, resident)).flatten();
        let covers = |(i, rule): (usize, &Rule)| {
            let command = rule.matches.command.as_ref();
            let (path, proven) = match command {
                Some(command) => meant(command, resident, script).map(|(path, proven)| (Some(path), proven))?,
                None => (own_path(resident), true),
            };
            let whole = covers(&rule.matches, resident, path, inside.map(|c| &**c))?;
            // A program's author chooses its name, and so does the process itself where nothing is proven.
            let may_be_high = || proven && (!whole.is_program() || census.executes_roots_file(pid));
            let by_name = rule.class == Class::High && rule.matches.user.is_none() && ours == 0;
            (!by_name || may_be_high()).then_some((i, whole))
        };
        let may_be = ours == 0 || resident.uid == ours;
        let Some((i, whole)) = rules.iter().enumerate().find_map(covers).filter(|_| may_be) else {
            others.insert(&resident.cgroup);
            continue;
        };
        let group = whole.group();
        let within_us = group.zip(our_group).is_some_and(|(group, ours)| is_below(ours, group));
        let container = inside.filter(|container| group == Some(&*container.cgroup));
        let class = rules[i].class(container.map(|c| &c.asked));
        // Services are not managed while that is unknown.
        let opted_out = census.has_opted_out(pid, resident) != Some(false);
        if class != Class::Low || opted_out {
            others.insert(&resident.cgroup);
        }
        let Matches { user, cgroup, container: of_container, .. } = &rules[i].matches;
        let is_named = user.is_some() || cgroup.is_some() || of_container.is_some();
        // The owner of a service manager below a service chooses the names of its units.
        let is_chosen = ours == 0 && class == Class::High && !is_named && group.is_some_and(is_delegated);
        if within_us || is_chosen {
            belongs.insert(pid, None);
            continue;
        }
        let key = (i, whole.key());
        belongs.insert(pid, Some(key.clone()));
        let service = found.entry(key).or_insert_with(|| Found {
            folder: group.and_then(|group| census.folder(group)),
            group: group.is_some(),
            container: container.cloned(),
            uid: resident.uid,
            class,
            ..Found::default()
        });
        if service.uid != resident.uid {
            service.uid = 0;
        }
        if opted_out {
            service.off.insert(resident.uid);
        }
        service.pids.insert(pid);
    }
    mix(&mut found, &others);
    leave_out(&mut found, &mut belongs, residents);
    follow(&mut found, &mut belongs, census);
    (named(rules, found, residents), belongs)
}

/// A control group is managed as a whole; opting out of a program only affects the process's own.
fn leave_out(found: &mut BTreeMap<Key, Found>, whose: &mut Whose, residents: &BTreeMap<u32, Resident>) {
    for found in found.values_mut().filter(|found| !found.group && !found.off.is_empty()) {
        let Found { pids, off, .. } = found;
        pids.retain(|pid| {
            let stays = residents.get(pid).is_none_or(|resident| !off.contains(&resident.uid));
            if !stays {
                whose.insert(*pid, None);
            }
            stays
        });
    }
}

/// Descendants of a program accompany it, except for those of another rule or opted out. Marks programs that would also
/// get such exceptions, by descent or through a process group or session.
fn follow(found: &mut BTreeMap<Key, Found>, whose: &mut Whose, census: &Census) {
    let residents = census.residents();
    if !found.values().any(|found| !found.group && found.class != Class::Ignore) {
        return;
    }
    let nearest = |whose: &Whose, from: u32| -> Option<Key> {
        let parent = |pid: &u32| Some(residents.get(pid)?.parent).filter(|parent| *parent > 0);
        std::iter::successors(Some(from), parent).take(64).find_map(|pid| whose.get(&pid).cloned())?
    };
    let with = |whose: &Whose, resident: &Resident| {
        nearest(whose, resident.parent).filter(|key| found.get(key).is_some_and(|found| !found.group))
    };
    let unnamed: Vec<_> = residents.iter().filter(|(pid, _)| !whose.contains_key(pid)).collect();
    // Opting out counts once a process has executed its program.
    for (pid, resident) in unnamed.iter().filter(|(_, resident)| resident.is_known()) {
        if with(whose, resident).is_some() && census.has_opted_out(**pid, resident) != Some(false) {
            whose.insert(**pid, None);
        }
    }
    let come = unnamed.into_iter().filter(|(pid, _)| !whose.contains_key(pid));
    let come: Vec<(u32, Key)> = come.filter_map(|(pid, resident)| Some((*pid, with(whose, resident)?))).collect();
    for (pid, key) in come {
        found.entry(key).and_modify(|found| _ = found.comes.insert(pid));
    }
    for (pid, of) in &*whose {
        let Some(resident) = residents.get(pid) else { continue };
        let around = [resident.parent, resident.group, resident.session].map(|kin| nearest(whose, kin));
        let apart = |key: &Key| of.as_ref().is_none_or(|of| of.0 != key.0);
        for key in around.into_iter().flatten().filter(apart) {
            found.entry(key).and_modify(|found| found.mixed |= !found.group);
        }
    }
}

/// Reduces services to the limits, keeping those that `stay`. Returns remarks.
pub(crate) fn fit(
    found: &mut BTreeMap<String, Service>,
    stay: impl Fn(&str) -> bool,
    parties: &Parties,
) -> Vec<String> {
    let users: BTreeSet<u32> = found.values().map(|service| service.uid).collect();
    let users: BTreeMap<u32, Party> = users.into_iter().map(|uid| (uid, parties.of(uid))).collect();
    let mut theirs: BTreeMap<Party, usize> = BTreeMap::new();
    for service in found.values() {
        *theirs.entry(users[&service.uid]).or_default() += 1;
    }
    let mut remarks = Vec::new();
    // Without the number, because each number would make another remark.
    for (party, _) in theirs.into_iter().filter(|(party, there)| !party.may_all() && *there > OF_ONE) {
        remarks.push(format!(
            "more than {OF_ONE} services of {party} match; as many are managed, those that were before first"
        ));
        cut(found, OF_ONE, &stay, |service| users[&service.uid] == party);
    }
    if found.len() > SERVICES {
        remarks.push(format!("more than {SERVICES} services match; as many are managed, those that were before first"));
        // One person may act as many users.
        cut(found, SERVICES, &stay, |service| may_all(service.uid));
        let left = SERVICES - found.values().filter(|service| may_all(service.uid)).count();
        cut(found, left, &stay, |service| !may_all(service.uid));
    }
    remarks
}

/// Keeps `most` of these services, those that `stay` first.
fn cut(
    found: &mut BTreeMap<String, Service>,
    most: usize,
    stay: impl Fn(&str) -> bool,
    these: impl Fn(&Service) -> bool,
) {
    let these = found.iter().filter(|(_, service)| these(service));
    let mut names: Vec<(bool, String)> = these.map(|(name, _)| (!stay(name), name.clone())).collect();
    names.sort_unstable();
    for (_, name) in names.iter().skip(most) {
        found.remove(name);
    }
}

/// Marks those of class low whose control groups contain `others`, which must not wait.
fn mix(found: &mut BTreeMap<Key, Found>, others: &BTreeSet<&str>) {
    let around: BTreeSet<&str> = others.iter().flat_map(|cgroup| paths(cgroup)).collect();
    for ((_, path), low) in found.iter_mut().filter(|(_, found)| found.group && found.class == Class::Low) {
        low.mixed = around.contains(&**path);
    }
}

/// The whole that a rule takes with a matching process.
enum Whole<'a> {
    Group(&'a str),
    Program(&'a Path),
    /// All of one user's that has neither.
    User(String),
}

impl Whole<'_> {
    fn key(&self) -> String {
        match self {
            Self::Group(path) => (*path).to_owned(),
            Self::Program(path) => path.to_string_lossy().into_owned(),
            Self::User(name) => name.clone(),
        }
    }

    fn group(&self) -> Option<&str> {
        if let Self::Group(path) = self { Some(path) } else { None }
    }

    fn is_program(&self) -> bool {
        matches!(self, Self::Program(_))
    }
}

#[derive(Default)]
struct Found {
    group: bool,
    container: Option<Arc<Container>>,
    folder: Option<std::path::PathBuf>,
    pids: BTreeSet<u32>,
    uid: u32,
    /// For a program, its accompanying processes.
    comes: BTreeSet<u32>,
    /// Users of processes that opted out.
    off: BTreeSet<u32>,
    class: Class,
    mixed: bool,
}

/// The name by which a command is matched: that of its file, or a common one; and whether it is proven rather than only
/// claimed by the process.
fn meant<'a>(command: &GlobSet, resident: &'a Resident, script: Option<&'a Called>) -> Option<(&'a Path, bool)> {
    let own = own_path(resident).map(|path| (path, true));
    let others = resident.called.iter().chain(script).map(|called| (&*called.name, called.proven));
    let is = |path: &Path| command.is_match(path) || path.file_name().is_some_and(|name| command.is_match(name));
    own.into_iter().chain(others).find(|(path, _)| is(path))
}

/// Its program.
fn own_path(resident: &Resident) -> Option<&Path> {
    resident.program.as_deref().map(without_mark)
}

/// The processes that the rule includes with this one, and the path of its pattern if any; `None` without a match.
fn covers<'a>(
    matches: &Matches,
    resident: &'a Resident,
    path: Option<&'a Path>,
    inside: Option<&'a Container>,
) -> Option<Whole<'a>> {
    if matches.user.is_some_and(|user| user != resident.uid) {
        return None;
    }
    if matches.cgroup.as_ref().is_some_and(|cgroup| !cgroup.is_match(&*resident.cgroup)) {
        return None;
    }
    let container = match &matches.container {
        Some(of) => Some(inside.filter(|container| of.is_match(container))?),
        None => None,
    };
    if let Some(container) = container {
        let within = |unit: &globset::GlobSet| units(&resident.cgroup).any(|(name, _)| unit.is_match(name));
        return matches.unit.as_ref().is_none_or(within).then_some(Whole::Group(&container.cgroup));
    }
    match (&matches.unit, &matches.cgroup) {
        (Some(unit), _) => {
            units(&resident.cgroup).find(|(name, _)| unit.is_match(name)).map(|(_, path)| Whole::Group(path))
        }
        (None, Some(_)) => Some(Whole::Group(&resident.cgroup)),
        (None, None) => Some(path.map_or_else(|| Whole::User(format!("user {}", resident.uid)), Whole::Program)),
    }
}

/// The units that a control group belongs to, with the path of each, the innermost first.
pub(crate) fn units(cgroup: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut paths: Vec<&str> = paths(cgroup).collect();
    paths.reverse();
    paths.into_iter().filter_map(|path| {
        let name = path.rsplit('/').next()?;
        let is = [".service", ".scope", ".slice"].iter().any(|kind| name.ends_with(kind));
        is.then_some((name, path))
    })
}

/// A control group's path with its ancestors except the root, the outermost first.
fn paths(cgroup: &str) -> impl Iterator<Item = &str> {
    let ends = cgroup.match_indices('/').map(|(i, _)| i).skip(1).chain([cgroup.len()]);
    ends.map(|end| &cgroup[..end])
}

/// The kernel marks programs that were replaced or removed since.
pub(crate) fn without_mark(path: &Path) -> &Path {
    path.to_str().and_then(|text| text.strip_suffix(" (deleted)")).map_or(path, Path::new)
}

/// Whether a control group is below a service or a container, and not in slices alone.
pub(crate) fn is_delegated(cgroup: &str) -> bool {
    let is_slice = |part: &str| part.strip_suffix(".slice").is_some();
    cgroup.rsplit('/').skip(1).any(|part| !part.is_empty() && !is_slice(part))
}

fn is_below(path: &str, folder: &str) -> bool {
    path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || folder == "/")
}

/// Gives each a name that is its own: its base name, or all of its path where others have the same.
fn named(
    rules: &[Rule],
    found: BTreeMap<Key, Found>,
    residents: &BTreeMap<u32, Resident>,
) -> BTreeMap<String, Service> {
    let base = |key: &str| key.rsplit('/').find(|part| !part.is_empty()).unwrap_or(key).to_owned();
    let short = |key: &str, found: &Found| found.container.as_ref().map_or_else(|| base(key), |c| c.name());
    // Number of uses of each name by the machine's administrator and by users, whose names never displace others.
    let by_user = |key: &str, found: &Found| if found.group { is_delegated(key) } else { found.uid >= PEOPLE };
    let mut times: BTreeMap<String, [usize; 2]> = BTreeMap::new();
    for ((_, key), found) in found.iter().filter(|(_, found)| found.class != Class::Ignore) {
        times.entry(short(key, found)).or_default()[usize::from(by_user(key, found))] += 1;
    }
    let mut services = BTreeMap::new();
    for ((rule, key), found) in found {
        let (short, by_user) = (short(&key, &found), by_user(&key, &found));
        let Found { group, container, folder, pids, comes, uid, off, class, mixed } = found;
        let off = pids.is_empty() || group && !off.is_empty();
        let [of_machine, of_users] = times.get(&short).copied().unwrap_or_default();
        let plain = text::name(short.as_bytes());
        let by_path = match class {
            // A service left alone takes no name from managed ones.
            Class::Ignore => of_machine + of_users > 0 || services.contains_key(&plain),
            _ if by_user => of_machine > 0 || of_users > 1,
            _ => of_machine > 1,
        };
        let name = if by_path { text::name(key.as_bytes()) } else { plain };
        let target = match folder {
            Some(folder) => Target::Cgroup(folder),
            None if group => continue, // there is no hierarchy in which its members could be followed
            // A descendant of another one accompanies it.
            None => Target::Trees(pids.iter().copied().filter(|pid| !descends(*pid, &pids, residents)).collect()),
        };
        if off || services.contains_key(&name) {
            continue;
        }
        let terms = rules[rule].terms(container.as_ref().map(|container| &container.asked));
        let key_of = |container: &Arc<Container>| container.name();
        let place = (rule, key);
        let key = container.as_ref().map_or_else(|| place.1.clone(), key_of);
        let container = container.map(|container| container.identity.clone());
        let summary = ProcessSummary::of(&name, &pids, residents);
        let members = if group { Vec::new() } else { pids.union(&comes).copied().collect() };
        let mut service = Service { name, key, place, rule, terms, container, target, uid, mixed, members, summary };
        service.set_apart(mixed);
        services.insert(service.name.clone(), service);
    }
    services
}

/// Whether one of its ancestors is among these.
fn descends(pid: u32, among: &BTreeSet<u32>, residents: &BTreeMap<u32, Resident>) -> bool {
    let parent = |pid: &u32| residents.get(pid).map(|resident| resident.parent).filter(|parent| *parent > 0);
    // A cycle cannot be but while processes come and go.
    std::iter::successors(parent(&pid), parent).take(64).any(|ancestor| among.contains(&ancestor))
}

#[cfg(test)]
mod tests;
