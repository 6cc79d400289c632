; Nops at the beginning of each selected block and after every `every` instructions (Tang §5.3.1).
; Holds compile/marks.
; RUN: env COTENANT_PASS="mode=padding thickness=3 every=2 coverage=0.2" %opt < %s | FileCheck %s
; RUN: env COTENANT_PASS="mode=padding thickness=1 every=100 coverage=0" %opt < %s | FileCheck %s --check-prefix=ONCE
; RUN: env COTENANT_PASS="mode=padding" COTENANT_PASS_REGIONS='[{"function":"other"}]' %opt < %s | FileCheck %s --check-prefix=NONE

target triple = "x86_64-pc-linux-gnu"

; CHECK-LABEL: define i64 @sum
; CHECK: entry:
; CHECK-NOT: asm
; CHECK: loop:
; CHECK-NEXT: %i = phi
; CHECK-NEXT: %s = phi
; CHECK-NEXT: call void asm sideeffect "nop\0A\09nop\0A\09nop", ""()
; CHECK-NEXT: %p = getelementptr
; CHECK-NEXT: %v = load
; CHECK-NEXT: call void asm sideeffect "nop
; CHECK-NEXT: %s.next = add
; CHECK-NEXT: %i.next = add
; CHECK-NEXT: call void asm sideeffect "nop
; CHECK-NEXT: %more = icmp
; CHECK: exit:
; CHECK-NEXT: ret

; ONCE-LABEL: define i64 @sum
; ONCE: loop:
; ONCE: call void asm sideeffect "nop", ""()
; ONCE-NOT: asm
; ONCE: exit:

; NONE-NOT: asm
define i64 @sum(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %s = phi i64 [ 0, %entry ], [ %s.next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  %v = load i64, ptr %p
  %s.next = add i64 %s, %v
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret i64 %s.next
}

; Nothing between a call that must be a tail call and its return.
; ONCE-LABEL: define i64 @jumps
; ONCE-NEXT: call void asm sideeffect "nop", ""()
; ONCE-NEXT: %r = musttail call
; ONCE-NEXT: ret
define i64 @jumps(ptr %a, i64 %n) {
  %r = musttail call i64 @sum(ptr %a, i64 %n)
  ret i64 %r
}
