//! The choice of shapes: initial ones, and neighbours of the current one.

use super::shape::{Doubling, Shape};
use super::shape_board::{ShapeBoard, ShapeDomain};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The origin of a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CandidateKind {
    /// An initial one.
    Seed,
    /// The former best for the same programs.
    Known,
    /// Moves suggested by `sam`.
    Sam,
    /// A group on some domains.
    Set,
    /// The same inside each node or package.
    Inside,
    /// Two groups to different halves of the machine.
    Part,
    /// Some threads of a group to another domain.
    Move,
    /// Some threads of two groups swap.
    Swap,
    /// Two domains swap their threads.
    Exchange,
    /// Which threads share cores.
    Share,
    /// Any shape, if there are few.
    Any,
    /// The kernel's choice.
    Kernel,
}

/// The kinds of neighbours in their drawing order before any results.
pub(super) const KINDS: [CandidateKind; 8] = [
    CandidateKind::Set,
    CandidateKind::Move,
    CandidateKind::Swap,
    CandidateKind::Share,
    CandidateKind::Part,
    CandidateKind::Inside,
    CandidateKind::Exchange,
    CandidateKind::Any,
];

/// For up to this many groups, all doubling orders are tried; beyond that, each group first once.
const ORDERED: usize = 3;
/// Any shape may be drawn with this few domains.
const FEW: usize = 4;

/// Adds `n` threads of a group one by one to the emptiest domain, the first of equals in the order of `domains`.
fn deal(shape: &mut Shape, board: &ShapeBoard, group: usize, n: usize, domains: &[usize]) {
    // Whether it is full, its load over its cores (in 65,536ths), and its index.
    let fill = |load: usize, at: usize| {
        let domain = &board.domains[domains[at]];
        Reverse((load >= domain.seats(), ((load + 1) << 16) / domain.room(), at))
    };
    let mut loads: Vec<usize> = domains.iter().map(|&d| shape.load(d)).collect();
    let mut emptiest: BinaryHeap<_> = loads.iter().enumerate().map(|(at, &load)| fill(load, at)).collect();
    for _ in 0..n {
        let Some(Reverse((.., at))) = emptiest.pop() else { return };
        shape.counts[group][domains[at]] += 1;
        loads[at] += 1;
        emptiest.push(fill(loads[at], at));
    }
}

/// Spreads the threads of a group evenly over domains, ignoring other groups.
fn spread(shape: &mut Shape, group: usize, n: usize, domains: &[usize]) {
    for i in 0..n {
        shape.counts[group][domains[i % domains.len()]] += 1;
    }
}

/// Doubling orders: all for few groups, otherwise each group first once.
fn orders(groups: usize) -> Vec<Vec<u8>> {
    let all: Vec<u8> = (0..groups as u8).collect();
    if groups > ORDERED {
        return (0..groups)
            .map(|first| {
                let mut order = all.clone();
                order[..=first].rotate_right(1);
                order
            })
            .collect();
    }
    let mut found = vec![Vec::new()];
    for _ in 0..groups {
        let longer = |order: Vec<u8>| {
            let rest: Vec<u8> = all.iter().copied().filter(|g| !order.contains(g)).collect();
            rest.into_iter().map(move |g| [&order[..], &[g]].concat())
        };
        found = found.into_iter().flat_map(longer).collect();
    }
    found
}

/// Threads dealt over all domains, like the usual choice of kernels.
pub(super) fn even(board: &ShapeBoard, threads: &[usize]) -> Shape {
    let (dealt, mut shape) = (board.dealt(), Shape::empty(threads.len(), board.domains.len()));
    for (g, &n) in threads.iter().enumerate() {
        deal(&mut shape, board, g, n, &dealt);
    }
    shape
}

/// Initial shapes, likely ones first: even; own domains per group, neighbouring, dealt over nodes and packages; pairs
/// of group clusters on halves of the machine; the fewest domains.
pub(super) fn seeds(board: &ShapeBoard, threads: &[usize], doubling: &Doubling) -> Vec<Shape> {
    let (groups, domains) = (threads.len(), board.domains.len());
    let all: Vec<usize> = (0..domains).collect();
    let dealt = board.dealt();
    let total: usize = threads.iter().sum();
    let blank = || {
        let mut shape = Shape { doubling: doubling.clone(), ..Shape::empty(groups, domains) };
        shape.choose_doubling();
        shape
    };
    let mut found = Vec::new();
    let own = |order: &[usize]| {
        let mut shape = blank();
        let mut from = 0;
        let mut before = 0;
        for (g, &n) in threads.iter().enumerate() {
            before += n;
            let to = if g + 1 == groups { domains } else { (before * domains).div_ceil(total.max(1)).max(from + 1) };
            let part = &order[from.min(domains - 1)..to.min(domains).max(from.min(domains - 1) + 1)];
            deal(&mut shape, board, g, n, part);
            from = to.min(domains);
        }
        shape
    };
    if groups > 1 {
        found.push(own(&all));
        found.push(own(&dealt));
    }
    let halves = [board.parts(|d| d.package), board.parts(|d| d.node), all.iter().map(|&d| vec![d]).collect()];
    if let Some(parts) = halves.iter().find(|parts| parts.len() > 1)
        && groups > 1
        && groups <= 5
    {
        let (one, other) = parts.split_at(parts.len() / 2);
        let sides = [one.concat(), other.concat()];
        for set in 1..1_u32 << (groups - 1) {
            let mut shape = blank();
            for (g, &n) in threads.iter().enumerate() {
                deal(&mut shape, board, g, n, &sides[(set >> g & 1) as usize]);
            }
            found.push(shape);
        }
    }
    // Each group packed if possible: into as few domains as its threads need cores, or CPUs.
    for by_seats in [false, true] {
        let mut shape = blank();
        for (g, &n) in threads.iter().enumerate() {
            let mut left = n;
            for &d in &all {
                let most = if by_seats { board.domains[d].seats() } else { board.domains[d].room() };
                let put = most.saturating_sub(shape.load(d)).min(left);
                shape.counts[g][d] += put as u16;
                left -= put;
            }
            deal(&mut shape, board, g, left, &all);
        }
        found.push(shape);
    }
    let even = Shape { doubling: blank().doubling, ..even(board, threads) };
    if total * 10 > board.room() * 9 {
        for order in orders(groups) {
            found.push(Shape { doubling: Doubling { order, ..Doubling::default() }, ..even.clone() });
        }
    } else {
        found.insert(0, even);
    }
    found
}

/// A neighbour of a shape. `None` if this draw has none.
pub(super) fn neighbour(board: &ShapeBoard, shape: &Shape, kind: CandidateKind, rng: &mut Rng) -> Option<Shape> {
    let (groups, domains) = (shape.counts.len(), board.domains.len());
    if groups == 0 || domains == 0 {
        return None;
    }
    let mut next = shape.clone();
    next.choose_doubling();
    let group = rng.usize(..groups);
    let pick = |rng: &mut Rng, from: &[usize]| (!from.is_empty()).then(|| from[rng.usize(..from.len())]);
    let with = |shape: &Shape, g: usize| -> Vec<usize> { (0..domains).filter(|&d| shape.counts[g][d] > 0).collect() };
    match kind {
        CandidateKind::Seed | CandidateKind::Known | CandidateKind::Sam | CandidateKind::Kernel => return None,
        CandidateKind::Set => set(board, &mut next, group, rng)?,
        CandidateKind::Inside => inside(board, &mut next, group, rng)?,
        CandidateKind::Part => {
            let other = (group + rng.usize(1..groups.max(2))) % groups;
            let parts = if rng.bool() { board.parts(|d| d.package) } else { board.parts(|d| d.node) };
            let parts = if parts.len() > 1 { parts } else { (0..domains).map(|d| vec![d]).collect() };
            if parts.len() < 2 || other == group {
                return None;
            }
            let (mut one, mut two) = parts.split_at(parts.len() / 2);
            if rng.bool() {
                (one, two) = (two, one);
            }
            let rest: Vec<usize> = (0..groups).filter(|g| *g != group && *g != other).collect();
            let refill = rng.bool();
            let threads: Vec<usize> = (0..groups).map(|g| next.threads(g)).collect();
            for &g in [group, other].iter().chain(rest.iter().filter(|_| refill)) {
                next.counts[g].fill(0);
            }
            deal(&mut next, board, group, threads[group], &one.concat());
            deal(&mut next, board, other, threads[other], &two.concat());
            for &g in rest.iter().filter(|_| refill) {
                deal(&mut next, board, g, threads[g], &(0..domains).collect::<Vec<_>>());
            }
        }
        CandidateKind::Move | CandidateKind::Swap => {
            let from = pick(rng, &with(shape, group))?;
            let to = rng.usize(..domains);
            let here = shape.counts[group][from];
            let n = [1, 2, 4, here / 2, here][rng.usize(..5)].clamp(1, here);
            if from == to {
                return None;
            }
            let mut go = |g: usize, a: usize, b: usize, n: u16| {
                let n = n.min(next.counts[g][a]);
                next.counts[g][a] -= n;
                next.counts[g][b] += n;
            };
            go(group, from, to, n);
            if kind == CandidateKind::Swap {
                let others: Vec<usize> = (0..groups).filter(|&g| g != group && shape.counts[g][to] > 0).collect();
                go(pick(rng, &others)?, to, from, n);
            }
        }
        CandidateKind::Exchange => {
            let (a, b) = (rng.usize(..domains), rng.usize(..domains));
            if board.domains[a].node == board.domains[b].node {
                return None;
            }
            next.counts.iter_mut().for_each(|counts| counts.swap(a, b));
        }
        CandidateKind::Share => share(board, &mut next, group, rng),
        CandidateKind::Any => {
            if domains > FEW || groups > FEW {
                return None;
            }
            let threads: Vec<usize> = (0..groups).map(|g| next.threads(g)).collect();
            next.counts.iter_mut().for_each(|counts| counts.fill(0));
            for (g, n) in threads.into_iter().enumerate() {
                let mut left = n;
                for d in 0..domains - 1 {
                    let free = board.domains[d].seats().saturating_sub(next.load(d)).min(left);
                    let put = rng.usize(..=free);
                    next.counts[g][d] = put as u16;
                    left -= put;
                }
                next.counts[g][domains - 1] = left as u16;
            }
        }
    }
    Some(next)
}

/// Changes core sharing: another group first, two groups with each other, or one without need.
fn share(board: &ShapeBoard, next: &mut Shape, group: usize, rng: &mut Rng) {
    let groups = next.counts.len();
    let crowds = next.crowds(board);
    match rng.u8(..if crowds { 3 } else { 1 }) {
        0 => next.doubling.packed = (next.doubling.packed != Some(group as u8)).then_some(group as u8),
        1 => {
            next.doubling.order.retain(|g| *g as usize != group);
            next.doubling.order.insert(0, group as u8);
            (next.doubling.pair, next.doubling.packed) = (None, None);
        }
        _ => {
            let other = rng.usize(..groups);
            let pair = (group.min(other) as u8, group.max(other) as u8);
            next.doubling.pair = (group != other && next.doubling.pair != Some(pair)).then_some(pair);
        }
    }
}

/// Moves a group to some of the domains; the others stay, leave these, or are placed again.
fn set(board: &ShapeBoard, next: &mut Shape, group: usize, rng: &mut Rng) -> Option<()> {
    let (groups, domains) = (next.counts.len(), board.domains.len());
    if domains < 2 {
        return None;
    }
    let threads: Vec<usize> = (0..groups).map(|g| next.threads(g)).collect();
    let n = threads[group];
    let mean = |of: usize| (of / domains).max(1);
    let now = next.counts[group].iter().filter(|n| **n > 0).count();
    let others = (0..domains).filter(|&d| next.load(d) == next.counts[group][d] as usize).count();
    let first = |parts: Vec<Vec<usize>>| parts.first().map_or(1, Vec::len);
    let sizes = [
        n.div_ceil(mean(board.seats())),
        n.div_ceil(mean(board.room())),
        now + 1,
        now.saturating_sub(1),
        now * 2,
        now / 2,
        first(board.parts(|d| d.package)),
        first(board.parts(|d| d.node)),
        domains,
        others,
    ];
    let k = sizes[rng.usize(..sizes.len())].clamp(1, domains);
    let order = if rng.bool() { (0..domains).collect() } else { board.dealt() };
    let from = rng.usize(..domains);
    let own: Vec<usize> = (0..k).map(|i| order[(from + i) % domains]).collect();
    let rest: Vec<usize> = (0..domains).filter(|d| !own.contains(d)).collect();
    next.counts[group].fill(0);
    match rng.u8(..3) {
        0 => spread(next, group, n, &own),
        // They leave.
        1 if !rest.is_empty() => {
            spread(next, group, n, &own);
            for g in (0..groups).filter(|g| *g != group) {
                let leaving: usize = own.iter().map(|&d| std::mem::take(&mut next.counts[g][d]) as usize).sum();
                deal(next, board, g, leaving, &rest);
            }
        }
        _ => {
            (0..groups).for_each(|g| next.counts[g].fill(0));
            spread(next, group, n, &own);
            let all: Vec<usize> = (0..domains).collect();
            (0..groups).filter(|g| *g != group).for_each(|g| deal(next, board, g, threads[g], &all));
        }
    }
    Some(())
}

/// A change inside each node, or package, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Within {
    /// Every group over all of its domains.
    Even,
    /// Own domains per group.
    Own,
    /// One group on its own domains.
    Apart(usize, ApartSize),
    /// One group among the others again.
    Among(usize),
}

/// Number of a group's own domains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ApartSize {
    /// As few as its threads need cores.
    Cores,
    /// As few as its threads need CPUs.
    Seats,
    /// One more than now.
    More,
    /// One less than now.
    Less,
}

fn inside(board: &ShapeBoard, next: &mut Shape, group: usize, rng: &mut Rng) -> Option<()> {
    let of: fn(&ShapeDomain) -> usize = if rng.bool() { |d| d.node } else { |d| d.package };
    let apart =
        [ApartSize::Cores, ApartSize::Seats, ApartSize::More, ApartSize::Less].map(|size| Within::Apart(group, size));
    let ways = [&[Within::Even, Within::Own], &apart[..], &[Within::Among(group)]].concat();
    arrange(board, next, of, ways[rng.usize(..ways.len())])
}

/// Shapes before any other: regular inside each node and package, so that few threads leave their memory. One group
/// after the other gets its own domains.
pub(super) fn orderly(board: &ShapeBoard, shape: &Shape) -> Vec<Shape> {
    let parts: [fn(&ShapeDomain) -> usize; 2] = [|d| d.node, |d| d.package];
    let apart =
        (0..shape.counts.len()).flat_map(|g| [ApartSize::Cores, ApartSize::Seats].map(|size| Within::Apart(g, size)));
    let ways = [Within::Own].into_iter().chain(apart).chain([Within::Even]).flat_map(|how| parts.map(|of| (of, how)));
    let shapes = ways.filter_map(|(of, how)| {
        let mut next = shape.clone();
        next.choose_doubling();
        arrange(board, &mut next, of, how).map(|()| next)
    });
    shapes.collect()
}

fn arrange(board: &ShapeBoard, next: &mut Shape, of: fn(&ShapeDomain) -> usize, how: Within) -> Option<()> {
    let parts = board.parts(of);
    if parts.iter().all(|part| part.len() < 2) {
        return None;
    }
    for part in &parts {
        match how {
            Within::Even => level(board, next, part),
            Within::Own => own(board, next, part),
            Within::Apart(group, size) => set_apart(board, next, part, group, size),
            Within::Among(group) => {
                let free = free_for(next, part, group);
                level(board, next, &free);
            }
        }
    }
    Some(())
}

/// One group on its own domains, the others on the rest; groups already apart stay apart.
fn set_apart(board: &ShapeBoard, next: &mut Shape, part: &[usize], group: usize, size: ApartSize) {
    let mut free = free_for(next, part, group);
    // Domains with most of its threads first, so that fewer move.
    free.sort_by_key(|&d| Reverse(next.counts[group][d]));
    let now = free.iter().filter(|&&d| next.counts[group][d] > 0).count();
    if now == 0 {
        return;
    }
    let threads = take(next, &free);
    let most = |of: fn(&ShapeDomain) -> usize| free.iter().map(|&d| of(&board.domains[d])).max().unwrap_or(1).max(1);
    let domains = match size {
        ApartSize::Cores => threads[group].div_ceil(most(ShapeDomain::room)),
        ApartSize::Seats => threads[group].div_ceil(most(ShapeDomain::seats)),
        ApartSize::More => now + 1,
        ApartSize::Less => now - 1,
    };
    let (own, rest) = free.split_at(domains.clamp(1, free.len()));
    deal(next, board, group, threads[group], own);
    for g in (0..threads.len()).filter(|g| *g != group) {
        deal_first(next, board, g, threads[g], rest, &free);
    }
}

/// The domains of `part` without those that another group has alone.
fn free_for(shape: &Shape, part: &[usize], group: usize) -> Vec<usize> {
    let alone = |g: usize, d: usize| shape.counts[g][d] == 0 || shape.load(d) == usize::from(shape.counts[g][d]);
    let apart: Vec<usize> =
        (0..shape.counts.len()).filter(|&g| g != group && part.iter().all(|&d| alone(g, d))).collect();
    part.iter().copied().filter(|&d| apart.iter().all(|&g| shape.counts[g][d] == 0)).collect()
}

/// Removes all threads from some domains; returns the numbers of each group.
fn take(shape: &mut Shape, part: &[usize]) -> Vec<usize> {
    let of = |counts: &mut Vec<u16>| part.iter().map(|&d| usize::from(std::mem::take(&mut counts[d]))).sum();
    shape.counts.iter_mut().map(of).collect()
}

/// Every group over all of some domains.
fn level(board: &ShapeBoard, next: &mut Shape, part: &[usize]) {
    let threads = take(next, part);
    threads.iter().enumerate().for_each(|(g, &n)| deal(next, board, g, n, part));
}

/// Own domains per group.
fn own(board: &ShapeBoard, next: &mut Shape, part: &[usize]) {
    let threads = take(next, part);
    let (mut from, mut before, total) = (0, 0, threads.iter().sum::<usize>());
    for (g, &n) in threads.iter().enumerate().filter(|(_, n)| **n > 0) {
        before += n;
        let to = (before * part.len()).div_ceil(total).clamp(1, part.len());
        deal_first(next, board, g, n, &part[from.min(to - 1)..to], part);
        from = to;
    }
}

/// Deals over some domains as many as have a CPU there, and the rest over all of `part`.
fn deal_first(shape: &mut Shape, board: &ShapeBoard, group: usize, n: usize, domains: &[usize], part: &[usize]) {
    let free = domains.iter().map(|&d| board.domains[d].seats().saturating_sub(shape.load(d))).sum();
    deal(shape, board, group, n.min(free), domains);
    deal(shape, board, group, n.saturating_sub(free), part);
}
