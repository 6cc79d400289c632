// Where programs look whether it is time to nap: marks in strip-mined loops.
//
// A mark takes its estimated instructions off a thread-local countdown and calls when that is below zero. In an inner loop it would cost
// 20 to 70 %, so each selected loop is cut into strips of some ten thousand instructions and marked between two strips:
//
//     do { body } while (i != n)   ⇒   again: limit = n − i > strip ? i + strip : n; do { body } while (i != limit); if (i != n) { mark; goto again }
//
// The inner loop keeps its instructions: it runs to `limit` instead of `n`. Loops that do not count to a bound get a counter in a register, and
// small ones are unrolled to count less often. Loops that end before a strip is full are marked by the loop around them; functions without
// loops are marked where they may call themselves, or where a region names them.
#ifndef COTENANT_STRIPS_H
#define COTENANT_STRIPS_H

#include "Runtime.h"
#include "Selection.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/PassManager.h"

namespace llvm {
class Loop;
class ScalarEvolution;
} // namespace llvm

namespace cotenant {

class Strips {
public:
  Strips(llvm::Function &F, llvm::FunctionAnalysisManager &AM, const Options &O) : F(F), AM(AM), O(O) {}

  // Decides, and brings the loops into the form that cutting them needs. False where there is nothing to mark.
  bool plan(bool MayRecurse);
  // Cuts and marks as decided.
  void apply(const Runtime &Calls);

  // A loop to cut.
  struct Strip {
    llvm::BasicBlock *Header = nullptr, *Latch = nullptr;
    uint64_t Iterations = 1;
    uint64_t Weight = 1; // estimated instructions
    // Where the loop counts `Next` up (`Step` > 0) or down by a constant until it meets `Bound`:
    llvm::PHINode *Counter = nullptr;
    llvm::Instruction *Next = nullptr;
    llvm::Value *Bound = nullptr;
    int64_t Step = 0;
    llvm::CmpInst::Predicate Continues = llvm::CmpInst::ICMP_NE;
    bool HasCopy = false; // a copy for few iterations
  };
private:
  // A mark outside of loops.
  struct Place {
    llvm::Instruction *Before;
    uint64_t Weight;
  };

  bool isCut(const llvm::Loop &L, const Selection &Selected, llvm::ScalarEvolution &SE, Strip &S) const;
  void unrollCounted();
  bool findBound(const llvm::Loop &L, Strip &S) const;
  void copyForFew(const Strip &S);
  llvm::BasicBlock *cutAtBound(const Strip &S);
  llvm::BasicBlock *cutByCounter(const Strip &S);
  void mark(llvm::Instruction *Before, uint64_t Weight, const Runtime &Calls);

  llvm::Function &F;
  llvm::FunctionAnalysisManager &AM;
  const Options &O;
  llvm::SmallVector<Strip, 8> Loops;
  llvm::SmallVector<Place, 4> Places;
};

} // namespace cotenant

#endif
