#ifndef COTENANT_PADDING_H
#define COTENANT_PADDING_H

#include "Selection.h"

namespace cotenant {

// Inserts O.Thickness nops at the beginning of each selected block and after every O.Every instructions inside longer ones (Tang §5.3.1).
// True where anything was inserted.
bool pad(llvm::Function &F, const Selection &Selected, const Options &O);

} // namespace cotenant

#endif
