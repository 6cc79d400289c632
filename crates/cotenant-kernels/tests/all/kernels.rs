//! Every kernel in a real run: its counts, its ends, its errors.

use cotenant_kernels::{Caches, Config, Error, Kernel, Slot};
use cotenant_model::CpuId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Small caches, so that a default size is initialized quickly.
const SMALL: Caches = Caches { l1d: 4 << 10, l2: 16 << 10, llc: 64 << 10, llc_total: 64 << 10, assumed: false };

/// This many threads, 64 KiB each.
fn small(kernel: &Kernel, threads: usize) -> Config {
    Config { size: kernel.has_size().then_some(64 << 10), ..Config::new(threads, SMALL) }
}

#[test]
fn a_limit_is_kept_by_every_thread() {
    for kernel in Kernel::all() {
        let config = Config { limit: Some(4097), ..small(kernel, 2) };
        let report = kernel.run(&config, None, &mut || true).unwrap();
        assert_eq!(report.threads.iter().map(|t| t.units).collect::<Vec<_>>(), [4097, 4097], "{}", kernel.name);
    }
}

#[test]
fn the_caller_sees_the_progress_and_ends_it() {
    for kernel in Kernel::all() {
        let slots = [Slot::default(), Slot(AtomicU64::new(7))];
        let seen: Vec<&AtomicU64> = slots.iter().map(|slot| &slot.0).collect();
        let config = small(kernel, 2);
        // Runs until both have made progress, which a kernel reports while it runs.
        let report = kernel
            .run(&config, Some(&|i| seen[i]), &mut || {
                seen[0].load(Ordering::Relaxed) == 0 || seen[1].load(Ordering::Relaxed) == 7
            })
            .unwrap();
        let counted: Vec<u64> = report.threads.iter().map(|t| t.units).collect();
        let ends = [seen[0].load(Ordering::Relaxed), seen[1].load(Ordering::Relaxed) - 7];
        assert_eq!(counted, ends, "{}: a counter is continued, never reset", kernel.name);
    }
}

#[test]
fn a_caller_that_never_wanted_to_run_is_heard() {
    for kernel in Kernel::all() {
        let report = kernel.run(&small(kernel, 2), None, &mut || false).unwrap();
        assert_eq!(report.units(), 0, "{}", kernel.name);
        assert_eq!(report.per_second(), 0.0, "{}", kernel.name);
    }
}

#[test]
fn transfers_are_at_most_the_accesses_and_none_for_one_thread() {
    let kernel = Kernel::by_name("hubench").unwrap();
    let run = |threads| {
        let config = Config { limit: Some(20_000), compute: Some(0), ..Config::new(threads, SMALL) };
        kernel.run(&config, None, &mut || true).unwrap()
    };
    assert_eq!(run(1).transfers(), Some(0));
    let two = run(2);
    assert!(two.transfers().unwrap() <= two.units());
    // In any schedule, the second thread to start finds words that the first one wrote.
    assert!(two.transfers().unwrap() > 0);
}

#[test]
fn what_cannot_be_is_refused() {
    let run = |name: &str, config: &Config| Kernel::by_name(name).unwrap().run(config, None, &mut || true).unwrap_err();
    let one = Config::new(1, SMALL);
    for threads in [0, usize::MAX, 1 << 20] {
        assert!(matches!(run("cpu", &Config::new(threads, SMALL)), Error::Threads(n) if n == threads));
    }
    for size in [0, 1, 4095] {
        let error = run("chase", &Config { size: Some(size), ..one.clone() });
        assert!(matches!(error, Error::TooSmall { size: s, .. } if s == size), "{error}");
    }
    for size in [u64::MAX, 1 << 60] {
        let error = run("membench-low", &Config { size: Some(size), threads: 3, ..one.clone() });
        assert!(matches!(error, Error::TooLarge { threads: 3, .. }), "{error}");
    }
    assert!(matches!(run("cpu", &Config { size: Some(1 << 20), ..one.clone() }), Error::Setting { .. }));
    assert!(matches!(run("chase", &Config { compute: Some(1), ..one.clone() }), Error::Setting { .. }));
    assert!(matches!(run("lubench", &Config { compute: Some(u64::MAX), ..one.clone() }), Error::Range { .. }));
    for stride in [0, 7, 12, u64::MAX / 8 * 8] {
        let error = run("rmw", &Config { stride: Some(stride), ..one.clone() });
        assert!(matches!(error, Error::Range { setting: "stride", .. }), "{error}");
    }
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e13] {
        let error = run("inject-l2", &Config { rate: Some(rate), ..one.clone() });
        assert!(matches!(error, Error::Range { setting: "rate", .. }), "{error}");
    }
    assert!(matches!(run("chase", &Config { rate: Some(1.0), ..one.clone() }), Error::Setting { .. }));
    assert!(matches!(run("chase", &Config { stride: Some(64), ..one.clone() }), Error::Setting { .. }));
    let nowhere = Config { cpus: vec![CpuId(60_000)], threads: 2, ..one.clone() };
    assert!(matches!(run("cpu", &nowhere), Error::Pin { cpu: CpuId(60_000), .. }));
}

#[test]
fn names_are_unique_and_known() {
    for kernel in Kernel::all() {
        assert!(std::ptr::eq(Kernel::by_name(kernel.name).unwrap(), kernel), "{}", kernel.name);
    }
    assert!(Kernel::by_name("hubbench").is_none());
}

/// Holds measure/kernels.
#[test]
fn stream_is_right_wherever_it_ends() {
    for kernel in Kernel::all().iter().filter(|kernel| kernel.name.starts_with("stream")) {
        let per_pass = 4096 * 3 / 24 / 8 * 8;
        for limit in [0, 1, per_pass - 1, per_pass, 3 * per_pass + 5, 400 * per_pass, 400 * per_pass + 1] {
            let config = Config { limit: Some(limit), size: Some(4096 * 3), ..Config::new(1, SMALL) };
            let report = kernel.run(&config, None, &mut || true).unwrap();
            assert_eq!((report.units(), report.wrong()), (limit, Some(0)), "{} after {limit}", kernel.name);
        }
    }
}

/// By the kernel's own clock and count, so that it holds on any machine, however busy.
/// Holds measure/kernels.
#[test]
fn a_rate_is_kept_in_proportion() {
    for rate in [1e3, 1e4, 1e5, 1e6, 1e12] {
        let kernel = Kernel::by_name("inject-l2").unwrap();
        let duration = Some(std::time::Duration::from_millis(60));
        let report =
            kernel.run(&Config { rate: Some(rate), duration, ..Config::new(2, SMALL) }, None, &mut || true).unwrap();
        for thread in &report.threads {
            let (units, pace) = (thread.units as f64, thread.pace.unwrap());
            let paced = pace.span_s - pace.skipped_s;
            let batch = (rate / 1e5 + 1.0).min(1024.0);
            // 1e-6 allows for many roundings to whole nanoseconds.
            assert!(units <= rate * (paced + 1e-6) + batch, "{rate}: {units} in {paced} s");
            assert!(units >= rate * (paced - 0.01 - 1e-6), "{rate}: {units} in {paced} s");
        }
    }
}

/// Holds measure/kernels.
#[test]
fn a_default_size_follows_the_caches() {
    let size = |name, caches: &Caches, threads| Kernel::by_name(name).unwrap().default_size(caches, threads);
    let server = Caches { l1d: 48 << 10, l2: 2 << 20, llc: 100 << 20, llc_total: 200 << 20, assumed: false };
    assert_eq!(size("membench-low", &server, 1), 800 << 20);
    assert_eq!(size("membench-low", &server, 8), 100 << 20);
    assert_eq!(size("membench-low", &server, 1000), 16 << 20, "never so little that a private cache holds it");
    assert_eq!(size("stream", &server, 1), 3 * (800 << 20));
    assert_eq!(size("inject-l2", &server, 1), 1 << 20);
    assert_eq!(size("sledge-medium", &server, 7), 100 << 20);
    // SmashBench sizes scale with the paper's 8 MB cache, also for kernels named after megabytes.
    let sizes = |names: [&'static str; 3]| names.map(|name| size(name, &server, 7));
    for names in [
        ["bst-4mb", "bst-8mb", "bst-50mb"],
        ["naive-4mb", "naive-8mb", "naive-50mb"],
        ["er-naive-4mb", "er-naive-8mb", "er-naive-50mb"],
        ["blockie-small", "blockie-medium", "blockie-large"],
    ] {
        assert_eq!(sizes(names), [50 << 20, 100 << 20, 625 << 20], "{names:?}");
    }
    assert_eq!((size("cpu", &server, 1), size("hubench", &server, 1)), (0, 0));
}

/// The CPUs allowed for this process's threads of that name; other tests may have some of the same name.
fn allowed(thread: &str) -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|entry| entry.path());
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default(); // a thread may have ended
    tasks
        .filter(|task| read(task.join("comm")).trim() == thread)
        .filter_map(|task| {
            Some(read(task.join("status")).split_once("Cpus_allowed_list:")?.1.lines().next()?.trim().to_owned())
        })
        .collect()
}

#[test]
fn threads_run_where_they_are_put_and_again_from_the_first() {
    let usable: Vec<CpuId> = cotenant_linux::sys::getaffinity(0).unwrap().iter().collect();
    let cpus = vec![*usable.last().unwrap(), usable[0]];
    let config = Config { cpus: cpus.clone(), ..Config::new(3, SMALL) };
    let slots: [Slot; 3] = Default::default();
    let mut found = Vec::new();
    let kernel = Kernel::by_name("lubench").unwrap();
    let report = kernel
        .run(&config, Some(&|i| &slots[i].0), &mut || {
            let running = slots.iter().all(|slot| slot.0.load(Ordering::Relaxed) > 0);
            if running {
                found = (0..3).map(|i| allowed(&format!("lubench-{i}"))).collect::<Vec<_>>();
            }
            !running
        })
        .unwrap();
    let expected = [cpus[0], cpus[1], cpus[0]];
    assert_eq!(found.len(), 3);
    for (masks, cpu) in found.iter().zip(expected) {
        assert!(masks.contains(&cpu.to_string()), "{found:?} without {cpu}");
    }
    assert!(report.threads.iter().map(|thread| thread.cpu).eq(expected.map(Some)));
}
