; Marks stand between two strips of a loop; the loop's own instructions stay what they are.
; Promise compile/marks: Marks stand between strips of loops, nops where the paper puts them, and loops keep their
; instructions.
; RUN: env COTENANT_PASS="mode=markers" %opt < %s | FileCheck %s
; RUN: env COTENANT_PASS="mode=markers" %opt < %s | FileCheck %s --check-prefix=RUNTIME
; RUN: env COTENANT_PASS="mode=markers" COTENANT_PASS_REGIONS='[{"function":"chase"},{"function":"straight"}]' %opt < %s | FileCheck %s --check-prefix=REGION

target triple = "x86_64-pc-linux-gnu"

; RUNTIME: @__cotenant_markers = weak hidden thread_local
; RUNTIME: define weak hidden preserve_mostcc void @__cotenant_marked()
; RUNTIME: declare extern_weak void @cotenant_marker_1(ptr

; A loop that counts to a bound runs to the end of its strip instead: 16,384 / 5 instructions, down to a power of two.
; Who enters it for no more than a strip runs a copy of it as it is.
; CHECK-LABEL: define void @fill
; CHECK: [[MUCH:%.*]] = icmp ugt i64 %{{.*}}, 2048
; CHECK-NEXT: br i1 [[MUCH]], label %cotenant.strip, label %loop.few
; CHECK: cotenant.strip:
; CHECK-NEXT: [[I:%.*]] = phi i64 [ 0, %entry ], [ %i.next, %{{.*}} ]
; CHECK-NEXT: [[LEFT:%.*]] = sub i64 %n, [[I]]
; CHECK-NEXT: [[LONG:%.*]] = icmp ugt i64 [[LEFT]], 2048
; CHECK-NEXT: br i1 [[LONG]], label %cotenant.long, label %cotenant.enter, !prof
; CHECK: cotenant.long:
; CHECK-NEXT: [[END:%.*]] = add i64 [[I]], 2048
; CHECK: cotenant.enter:
; CHECK-NEXT: %cotenant.limit = phi i64 [ %n, %cotenant.strip ], [ [[END]], %cotenant.long ]
; CHECK: loop:
; CHECK-NEXT: %i = phi i64 [ %i.next, %loop ], [ [[I]], %cotenant.enter ]
; CHECK-NEXT: %p = getelementptr
; CHECK-NEXT: store i64
; CHECK-NEXT: %i.next = add
; CHECK-NEXT: [[GOES:%.*]] = icmp ne i64 %i.next, %cotenant.limit
; CHECK-NEXT: br i1 [[GOES]], label %loop, label %cotenant.check, !llvm.loop
; CHECK: cotenant.check:
; CHECK-NEXT: [[MORE:%.*]] = icmp ne i64 %i.next, %n
; CHECK-NEXT: br i1 [[MORE]], label %cotenant.between, label %exit, !prof
; CHECK: cotenant.between:
; CHECK-NEXT: [[STATE:%.*]] = call align 8 ptr @llvm.threadlocal.address.p0(ptr align 8 @__cotenant_markers)
; CHECK-NEXT: [[C:%.*]] = load i64, ptr [[STATE]], align 8
; CHECK-NEXT: [[D:%.*]] = sub i64 [[C]], 10240
; CHECK-NEXT: store i64 [[D]], ptr [[STATE]], align 8
; CHECK-NEXT: [[E:%.*]] = icmp slt i64 [[D]], 0
; CHECK-NEXT: br i1 [[E]], label %[[CALLS:.*]], label %{{.*}}, !prof
; CHECK: [[CALLS]]:
; CHECK-NEXT: call preserve_mostcc void @__cotenant_marked()
; CHECK: loop.few:
; CHECK-NEXT: %i.few = phi i64 [ 0, %entry ], [ %i.next.few, %loop.few ]
; CHECK-NEXT: getelementptr
; CHECK-NEXT: store i64
; CHECK-NEXT: %i.next.few = add
; CHECK-NEXT: icmp eq i64 %i.next.few, %n
; CHECK-NEXT: br i1 %{{.*}}, label %exit, label %loop.few, !llvm.loop
define void @fill(ptr %a, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i.next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  store i64 7, ptr %p
  %i.next = add i64 %i, 1
  %done = icmp eq i64 %i.next, %n
  br i1 %done, label %exit, label %loop, !llvm.loop !0
exit:
  ret void
}

; While it is below: a loop that is entered at or beyond its bound must not run on.
; CHECK-LABEL: define void @below
; CHECK: cotenant.strip:
; CHECK: [[MANY:%.*]] = icmp ugt i64 %{{.*}}, 8192
; CHECK-NEXT: [[INSIDE:%.*]] = icmp slt i64 %{{.*}}, %n
; CHECK-NEXT: select i1 [[INSIDE]], i1 [[MANY]], i1 false
; CHECK: icmp slt i64 %i.next, %cotenant.limit
define void @below(ptr %a, i64 %from, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %from, %entry ], [ %i.next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %i
  store i64 7, ptr %p
  %i.next = add i64 %i, 4
  %more = icmp slt i64 %i.next, %n
  br i1 %more, label %loop, label %exit
exit:
  ret void
}

; No bound: a counter in a register, once in eight iterations of so small a loop, each with its way out.
; CHECK-LABEL: define i64 @chase
; CHECK: loop:
; CHECK-NEXT: %cotenant.left = phi i32 [ 512, %entry ], [ [[LESS:%.*]], %cotenant.tick ], [ 512, %{{.*}} ]
; CHECK: br i1 %done, label %exit, label %loop.1
; CHECK: br i1 %done.7, label %exit, label %cotenant.tick
; CHECK: cotenant.tick:
; CHECK-NEXT: [[LESS]] = sub i32 %cotenant.left, 1
; CHECK-NEXT: icmp eq i32 [[LESS]], 0
; CHECK: threadlocal.address
; REGION-NOT: threadlocal.address
; REGION-LABEL: define i64 @chase
; REGION: threadlocal.address
define i64 @chase(ptr %a, i64 %end) {
entry:
  br label %loop
loop:
  %at = phi i64 [ 1, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %at
  %next = load i64, ptr %p
  %done = icmp eq i64 %next, %end
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %next
}

; Each iteration counted: where its author or its compiler wants no copies, and where size or the debugger matter more.
; CHECK-LABEL: define i64 @as_it_is
; CHECK: %cotenant.left = phi i32 [ 4096, %entry ]
; CHECK-NOT: next.1
; CHECK-LABEL: define i64 @small
; CHECK: %cotenant.left = phi i32 [ 4096, %entry ]
; CHECK-NOT: next.1
; CHECK-LABEL: define i64 @debugged
; CHECK: %cotenant.left = phi i32 [ 4096, %entry ]
; CHECK-NOT: next.1
define i64 @as_it_is(ptr %a, i64 %end) {
entry:
  br label %loop
loop:
  %at = phi i64 [ 1, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %at
  %next = load i64, ptr %p
  %done = icmp eq i64 %next, %end
  br i1 %done, label %exit, label %loop, !llvm.loop !2
exit:
  ret i64 %next
}
define i64 @small(ptr %a, i64 %end) optsize {
entry:
  br label %loop
loop:
  %at = phi i64 [ 1, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %at
  %next = load i64, ptr %p
  %done = icmp eq i64 %next, %end
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %next
}
define i64 @debugged(ptr %a, i64 %end) noinline optnone {
entry:
  br label %loop
loop:
  %at = phi i64 [ 1, %entry ], [ %next, %loop ]
  %p = getelementptr i64, ptr %a, i64 %at
  %next = load i64, ptr %p
  %done = icmp eq i64 %next, %end
  br i1 %done, label %exit, label %loop
exit:
  ret i64 %next
}

; Short loops belong to the loop around them.
; CHECK-LABEL: define void @rows
; CHECK: cotenant.strip:
; CHECK-NOT: {{^cotenant.strip}}
; CHECK: inner:
; CHECK-NOT: threadlocal.address
; CHECK: icmp ne i64 %j.next, 8
; CHECK: cotenant.check:
; CHECK: threadlocal.address
; CHECK: ret void
define void @rows(ptr %a, i64 %n) {
entry:
  br label %outer
outer:
  %i = phi i64 [ 0, %entry ], [ %i.next, %latch ]
  br label %inner
inner:
  %j = phi i64 [ 0, %outer ], [ %j.next, %inner ]
  %p = getelementptr [8 x i64], ptr %a, i64 %i, i64 %j
  store i64 %j, ptr %p
  %j.next = add i64 %j, 1
  %more = icmp ne i64 %j.next, 8
  br i1 %more, label %inner, label %latch
latch:
  %i.next = add i64 %i, 1
  %again = icmp ne i64 %i.next, %n
  br i1 %again, label %outer, label %exit
exit:
  ret void
}

; What calls itself has no loop to mark.
; CHECK-LABEL: define i64 @itself
; CHECK-NEXT: call align 8 ptr @llvm.threadlocal.address
define i64 @itself(i64 %n) {
  %end = icmp eq i64 %n, 0
  br i1 %end, label %return, label %call
call:
  %less = sub i64 %n, 1
  %r = call i64 @itself(i64 %less)
  br label %return
return:
  %s = phi i64 [ 0, %0 ], [ %r, %call ]
  ret i64 %s
}

; No loop, no mark: unless a region names it.
; CHECK-LABEL: define i64 @straight
; CHECK-NEXT: %r = add
; REGION-LABEL: define i64 @straight
; REGION-NEXT: call align 8 ptr @llvm.threadlocal.address
define i64 @straight(i64 %n) {
  %r = add i64 %n, 1
  ret i64 %r
}

!0 = distinct !{!0, !1}
!1 = !{!"llvm.loop.isvectorized", i32 1}
!2 = distinct !{!2, !3}
!3 = !{!"llvm.loop.unroll.disable"}
