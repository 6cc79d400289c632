use super::*;
use cotenant_model::CpuId;
use cotenant_model::topology::{CacheType, Kind, Topology};
use std::fs;

fn machine(name: &str) -> Machine {
    resolve_in(name, &[]).unwrap_or_else(|e| panic!("{e}")).machine
}

fn sets(t: &Topology, kind: Kind, level: u8) -> Vec<String> {
    t.of_kind(kind).filter(|r| r.level == level).map(|r| r.cpus.to_string()).collect()
}

const CACHE: Kind = Kind::Cache(CacheType::Unified);

#[test]
fn every_file_is_carried_and_says_where_it_comes_from() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
    let mut files: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|f| f.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "toml"))
        .map(|p| stem(&p))
        .collect();
    files.sort();
    assert_eq!(files, names().collect::<Vec<_>>());
    for name in names() {
        let m = machine(name);
        assert_eq!(m.name, name);
        assert!(!m.source.is_empty() && !m.sources.is_empty() && m.numbering.is_some(), "{name}");
        assert!(!m.assumptions.is_empty(), "{name}");
        if m.profile.clock_hz.is_some() || m.profile.thresholds.is_some() {
            assert!(m.profile.source.is_some(), "{name}: the profile has no source");
        }
    }
}

#[test]
fn counts_are_those_of_the_papers() {
    // packages, memory nodes, last-level domains, cores, CPUs
    for (name, counts) in [
        ("ivy-bridge-2s", (2, 2, 2, 20, 40)),
        ("clovertown-2s", (2, 1, 4, 8, 8)),
        ("westmere-2s", (2, 2, 2, 12, 12)),
        ("westmere-2s-ht", (2, 2, 2, 12, 24)),
        ("nehalem-i7-920", (1, 1, 1, 4, 4)),
        ("phenom-x4", (1, 1, 1, 4, 4)),
        ("yorkfield", (1, 1, 2, 4, 4)),
        ("harpertown-2s", (2, 1, 4, 8, 8)),
        ("xeon-4s-64", (4, 4, 4, 32, 64)),
        ("opteron-48", (4, 8, 8, 48, 48)),
        ("opteron-6276-2s", (2, 4, 4, 32, 32)),
        ("x3320", (1, 1, 2, 4, 4)),
        ("tilepro64", (1, 4, 64, 64, 64)),
        ("epyc-9454-2s", (2, 2, 16, 96, 192)),
        ("epyc-9454-2s-nps4", (2, 8, 16, 96, 96)),
        ("clx-8269-2s-snc2", (2, 4, 2, 52, 52)),
        ("epyc-7742-2s-nps4", (2, 8, 32, 128, 256)),
        ("knl-7210", (1, 2, 32, 64, 64)),
    ] {
        let t = machine(name).topology;
        let found = (t.packages().len(), t.nodes().len(), t.llc_domains().len(), t.cores().len(), t.cpus().len());
        assert_eq!(found, counts, "{name}");
    }
}

#[test]
fn sam_s_machine() {
    let m = machine("ivy-bridge-2s");
    let thresholds = m.profile.thresholds.unwrap();
    assert_eq!((m.profile.clock_hz, thresholds.coherence_per_cycle), (Some(2.2e9), 2.5e-4));
    // §2.1 and §2.2 give both per second, too.
    assert_eq!((thresholds.coherence_per_cycle * 2.2e9).round(), 550_000.0);
    assert_eq!((thresholds.socket_bandwidth_per_s / 2.2e9 * 1000.0).round(), 34.0);
    assert_eq!(sets(&m.topology, Kind::Package, 0), ["0-9,20-29", "10-19,30-39"]);
    assert_eq!(m.topology.cores()[3].to_string(), "3,23");
    assert_eq!(m.topology.nodes()[1].bytes, Some(8 << 30));
}

#[test]
fn tang_s_clovertown() {
    // Table 3.1
    let t = machine("clovertown-2s").topology;
    assert_eq!(sets(&t, CACHE, 2), ["0-1", "2-3", "4-5", "6-7"]);
    assert_eq!(sets(&t, Kind::Bus, 0), ["0-3", "4-7"]);
    assert_eq!(t.of_kind(CACHE).map(|c| (c.capacity, c.ways)).collect::<Vec<_>>(), [(Some(4 << 20), Some(16)); 4]);
}

#[test]
fn resense_s_table_3() {
    let t = machine("harpertown-2s").topology;
    assert_eq!(sets(&t, Kind::Bus, 0), ["0,2,4,6", "1,3,5,7"]);
    assert_eq!(sets(&t, CACHE, 2), ["0,2", "1,3", "4,6", "5,7"]);
    let t = machine("yorkfield").topology;
    assert_eq!((sets(&t, CACHE, 2), sets(&t, Kind::Bus, 0)), (vec!["0-1".into(), "2-3".into()], vec!["0-3".into()]));
    let t = machine("xeon-4s-64").topology;
    assert_eq!(sets(&t, CACHE, 3)[0], "0-7,32-39");
    let t = machine("opteron-48").topology;
    assert_eq!((&*sets(&t, CACHE, 3)[1], &*sets(&t, Kind::Package, 0)[0]), ("6-11", "0-11"));
    assert_eq!(t.distance(CpuId(0), 3), Some(22.0));
}

#[test]
fn measured_machines() {
    let t = machine("epyc-9454-2s").topology;
    assert_eq!(t.cores()[0].to_string(), "0,96");
    assert_eq!(sets(&t, CACHE, 3)[8], "48-53,144-149");
    let t = machine("clx-8269-2s-snc2").topology;
    assert_eq!((t.distance(CpuId(13), 3), t.distance(CpuId(51), 0)), (Some(137.6), Some(134.4)));
    let t = machine("tilepro64").topology;
    assert_eq!(t.cpu(CpuId(10)).unwrap().coord, Some((2, 1)));
    assert_eq!(
        (t.distance(CpuId(0), 0), t.distance(CpuId(0), 3), t.distance(CpuId(63), 3)),
        (Some(0.0), Some(14.0), Some(0.0))
    );
}

/// A fresh folder; removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("cotenant-machine-arg-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, path: &str, text: &str) -> String {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const TOML: &str = "name = \"mine\"\ndescription = \"\"\nsource = \"me\"\n[topology]\nsynthetic = \"core:3 pu:1\"\n";
const XML: &str =
    r#"<topology><object type="Machine" cpuset="0x1"><object type="PU" os_index="0"/></object></topology>"#;

#[test]
fn every_form_is_found() {
    let folder = Folder::new("forms");
    let toml = folder.write("m.toml", TOML);
    let xml = folder.write("m.xml", XML);
    folder.write("dump/sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
    let dump = folder.0.join("dump");
    let cpus = |arg: &str| resolve_in(arg, &[]).unwrap_or_else(|e| panic!("{e}")).machine.topology.cpus().len();
    assert_eq!(
        [cpus(&toml), cpus(&xml), cpus(dump.to_str().unwrap()), cpus("package:2 core:2 pu:1"), cpus("2 2")],
        [3, 1, 1, 4, 4]
    );
    let own = resolve(None).unwrap();
    assert!(own.is_live && !own.machine.topology.usable().is_empty());
}

/// An error found later, as by the simulator, names the file, too.
#[test]
fn a_machine_knows_its_file() {
    let folder = Folder::new("places");
    let toml = folder.write("m.toml", TOML);
    let named = folder.write("cotenant/machines/mine.toml", TOML);
    let place = |arg: &str| resolve_in(arg, std::slice::from_ref(&folder.0)).unwrap().machine.place().to_owned();
    assert_eq!([place(&toml), place("mine"), place("yorkfield")], [toml, named, "machines/yorkfield.toml".to_owned()]);
    let own = |text: &str| Some(Machine::parse(text));
    let beside = resolve_beside("m.toml", &folder.0, own).unwrap();
    assert_eq!(beside.place(), folder.0.join("m.toml").to_str().unwrap());
    assert_eq!(Machine::parse(TOML).unwrap().place(), "mine");
}

#[test]
fn the_user_s_files_come_before_the_system_s_and_ours() {
    let (user, system) = (Folder::new("user"), Folder::new("system"));
    let dirs = [user.0.clone(), system.0.clone()];
    let cpus = || resolve_in("yorkfield", &dirs).unwrap().machine.topology.cpus().len();
    assert_eq!(cpus(), 4);
    system.write("cotenant/machines/yorkfield.toml", &TOML.replace("core:3", "core:7"));
    assert_eq!(cpus(), 7);
    user.write("cotenant/machines/yorkfield.toml", TOML);
    assert_eq!(cpus(), 3);
    let vars = |name: &str| match name {
        "HOME" => Some("/home/me".into()),
        "XDG_DATA_DIRS" => Some("relative:/opt/share".into()),
        _ => None,
    };
    assert_eq!(data_dirs(vars), [Path::new("/home/me/.local/share"), Path::new("/opt/share")]);
}

#[test]
fn errors_are_one_line_and_say_what_was_tried() {
    let folder = Folder::new("errors");
    let bad = |arg: &str| {
        let text = resolve_in(arg, &[]).unwrap_err().to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let e = bad("ivy-brigde");
    assert!(e.contains("no such name (clovertown-2s, ") && e.contains("column 1: 'ivy-brigde' is not a type"), "{e}");
    let file = folder.write("x.toml", "name = 3\n");
    assert!(bad(&file).contains("x.toml:1:8: "), "{}", bad(&file));
    let file = folder.write("x.xml", "<topology>\n<object/></topology>");
    assert!(bad(&file).contains("x.xml:2:1: an object has no type"), "{}", bad(&file));
    assert!(bad(folder.0.to_str().unwrap()).contains("holds no sys/"));
    fs::create_dir_all(folder.0.join("empty/sys")).unwrap();
    assert!(bad(folder.0.join("empty").to_str().unwrap()).contains("no CPU is listed"));
    assert!(bad("").contains("no such name"));
}
