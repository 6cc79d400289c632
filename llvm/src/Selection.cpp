#include "Selection.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Demangle/Demangle.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace cotenant {

// Instructions that a call is taken for. What it calls may have marks of its own.
static constexpr double CallCost = 40;

double Selection::cost(const BasicBlock &BB) {
  double Cost = 0;
  for (const Instruction &I : BB.instructionsWithoutDebug()) {
    if (isa<PHINode>(I))
      continue;
    bool Calls = isa<CallBase>(I) && !isa<IntrinsicInst>(I) && !cast<CallBase>(I).isInlineAsm();
    Cost += Calls ? CallCost : 1;
  }
  return Cost;
}

// Whether the end of one path is the other, by whole components: `src/a.c` is `/home/x/src/a.c`, and not `b/mysrc/a.c`.
static bool sameFile(StringRef Asked, StringRef Directory, StringRef Name) {
  auto EndsWith = [](StringRef Long, StringRef Short) {
    return Long.ends_with(Short) && (Long.size() == Short.size() || Short.starts_with("/") ||
                                     Long[Long.size() - Short.size() - 1] == '/');
  };
  Asked.consume_front("./");
  Name.consume_front("./");
  if (EndsWith(Name, Asked) || (!Asked.starts_with("/") && EndsWith(Asked, Name)))
    return true;
  std::string Whole = (Directory + "/" + Name).str();
  return !Name.starts_with("/") && EndsWith(Whole, Asked);
}

static bool sameFunction(StringRef Asked, StringRef Linkage, StringRef Name) {
  if (Asked == Linkage || Asked == Name)
    return true;
  return Linkage.starts_with("_") && demangle(Linkage) == Asked;
}

// Whether a place in the source, or a place that it was inlined into, lies in the region.
static bool contains(const Region &R, const DILocation *At) {
  for (; At; At = At->getInlinedAt()) {
    const DISubprogram *In = At->getScope()->getSubprogram();
    if (!R.Function.empty() && !(In && sameFunction(R.Function, In->getLinkageName(), In->getName())))
      continue;
    if (!R.File.empty() && !sameFile(R.File, At->getDirectory(), At->getFilename()))
      continue;
    if (!R.hasLines() || (At->getLine() >= R.First && At->getLine() <= R.Last))
      return true;
  }
  return false;
}

static bool inRegions(const BasicBlock &BB, const std::vector<Region> &Regions) {
  const Function &F = *BB.getParent();
  for (const Region &R : Regions) {
    // Compiled without line numbers: the function's name is all that is known.
    if (!F.getSubprogram()) {
      if (sameFunction(R.Function, F.getName(), F.getName()))
        return true;
      continue;
    }
    for (const Instruction &I : BB.instructionsWithoutDebug())
      if (contains(R, I.getDebugLoc().get()))
        return true;
  }
  return false;
}

Selection::Selection(const Function &F, const BlockFrequencyInfo &Frequencies, const Options &O) : O(O) {
  double Entry = static_cast<double>(Frequencies.getEntryFreq().getFrequency()), Sum = 0;
  for (const BasicBlock &BB : F) {
    double Frequency = static_cast<double>(Frequencies.getBlockFreq(&BB).getFrequency()) / std::max(Entry, 1.0);
    double Executed = Frequency * cost(BB);
    Sum += Executed;
    Blocks[&BB] = {0, Executed, Frequency, O.HasRegions && inRegions(BB, O.Regions)};
  }
  for (auto &[BB, B] : Blocks)
    B.Share = Sum > 0 ? B.Executed / Sum : 0;
}

bool Selection::has(const BasicBlock *BB) const {
  auto Found = Blocks.find(BB);
  if (Found == Blocks.end())
    return false;
  return O.HasRegions ? Found->second.InRegion : Found->second.Share > O.Coverage;
}

bool Selection::has(const Loop *L) const {
  double Share = 0;
  for (const BasicBlock *BB : L->blocks()) {
    if (O.HasRegions && has(BB))
      return true;
    auto Found = Blocks.find(BB);
    Share += Found == Blocks.end() ? 0 : Found->second.Share;
  }
  return !O.HasRegions && Share > O.Coverage;
}

bool Selection::any() const {
  // Without regions, blocks that are small each may be a large loop together.
  return any_of(Blocks, [&](const auto &B) { return O.HasRegions ? B.second.InRegion : B.second.Share > 0; });
}

double Selection::iteration(const Loop *L) const {
  auto Header = Blocks.find(L->getHeader());
  double Executed = 0;
  for (const BasicBlock *BB : L->blocks())
    if (auto Found = Blocks.find(BB); Found != Blocks.end())
      Executed += Found->second.Executed;
  double Iterations = Header == Blocks.end() ? 0 : Header->second.Frequency;
  return Iterations > 0 ? std::max(Executed / Iterations, 1.0) : 1;
}

} // namespace cotenant
