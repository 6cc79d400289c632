//! Files that the command reads: settings, queues, benchmarks, results, and the daemon's configuration.

use crate::target::{Group, Target, files, list, with};
use cotenant::fuzzing as parsers;

/// The command's own files.
pub static COMMAND: Group = Group {
    name: "command",
    targets: &[
        Target {
            name: "configuration of the daemon",
            seeds: || {
                list(&[
                    "mode = \"enforce\"\nlisten = \"127.0.0.1:9100\"\ninterval = \"100ms\"\n[set.sam]\nlevels = 2\n\
                        [[rule]]\nname = \"web\"\nmatch = { unit = \"nginx@*.service\", user = \"0\" }\nclass = \"high\"\ngoal = \"90%\"\n\
                        metric = \"redis:6379:p99\"\n[[rule]]\nname = \"rest\"\n\
                        match = { cgroup = \"/a/{b,c}/[d-f]?/**\", command = \"/usr/bin/*\" }\nclass = \"low\"\npolicy = \"auto\"\n",
                ])
            },
            parse: |bytes| with(bytes, cotenant_daemon::fuzzing::config),
            mutations: 500,
        },
        Target {
            name: "settings",
            seeds: || {
                let by_hand = "policy = 'sam'\ninterval = '50ms'\npin = 'cpu'\nmode = 'observe'\ncpus = '0-3,8'\n[set.sam]\nlevels = 2\n[[rule]]\nexecutable = '/bin/a'\nrole = 'high'\n\
                               metric = 'redis:6379:p99'\n[[rule]]\ncgroup = '/b'\nrole = 'low'\n";
                let inputs = |name| files("fixtures/corpus/0.1.0/inputs", name);
                let kept = ["settings.toml", "settings-atom.toml", "settings-decide.toml", "rules.toml"].map(inputs);
                [list(&[by_hand]), kept.concat()].concat()
            },
            parse: |bytes| with(bytes, parsers::settings),
            mutations: 500,
        },
        Target {
            name: "bench",
            seeds: || {
                let by_hand = "[bench]\npolicies = ['resense']\nrepetitions = 2\n\
                    [[app]]\ncommand = ['/bin/true', '1']\narrival_s = 0.5\n\
                    [[app]]\nname = 'b'\ncommand = ['false']\nafter = 'true'\nruns = 3\n";
                let kept = ["bench.toml", "bench-simulated.toml"].map(|name| files("fixtures/corpus", name));
                [list(&[by_hand]), kept.concat()].concat()
            },
            parse: |bytes| with(bytes, parsers::bench),
            mutations: 500,
        },
        Target {
            name: "queue",
            seeds: || {
                let list = list(&[
                    "# all\n\n  A=1 /bin/echo a | cat\nsleep 1\n",
                    "memory = '1GiB'\n[[job]]\ncommand = ['echo', 'a']\nretries = 2\nthreads = 4\n\
                        [[job]]\ncommand = 'sleep 1'\nmemory = '20MiB'\nprofile = 'mcf'\n",
                ]);
                [list, files("fixtures/corpus", "jobs.toml"), files("fixtures/corpus", "jobs.txt")].concat()
            },
            parse: |bytes| with(bytes, parsers::jobs),
            mutations: 500,
        },
        Target {
            name: "result",
            seeds: || {
                let json = ["fixtures/corpus/0.1.0/inputs", "fixtures/results"].map(|folder| files(folder, ".json"));
                let region = "[[region]]\nfunction = 'f'\nfile = 'a.c'\nlines = [1, 2]\nscore = 0.5\ncoverage = 0.2\n";
                [json.concat(), list(&[region])].concat()
            },
            parse: |bytes| with(bytes, parsers::report),
            mutations: 300,
        },
        Target {
            name: "file name of a profile",
            seeds: || list(&["web.toml", "a%2Fb.toml", "caf%C3%A9.toml"]),
            parse: |bytes| with(bytes, parsers::file_name),
            mutations: 3_000,
        },
        Target {
            name: "figures",
            seeds: || list(&["5h", "1.5 min", "100ms", "0.5%", "1GiB", "20 MiB", "4711", "90%"]),
            parse: |bytes| with(bytes, parsers::figures),
            mutations: 3_000,
        },
        Target {
            name: "what a daemon left",
            seeds: || {
                list(&[
                    "{\"version\":1,\"interference\":{}}",
                    "{\"all\":false,\"services\":{\"db\":{\"uid\":7,\"by_operator\":true}}}",
                    "{\"machine\":\"m\",\"known\":[{\"groups\":[[\"a\",2]],\"shape\":{\"counts\":[[2,0]],\
                        \"doubling\":{\"order\":[0],\"pair\":null,\"packed\":null}}}]}",
                ])
            },
            parse: |bytes| with(bytes, cotenant_daemon::fuzzing::left),
            mutations: 1_000,
        },
        Target {
            name: "job of the prolog",
            seeds: || {
                list(&["{\"cgroup\":\"/slurm/job_7\",\"namespace\":\"slurm\",\"pod\":\"7\",\"container\":\"job\",\
                    \"workload\":\"sort\",\"labels\":{\"user\":\"a\"},\"class\":\"low\"}"])
            },
            parse: |bytes| with(bytes, cotenant_daemon::fuzzing::job),
            mutations: 1_000,
        },
        Target {
            name: "names of groups, hosts and users",
            seeds: || {
                list(&[
                    "/user.slice/user-7.slice/user@7.service/app.slice/a.service",
                    "[::1]:9844",
                    "db1.example:80",
                    "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n",
                ])
            },
            parse: |bytes| with(bytes, cotenant_daemon::fuzzing::names),
            mutations: 3_000,
        },
        Target {
            name: "options of cc",
            seeds: || {
                list(&[
                    "--cotenant-mode=naps --cotenant-duration=5ms\n-O2\n--cotenant-granularity=1ms\n-c\na.c",
                    "\n--cotenant-mode=padding\n--cotenant-granularity=7\n--cotenant-thickness=3\n--cotenant-coverage=0.5",
                    "--cotenant-mode=off\n--cotenant-clang=/usr/bin/clang\n--cotenant-plugin=p.so\n--\n--cotenant-min-score=0.2\n\
                     --cotenant-regions=r.toml\n--cotenant-min-coverage=1",
                ])
            },
            parse: |bytes| with(bytes, parsers::options_of_cc),
            mutations: 1_000,
        },
        Target {
            name: "regions of cc",
            seeds: || {
                let file = "[[region]]\nfunction = 'f'\nfile = 'a.c'\nlines = [1, 2]\nscore = 0.5\ncoverage = 0.2\n";
                [list(&[file]), files("fixtures/corpus", "regions.toml")].concat()
            },
            parse: |bytes| with(bytes, parsers::regions_of_cc),
            mutations: 1_000,
        },
        Target {
            name: "jobs of clang",
            seeds: || {
                list(&[
                    " (in-process)\n \"/usr/lib/llvm-19/bin/clang\" \"-cc1\" \"a.c\"\n \"/usr/bin/ld\" \"-o\" \"a.out\" \"-shared\" \
                    \"-plugin-opt=mcpu=x86-64\" \"-lcotenant\"\n",
                ])
            },
            parse: |bytes| with(bytes, parsers::jobs_of_clang),
            mutations: 1_000,
        },
    ],
    longest: 8 << 10,
};
