// Exceptions pass through marked functions, and destructors run.
// Holds compile/same.
// RUN: clang++ -O2 %s -o %t.plain && %t.plain > %t.expected
// RUN: for mode in "markers coverage=0" "naps coverage=0" "padding coverage=0 every=1"; do for level in 0 1 2 3; do \
// RUN:   env COTENANT_PASS="mode=$mode" %clangxx -O$level -g %s -o %t && %t | cmp - %t.expected || exit 1; \
// RUN: done; done
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

static long alive = 0;
struct Guard {
  Guard() { alive++; }
  ~Guard() { alive--; }
};

[[gnu::noinline]] static long deep(int n, int until) {
  Guard guard;
  long sum = 0;
  for (int i = 0; i < n; i++) {
    Guard inner;
    if (i == until)
      throw std::runtime_error("at " + std::to_string(i));
    sum += i;
  }
  return n > 900 ? deep(n - 1, until) + sum : sum;
}

int main() {
  long caught = 0, sum = 0;
  std::map<std::string, long> counts;
  std::vector<std::string> words;
  for (int i = 0; i < 3000; i++)
    words.push_back("w" + std::to_string(i * 7919 % 613));
  for (int round = 0; round < 20; round++)
    for (const std::string &word : words)
      counts[word] += static_cast<long>(word.size());
  for (int i = 0; i < 300; i++) {
    try {
      sum += deep(1000, i * 7);
    } catch (const std::runtime_error &error) {
      caught += static_cast<long>(std::string(error.what()).size());
      for (int j = 0; j < 50000; j++)
        sum = sum * 3 + j;
    }
  }
  std::printf("%ld %ld %ld %zu %ld\n", alive, caught, sum, counts.size(), counts["w5"]);
}
