#include "Options.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/JSON.h"
#include <cstdlib>

using namespace llvm;

namespace cotenant {

static Error wrong(const Twine &What) { return createStringError(inconvertibleErrorCode(), "cotenant-pass: " + What); }

// The number behind a key, in a range.
template <typename T> static Error number(StringRef Key, StringRef Text, T Least, T Most, T &Into) {
  uint64_t Value;
  if (Text.getAsInteger(10, Value) || Value < Least || Value > Most)
    return wrong("COTENANT_PASS: " + Key + "=" + Text + " is not a number from " + Twine(Least) + " to " + Twine(Most));
  Into = static_cast<T>(Value);
  return Error::success();
}

static Error set(Options &O, StringRef Key, StringRef Text) {
  constexpr uint64_t Minute = 60'000'000'000;
  if (Key == "mode") {
    if (Text == "markers")
      O.Mode = Mode::Markers;
    else if (Text == "naps")
      O.Mode = Mode::Naps;
    else if (Text == "padding")
      O.Mode = Mode::Padding;
    else
      return wrong("COTENANT_PASS: mode=" + Text + " is not known; use markers, naps or padding");
    return Error::success();
  }
  if (Key == "thickness")
    return number<unsigned>(Key, Text, 1, 4096, O.Thickness);
  if (Key == "every")
    return number<unsigned>(Key, Text, 1, 1'000'000, O.Every);
  if (Key == "granularity_ns")
    return number<uint64_t>(Key, Text, 100'000, Minute, O.Granularity);
  if (Key == "duration_ns")
    return number<uint64_t>(Key, Text, 1, Minute, O.Duration);
  if (Key == "coverage") {
    if (Text.getAsDouble(O.Coverage) || !(O.Coverage >= 0 && O.Coverage <= 1))
      return wrong("COTENANT_PASS: coverage=" + Text + " is not a number from 0 to 1");
    return Error::success();
  }
  return wrong("COTENANT_PASS: '" + Key +
               "' is not known; there are mode, thickness, every, granularity_ns, duration_ns and coverage");
}

static Error readRegions(StringRef Text, std::vector<Region> &Into) {
  Expected<json::Value> Value = json::parse(Text);
  if (!Value)
    return wrong("COTENANT_PASS_REGIONS: " + toString(Value.takeError()));
  const json::Array *All = Value->getAsArray();
  if (!All)
    return wrong("COTENANT_PASS_REGIONS: not an array of regions");
  for (const json::Value &One : *All) {
    Region R;
    json::Path::Root Root("region");
    json::ObjectMapper Map(One, Root);
    int64_t First = 0, Last = 0;
    if (!Map || !Map.mapOptional("function", R.Function) || !Map.mapOptional("file", R.File) ||
        !Map.mapOptional("first", First) || !Map.mapOptional("last", Last))
      return wrong("COTENANT_PASS_REGIONS: " + toString(Root.getError()));
    if (First < 0 || Last < First || Last > UINT32_MAX)
      return wrong("COTENANT_PASS_REGIONS: lines " + Twine(First) + " to " + Twine(Last) + " are no range");
    if (First > 0)
      R.First = static_cast<unsigned>(First), R.Last = static_cast<unsigned>(Last);
    if (R.Function.empty() && (R.File.empty() || !R.hasLines()))
      return wrong("COTENANT_PASS_REGIONS: a region has neither a function nor a file with lines");
    Into.push_back(std::move(R));
  }
  return Error::success();
}

Expected<Options> Options::fromEnvironment() {
  Options O;
  if (const char *Words = std::getenv("COTENANT_PASS")) {
    SmallVector<StringRef, 8> Split;
    StringRef(Words).split(Split, ' ', -1, false);
    for (StringRef Word : Split) {
      auto [Key, Text] = Word.split('=');
      if (Error E = set(O, Key, Text))
        return E;
    }
  }
  if (const char *Text = std::getenv("COTENANT_PASS_REGIONS")) {
    O.HasRegions = true;
    if (Error E = readRegions(Text, O.Regions))
      return E;
  }
  return O;
}

} // namespace cotenant
