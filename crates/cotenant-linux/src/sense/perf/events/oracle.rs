//! The tables against external ones: Intel's perfmon files and libpfm4.

use super::tests::{MODELS, table};
use super::{Event, Table};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The vendors' names of the parts of a combined event: `A.X|Y` is `A.X` and `A.Y`.
fn names(event: &Event) -> Vec<String> {
    let (first, _) = event.name.split_once('|').unwrap_or((event.name, ""));
    let select = first.split_once('.').map_or(first, |(select, _)| select);
    event
        .name
        .split('|')
        .enumerate()
        .map(|(i, part)| if i == 0 { part.into() } else { format!("{select}.{part}") })
        .collect()
}

fn events(table: &Table) -> impl Iterator<Item = &Event> {
    table.events.iter().copied().flatten()
}

fn shared() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let places = [
        std::env::var_os("COTENANT_SHARED").map(PathBuf::from),
        Some(root.join("../shared")),
        Some(root.join("../../shared")),
    ];
    places.into_iter().flatten().find(|p| p.join("data/events").is_dir())
}

/// Holds see/counters.
#[test]
fn intel_codes_are_those_of_perfmon() {
    let Some(archive) = shared().map(|s| s.join("data/events/intel-perfmon.tar.xz")) else {
        eprintln!("skipped: no shared/data/events (set COTENANT_SHARED)");
        return;
    };
    let mut checked = 0;
    for (family, file) in [
        ("IVT", "ivytown"),
        ("HSX", "haswellx"),
        ("BDX", "broadwellx"),
        ("SKX", "skylakex"),
        ("CLX", "cascadelakex"),
        ("ICX", "icelakex"),
        ("SPR", "sapphirerapids"),
        ("EMR", "emeraldrapids"),
        ("GNR", "graniterapids"),
    ] {
        let member = format!("./{family}/events/{file}_core.json");
        let output = match Command::new("tar").arg("-xJOf").arg(&archive).arg(&member).output() {
            Ok(output) if output.status.success() => output.stdout,
            other => {
                eprintln!("skipped: tar cannot read {} of {}: {other:?}", member, archive.display());
                return;
            }
        };
        let json: serde_json::Value = serde_json::from_slice(&output).unwrap();
        let known = json["Events"].as_array().unwrap();
        let hex = |value: &serde_json::Value| {
            let text = value.as_str().unwrap();
            let digits = text.trim_start_matches("0x").trim_start_matches("0X");
            u64::from_str_radix(digits, 16).unwrap()
        };
        for event in events(table(family)) {
            let mut raw = 0;
            for name in names(event) {
                let entry = known.iter().find(|e| e["EventName"] == name.as_str());
                let entry = entry.unwrap_or_else(|| panic!("{family}: perfmon knows no {name}"));
                assert_ne!(entry["Deprecated"], "1", "{family} {name}");
                let mask: u64 = entry["CounterMask"].as_str().unwrap().parse().unwrap();
                raw |= hex(&entry["EventCode"]) | hex(&entry["UMask"]) << 8 | mask << 24;
                for flag in ["Invert", "EdgeDetect", "AnyThread"] {
                    assert!(matches!(entry[flag].as_str(), None | Some("0")), "{family} {name} needs {flag}");
                }
            }
            assert_eq!(event.raw, raw, "{family} {}: {:#x} is not perfmon's {raw:#x}", event.name, event.raw);
            checked += 1;
        }
    }
    assert!(checked >= 9 * 11, "{checked} events checked");
}

/// Encodes names with libpfm4. Compiled with the system's C compiler, so that neither is a dependency.
const ENCODER: &str = r#"
#include <perfmon/pfmlib.h>
#include <perfmon/pfmlib_perf_event.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    if (pfm_initialize() != PFM_SUCCESS) return 1;
    for (int i = 1; i < argc; i++) {
        struct perf_event_attr attr; memset(&attr, 0, sizeof attr); attr.size = sizeof attr;
        pfm_perf_encode_arg_t arg; memset(&arg, 0, sizeof arg); arg.size = sizeof arg; arg.attr = &attr;
        int r = pfm_get_os_event_encoding(argv[i], PFM_PLM3 | PFM_PLM0, PFM_OS_PERF_EVENT, &arg);
        if (r == PFM_SUCCESS) printf("%llx\n", (unsigned long long)attr.config); else puts("unknown");
    }
}
"#;

/// libpfm4's codes of events, `None` for unknown ones; `None` if it or a compiler is not installed.
fn libpfm(events: &[String]) -> Option<Vec<Option<u64>>> {
    let dir = std::env::temp_dir().join(format!("cotenant-libpfm-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (source, program) = (dir.join("encode.c"), dir.join("encode"));
    std::fs::write(&source, ENCODER).unwrap();
    let built = Command::new("cc").arg(&source).arg("-o").arg(&program).arg("-lpfm").output();
    let output = built.ok().filter(|o| o.status.success()).map(|_| {
        let output = Command::new(&program).args(events).env("LIBPFM_ENCODE_INACTIVE", "1").output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    });
    std::fs::remove_dir_all(&dir).unwrap();
    Some(output?.lines().map(|line| u64::from_str_radix(line, 16).ok()).collect())
}

/// The name of an event's part in libpfm4: `pmu::EVENT:MASK`.
fn pfm_name(pmu: &str, name: &str) -> String {
    let (select, mask) = name.split_once('.').unwrap();
    let (select, mask) = match select {
        "ls_refills_from_sys" => ("DATA_CACHE_REFILLS_FROM_SYSTEM", mask),
        "ls_dmnd_fills_from_sys" => ("DEMAND_DATA_CACHE_FILLS_FROM_SYSTEM", mask),
        "ls_any_fills_from_sys" => ("ANY_DATA_CACHE_FILLS_FROM_SYSTEM", mask),
        select => (select, mask),
    };
    let mask = match mask {
        "ls_mabresp_lcl_l2" => "MABRESP_LCL_L2",
        "ext_cache_local" => "EXT_CACHE_LCL",
        "ext_cache_remote" => "EXT_CACHE_RMT",
        "mem_io_local" => "MEM_IO_LCL",
        "mem_io_remote" => "MEM_IO_RMT",
        "local_l2" => "LCL_L2",
        "near_cache" => "NEAR_CACHE_NEAR_FAR",
        "far_cache" => "FAR_CACHE_NEAR_FAR",
        "alternate_memories" => "ALT_MEM_NEAR_FAR",
        "LLC_HIT" => "L3_HIT",
        "LLC_MISS" => "L3_MISS",
        // libpfm 4.13 carries the older names of the same unit masks.
        "XSNP_NO_FWD" if pmu == "icx" => "XSNP_HIT",
        "XSNP_FWD" if pmu == "icx" => "XSNP_HITM",
        mask => mask,
    };
    format!("{pmu}::{select}:{mask}").to_uppercase().replacen(&pmu.to_uppercase(), pmu, 1)
}

/// Holds see/counters.
#[test]
fn codes_are_those_of_libpfm_where_it_knows_the_event() {
    let mut asked = Vec::new();
    for (family, pmu) in [
        ("IVT", "ivb_ep"),
        ("HSX", "hsw_ep"),
        ("BDX", "bdw_ep"),
        ("SKX", "skx"),
        ("CLX", "clx"),
        ("ICX", "icx"),
        ("SPR", "spr"),
        ("zen2", "amd64_fam17h_zen2"),
        ("zen3", "amd64_fam19h_zen3"),
        ("zen4", "amd64_fam19h_zen4"),
    ] {
        assert!(MODELS.iter().any(|(name, _)| *name == family));
        for event in events(table(family)) {
            asked.extend(names(event).into_iter().map(|name| (family, event, pfm_name(pmu, &name))));
        }
    }
    let queries: Vec<String> = asked.iter().map(|(.., query)| query.clone()).collect();
    let Some(answers) = libpfm(&queries) else {
        eprintln!("skipped: no C compiler, or no libpfm4-dev");
        return;
    };
    // The one event on which the oracles differ: perfmon (v24) has 03, libpfm 4.13 has 01. Intel's own table decides.
    let disputed = |query: &str, code: u64| query.ends_with("LLC_MISS_RETIRED:LOCAL_DRAM") && code & 0xffff == 0x01d3;
    // Bits 16, 17, 20 and 22 (user, kernel, interrupt, enable) are the kernel's to set.
    let plain = |code: u64| code & !0x53_0000;
    let mut unknown = Vec::new();
    for ((family, event, query), answer) in asked.iter().zip(&answers) {
        match answer {
            Some(code) if *family == "IVT" && disputed(query, *code) => {}
            Some(code) => assert_eq!(
                plain(*code) | event.raw,
                event.raw,
                "{family} {}: libpfm4 encodes {query} as {code:#x}, which {:#x} does not contain",
                event.name,
                event.raw
            ),
            None => unknown.push(query.clone()),
        }
    }
    // A combined code must be exactly the union of its parts, where all are known.
    for (family, event, _) in &asked {
        let parts: Vec<Option<u64>> = asked
            .iter()
            .zip(&answers)
            .filter(|((f, e, _), _)| f == family && std::ptr::eq(*e, *event))
            .map(|((f, _, query), answer)| answer.filter(|code| *f != "IVT" || !disputed(query, *code)))
            .collect();
        if let Some(codes) = parts.into_iter().collect::<Option<Vec<u64>>>() {
            assert_eq!(codes.iter().fold(0, |all, code| all | plain(*code)), event.raw, "{family} {}", event.name);
        }
    }
    eprintln!("libpfm4 knows {} of {} event parts; not: {unknown:?}", answers.len() - unknown.len(), answers.len());
    assert!(unknown.len() * 4 < answers.len(), "libpfm4 should know most: {unknown:?}");
}
