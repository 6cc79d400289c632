//! The machine as a picture: nested boxes like hwloc's lstopo; machines with coordinates as a grid of tiles.
//!
//! Packages, dies, clusters, cores and CPUs enclose their contents; caches, memory nodes, buses and links are bars
//! above the CPUs that share them. The picture is standalone (no scripts, fonts or links).

use super::render::{count, counts, footnotes, offline, title};
use super::tree::{Item, Tree};
use super::{Kind, Topology};
use std::collections::BTreeMap;
use std::fmt::Write;

const FONT: f64 = 11.0;
const LINE: f64 = 16.0;
const PAD: f64 = 5.0;
/// Target ratio of width to height of grids.
const ASPECT: f64 = 1.6;
/// Cells of a grid of tiles above which empty rows and columns are left out.
const CELLS: i64 = 4096;

/// The picture of a machine, an SVG document.
pub fn svg(topology: &Topology) -> String {
    let tree = Tree::new(topology);
    let cores = topology.of_kind(Kind::Core).filter_map(|r| r.os_index);
    let highest = cores.chain(topology.online().last().map(|cpu| cpu.0)).max().unwrap_or(0);
    let draw = Draw { topology, tree: &tree, digits: "0".repeat(highest.to_string().len()) };
    let body = draw.mesh().unwrap_or_else(|| draw.vertex(0));
    let mut notes = vec![counts(topology)];
    notes.extend(footnotes(topology, &tree));
    let away = draw.offline();

    let text_width = notes.iter().map(|n| width(n)).fold(0.0, f64::max);
    let wide = body.w.max(text_width).max(away.as_ref().map_or(0.0, |b| b.w)) + 2.0 * PAD;
    let away_height = away.as_ref().map_or(0.0, |b| b.h + PAD);
    let high = body.h + away_height + LINE * notes.len() as f64 + 3.0 * PAD;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{wide:.0}\" height=\"{high:.0}\" viewBox=\"0 0 {wide:.0} {high:.0}\" \
         font-family=\"DejaVu Sans, Verdana, Helvetica, sans-serif\" font-size=\"{FONT}\" fill=\"#1a1a1a\">\n\
         <title>{}</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n",
        escape(&title(topology, Item::Machine, false))
    );
    body.write(PAD, PAD, &mut out);
    let mut y = PAD + body.h + PAD;
    if let Some(away) = away {
        away.write(PAD, y, &mut out);
        y += away_height;
    }
    for note in notes {
        text(&mut out, PAD, y + FONT, &note);
        y += LINE;
    }
    out.push_str("</svg>\n");
    out
}

/// A drawing: its extent and its parts with their positions.
#[derive(Clone, Debug, Default)]
struct Drawing {
    w: f64,
    h: f64,
    shape: Option<Shape>,
    parts: Vec<(f64, f64, Drawing)>,
}

/// A rectangle with a text in its first line.
#[derive(Clone, Debug)]
struct Shape {
    text: String,
    fill: &'static str,
    dashed: bool,
    /// Its tooltip.
    hover: String,
}

impl Drawing {
    fn write(&self, x: f64, y: f64, out: &mut String) {
        if let Some(shape) = &self.shape {
            let dash = if shape.dashed { " stroke-dasharray=\"3 2\"" } else { "" };
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" rx=\"2\" fill=\"{}\" stroke=\"#555555\"{dash}>\
                 {}</rect>",
                self.w,
                self.h,
                shape.fill,
                if shape.hover.is_empty() { String::new() } else { format!("<title>{}</title>", escape(&shape.hover)) }
            );
            if !shape.text.is_empty() {
                text(out, x + PAD, y + 1.5 + FONT, &shape.text);
            }
        }
        for (dx, dy, part) in &self.parts {
            part.write(x + dx, y + dy, out);
        }
    }
}

fn text(out: &mut String, x: f64, y: f64, text: &str) {
    let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
}

fn escape(text: &str) -> String {
    // XML 1.0 forbids control characters, even if escaped.
    let text = text.replace(char::is_control, " ").replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Width of a text in `DejaVu Sans`, the widest of the fonts named: each class of characters as wide as its widest.
fn width(text: &str) -> f64 {
    let em = |c: char| match c {
        'f' | 'i' | 'j' | 'l' | 'r' | 't' | 'I' | ' ' | '.' | ',' | ':' | ';' | '|' | '(' | ')' | '-' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        'a'..='z' | '0'..='9' => 0.645,
        c if c.is_ascii() => 0.84,
        _ => 1.1,
    };
    text.chars().map(em).sum::<f64>() * FONT
}

/// A box without further boxes.
fn leaf(shape: Shape) -> Drawing {
    Drawing { w: width(&shape.text) + 2.0 * PAD, h: LINE + 2.0, shape: Some(shape), parts: Vec::new() }
}

/// A box with a text above a drawing, with a minimum width.
fn titled(shape: Shape, content: Drawing, least: f64) -> Drawing {
    let w = (content.w + 2.0 * PAD).max(least);
    let h = LINE + 2.0 + content.h + PAD;
    Drawing { w, h, shape: Some(shape), parts: vec![(PAD, LINE + 2.0, content)] }
}

/// A box without text around a drawing.
fn framed(content: Drawing, fill: &'static str) -> Drawing {
    let shape = Shape { text: String::new(), fill, dashed: false, hover: String::new() };
    let gap = PAD / 2.0;
    Drawing { w: content.w + 2.0 * gap, h: content.h + 2.0 * gap, shape: Some(shape), parts: vec![(gap, gap, content)] }
}

struct Draw<'a> {
    topology: &'a Topology,
    tree: &'a Tree,
    /// Digits of the highest number of a CPU or core.
    digits: String,
}

impl Draw<'_> {
    fn vertex(&self, at: usize) -> Drawing {
        let vertex = &self.tree.vertices[at];
        let inner: Vec<Drawing> = vertex.children.iter().map(|&child| self.vertex(child)).collect();
        // Different siblings, such as fast and slow cores, are in separate grids, unless they alternate.
        let alike = |a: &Drawing, b: &Drawing| (a.w, a.h, a.parts.len()) == (b.w, b.h, b.parts.len());
        let runs = inner.chunk_by(alike);
        let inner = match runs.clone().count() {
            2..=4 => stack(runs.map(|run| grid(run.to_vec())).collect()),
            _ => grid(inner),
        };
        self.around(at, inner)
    }

    /// A vertex around, or above, its contents.
    fn around(&self, at: usize, inner: Drawing) -> Drawing {
        let vertex = &self.tree.vertices[at];
        let shape = self.shape(vertex.item, &vertex.cpus.to_string());
        // Numbered boxes are wide enough for the highest number, so that columns align.
        let numbered = |text: &str| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>() + &self.digits;
        let least = 2.0 * PAD
            + match vertex.item {
                Item::Cpu(_) => {
                    let w = width(&numbered("CPU ")).max(width(&numbered("!"))) + 2.0 * PAD;
                    return Drawing { w, ..leaf(shape) };
                }
                Item::Resource(i) if self.topology.resources()[i].kind == Kind::Core => {
                    width(&shape.text).max(width(&numbered("Core ")))
                }
                _ => width(&shape.text),
            };
        let above = match vertex.item {
            Item::Machine => self.tree.cpuless.iter().map(|&i| self.bar(Item::Node(i))).collect(),
            _ => Vec::new(),
        };
        if is_bar(self.topology, vertex.item) {
            let shared = vertex.children.len() > 1;
            let all = stack(vec![Drawing { w: least, ..leaf(shape) }, inner]);
            return if shared { framed(all, "#fbf5ea") } else { all };
        }
        let content = stack(above.into_iter().chain([inner]).collect());
        titled(shape, stretched(content, least - 2.0 * PAD), least)
    }

    fn bar(&self, item: Item) -> Drawing {
        leaf(self.shape(item, "none"))
    }

    fn shape(&self, item: Item, cpus: &str) -> Shape {
        let text = title(self.topology, item, false);
        let mut shape = Shape { hover: format!("{text}: CPUs {cpus}"), text, fill: "#ffffff", dashed: false };
        shape.fill = match item {
            Item::Machine => "#f6f6f3",
            Item::Node(_) => "#cfe6cf",
            Item::Cpu(id) => {
                let cpu = self.topology.cpu(id);
                shape.text = id.to_string();
                if cpu.is_some_and(|c| !c.allowed) {
                    shape.dashed = true;
                    shape.hover.push_str(" (not allowed)");
                    shape.text.push('!');
                    "#f6d5d5"
                } else {
                    shape.text = format!("CPU {id}");
                    // Slower is darker; machines with one kind of core stay white.
                    match cpu.and_then(|c| c.efficiency_class) {
                        None => "#ffffff",
                        Some(0) => "#dfe7f5",
                        Some(1) => "#f0f4fb",
                        Some(_) => "#fbfcff",
                    }
                }
            }
            Item::Resource(i) => match self.topology.resources()[i].kind {
                Kind::Package => "#e9ebdd",
                Kind::Die => "#dde4d3",
                Kind::Cluster => "#d5dfe2",
                Kind::Core => "#dcdcdc",
                Kind::Cache(_) => "#f7e3c8",
                Kind::Bus | Kind::MemoryController | Kind::Link => "#ded3ef",
            },
        };
        shape
    }

    /// Offline CPUs, below the machine.
    fn offline(&self) -> Option<Drawing> {
        let off = offline(self.topology);
        if off.is_empty() {
            return None;
        }
        let cell = |id| {
            let (text, hover) = (format!("CPU {id}"), format!("CPU {id} is offline"));
            leaf(Shape { text, fill: "#eeeeee", dashed: true, hover })
        };
        let content = grid(off.iter().map(cell).collect());
        let text = format!("Offline: {}", count(off.len(), "CPU"));
        let least = width(&text) + 2.0 * PAD;
        let shape = Shape { hover: text.clone(), text, fill: "#fafafa", dashed: true };
        Some(titled(shape, content, least))
    }

    /// The machine as a grid of tiles, if every CPU has coordinates and they differ. Resources that span tiles are
    /// listed above.
    fn mesh(&self) -> Option<Drawing> {
        let coord = |cpu| self.topology.cpu(cpu).and_then(|c| c.coord);
        let first = coord(self.topology.online().first()?)?;
        if !self.topology.online().iter().all(|cpu| coord(cpu).is_some())
            || self.topology.online().iter().all(|cpu| coord(cpu) == Some(first))
        {
            return None;
        }
        let mut tiles: BTreeMap<(i32, i32), Vec<Drawing>> = BTreeMap::new();
        let mut spanning = Vec::new();
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            let vertex = &self.tree.vertices[at];
            let here = vertex.cpus.first().and_then(coord)?;
            if vertex.cpus.iter().all(|cpu| coord(cpu) == Some(here)) {
                tiles.entry((here.1, here.0)).or_default().push(self.vertex(at));
                continue;
            }
            let placed = matches!(vertex.item, Item::Node(i) if self.topology.nodes()[i].coord.is_some());
            if at != 0 && !placed {
                let shape = self.shape(vertex.item, &vertex.cpus.to_string());
                spanning.push(leaf(Shape { text: shape.hover.clone(), ..shape }));
            }
            open.extend(vertex.children.iter().rev());
        }
        for (i, node) in self.topology.nodes().iter().enumerate() {
            match node.coord {
                Some((x, y)) => tiles.entry((y, x)).or_default().insert(0, self.bar(Item::Node(i))),
                None if node.cpus.is_empty() => spanning.push(self.bar(Item::Node(i))),
                None => {}
            }
        }
        let tiles: BTreeMap<(i32, i32), Drawing> = tiles.into_iter().map(|(at, parts)| (at, stack(parts))).collect();
        let w = tiles.values().map(|t| t.w).fold(0.0, f64::max);
        let h = tiles.values().map(|t| t.h).fold(0.0, f64::max);
        let (columns, rows) = (ranks(tiles.keys().map(|k| k.1)), ranks(tiles.keys().map(|k| k.0)));
        let mut mesh = Drawing::default();
        for ((y, x), tile) in tiles {
            let (column, row) = (columns[&x] as f64, rows[&y] as f64);
            let (dx, dy) = (column * (w + 2.0 * PAD), row * (h + 2.0 * PAD));
            mesh.w = mesh.w.max(dx + w + PAD);
            mesh.h = mesh.h.max(dy + h + PAD);
            let short = h - tile.h;
            let mut tile = framed(stretched(tile, w), "#fafaf8");
            tile.h += short;
            mesh.parts.push((dx, dy, tile));
        }
        let content = stack(spanning.into_iter().chain([mesh]).collect());
        let shape = self.shape(Item::Machine, &self.topology.online().to_string());
        let least = width(&shape.text) + 2.0 * PAD;
        Some(titled(shape, content, least))
    }
}

/// Drawn coordinates: relative to the lowest, or without gaps in a mostly empty grid.
fn ranks(coords: impl Iterator<Item = i32>) -> BTreeMap<i32, i64> {
    let mut sorted: Vec<i32> = coords.collect();
    sorted.sort_unstable();
    sorted.dedup();
    let span = sorted.first().zip(sorted.last()).map_or(0, |(a, b)| i64::from(*b) - i64::from(*a));
    let gaps = span * span <= CELLS;
    sorted
        .iter()
        .zip(0..)
        .map(|(&c, rank)| (c, if gaps { i64::from(c) - i64::from(sorted[0]) } else { rank }))
        .collect()
}

fn is_bar(topology: &Topology, item: Item) -> bool {
    match item {
        Item::Node(_) => true,
        Item::Resource(i) => {
            matches!(topology.resources()[i].kind, Kind::Cache(_) | Kind::Bus | Kind::MemoryController | Kind::Link)
        }
        Item::Machine | Item::Cpu(_) => false,
    }
}

/// One below the other, all as wide as the widest.
fn stack(parts: Vec<Drawing>) -> Drawing {
    let parts: Vec<Drawing> = parts.into_iter().filter(|p| p.h > 0.0).collect();
    let w = parts.iter().map(|p| p.w).fold(0.0, f64::max);
    let mut all = Drawing { w, ..Drawing::default() };
    for part in parts {
        if all.h > 0.0 {
            all.h += PAD / 2.0;
        }
        let y = all.h;
        all.h += part.h;
        all.parts.push((0.0, y, stretched(part, w)));
    }
    all
}

/// The same drawing, at least `w` wide: bars grow; boxes grow with their contents at the left.
fn stretched(mut drawing: Drawing, w: f64) -> Drawing {
    if drawing.w >= w {
        return drawing;
    }
    let grown = w - drawing.w;
    drawing.w = w;
    if drawing.shape.is_none() && drawing.parts.iter().all(|p| p.0 == 0.0) {
        for (_, _, part) in &mut drawing.parts {
            *part = stretched(std::mem::take(part), w);
        }
    } else if drawing.shape.is_some() && drawing.parts.len() == 1 {
        let part = &mut drawing.parts[0].2;
        let inner = part.w + grown;
        *part = stretched(std::mem::take(part), inner);
    }
    drawing
}

/// Parts in rows, with the number of columns nearest to [`ASPECT`]; full rows preferred.
fn grid(parts: Vec<Drawing>) -> Drawing {
    let count = parts.len();
    let best = (1..=count.max(1)).map(|columns| {
        let (w, h) = extent(&parts, columns);
        let ragged = if count.is_multiple_of(columns) { 1.0 } else { 2.0 };
        (((w / h.max(1.0)) / ASPECT).ln().abs() + f64::ln(ragged), columns)
    });
    let columns = best.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(1, |b| b.1);
    let (w, h) = extent(&parts, columns);
    let mut all = Drawing { w, h, ..Drawing::default() };
    let mut y = 0.0;
    let mut parts = parts.into_iter().peekable();
    while parts.peek().is_some() {
        let row: Vec<Drawing> = parts.by_ref().take(columns).collect();
        let (mut x, mut tallest) = (0.0, 0.0f64);
        for part in row {
            let next = x + part.w + PAD;
            tallest = tallest.max(part.h);
            all.parts.push((x, y, part));
            x = next;
        }
        y += tallest + PAD;
    }
    all
}

fn extent(parts: &[Drawing], columns: usize) -> (f64, f64) {
    let rows = parts.chunks(columns);
    let gap = |n: usize| PAD * (n.max(1) - 1) as f64;
    let w = rows.clone().map(|row| row.iter().map(|p| p.w).sum::<f64>() + gap(row.len())).fold(0.0, f64::max);
    let h = rows.clone().map(|row| row.iter().map(|p| p.h).fold(0.0, f64::max)).sum::<f64>();
    (w, h + gap(rows.len()))
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::*;
    use super::super::{Parts, Resource};
    use super::*;

    /// The rectangles of a picture, checked: well-formed, each text beginning in the rectangle before it and ending
    /// inside it.
    fn rectangles(svg: &str) -> Vec<[f64; 4]> {
        let xml = roxmltree::Document::parse(svg).unwrap();
        let number = |n: roxmltree::Node, key: &str| n.attribute(key).unwrap().parse::<f64>().unwrap();
        let page = xml.root_element();
        let (page_w, page_h) = (number(page, "width"), number(page, "height"));
        let mut boxes: Vec<[f64; 4]> = Vec::new();
        for n in page.children().filter(roxmltree::Node::is_element) {
            match n.tag_name().name() {
                "rect" if n.attribute("x").is_some() => {
                    boxes.push(["x", "y", "width", "height"].map(|key| number(n, key)));
                }
                "text" => {
                    let (x, y) = (number(n, "x"), number(n, "y"));
                    let end = x + width(n.text().unwrap());
                    assert!(end <= page_w && y <= page_h, "{:?}", n.text());
                    let holder =
                        boxes.iter().rev().find(|b| b[0] <= x && x <= b[0] + b[2] && b[1] <= y && y <= b[1] + b[3]);
                    assert!(holder.is_none_or(|b| end <= b[0] + b[2] + 0.2), "{:?} overflows {holder:?}", n.text());
                }
                _ => {}
            }
        }
        boxes
    }

    fn machines() -> Vec<Topology> {
        let mut odd = Parts { cpus: cpus(7), nodes: vec![node(0, "0-3"), node(1, "")], ..Parts::default() };
        odd.name = Some("a <b> & \"c\"\u{1}".into());
        odd.cpus[6].online = false;
        odd.cpus[1].allowed = false;
        odd.cpus[0].efficiency_class = Some(1);
        odd.resources.extend(["0,4", "1-2"].map(|c| resource(Kind::Bus, 0, c)));
        odd.resources.push(Resource { os_index: Some(1234), ..resource(Kind::Core, 0, "3") });
        let mut mesh = Parts { cpus: cpus(6), nodes: vec![node(0, "0-5")], ..Parts::default() };
        mesh.resources = vec![resource(Kind::Package, 0, "0-5")];
        mesh.nodes[0].coord = Some((2_000_000_000, -2_000_000_000));
        (0..6).for_each(|i| mesh.cpus[i as usize].coord = Some((i % 3, i / 3)));
        let parts = [regular(1, 1, 1, 1), regular(2, 1, 10, 2), regular(1, 8, 8, 1), odd, mesh];
        parts.into_iter().map(|parts| Topology::new(parts).unwrap()).collect()
    }

    #[test]
    fn boxes_nest_and_hold_their_text() {
        for machine in machines() {
            let boxes = rectangles(&svg(&machine));
            assert!(boxes.len() > machine.cpus().len());
            for (i, a) in boxes.iter().enumerate() {
                for b in &boxes[..i] {
                    // Half a tenth is the rounding error of both.
                    let within = |v: usize| a[v] >= b[v] - 0.11 && a[v] + a[v + 2] <= b[v] + b[v + 2] + 0.11;
                    let apart = |v: usize| a[v] >= b[v] + b[v + 2] - 0.11 || b[v] >= a[v] + a[v + 2] - 0.11;
                    assert!((within(0) && within(1)) || apart(0) || apart(1), "{a:?} and {b:?}");
                }
            }
        }
    }

    #[test]
    fn every_cpu_is_drawn_once() {
        for machine in machines().into_iter().chain([Topology::new(regular(4, 16, 8, 2)).unwrap()]) {
            let picture = svg(&machine);
            for cpu in machine.cpus() {
                let drawn = [format!(">CPU {}</text>", cpu.id), format!(">{}!</text>", cpu.id)];
                let times: usize = drawn.iter().map(|text| picture.matches(text.as_str()).count()).sum();
                assert_eq!(times, 1, "CPU {}", cpu.id);
            }
        }
    }

    #[test]
    fn a_mesh_is_drawn_where_its_tiles_are() {
        let mut parts = Parts { cpus: cpus(4), ..Parts::default() };
        (0..4).for_each(|i| parts.cpus[i as usize].coord = Some((i % 2, i / 2)));
        let boxes = rectangles(&svg(&Topology::new(parts).unwrap()));
        // The machine, then a tile and its CPU four times.
        let tiles: Vec<[f64; 4]> = boxes[1..].iter().step_by(2).copied().collect();
        assert_eq!(tiles.len(), 4);
        assert!(tiles[0][0] == tiles[2][0] && tiles[0][1] == tiles[1][1]);
        assert!(tiles[1][0] > tiles[0][0] && tiles[2][1] > tiles[0][1]);
    }
}
