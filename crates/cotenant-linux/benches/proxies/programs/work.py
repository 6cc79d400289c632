# Takes texts apart and puts them together, and counts where only programs that map the file see it.
import json
import mmap
import struct

with open("counter", "r+b") as file:
    counter = mmap.mmap(file.fileno(), 4096)
data = {f"key {i}": list(range(i % 17)) for i in range(200)}
done = 0
while True:
    data = json.loads(json.dumps(data))
    done += 1
    struct.pack_into("Q", counter, 0, done)
