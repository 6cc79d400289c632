#include "Runtime.h"
#include "llvm/Bitcode/BitcodeReader.h"
#include "llvm/IR/Constants.h"
#include "llvm/Linker/Linker.h"
#include "llvm/TargetParser/Triple.h"

#include "RuntimeBitcode.inc"

using namespace llvm;

namespace cotenant {

bool Runtime::bring(Module &M, const Options &O) {
  bool Naps = O.Mode == Mode::Naps;
  StringRef StateName = Naps ? "__cotenant_naps" : "__cotenant_markers";
  StringRef SlowName = Naps ? "__cotenant_nap" : "__cotenant_marked";
  if (!M.getFunction(SlowName)) {
    LLVMContext &Context = M.getContext();
    StringRef Bitcode = Naps ? StringRef(reinterpret_cast<const char *>(NapsBitcode), sizeof NapsBitcode)
                             : StringRef(reinterpret_cast<const char *>(MarkersBitcode), sizeof MarkersBitcode);
    Expected<std::unique_ptr<Module>> Read = parseBitcodeFile({Bitcode, "cotenant-pass"}, Context);
    if (!Read) {
      Context.emitError("cotenant-pass: " + toString(Read.takeError()) + "; build the pass again");
      return false;
    }
    std::unique_ptr<Module> Part = std::move(*Read);
    Triple Ours(Part->getTargetTriple()), Theirs(M.getTargetTriple());
    if (!M.getTargetTriple().empty() && (Ours.getArch() != Theirs.getArch() || !Theirs.isOSLinux())) {
      Context.emitError("cotenant-pass: the pass was built for " + Ours.str() + ", this is for " + Theirs.str() +
                        "; use --cotenant-mode=padding, or a pass that was built there");
      return false;
    }
    // The program's own settings hold.
    for (StringRef Name : {"llvm.module.flags", "llvm.ident"})
      if (NamedMDNode *Node = Part->getNamedMetadata(Name))
        Part->eraseNamedMetadata(Node);
    Part->setTargetTriple(M.getTargetTriple());
    Part->setDataLayout(M.getDataLayout());
    if (Linker::linkModules(M, std::move(Part))) {
      Context.emitError("cotenant-pass: the program has a symbol " + SlowName + " of its own; rename it");
      return false;
    }
  }
  State = M.getNamedGlobal(StateName);
  Slow = M.getFunction(SlowName);
  Type *Int = Type::getInt64Ty(M.getContext());
  if (Naps)
    Arguments = {ConstantInt::get(Int, O.Granularity), ConstantInt::get(Int, O.Duration)};
  return State && Slow;
}

} // namespace cotenant
