# The kernel takes the BPF object, every tracepoint of it, and a run says behind what its program waited.
. /scenarios/lib.sh
tracing
cotenant doctor >/tmp/doctor || { cat /tmp/doctor; fail "doctor failed"; }
grep -q '✓ causes of waits' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not say that waits are seen"; }

# Two threads that want a CPU each share one, so each waits behind the other.
export SPIN_BUSY=1
bpf=yes
manage run --policy static --map "$(map 1)" --pin cpu --interval 100ms -- spin 0 1
await pidof spin
spin=$(pidof spin)
sees() { for file in "/proc/$cotenant/fd"/*; do case $(readlink "$file") in *bpf-prog*) return 0 ;; esac; done; return 1; }
patience=600
await sees
sleep 5 # nothing tells from outside that waits were read a few times
kill "$spin"
await gone "$cotenant"
grep -q 'spin: .* threads waited for a CPU.*: .* behind its own threads' /tmp/cotenant || { show; fail "it does not say behind what"; }
