#include "Padding.h"
#include "Runtime.h"
#include "Strips.h"
#include "llvm/ADT/SCCIterator.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/CallGraph.h"
#include "llvm/IR/GlobalIFunc.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Passes/PassPlugin.h"

using namespace llvm;
using namespace cotenant;

namespace {

// On a function: "later" where the linker is to do it, "done" where it is done.
constexpr StringRef Mark = "cotenant-pass";

// Functions in which a call may lead back to the same function, as far as the module shows it.
SmallPtrSet<const Function *, 16> recursive(Module &M) {
  SmallPtrSet<const Function *, 16> Found;
  CallGraph Graph(M);
  for (auto Group = scc_begin(&Graph); !Group.isAtEnd(); ++Group)
    if (Group.hasCycle())
      for (const CallGraphNode *Node : *Group)
        if (Node->getFunction())
          Found.insert(Node->getFunction());
  return Found;
}

// Functions that may run before there are thread-local variables.
SmallPtrSet<const Function *, 4> resolvers(const Module &M) {
  SmallPtrSet<const Function *, 4> Found;
  for (const GlobalIFunc &I : M.ifuncs())
    Found.insert(I.getResolverFunction());
  return Found;
}

struct Pass : PassInfoMixin<Pass> {
  // A pass over a module, since it may add the runtime part; at the very end, so that loops that were vectorised stay so.
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &AM) {
    Expected<Options> Read = Options::fromEnvironment();
    if (!Read) {
      M.getContext().emitError(toString(Read.takeError()));
      return PreservedAnalyses::all();
    }
    const Options &O = *Read;
    SmallVector<Function *> Functions = chosen(M);
    auto &FAM = AM.getResult<FunctionAnalysisManagerModuleProxy>(M).getManager();
    bool Changed = !Functions.empty(); // their attribute
    if (O.Mode == Mode::Padding) {
      for (Function *F : Functions)
        pad(*F, Selection(*F, FAM.getResult<BlockFrequencyAnalysis>(*F), O), O);
      return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
    }
    SmallPtrSet<const Function *, 16> Recursive = recursive(M);
    Runtime Calls;
    for (Function *F : Functions) {
      Strips Marks(*F, FAM, O);
      if (!Marks.plan(Recursive.contains(F)))
        continue;
      if (!Calls.Slow && !Calls.bring(M, O))
        return PreservedAnalyses::none();
      Marks.apply(Calls);
      FAM.invalidate(*F, PreservedAnalyses::none());
    }
    return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }

  static bool isRequired() { return true; } // at -O0, too

private:
  // The functions to work on now. Where the linker will optimise the module once more, that is none: it does what is put off here.
  static SmallVector<Function *> chosen(Module &M) {
    bool Linked = any_of(M, [](const Function &F) { return F.getFnAttribute(Mark).getValueAsString() == "later"; });
    bool PutOff = !Linked && (M.getModuleFlag("ThinLTO") || M.getModuleFlag("EnableSplitLTOUnit"));
    SmallPtrSet<const Function *, 4> Resolvers = resolvers(M);
    SmallVector<Function *> Chosen;
    for (Function &F : M) {
      if (F.isDeclaration() || F.hasAvailableExternallyLinkage() || F.hasFnAttribute(Attribute::Naked) ||
          F.getName().starts_with("__cotenant_") || Resolvers.contains(&F))
        continue;
      StringRef State = F.getFnAttribute(Mark).getValueAsString();
      if (State == "done" || (Linked && State != "later"))
        continue;
      F.addFnAttr(Mark, PutOff ? "later" : "done");
      if (!PutOff)
        Chosen.push_back(&F);
    }
    return Chosen;
  }
};

void registerCallbacks(PassBuilder &PB) {
  PB.registerPipelineParsingCallback([](StringRef Name, ModulePassManager &MPM, ArrayRef<PassBuilder::PipelineElement>) {
    if (Name != "cotenant")
      return false;
    MPM.addPass(Pass());
    return true;
  });
  auto Last = [](ModulePassManager &MPM, OptimizationLevel) { MPM.addPass(Pass()); };
  PB.registerOptimizerLastEPCallback(Last);
  PB.registerFullLinkTimeOptimizationLastEPCallback(Last);
}

} // namespace

extern "C" __attribute__((visibility("default"))) PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "cotenant-pass", "1", registerCallbacks};
}
