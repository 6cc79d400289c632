//! Results of SAM's moves on the machine of its paper.

use super::scenario;

/// Seconds of ten threads of each of two programs that share data, on 2 × 10 cores: mix 9 of the paper.
fn mix_9(pin: &str, seed: u64) -> Vec<f64> {
    let app = |name: &str| format!("[[app]]\nprogram = '{name}'\nthreads = 10\nwork_s = 0.5\n");
    let apps = app("sgd") + &app("bsgd");
    let policy = format!("policy = {{ sam = 'recommended', pin = '{pin}' }}");
    let s = scenario(&format!("machine = 'ivy-bridge-2s'\nrestart = true\n{policy}\n{apps}"));
    let policy = cotenant_policies::standard().make("sam", &s.config).unwrap();
    s.run(&*policy, s.kernel, seed, |_| ()).unwrap().apps.iter().map(|app| app.time_s).collect()
}

/// Holds place/sam.
#[test]
fn what_is_held_on_a_cpu_has_the_core() {
    // A thread pinned to another's core stays there for good: it took 1.27 times as long.
    for seed in 1..=3 {
        for (one, unit) in mix_9("cpu", seed).into_iter().zip(mix_9("llc", seed)) {
            assert!((one / unit - 1.0).abs() < 0.02, "seed {seed}: {one} s pinned to CPUs, {unit} s to caches");
        }
    }
}
