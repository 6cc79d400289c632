//! Results of each application.

use super::latency::Latency;
use super::{Life, World};

/// Results of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct AppReport {
    /// Its name.
    pub name: String,
    /// Seconds that each run took, in order.
    pub times_s: Vec<f64>,
    /// Latencies of its requests, if it serves any.
    pub latency: Latency,
    /// Mean seconds per instruction of one of its threads, as if no thread waited for another.
    pub cost_s: f64,
}

impl World {
    /// Instructions that each application has executed so far, all threads and runs together.
    pub fn instructions(&self) -> Vec<f64> {
        self.apps.iter().map(|app| app.instructions).collect()
    }

    /// The same of each thread, application by application.
    pub fn instructions_of_threads(&self) -> Vec<Vec<f64>> {
        self.apps.iter().map(|app| self.threads[app.threads.clone()].iter().map(|t| t.instructions).collect()).collect()
    }

    /// Results of each application so far.
    pub fn report(&self) -> Vec<AppReport> {
        let one = |a: &super::App| AppReport {
            name: a.spec.name.clone(),
            times_s: a.times.clone(),
            latency: a.latency.clone(),
            cost_s: a.cost.1 / a.cost.0.max(f64::MIN_POSITIVE),
        };
        self.apps.iter().map(one).collect()
    }

    /// Requests served in `dt` seconds. The threads are the servers of one M/M/c queue while they keep up; what they
    /// cannot serve becomes a backlog before every request.
    pub(super) fn serve(&mut self, dt: f64) {
        for a in 0..self.apps.len() {
            let Some(load) = self.apps[a].spec.load.filter(|_| self.apps[a].life == Life::Running) else { continue };
            let (mut threads, mut speed, mut full) = (0.0, 0.0, 0.0);
            for (i, &thread) in self.running.iter().enumerate() {
                if self.threads[thread].app == a {
                    let d = &self.demands[i];
                    threads += 1.0;
                    speed += self.speeds[i];
                    full += d.share / d.cost_s(&self.waits);
                }
            }
            if threads < 1.0 {
                continue;
            }
            let (rate, service) = (load.requests_per_s, full / threads / load.instructions);
            let latency = &mut self.apps[a].latency;
            let came = rate * dt;
            latency.backlog = (latency.backlog + came - speed / load.instructions * dt).max(0.0);
            let utilisation = rate / (threads * service);
            if latency.backlog > 1.0 || utilisation >= 1.0 {
                let wait = latency.backlog / (threads * service);
                latency.add(came, |t| if t < wait { 0.0 } else { 1.0 - (-(t - wait) * service).exp() });
            } else {
                let (waits, drain) = (erlang_c(threads as u32, utilisation), threads * service - rate);
                latency.add(came, |t| sojourn(t, waits, drain, service));
            }
        }
    }
}

/// Probability that a request has to wait, with `servers` servers (Erlang's C), by the recurrence of his B.
fn erlang_c(servers: u32, utilisation: f64) -> f64 {
    let offered = utilisation * f64::from(servers);
    let b = (1..=servers).fold(1.0, |b, k| offered * b / (f64::from(k) + offered * b));
    b / (1.0 - utilisation * (1.0 - b))
}

/// Probability that waiting and service together take at most `t`: with probability `waits` an exponential wait of
/// rate `drain` first, then an exponential service of rate `service`.
fn sojourn(t: f64, waits: f64, drain: f64, service: f64) -> f64 {
    let alone = 1.0 - (-service * t).exp();
    let after = if (drain - service).abs() < 1e-9 * service {
        1.0 - (1.0 + service * t) * (-service * t).exp()
    } else {
        1.0 - (drain * (-service * t).exp() - service * (-drain * t).exp()) / (drain - service)
    };
    (1.0 - waits) * alone + waits * after
}

#[cfg(test)]
mod tests {
    use super::*;

    /// M/M/1 at half load: sojourn times are exponential with rate μ − λ = 50/s, so the median is ln 2 / 50 s = 13.9
    /// ms and the 99th percentile ln 100 / 50 s = 92.1 ms. M/M/2 at half load: Erlang's C is 1/3.
    #[test]
    fn queues_are_those_of_the_textbook() {
        let mut latency = Latency::default();
        latency.add(1000.0, |t| sojourn(t, erlang_c(1, 0.5), 50.0, 100.0));
        assert!((latency.quantile(0.5).unwrap() / 0.01386 - 1.0).abs() < 0.03, "{:?}", latency.quantile(0.5));
        assert!((latency.quantile(0.99).unwrap() / 0.0921 - 1.0).abs() < 0.03, "{:?}", latency.quantile(0.99));
        assert!((erlang_c(2, 0.5) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(Latency::default().quantile(0.5), None);
        let mut none_came = Latency::default();
        none_came.add(0.0, |_| 1.0);
        assert_eq!(none_came.quantile(0.5), None);
    }
}
