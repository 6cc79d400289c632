; What is called is compiled with the pass, for its own architecture: elsewhere only padding works, and the reason is said.
; Holds compile/cc.
; RUN: not env COTENANT_PASS="mode=naps" %opt < %s 2>&1 | FileCheck %s
; RUN: env COTENANT_PASS="mode=padding" %opt < %s | FileCheck %s --check-prefix=PADDING

target triple = "riscv64-unknown-linux-gnu"

; CHECK: error: cotenant-pass: the pass was built for {{.*}}, this is for riscv64{{.*}}; use --cotenant-mode=padding
; PADDING: asm sideeffect "nop
define void @spin() {
  br label %loop
loop:
  call void asm sideeffect "", ""()
  br label %loop
}
