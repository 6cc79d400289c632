# The PMU's cycles and instructions arrive in a recording, as rates of the thread that ran.
# Holds see/counters.
. /scenarios/lib.sh
cotenant doctor >/tmp/doctor
grep -q 'Counters: core PMU' /tmp/doctor || { cat /tmp/doctor; fail "doctor does not see the PMU"; }
cotenant record -o /tmp/a.rec --mode enforce --policy static --map "$(map 3)" --pin cpu -- timeout 1 spin 0 || true
cotenant why /tmp/a.rec spin >/tmp/why
# The emulator is told that an instruction takes 2 ns (-icount shift=1), and its counter of cycles runs at 1 GHz.
grep -q 'instructions/cycle *0.500' /tmp/why || { cat /tmp/why; fail "the thread did not run one instruction in two cycles"; }
