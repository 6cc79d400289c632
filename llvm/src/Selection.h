// Which blocks of a function are worth slowing down.
#ifndef COTENANT_SELECTION_H
#define COTENANT_SELECTION_H

#include "Options.h"
#include "llvm/ADT/DenseMap.h"

namespace llvm {
class BasicBlock;
class BlockFrequencyInfo;
class Function;
class Loop;
} // namespace llvm

namespace cotenant {

class Selection {
public:
  // Estimates and matches the blocks of F as they are now.
  Selection(const llvm::Function &F, const llvm::BlockFrequencyInfo &Frequencies, const Options &O);

  // Whether a block is selected: by a region, or, where there are none, by its share of the function.
  bool has(const llvm::BasicBlock *BB) const;
  // Whether a loop is: one of its blocks is, or, where there are no regions, all of them together.
  bool has(const llvm::Loop *L) const;
  // Whether any block of the function is.
  bool any() const;
  // IR instructions that an iteration of L is estimated to execute, inner loops included; at least 1.
  double iteration(const llvm::Loop *L) const;

  // The same of one pass through a block.
  static double cost(const llvm::BasicBlock &BB);

private:
  struct Block {
    double Share;
    double Executed; // instructions, relative to one entry of the function
    double Frequency;
    bool InRegion;
  };
  const Options &O;
  llvm::DenseMap<const llvm::BasicBlock *, Block> Blocks;
};

} // namespace cotenant

#endif
