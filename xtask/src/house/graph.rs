//! Circles of a graph, and its arrows that run up.

use std::collections::{BTreeMap, BTreeSet};

/// A graph by name: the targets of each node.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// Nodes that reach each other, in sets of two or more; the largest set first.
pub fn circles(graph: &Graph) -> Vec<BTreeSet<String>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph.keys().map(|from| (&**from, reach(graph, from))).collect();
    let circle = |from: &str| -> BTreeSet<String> {
        let back = reached[from].iter().filter(|to| reached.get(**to).is_some_and(|reached| reached.contains(from)));
        back.map(|to| (*to).to_owned()).collect()
    };
    let circles: BTreeSet<_> = graph.keys().map(|from| circle(from)).filter(|circle| circle.len() > 1).collect();
    let mut circles: Vec<_> = circles.into_iter().collect();
    circles.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
    circles
}

fn reach<'a>(graph: &'a Graph, from: &'a str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open = vec![from];
    while let Some(from) = open.pop() {
        open.extend(graph.get(from).into_iter().flatten().map(|to| &**to).filter(|to| reached.insert(*to)));
    }
    reached
}

/// The fewest arrows that run up however the nodes are ordered: without them the graph has no circle.
pub fn arrows_up(graph: &Graph) -> Vec<(String, String)> {
    circles(graph).iter().flat_map(|circle| arrows_up_within(graph, circle)).collect()
}

/// The largest circle that is ordered exactly; the time doubles with each node.
const EXACT: usize = 20;

fn arrows_up_within(graph: &Graph, circle: &BTreeSet<String>) -> Vec<(String, String)> {
    let nodes: Vec<&String> = circle.iter().collect();
    let arrow = |from: usize, to: usize| from != to && graph[nodes[from]].contains(nodes[to]);
    let order = if nodes.len() <= EXACT { best_order(nodes.len(), arrow) } else { (0..nodes.len()).collect() };
    let mut up = Vec::new();
    for (floor, from) in order.iter().enumerate() {
        let above = order[..floor].iter().filter(|to| arrow(*from, **to));
        up.extend(above.map(|to| (nodes[*from].clone(), nodes[*to].clone())));
    }
    up
}

/// The order, from the top floor down, with the fewest arrows up: for each set of nodes on the top floors the best last
/// one of them.
fn best_order(count: usize, arrow: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let to: Vec<u32> =
        (0..count).map(|from| (0..count).filter(|to| arrow(from, *to)).map(|to| 1 << to).sum()).collect();
    let mut best = vec![(u32::MAX, 0); 1 << count];
    best[0].0 = 0;
    for set in 1..best.len() {
        let members = (0..count).filter(|last| set & (1 << last) != 0);
        let cost = |last: usize| {
            let above = set & !(1 << last);
            (best[above].0 + (to[last] & above as u32).count_ones(), last)
        };
        best[set] = members.map(cost).min().unwrap_or_default();
    }
    let mut order = Vec::new();
    let mut set = best.len() - 1;
    while set != 0 {
        let last = best[set].1;
        order.push(last);
        set &= !(1 << last);
    }
    order.reverse();
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(arrows: &[(&str, &str)]) -> Graph {
        let mut graph = Graph::new();
        for (from, to) in arrows {
            graph.entry((*from).to_owned()).or_default().insert((*to).to_owned());
            graph.entry((*to).to_owned()).or_default();
        }
        graph
    }

    #[test]
    fn circles_are_found_and_the_fewest_arrows_run_up() {
        let down = [("a", "b"), ("b", "c"), ("a", "c"), ("c", "d")];
        assert!(circles(&graph(&down)).is_empty());
        assert!(arrows_up(&graph(&down)).is_empty());
        let with_two = [&down[..], &[("c", "a"), ("e", "f"), ("f", "e")]].concat();
        let sets: Vec<Vec<String>> = circles(&graph(&with_two)).into_iter().map(|c| c.into_iter().collect()).collect();
        assert_eq!(sets, [vec!["a", "b", "c"], vec!["e", "f"]]);
        let up = arrows_up(&graph(&with_two));
        assert_eq!(up.len(), 2);
        assert!(up.contains(&("c".to_owned(), "a".to_owned())), "{up:?}");
    }
}
