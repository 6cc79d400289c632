// What the pass is to do, from the environment: clang and lld load it alike, and need no further argument.
#ifndef COTENANT_OPTIONS_H
#define COTENANT_OPTIONS_H

#include "llvm/Support/Error.h"
#include <cstdint>
#include <string>
#include <vector>

namespace cotenant {

enum class Mode { Markers, Naps, Padding };

// A piece of source that is worth slowing down; docs/reference/regions.md.
struct Region {
  std::string Function; // empty: any
  std::string File;     // empty: any; else the end of the path
  unsigned First = 0, Last = ~0u;
  bool hasLines() const { return First != 0; }
};

struct Options {
  cotenant::Mode Mode = Mode::Markers;
  // Mode padding: nops at each place, and IR instructions from one place to the next.
  unsigned Thickness = 8, Every = 5;
  // Mode naps, nanoseconds.
  uint64_t Granularity = 10'000'000, Duration = 10'000'000;
  // Without regions: the share of its function that a block, or a loop, is estimated to take at least.
  double Coverage = 0.05;
  std::vector<Region> Regions;
  bool HasRegions = false;

  // COTENANT_PASS: words `key=value`. COTENANT_PASS_REGIONS: a JSON array of objects {function, file, first, last}.
  static llvm::Expected<Options> fromEnvironment();
};

} // namespace cotenant

#endif
