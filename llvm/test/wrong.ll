; One line that names what is wrong.
; Holds compile/cc.
; RUN: not env COTENANT_PASS="mode=sleep" %opt < %s 2>&1 | FileCheck %s --check-prefix=MODE
; RUN: not env COTENANT_PASS="mode=naps granularity_ns=5" %opt < %s 2>&1 | FileCheck %s --check-prefix=NUMBER
; RUN: not env COTENANT_PASS="colour=red" %opt < %s 2>&1 | FileCheck %s --check-prefix=KEY
; RUN: not env COTENANT_PASS_REGIONS='[{"file":"a.c"}]' %opt < %s 2>&1 | FileCheck %s --check-prefix=REGION
; RUN: not env COTENANT_PASS_REGIONS='[{"function":"f","first":5,"last":4}]' %opt < %s 2>&1 | FileCheck %s --check-prefix=LINES
; RUN: not env COTENANT_PASS_REGIONS='{' %opt < %s 2>&1 | FileCheck %s --check-prefix=JSON

; MODE: error: cotenant-pass: COTENANT_PASS: mode=sleep is not known; use markers, naps or padding
; NUMBER: error: cotenant-pass: COTENANT_PASS: granularity_ns=5 is not a number from 100000 to 60000000000
; KEY: error: cotenant-pass: COTENANT_PASS: 'colour' is not known; there are mode
; REGION: error: cotenant-pass: COTENANT_PASS_REGIONS: a region has neither a function nor a file with lines
; LINES: error: cotenant-pass: COTENANT_PASS_REGIONS: lines 5 to 4 are no range
; JSON: error: cotenant-pass: COTENANT_PASS_REGIONS: [1:1, byte=1]: Expected object key
define void @f() {
  ret void
}
