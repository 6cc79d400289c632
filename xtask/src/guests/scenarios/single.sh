# One CPU: nothing to decide, and nothing fails.
. /scenarios/lib.sh
start_spin 0 0
manage attach -p "$spin" --policy static --map X --pin cpu --interval 100ms
sleep 0.5 # a few rounds
! gone "$cotenant" || { show; fail "Cotenant ended"; }
end_cotenant
masks_are "$spin" 0 || { show; fail "masks changed"; }
cotenant run --policy auto -- true
