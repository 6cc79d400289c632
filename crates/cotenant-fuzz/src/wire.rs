//! Input from sockets and commands: answers of servers, metrics, the control protocol of the daemon.

use crate::target::{Group, Target, list, with};
use cotenant_linux::fuzzing::{passwords, server};
use cotenant_model::Time;
use cotenant_model::metric::{Meter, Metric, is_query, number, offers, queried, scrape};

/// Answers of servers, and the control protocol.
pub static WIRE: Group = Group {
    name: "wire",
    targets: &[
        Target { name: "metric", seeds: || list(METRICS), parse: use_metric, mutations: 1_000 },
        Target {
            name: "answer to a query",
            seeds: || list(ANSWERS),
            parse: |bytes| with(bytes, |text| drop((is_query(text), queried(text)))),
            mutations: 1_000,
        },
        Target {
            name: "exposition of metrics",
            seeds: || list(&[EXPOSITION]),
            parse: use_exposition,
            mutations: 1_000,
        },
        Target {
            name: "answer of redis",
            seeds: || list(&["$19\r\n@\r\n", "-NOAUTH no\r\n+OK\r\n", "-NOAUTH no\r\n-WRONGPASS no\r\n", "+PONG\r\n"]),
            parse: |bytes| server(false, bytes),
            mutations: 200,
        },
        Target { name: "answer of PostgreSQL", seeds: postgres, parse: |bytes| server(true, bytes), mutations: 200 },
        Target {
            name: "passwords of PostgreSQL",
            seeds: || list(&["# a\nlocalhost:5432:*:ann:se\\:c\\\\ret\r\n*:*:shop:bob:x:rest\nlocalhost:\\"]),
            parse: passwords,
            mutations: 1_000,
        },
        Target {
            name: "request to the daemon",
            seeds: || {
                list(&[
                    "{\"version\":1,\"verb\":\"status\"}\n",
                    "{\"version\":1,\"verb\":\"pause\",\"service\":\"redis.service\"}\n",
                    "{\"version\":1,\"verb\":\"resume\",\"service\":null}\n",
                    "{\"version\":1,\"verb\":\"node\"}\n",
                    CONTAINERS,
                ])
            },
            parse: cotenant_daemon::fuzzing::request,
            mutations: 3_000,
        },
        Target {
            name: "subuid",
            seeds: || {
                list(&["alice:100000:65536\n1001:165536:65536\n", "root:x:0:0::/root:/bin/sh\na:4294967290:100\n"])
            },
            parse: |bytes| with(bytes, cotenant_daemon::fuzzing::subuid),
            mutations: 500,
        },
        Target {
            name: "table for slurm",
            seeds: || {
                list(&[
                    "cotenant-slurm\t1\t1795666666\nnode\tn1\t0.5\t-\nworkload\ta.b\t3\t3.000\t2\t2000000000\t1795666000\n",
                ])
            },
            parse: |bytes| with(bytes, cotenant_daemon::fuzzing::slurm_table),
            mutations: 1_000,
        },
        Target {
            name: "answer of the daemon",
            seeds: || {
                // A daemon that is not ours may say that it has run for longer than a `Duration`.
                let old = STATUS.replace("12.5", "1e300");
                list(&["{\"ok\":\"paused\"}\n", "{\"error\":\"no\"}\n", STATUS, &old])
            },
            parse: cotenant_daemon::fuzzing::answer,
            mutations: 3_000,
        },
    ],
    longest: 4 << 10,
};

const METRICS: &[&str] = &[
    "cmd:awk -F, '{print $1,$2}' f,lower,every=250ms,name=p99",
    r"log:/var/log/x.log:took ([0-9.]+) ms,timeout=2s",
    r#"http://[::1]:9090/metrics#http_seconds{path="/a,\"lower\\",code="200"},q=0.5"#,
    "redis:6379:p99",
    "postgres:/run/postgresql:p50",
];

const ANSWERS: &[&str] = &[
    r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"x"},"value":[1435781451.781,"1e-3"]}]}}"#,
    r#"{"data":{"result":[1,"2"],"resultType":"scalar"},"status":"success"}"#,
];

const EXPOSITION: &str = "# TYPE t histogram\nt_bucket{le=\"0.1\",a=\"x\\\"\"} 5 1395066363000\nt_bucket{le=\"+Inf\",a=\"x\\\"\"} 1e3\nt_count 5\n\
                          # TYPE done counter\ndone_total{a=\"b\"} 17 # {trace=\"x\"} 1\n# EOF\n";

const CONTAINERS: &str = r#"{"version":1,"verb":"containers","containers":[{"cgroup":"/kubepods.slice/a.scope","namespace":"shop",
"pod":"db-0","container":"postgres","workload":"db","labels":{"app":"db"},"class":"high","goal":"90%","metric":"ipc"},
{"cgroup":"/kubepods.slice/b.scope","namespace":"shop","pod":"web-1","container":"web"}]}"#;

const STATUS: &str = r#"{"ok":{"version":"0.1.0","pid":7,"mode":"enforce","paused":false,"uptime_s":12.5,"config":"3 rules",
"config_error":null,"cpu_s":0.5,"resident_bytes":9000000,"tier":"hardware","sample_age_s":0.1,"services":[{"name":"a","rule":"r",
"class":"high","policy":"none","uid":0,"paused":false,"processes":1,"threads":2,"cpus":1.5,"speed":2e9,"source":"ipc","goal":0.9,
"kept":0.8,"throttled":null}],"interference":[],"decisions":[{"action":"place","reason":"x","count":3}],
"last":[{"at_s":3.5,"service":"a","what":"CPU 0","outcome":"gone"}],"notes":["n"]}}"#;

fn use_metric(bytes: &[u8]) {
    with(bytes, |text| {
        drop(text.parse::<Metric>());
        cotenant::fuzzing::figures(text);
    });
}

fn use_exposition(bytes: &[u8]) {
    with(bytes, |text| {
        let mut meter = Meter::new(None);
        for series in ["t", "t_count", "done", r#"done{a="b"}"#] {
            let _ = offers(text, series);
            let Ok(selector) = series.parse() else { continue };
            if let Ok(said) = scrape(text, &selector) {
                let _ = meter.read(Time::default(), said.clone());
                let _ = meter.read(Time::from_secs(1), said);
            }
        }
        let _ = number(text);
    });
}

/// A welcome and a row, as protocol 3.0 has them.
fn postgres() -> Vec<Vec<u8>> {
    let message = |kind: u8, body: &[u8]| [&[kind][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat();
    let welcome = [message(b'R', &[0; 4]), message(b'S', b"x\0y\0"), message(b'Z', b"I")].concat();
    // A number of 19 digits replaces the one byte.
    let row = [&[b'D'][..], &29_u32.to_be_bytes(), &[0, 1, 0, 0, 0, 19], b"@"].concat();
    let answer = [message(b'T', b"..."), row, message(b'C', b"SELECT 1\0"), message(b'Z', b"I")].concat();
    let asks = |kind: u32, more: &[u8]| message(b'R', &[&kind.to_be_bytes()[..], more].concat());
    let clear = [asks(3, b""), welcome.clone()].concat();
    let hashed = [asks(5, b"salt"), welcome.clone()].concat();
    let scram =
        [asks(10, b"SCRAM-SHA-256\0\0"), asks(11, b"r=x,s=QSXCR+Q6sek8bf92,i=4096"), asks(12, b"v=AAAA")].concat();
    let refused = message(b'E', b"SFATAL\0C28P01\0Mno such role\0\0");
    let mut seeds: Vec<_> = [&welcome, &clear, &hashed].map(|welcome| [&welcome[..], &answer].concat()).into();
    seeds.extend([scram, [welcome, refused].concat()]);
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A seed that is refused at once would leave its parser untested.
    #[test]
    fn seeds_are_taken() {
        assert!(METRICS.iter().all(|m| m.parse::<Metric>().is_ok()));
        assert!(ANSWERS.iter().all(|answer| queried(answer).is_ok()));
        assert!(["t", "done"].iter().all(|series| scrape(EXPOSITION, &series.parse().unwrap()).is_ok()));
    }
}
