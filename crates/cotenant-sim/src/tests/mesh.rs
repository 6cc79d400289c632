//! Tasks near their memory on a mesh with four controllers (Tumanov et al.).

use super::{scenario, times, world};

/// A program with all pages behind one controller, so that distance determines its speed.
fn bound_to(node: usize) -> String {
    let mut pages = ["0"; 4];
    pages[node] = "1";
    format!(
        "[program.at{node}]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = 1e8\nmiss_ratio = [[1e3, 1], [1e8, 0.9]]\npages = [{}]\n",
        pages.join(", ")
    )
}

#[test]
fn time_grows_with_the_hops_to_the_controller() {
    // Tiles (0,0), (1,0) … (7,0), (7,1) … (7,7): 0 to 14 hops to the controller at (0,0).
    let tiles = (0..8u32).chain((1..8).map(|y| 8 * y + 7));
    let took: Vec<f64> = tiles
        .map(|tile| {
            let s = scenario(&format!(
                "machine = 'tilepro64'\n{}[[app]]\nprogram = 'at0'\nwork_s = 0.2\ncpus = '{tile}'\n",
                bound_to(0)
            ));
            times(world(&s, "eevdf", 1), &s)[0]
        })
        .collect();
    let steps: Vec<f64> = took.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.len(), 14);
    assert!(steps.iter().all(|step| (step - steps[0]).abs() < 0.01 * steps[0]), "a straight line: {took:?}");
    assert!(steps[0] > 0.0 && took[14] / took[0] < 1.2, "{took:?}");
}

#[test]
fn policies_bring_programs_near_their_controllers() {
    let programs: String = (0..4).map(bound_to).collect();
    let apps = [0, 1, 2, 3, 0, 1, 2, 3].map(|node| format!("[[app]]\nprogram = 'at{node}'\nwork_s = 2\n")).concat();
    let s = scenario(&format!("machine = 'tilepro64'\n{programs}{apps}"));
    let run = |name: &str| {
        s.run(&*cotenant_policies::standard().make(name, &s.config).unwrap(), s.kernel, 3, |_| {}).unwrap()
    };
    let makespan = |name: &str| run(name).apps.iter().map(|app| app.time_s).sum::<f64>();
    let way = run("none").access_distance.unwrap();
    let (linux, overhead) = (makespan("none"), makespan("overhead"));
    assert_eq!(linux.to_bits(), overhead.to_bits(), "nothing is moved, and looking costs nothing here");
    for name in ["weighted", "brute-force", "assignment"] {
        let near = makespan(name);
        assert!(near < 0.97 * linux, "{name}: {near} s against {linux} s");
        // The same accesses, each over fewer links: the paper's argument about power.
        let nearer = run(name).access_distance.unwrap();
        assert!(nearer < 0.5 * way, "{name}: {nearer} accesses × hops against {way}");
    }
}

#[test]
fn memory_comes_to_a_program_that_is_kept_far_from_it() {
    let app = "[[app]]\nprogram = 'at0'\nwork_s = 2\ncpus = '63'\n";
    let mut s = scenario(&format!("machine = 'tilepro64'\n{}{app}", bound_to(0)));
    let mut run = |move_pages: bool| {
        s.config.move_pages = move_pages;
        let outcome = s
            .run(&*cotenant_policies::standard().make("brute-force", &s.config).unwrap(), s.kernel, 1, |_| {})
            .unwrap();
        (outcome.apps[0].time_s, outcome.access_distance.unwrap())
    };
    let (kept, moved) = (run(false), run(true));
    assert!(moved.0 < 0.95 * kept.0 && moved.1 < 0.5 * kept.1, "{moved:?} against {kept:?}");
}

/// Twelve programs whose memory is all behind one of four controllers wait for it.
#[test]
fn controllers_loaded_alike_serve_sooner() {
    let program = "[program.a]\ncpi = 1\nllc_apki = 50\nmlp = 2\nfootprint_bytes = 16e6\nmiss_ratio = [[64, 1]]\npages = [1, 0, 0, 0]\n";
    let apps = "[[app]]\nprogram = 'a'\nwork_s = 5\n".repeat(12);
    let mut s = scenario(&format!("machine = 'tilepro64'\n{program}{apps}"));
    s.config.move_pages = true;
    let mut took = |load: bool| {
        s.config.settings.set("mesh", "load", load.into());
        let policy = cotenant_policies::standard().make("assignment", &s.config).unwrap();
        s.run(&*policy, s.kernel, 1, |_| {}).unwrap().apps.iter().map(|app| app.time_s).sum::<f64>()
    };
    let (one, all) = (took(false), took(true));
    assert!(all < 0.9 * one, "{all} s on all controllers, {one} s on one");
}

#[test]
fn distances_that_nobody_knows_make_no_sum() {
    let program = "[program.a]\ncpi = 1\nllc_apki = 20\nfootprint_bytes = 1e8\nmiss_ratio = [[1e3, 1]]\n";
    let s = scenario(&format!("machine = 'clovertown-2s'\n{program}[[app]]\nprogram = 'a'\nwork_s = 0.1\n"));
    let outcome = s.run(&*cotenant_policies::standard().make("none", &s.config).unwrap(), s.kernel, 1, |_| {}).unwrap();
    assert_eq!(outcome.access_distance, None);
}
