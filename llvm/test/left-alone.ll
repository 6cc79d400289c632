; Functions that must not be touched, and functions that were.
; RUN: env COTENANT_PASS="mode=markers coverage=0" %opt < %s | FileCheck %s

target triple = "x86_64-pc-linux-gnu"

@chosen = ifunc i64 (i64), ptr @resolver

; CHECK-LABEL: define ptr @resolver
; CHECK-NOT: threadlocal
; CHECK-LABEL: define i64 @bare
; CHECK-NOT: threadlocal
; CHECK-LABEL: define available_externally i64 @elsewhere
; CHECK-NOT: threadlocal
; CHECK-LABEL: define i64 @done
; CHECK-NOT: threadlocal
; CHECK-NOT: __cotenant
define ptr @resolver() {
  br label %loop
loop:
  %i = phi i64 [ 0, %0 ], [ %n, %loop ]
  %n = add i64 %i, 1
  %more = icmp ne i64 %n, 100000
  br i1 %more, label %loop, label %exit
exit:
  ret ptr @done
}
define i64 @bare(i64 %x) naked {
  br label %loop
loop:
  call void asm sideeffect "nop", ""()
  br label %loop
}
define available_externally i64 @elsewhere(i64 %x) {
  br label %loop
loop:
  call void asm sideeffect "nop", ""()
  br label %loop
}
define i64 @done(i64 %x) "cotenant-pass"="done" {
  br label %loop
loop:
  call void asm sideeffect "nop", ""()
  br label %loop
}
