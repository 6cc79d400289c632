; The mode naps has the same marks, and calls with its two times (Tang §5.3.2).
; Holds compile/marks.
; RUN: env COTENANT_PASS="mode=naps granularity_ns=1000000 duration_ns=2000000" %opt < %s | FileCheck %s

target triple = "x86_64-pc-linux-gnu"

; CHECK: @__cotenant_naps = weak hidden thread_local
; CHECK-LABEL: define void @fill
; CHECK: cotenant.between:
; CHECK: call preserve_mostcc void @__cotenant_nap(i64 1000000, i64 2000000)
; CHECK: define weak hidden preserve_mostcc void @__cotenant_nap(i64
; CHECK: @syscall
define void @fill(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  store i64 7, ptr %p
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}
