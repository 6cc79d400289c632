# How memory follows threads by the kernel's own balancing, set as it is by default but for the moments in which `follow`
# fills memory. A measurement: what that prints is what it gives.
. /scenarios/lib.sh
# Of each: threads, MiB of each thread's own, MiB in common, how they are mapped, where the threads run; after how many
# scans on node 0.
follow one-own 1 128 0 apart other
follow large-own 1 600 0 apart other
follow own 4 64 0 apart other
follow own-in-one 4 64 0 one other
follow shared 4 0 256 apart other
follow both 4 64 64 apart other
follow both-in-one 4 64 64 one other
follow halves 4 64 128 apart halves
follow halves-shared 4 0 128 apart halves
follow anywhere 4 64 64 apart anywhere
follow late-own 4 64 0 apart other 8
follow late-own-in-one 4 64 0 one other 8
follow late-shared 4 0 256 apart other 8
