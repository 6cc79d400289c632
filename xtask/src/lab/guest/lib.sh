# What the scenarios share; they run under `sh -eu`. Status 0: passed; 77: skipped; anything else: failed, and what was said is shown.
fail() { echo "FAILED: $*"; exit 1; }
# The time of a scenario is over: what it waited for is said before it ends.
trap 'echo "FAILED: out of time while waiting for: ${awaited:-nothing}"; show; exit 143' TERM

# Waits until a command succeeds; about 15 s at most.
await() {
    tries=150 awaited="$*"
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
# masks_are PID LIST / masks_differ PID LIST: every / no worker has this mask.
masks_are() { workers "$1"; for tid in $tids; do mask_of "$1" "$tid"; [ "$mask" = "$2" ] || return 1; done; }
masks_differ() { workers "$1"; for tid in $tids; do mask_of "$1" "$tid"; [ "$mask" != "$2" ] || return 1; done; }
# masks_within PID CPU...: no worker's mask holds any other CPU.
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

# start_spin CPU...: a program that Cotenant did not start; $spin is its pid, $all the mask that its threads have opened.
start_spin() {
    spin "$@" & spin=$!
    await has_workers "$spin" $#
    mask_of "$spin" "$spin"; all=$mask
    await masks_are "$spin" "$all"
}

# manage ARGS...: a Cotenant in the background; $cotenant is its pid, /tmp/cotenant what it says.
manage() {
    cotenant "$@" >/tmp/cotenant 2>&1 & cotenant=$!
}
gone() {
    [ -e "/proc/$1/stat" ] || return 0
    read -r line <"/proc/$1/stat" || return 0
    case ${line##*) } in Z*) ;; *) return 1 ;; esac
}
guardian_of() {
    for p in $(pidof cotenant); do
        read -r line <"/proc/$p/stat"
        set -- "$1" ${line##*) }
        [ "$3" != "$1" ] || echo "$p"
    done
}

# What helps to understand a failure.
show() {
    [ ! -e /tmp/cotenant ] || { echo "cotenant said:"; cat /tmp/cotenant; }
    workers "${spin:-self}"
    for tid in $tids; do cpu_of "$spin" "$tid"; mask_of "$spin" "$tid"; echo "thread $tid: CPU $cpu, mask $mask"; done
}

# A map for the policy static: `map 0 3` uses CPUs 0 and 3.
map() {
    n=$(nproc) i=0
    while [ $i -lt "$n" ]; do
        case " $* " in *" $i "*) printf X ;; *) printf . ;; esac
        i=$((i + 1))
    done
}
