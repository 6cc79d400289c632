// What instrumented code calls, brought into the module that needs it.
#ifndef COTENANT_RUNTIME_H
#define COTENANT_RUNTIME_H

#include "Options.h"
#include "llvm/IR/Module.h"

namespace cotenant {

struct Runtime {
  llvm::GlobalVariable *State = nullptr; // thread-local; its first member is the countdown
  llvm::Function *Slow = nullptr;        // called when that is below zero
  llvm::SmallVector<llvm::Value *, 2> Arguments;

  // False, with an error in the module's context, where the module is for another architecture than the pass.
  bool bring(llvm::Module &M, const Options &O);
};

} // namespace cotenant

#endif
