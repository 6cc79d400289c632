#include "Padding.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace cotenant {

bool pad(Function &F, const Selection &Selected, const Options &O) {
  // One line each: the code generator estimates the length of assembly by its lines.
  std::string Nops;
  for (unsigned I = 0; I < O.Thickness; I++)
    Nops += I ? "\n\tnop" : "nop";
  auto *Type = FunctionType::get(Type::getVoidTy(F.getContext()), false);
  InlineAsm *Asm = InlineAsm::get(Type, Nops, "", /*hasSideEffects=*/true);

  SmallVector<Instruction *, 32> Places;
  for (BasicBlock &BB : F) {
    if (!Selected.has(&BB))
      continue;
    auto At = BB.getFirstInsertionPt();
    // Debug records and allocations stay where they are.
    while (At != BB.end() && (isa<AllocaInst>(*At) || isa<DbgInfoIntrinsic>(*At)))
      ++At;
    unsigned Since = O.Every;
    for (; At != BB.end(); ++At) {
      if (isa<DbgInfoIntrinsic>(*At))
        continue;
      if (Since == O.Every) {
        Places.push_back(&*At);
        Since = 0;
      }
      Since++;
      // Nothing may stand between such a call and the return.
      if (auto *Call = dyn_cast<CallInst>(&*At); Call && Call->isMustTailCall())
        break;
    }
  }
  for (Instruction *Before : Places) {
    CallInst *Call = CallInst::Create(Type, Asm, {}, "", Before->getIterator());
    Call->setDoesNotThrow();
    Call->setDebugLoc(Before->getDebugLoc());
  }
  return !Places.empty();
}

} // namespace cotenant
