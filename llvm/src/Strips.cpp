#include "Strips.h"
#include "llvm/ADT/bit.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "llvm/Transforms/Utils/UnrollLoop.h"

using namespace llvm;

namespace cotenant {

// Estimated instructions between two marks: a mark, some six instructions, is then below 0.1 % of them.
static constexpr double StripCost = 16384;
// Iterations that a strip has at most: what waits for memory in each takes some 100 ns, and a strip must stay well below 2 ms.
static constexpr uint64_t MostIterations = 4096;

// Instructions of a loop that may be there twice, once for few iterations.
static constexpr double MostCopied = 256;

// And of one that is unrolled so as to count less often: two or three of these do the counting. A loop whose loads wait for memory has as many on
// their way as fit into the processor's window (256 on Zen 3), so that each instruction more is paid for in full.
static constexpr double MostUnrolled = 128;

// Whether L counts by a constant, compares what it counts with a bound at its end, and goes on while they differ (or while it is below).
bool Strips::findBound(const Loop &L, Strip &S) const {
  auto *Branch = dyn_cast<BranchInst>(S.Latch->getTerminator());
  if (!Branch || !Branch->isConditional())
    return false;
  auto *Compare = dyn_cast<ICmpInst>(Branch->getCondition());
  if (!Compare || Compare->getParent() != S.Latch || !Compare->hasOneUse() || !Compare->getOperand(0)->getType()->isIntegerTy())
    return false;
  Value *Next = Compare->getOperand(0), *Bound = Compare->getOperand(1);
  CmpInst::Predicate Continues = Compare->getPredicate();
  if (!L.isLoopInvariant(Bound)) {
    std::swap(Next, Bound);
    Continues = CmpInst::getSwappedPredicate(Continues);
  }
  if (Branch->getSuccessor(0) != S.Header)
    Continues = CmpInst::getInversePredicate(Continues);
  auto *Add = dyn_cast<BinaryOperator>(Next);
  if (!Add || Add->getOpcode() != Instruction::Add || !L.isLoopInvariant(Bound))
    return false;
  auto *Counter = dyn_cast<PHINode>(Add->getOperand(0));
  auto *By = dyn_cast<ConstantInt>(Add->getOperand(1));
  if (!Counter || !By || Counter->getParent() != S.Header || Counter->getIncomingValueForBlock(S.Latch) != Add ||
      !By->getValue().isSignedIntN(32) || By->isZero())
    return false;
  S.Step = By->getSExtValue();
  // The strip's length is a number of the counter's type, and below half its range.
  unsigned Bits = Counter->getType()->getIntegerBitWidth();
  if (Bits > 64 || uint64_t(std::abs(S.Step)) * S.Iterations >= uint64_t(1) << (Bits - 1))
    return false;
  bool Below = Continues == CmpInst::ICMP_ULT || Continues == CmpInst::ICMP_SLT;
  if (Continues != CmpInst::ICMP_NE && !(Below && S.Step > 0))
    return false;
  S.Counter = Counter, S.Next = Add, S.Bound = Bound, S.Continues = Continues;
  return true;
}

// Behind what must stay at the beginning of a block: allocations of the entry block above all. Null where nothing can stand.
static Instruction *firstPlace(BasicBlock &BB) {
  auto At = BB.getFirstInsertionPt();
  if (At == BB.end())
    return nullptr;
  Instruction *Place = &*At;
  for (Instruction &I : BB)
    if (isa<AllocaInst>(I))
      Place = I.getNextNonDebugInstruction();
  return Place;
}

// Whether L is to be cut into strips of these.
bool Strips::isCut(const Loop &L, const Selection &Selected, ScalarEvolution &SE, Strip &S) const {
  if (!Selected.has(&L) || !L.getLoopPreheader() || !L.getLoopLatch() || L.getHeader()->isEHPad() ||
      !isa<BranchInst>(L.getLoopLatch()->getTerminator()))
    return false;
  double Cost = Selected.iteration(&L);
  unsigned Trips = SE.getSmallConstantMaxTripCount(const_cast<Loop *>(&L));
  if (Trips && Trips * Cost < StripCost)
    return false;
  S = {L.getHeader(), L.getLoopLatch()};
  S.Iterations = bit_floor(static_cast<uint64_t>(std::clamp(StripCost / Cost, 1.0, double(MostIterations))));
  S.Weight = static_cast<uint64_t>(std::clamp(S.Iterations * Cost, 1.0, 1e9));
  // What is live across setjmp had better be as few values as possible.
  if (S.Iterations > 1 && !F.callsFunctionThatReturnsTwice())
    findBound(L, S);
  S.HasCopy = S.Bound && L.isInnermost() && L.isSafeToClone() && Cost <= MostCopied;
  return true;
}

// Lets small loops that have to count their iterations do so once in several, of which each keeps its way out.
void Strips::unrollCounted() {
  if (F.hasOptNone() || F.hasOptSize() || F.callsFunctionThatReturnsTwice())
    return;
  auto MayUnroll = [](const Loop &L) {
    MDNode *Says = L.getLoopID();
    return L.isSafeToClone() && !(Says && GetUnrollMetadata(Says, "llvm.loop.unroll.disable"));
  };
  SmallVector<BasicBlock *> Headers;
  {
    LoopInfo &LI = AM.getResult<LoopAnalysis>(F);
    Selection Selected(F, AM.getResult<BlockFrequencyAnalysis>(F), O);
    ScalarEvolution &SE = AM.getResult<ScalarEvolutionAnalysis>(F);
    auto Loops = LI.getLoopsInPreorder();
    for (Loop *L : reverse(Loops)) // inner loops first
      if (Strip S; isCut(*L, Selected, SE, S) && !S.Bound && MayUnroll(*L))
        Headers.push_back(L->getHeader());
  }
  for (BasicBlock *Header : Headers) {
    AM.invalidate(F, PreservedAnalyses::none());
    LoopInfo &LI = AM.getResult<LoopAnalysis>(F);
    Loop *L = LI.getLoopFor(Header);
    if (!L || L->getHeader() != Header)
      continue;
    double Size = 0;
    for (const BasicBlock *BB : L->blocks())
      Size += Selection::cost(*BB);
    auto Copies = static_cast<unsigned>(std::min(MostUnrolled / std::max(Size, 1.0), 8.0));
    if (Copies < 2)
      continue;
    auto &DT = AM.getResult<DominatorTreeAnalysis>(F);
    auto &SE = AM.getResult<ScalarEvolutionAnalysis>(F);
    formLCSSARecursively(*L, DT, &LI, &SE);
    UnrollLoopOptions How{};
    How.Count = bit_floor(Copies);
    UnrollLoop(L, How, &LI, &SE, &DT, &AM.getResult<AssumptionAnalysis>(F), &AM.getResult<TargetIRAnalysis>(F),
               &AM.getResult<OptimizationRemarkEmitterAnalysis>(F), /*PreserveLCSSA=*/false);
  }
  AM.invalidate(F, PreservedAnalyses::none());
}

bool Strips::plan(bool MayRecurse) {
  {
    Selection Selected(F, AM.getResult<BlockFrequencyAnalysis>(F), O);
    if (!Selected.any())
      return false;
  }
  LoopInfo &LI = AM.getResult<LoopAnalysis>(F);
  if (!LI.empty()) {
    bool Changed = false;
    for (Loop *L : SmallVector<Loop *>(LI.begin(), LI.end()))
      Changed |= simplifyLoop(L, &AM.getResult<DominatorTreeAnalysis>(F), &LI, nullptr,
                              &AM.getResult<AssumptionAnalysis>(F), nullptr, /*PreserveLCSSA=*/false);
    if (Changed)
      AM.invalidate(F, PreservedAnalyses::none());
  }
  unrollCounted();
  // Those of the loops as they are now.
  LoopInfo &Now = AM.getResult<LoopAnalysis>(F);
  Selection Selected(F, AM.getResult<BlockFrequencyAnalysis>(F), O);
  ScalarEvolution &SE = AM.getResult<ScalarEvolutionAnalysis>(F);

  SmallPtrSet<const BasicBlock *, 32> Covered;
  for (Loop *L : Now.getLoopsInPreorder()) {
    Strip S;
    if (!isCut(*L, Selected, SE, S))
      continue;
    Covered.insert(L->block_begin(), L->block_end());
    Loops.push_back(S);
  }

  auto Add = [&](BasicBlock &BB) {
    if (Instruction *Before = firstPlace(BB))
      Places.push_back({Before, static_cast<uint64_t>(std::max(Selection::cost(BB), 1.0))});
  };
  if (MayRecurse && (!O.HasRegions || Selected.any()))
    Add(F.getEntryBlock());
  else if (O.HasRegions)
    for (BasicBlock &BB : F)
      // One mark for a chain of blocks: the first of them.
      if (Selected.has(&BB) && !Now.getLoopFor(&BB) &&
          !(BB.getUniquePredecessor() && Selected.has(BB.getUniquePredecessor())))
        Add(BB);
  return !Loops.empty() || !Places.empty();
}

// Whether more than a strip is left; also said of a loop that is entered beyond its bound.
static Value *seemsLong(IRBuilder<> &B, const Strips::Strip &S, Value *Counter, ConstantInt *Length) {
  Value *Left = S.Step > 0 ? B.CreateSub(S.Bound, Counter) : B.CreateSub(Counter, S.Bound);
  return B.CreateICmpUGT(Left, Length);
}

static ConstantInt *lengthOf(Type *Counter, uint64_t Iterations, int64_t Step) {
  return ConstantInt::get(cast<IntegerType>(Counter), Iterations * static_cast<uint64_t>(std::abs(Step)));
}

// A copy of the loop as it is, for entries that take a strip or less: the usual case of inner loops, which then pay for one question in
// front. What the code generator makes of a loop with strips may also be longer than what it makes of the loop alone.
void Strips::copyForFew(const Strip &S) {
  AM.invalidate(F, PreservedAnalyses::none());
  LoopInfo &LI = AM.getResult<LoopAnalysis>(F);
  Loop *L = LI.getLoopFor(S.Header);
  BasicBlock *Before = L ? L->getLoopPreheader() : nullptr;
  if (!Before || L->getHeader() != S.Header)
    return;
  formLCSSA(*L, AM.getResult<DominatorTreeAnalysis>(F), &LI, nullptr);
  SmallVector<BasicBlock *> Exits, Copies;
  L->getUniqueExitBlocks(Exits);
  ValueToValueMapTy Map;
  for (BasicBlock *BB : L->blocks()) {
    BasicBlock *Copy = CloneBasicBlock(BB, Map, ".few", &F);
    Map[BB] = Copy;
    Copies.push_back(Copy);
  }
  remapInstructionsInBlocks(Copies, Map);
  for (BasicBlock *Exit : Exits)
    for (PHINode &Phi : Exit->phis())
      for (unsigned I = 0, N = Phi.getNumIncomingValues(); I < N; I++)
        if (BasicBlock *From = Phi.getIncomingBlock(I); L->contains(From)) {
          Value *Copied = Map.lookup(Phi.getIncomingValue(I));
          Phi.addIncoming(Copied ? Copied : Phi.getIncomingValue(I), cast<BasicBlock>(Map[From]));
        }
  auto *Enter = cast<BranchInst>(Before->getTerminator());
  IRBuilder<> B(Enter);
  B.SetCurrentDebugLocation(S.Latch->getTerminator()->getDebugLoc());
  Value *First = S.Counter->getIncomingValueForBlock(Before);
  // One comparison: what is entered beyond its bound, which is rare, may as well be cut.
  Value *Long = seemsLong(B, S, First, lengthOf(First->getType(), S.Iterations, S.Step));
  B.CreateCondBr(Long, S.Header, cast<BasicBlock>(Map[S.Header]));
  Enter->eraseFromParent();
}

// Cuts the loop at its bound; the block between two strips.
BasicBlock *Strips::cutAtBound(const Strip &S) {
  BasicBlock *Header = S.Header, *Latch = S.Latch;
  LLVMContext &Context = F.getContext();
  auto *Branch = cast<BranchInst>(Latch->getTerminator());
  auto *Compare = cast<ICmpInst>(Branch->getCondition());
  DebugLoc At = Branch->getDebugLoc();
  unsigned Back = Branch->getSuccessor(0) == Header ? 0 : 1;
  BasicBlock *Exit = Branch->getSuccessor(1 - Back);

  auto *Outer = BasicBlock::Create(Context, "cotenant.strip", &F, Header);
  auto *Check = BasicBlock::Create(Context, "cotenant.check", &F, Latch->getNextNode());
  auto *Between = BasicBlock::Create(Context, "cotenant.between", &F, Check->getNextNode());

  // Values that go around enter the strip through phis of its own.
  PHINode *Counter = nullptr;
  for (PHINode &Phi : Header->phis()) {
    auto *Enters = PHINode::Create(Phi.getType(), 2, Phi.getName() + ".strip", Outer);
    for (unsigned I = Phi.getNumIncomingValues(); I-- > 0;)
      if (Phi.getIncomingBlock(I) != Latch) {
        Enters->addIncoming(Phi.getIncomingValue(I), Phi.getIncomingBlock(I));
        Phi.removeIncomingValue(I, /*DeletePHIIfEmpty=*/false);
      }
    Enters->addIncoming(Phi.getIncomingValueForBlock(Latch), Between);
    Phi.addIncoming(Enters, Outer);
    if (&Phi == S.Counter)
      Counter = Enters;
  }
  for (BasicBlock *Before : SmallVector<BasicBlock *>(predecessors(Header)))
    if (Before != Latch)
      Before->getTerminator()->replaceSuccessorWith(Header, Outer);

  // A branch that is foretold, and the loop's own bound. A minimum would make the end of the loop wait for its computation.
  IRBuilder<> B(Outer);
  B.SetCurrentDebugLocation(At);
  ConstantInt *Length = lengthOf(Counter->getType(), S.Iterations, S.Step);
  Value *IsLong = seemsLong(B, S, Counter, Length);
  if (S.Continues != CmpInst::ICMP_NE) // entered beyond its bound, a loop ends after one iteration
    IsLong = B.CreateLogicalAnd(B.CreateICmp(S.Continues, Counter, S.Bound), IsLong);
  auto *Long = BasicBlock::Create(Context, "cotenant.long", &F, Header);
  auto *Enter = BasicBlock::Create(Context, "cotenant.enter", &F, Header);
  B.CreateCondBr(IsLong, Long, Enter, MDBuilder(Context).createUnlikelyBranchWeights());
  B.SetInsertPoint(Long);
  Value *End = S.Step > 0 ? B.CreateAdd(Counter, Length) : B.CreateSub(Counter, Length);
  B.CreateBr(Enter);
  B.SetInsertPoint(Enter);
  PHINode *Limit = B.CreatePHI(Counter->getType(), 2, "cotenant.limit");
  Limit->addIncoming(S.Bound, Outer);
  Limit->addIncoming(End, Long);
  B.CreateBr(Header);
  for (PHINode &Phi : Header->phis())
    Phi.replaceIncomingBlockWith(Outer, Enter);

  B.SetInsertPoint(Branch);
  Branch->setCondition(B.CreateICmp(S.Continues, S.Next, Limit));
  Branch->setSuccessor(1 - Back, Check);
  if (Back == 1)
    Branch->swapSuccessors();
  Compare->eraseFromParent();

  B.SetInsertPoint(Check);
  Value *More = B.CreateICmp(S.Continues, S.Next, S.Bound);
  B.CreateCondBr(More, Between, Exit, MDBuilder(Context).createUnlikelyBranchWeights());
  Exit->replacePhiUsesWith(Latch, Check);
  B.SetInsertPoint(Between);
  B.CreateBr(Outer);
  return Between;
}

// Counts iterations down in a register; the block that follows the last one of a strip.
BasicBlock *Strips::cutByCounter(const Strip &S) {
  BasicBlock *Header = S.Header, *Latch = S.Latch;
  LLVMContext &Context = F.getContext();
  DebugLoc At = Latch->getTerminator()->getDebugLoc();
  auto *Tick = BasicBlock::Create(Context, "cotenant.tick", &F, Latch->getNextNode());
  auto *Between = BasicBlock::Create(Context, "cotenant.between", &F, Tick->getNextNode());
  bool Counts = S.Iterations > 1;
  for (PHINode &Phi : Header->phis()) {
    Value *Around = Phi.getIncomingValueForBlock(Latch);
    if (Counts)
      Phi.addIncoming(Around, Tick);
    Phi.addIncoming(Around, Between);
    Phi.removeIncomingValue(Latch);
  }
  Latch->getTerminator()->replaceSuccessorWith(Header, Tick);
  IRBuilder<> B(Tick);
  B.SetCurrentDebugLocation(At);
  if (Counts) {
    auto *Int = B.getInt32Ty();
    auto *Full = ConstantInt::get(Int, S.Iterations);
    auto *Left = PHINode::Create(Int, 3, "cotenant.left");
    for (BasicBlock *Before : predecessors(Header))
      Left->addIncoming(Full, Before);
    Left->insertBefore(Header->begin());
    Value *Less = B.CreateSub(Left, ConstantInt::get(Int, 1));
    Left->addIncoming(Less, Tick);
    Left->addIncoming(Full, Between);
    B.CreateCondBr(B.CreateIsNull(Less), Between, Header, MDBuilder(Context).createBranchWeights(1, S.Iterations));
  } else {
    B.CreateBr(Between);
  }
  B.SetInsertPoint(Between);
  B.CreateBr(Header);
  return Between;
}

void Strips::mark(Instruction *Before, uint64_t Weight, const Runtime &Calls) {
  IRBuilder<> B(Before);
  Type *Int = B.getInt64Ty();
  Value *State = B.CreateThreadLocalAddress(Calls.State);
  Value *Left = B.CreateSub(B.CreateLoad(Int, State), ConstantInt::get(Int, Weight));
  B.CreateStore(Left, State);
  Value *Ended = B.CreateICmpSLT(Left, ConstantInt::get(Int, 0));
  MDNode *Rarely = MDBuilder(F.getContext()).createUnlikelyBranchWeights();
  Instruction *Then = SplitBlockAndInsertIfThen(Ended, Before->getIterator(), /*Unreachable=*/false, Rarely);
  B.SetInsertPoint(Then);
  CallInst *Call = B.CreateCall(Calls.Slow, Calls.Arguments);
  Call->setCallingConv(Calls.Slow->getCallingConv());
  Call->setDoesNotThrow();
}

void Strips::apply(const Runtime &Calls) {
  for (const Place &P : Places)
    mark(P.Before, P.Weight, Calls);
  for (const Strip &S : Loops) {
    if (S.HasCopy)
      copyForFew(S);
    BasicBlock *Between = S.Bound ? cutAtBound(S) : cutByCounter(S);
    mark(Between->getTerminator(), S.Weight, Calls);
  }
}

} // namespace cotenant
