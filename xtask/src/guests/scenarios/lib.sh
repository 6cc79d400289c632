# What the scenarios share; they run under `sh -eu`. Status 0: passed; 77: skipped; anything else: failed, and what was said is shown.
fail() { echo "FAILED: $*"; exit 1; }
skip() { echo "$*"; exit 77; }
# The time of a scenario is over: what it waited for is said before it ends.
trap 'echo "FAILED: out of time while waiting for: ${awaited:-nothing}"; show; exit 143' TERM

# For scenarios that load BPF programs, or look at traces: the kernel's types are there, and these file systems mounted.
tracing() {
    [ -s /sys/kernel/btf/vmlinux ] || fail "Linux $(uname -r) has no BTF"
    mount -t bpf bpf /sys/fs/bpf
    mount -t tracefs tracefs /sys/kernel/tracing
}

# Waits until a command succeeds; about 15 s at most, unless $patience says how many tenths of a second.
await() {
    tries=${patience:-150} awaited="$*"
    until "$@"; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || { show; fail "waited in vain for: $*"; }
        sleep 0.1
    done
    awaited=
}

# Below nothing but the shell itself works where a loop waits: starting a program costs an emulated CPU tens of milliseconds.

# workers PID: sets $tids to the worker threads: all but the first, which waits for them.
workers() {
    tids=
    for path in "/proc/$1/task"/*; do
        [ "${path##*/}" = "$1" ] || tids="$tids ${path##*/}"
    done
}
has_workers() { workers "$1"; set -- "$2" $tids; [ $# -eq $(($1 + 1)) ]; }

# cpu_of PID TID: sets $cpu to where a thread runs: field 39 of its stat line, the 37th behind the name's parenthesis.
cpu_of() {
    read -r line <"/proc/$1/task/$2/stat"
    set -- ${line##*) }
    cpu=${37}
}
# mask_of PID TID: sets $mask to its affinity, as a list.
mask_of() {
    while read -r key mask; do [ "$key" != Cpus_allowed_list: ] || return 0; done <"/proc/$1/task/$2/status"
}

# run_on PID CPU...: every worker runs on one of these CPUs.
run_on() {
    pid=$1; shift
    workers "$pid"
    on=" $* "
    for tid in $tids; do
        cpu_of "$pid" "$tid"
        case $on in *" $cpu "*) ;; *) return 1 ;; esac
    done
}
# packages_are N: the workers of $spin run on N packages.
packages_are() {
    seen=
    workers "$spin"
    for tid in $tids; do
        cpu_of "$spin" "$tid"
        read -r package <"/sys/devices/system/cpu/cpu$cpu/topology/physical_package_id"
        case " $seen " in *" $package "*) ;; *) seen="$seen $package" ;; esac
    done
    set -- "$1" $seen
    [ $# -eq $(($1 + 1)) ]
}
# masks_are PID LIST / masks_differ PID LIST: every / no worker has this mask.
masks_are() { workers "$1"; for tid in $tids; do mask_of "$1" "$tid"; [ "$mask" = "$2" ] || return 1; done; }
masks_differ() { workers "$1"; for tid in $tids; do mask_of "$1" "$tid"; [ "$mask" != "$2" ] || return 1; done; }
# policies_are PID POLICY: all threads have this scheduling policy, field 41 of their stat lines.
policies_are() {
    for path in "/proc/$1/task"/*; do
        read -r line <"$path/stat"
        set -- "$1" "$2" ${line##*) }
        [ "${41}" = "$2" ] || return 1
    done
}
# spread PID CPU...: each worker has one of these CPUs to itself.
spread() {
    pid=$1; shift
    workers "$pid"
    left=" $* "
    for tid in $tids; do
        mask_of "$pid" "$tid"
        case $left in *" $mask "*) left="${left%% $mask *} ${left#* $mask }" ;; *) return 1 ;; esac
    done
}
# masks_within PID CPU...: no worker's mask holds any other CPU.
masks_within() {
    pid=$1; shift
    workers "$pid"
    inside=" $* "
    for tid in $tids; do
        mask_of "$pid" "$tid"
        for range in $(IFS=,; echo $mask); do
            at=${range%-*}
            while [ "$at" -le "${range#*-}" ]; do
                case $inside in *" $at "*) ;; *) return 1 ;; esac
                at=$((at + 1))
            done
        done
    done
}

# on_node NODE: the one worker of $spin runs on one of the node's CPUs.
on_node() {
    workers "$spin"
    cpu_of "$spin" $tids
    [ -e "/sys/devices/system/node/node$1/cpu$cpu" ]
}
# has_pages NODE N: $spin has so many pages there at least.
has_pages() {
    pages=0
    while read -r line; do
        for word in $line; do
            case $word in N$1=*) pages=$((pages + ${word#*=})) ;; esac
        done
    done <"/proc/$spin/numa_maps"
    [ "$pages" -ge "$2" ]
}

# start_spin CPU...: a program that Cotenant did not start; $spin is its pid, $all the mask that its threads have opened.
start_spin() {
    spin "$@" & spin=$!
    await has_workers "$spin" $#
    mask_of "$spin" "$spin"; all=$mask
    await masks_are "$spin" "$all"
}

# manage ARGS...: a Cotenant in the background; $cotenant is its pid, /tmp/cotenant what it says. Without BPF, unless $bpf is
# set: loading it takes seconds of an emulated CPU, which scenarios about something else measure.
manage() {
    case ${bpf:-}$1 in run | attach | qos) subcommand=$1; shift; set -- "$subcommand" --no-bpf "$@" ;; esac
    cotenant "$@" >/tmp/cotenant 2>&1 & cotenant=$!
}
gone() {
    [ -e "/proc/$1/stat" ] || return 0
    read -r line <"/proc/$1/stat" || return 0
    case ${line##*) } in Z*) ;; *) return 1 ;; esac
}
# ask_to_end: SIGTERM to the Cotenant of `manage`, which must not have ended by itself. end_cotenant: and waits for its end.
ask_to_end() {
    ! gone "$cotenant" || { show; fail "Cotenant ended before it was asked to"; }
    kill -TERM "$cotenant"
}
end_cotenant() { ask_to_end; await gone "$cotenant"; }
guardian_of() {
    for p in $(pidof cotenant); do
        read -r line <"/proc/$p/stat"
        set -- "$1" ${line##*) }
        [ "$3" != "$1" ] || echo "$p"
    done
}

# What `qos` needs of a program that it starts: it goes on at SIGTERM, so that the end of Cotenant is not its own.
stubborn='(trap "" TERM; SPIN_BUSY=1 exec spin 1) & wait'
# start_qos ARGS...: a Cotenant that starts it as the program of low priority; $spin is its pid.
start_qos() {
    manage qos -v --high 'sleep 1000' --low "$stubborn" "$@"
    await pidof spin
    spin=$(pidof spin)
    await has_workers "$spin" 1
}
# measure PID: sets $ran and $passed to milliseconds of CPU time and of time since it was called last.
measure() {
    read -r now rest </proc/uptime
    now=${now%.*}${now#*.}0 sum=0
    for path in "/proc/$1/task"/*; do
        read -r ns rest <"$path/schedstat"
        sum=$((sum + ns / 1000000))
    done
    ran=$((sum - ${ran_before:-0})) passed=$((now - ${passed_before:-0})) ran_before=$sum passed_before=$now
}
# runs_freely PID: for a second from now on it runs for more than half of the time. runs_rarely PID N: for N seconds for less than a third.
runs_freely() { measure "$1"; sleep 1; measure "$1"; [ $((ran * 2)) -gt $passed ]; }
runs_rarely() { measure "$1"; sleep "$2"; measure "$1"; [ $((ran * 3)) -lt $passed ]; }
# no_groups FOLDER: no group of Cotenant's is there.
no_groups() { set -- "$1"/cotenant-*; [ ! -e "$1" ]; }

# Of the control group $group.
frozen() { while read -r key value; do [ "$key" != frozen ] || break; done <$group/cgroup.events; [ "$value" = 1 ]; }
thawed() { ! frozen && read -r value <$group/cgroup.freeze && [ "$value" = 0 ]; }
# frozen_soon N: within N looks it is seen frozen; a look takes a few milliseconds here, a pause tens.
frozen_soon() { i=0; until frozen; do i=$((i + 1)); [ $i -lt "$1" ] || return 1; done; }
# stop_in_a_pause PID: the process is stopped while that group stands still.
stop_in_a_pause() {
    until frozen_soon 1000 && kill -STOP "$1" && sleep 0.1 && frozen; do kill -CONT "$1"; done
}

# end_by WAY STANDS: Cotenant ends by SIGTERM (term), by kill -9 (kill), or with its guardian (both): then STANDS holds until `cotenant restore`.
end_by() {
    case $1 in
        term) end_cotenant ;;
        kill) kill -9 "$cotenant" ;;
        both)
            guardian=$(guardian_of "$cotenant")
            [ -n "$guardian" ] || fail "there is no guardian"
            kill -9 "$cotenant" "$guardian"
            await gone "$guardian"
            $2 || { show; fail "somebody else undid it: nothing is left for 'cotenant restore'"; }
            cotenant restore
            ;;
    esac
}

# What helps to understand a failure.
show() {
    [ ! -e /tmp/cotenant ] || { echo "cotenant said:"; cat /tmp/cotenant; }
    workers "${spin:-self}"
    for tid in $tids; do cpu_of "$spin" "$tid"; mask_of "$spin" "$tid"; echo "thread $tid: CPU $cpu, mask $mask"; done
}

# A map for the policy static: `map 0 3` uses CPUs 0 and 3. All CPUs of the guest are in it, also those that this shell may not use.
map() {
    i=0
    while [ -e /sys/devices/system/cpu/cpu$i ]; do
        case " $* " in *" $i "*) printf X ;; *) printf . ;; esac
        i=$((i + 1))
    done
}

# What `sam` needs where there is no PMU: thresholds in /tmp/machine.toml, and `profile APP SIGNAL RATE` for rates, the others zero.
machine() {
    cat >/tmp/machine.toml <<'T'
clock_hz = 2e9
[thresholds]
coherence_per_cycle = 2.5e-4
socket_bandwidth_per_s = 75e6
task_bandwidth_per_s = 10e6
remote_per_cycle = 3.9e-4
T
}
profile() {
    printf '[app.%s.per_cpu_s]\ncycles = 2e9\ninstructions = 1e9\nllc_misses = 0\n' "$1"
    for signal in intra inter remote; do
        [ "$signal" = "$2" ] && echo "$signal = $3" || echo "$signal = 0"
    done
}
