;; Proves what is shown when a module names nothing: functions are known by their exports or, the
;; innermost one (function 0), by their number alone.
(module
  (memory (export "memory") 1)
  (func (param i64 i32) (result i64)
    (loop
      (local.set 0 (i64.xor (local.get 0) (i64.shl (local.get 0) (i64.const 13))))
      (local.set 0 (i64.xor (local.get 0) (i64.shr_u (local.get 0) (i64.const 7))))
      (local.set 0 (i64.xor (local.get 0) (i64.shl (local.get 0) (i64.const 17))))
      (br_if 0 (local.tee 1 (i32.sub (local.get 1) (i32.const 1)))))
    (local.get 0))
  (func (export "run") (param i32) (result i64)
    (local i64)
    (local.set 1 (i64.const 1))
    (loop
      (local.set 1 (call 0 (local.get 1) (i32.const 1000)))
      (br_if 0 (local.tee 0 (i32.sub (local.get 0) (i32.const 1)))))
    (local.get 1))
  (func (export "_start") (drop (call 1 (i32.const 350000)))))
