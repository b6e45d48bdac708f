;; Proves stacks of a guest with objects: structures, arrays, casts between them and calls through references that they hold. Each round
;; leaves its tree behind, so that the collector has to run.
(module
  (import "wasi_snapshot_preview1" "sched_yield" (func $yield (result i32)))
  (memory (export "memory") 1)
  (type $numbers (array (mut i64)))
  (rec
    (type $weigh (func (param (ref $tree)) (result i64)))
    (type $tree (sub (struct (field $weigh (ref $weigh)))))
    (type $leaf (sub final $tree (struct (field (ref $weigh)) (field $numbers (ref $numbers)))))
    (type $fork (sub final $tree (struct (field (ref $weigh)) (field $left (mut (ref $tree))) (field $right (ref $tree))))))
  (elem declare func $weigh_leaf $weigh_fork)

  (func $plant (param $depth i32) (param $seed i64) (result (ref $tree))
    (if (i32.eqz (local.get $depth))
      (then (return (struct.new $leaf (ref.func $weigh_leaf) (array.new $numbers (local.get $seed) (i32.const 60))))))
    (local.set $depth (i32.sub (local.get $depth) (i32.const 1)))
    (struct.new $fork
      (ref.func $weigh_fork)
      (call $plant (local.get $depth) (i64.add (local.get $seed) (local.get $seed)))
      (call $plant (local.get $depth) (i64.add (local.get $seed) (i64.const 1)))))

  (func $weigh_leaf (type $weigh)
    (local $numbers (ref $numbers)) (local $at i32) (local $sum i64)
    (local.set $numbers (struct.get $leaf $numbers (ref.cast (ref $leaf) (local.get 0))))
    (loop $more
      (local.set $sum (i64.rotl (i64.add (local.get $sum) (array.get $numbers (local.get $numbers) (local.get $at))) (i64.const 5)))
      (array.set $numbers (local.get $numbers) (local.get $at) (local.get $sum))
      (br_if $more (i32.lt_u (local.tee $at (i32.add (local.get $at) (i32.const 1))) (array.len (local.get $numbers)))))
    (drop (call $yield))
    (local.get $sum))

  (func $weigh_fork (type $weigh)
    (local $fork (ref $fork)) (local $left (ref $tree))
    (local.set $fork (ref.cast (ref $fork) (local.get 0)))
    (local.set $left (struct.get $fork $left (local.get $fork)))
    ;; The tree is of the same weight without its left half being kept.
    (struct.set $fork $left (local.get $fork) (struct.get $fork $right (local.get $fork)))
    (i64.sub
      (call_ref $weigh (local.get $left) (struct.get $tree $weigh (local.get $left)))
      (block $other (result i64)
        (block $is_leaf (result (ref $leaf))
          (br_on_cast $is_leaf (ref $tree) (ref $leaf) (struct.get $fork $right (local.get $fork)))
          (br $other (call $weigh_fork)))
        (call $weigh_leaf))))

  (func $run (export "run") (param $rounds i32) (result i64)
    (local $sum i64)
    (loop $again
      (local.set $sum (i64.add (local.get $sum) (call $weigh_fork (call $plant (i32.const 8) (i64.extend_i32_u (local.get $rounds))))))
      (br_if $again (local.tee $rounds (i32.sub (local.get $rounds) (i32.const 1)))))
    (local.get $sum))

  (func $main (export "_start") (drop (call $run (i32.const 4000)))))
