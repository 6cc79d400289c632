; What the linker optimises once more is put off until then, function by function.
; Holds compile/marks.
; RUN: env COTENANT_PASS="mode=markers" %opt < %s -o %t.ll
; RUN: FileCheck %s --check-prefix=BEFORE < %t.ll
; RUN: env COTENANT_PASS="mode=markers" %opt < %t.ll | FileCheck %s --check-prefix=AFTER
; RUN: env COTENANT_PASS="mode=markers" %opt < %t.ll | env COTENANT_PASS="mode=markers" %opt | FileCheck %s --check-prefix=AFTER

target triple = "x86_64-pc-linux-gnu"

; BEFORE-NOT: threadlocal.address
; BEFORE: attributes #0 = { "cotenant-pass"="later" }
; AFTER: threadlocal.address
; AFTER-NOT: threadlocal.address(ptr
; AFTER: "cotenant-pass"="done"
define void @spin(i64 %n) {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %i.next, %loop ]
  call void asm sideeffect "nop", ""()
  %i.next = add i64 %i, 1
  %more = icmp ne i64 %i.next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

!llvm.module.flags = !{!0}
!0 = !{i32 1, !"EnableSplitLTOUnit", i32 0}
