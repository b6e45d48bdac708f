//! Modules that are stepped through, and what is to be seen in each.

use super::step_through;

#[test]
fn every_instruction_of_calls_and_host_calls() {
    let stepped = step_through(
        r#"(module
          (import "" "host" (func $host (param i32) (result i32)))
          (memory 1)
          (table funcref (elem $fib $many))
          (type $unary (func (param i32) (result i32)))
          (func $fib (param i32) (result i32)
            (if (result i32) (i32.lt_s (local.get 0) (i32.const 2))
              (then (call $host (local.get 0)))
              (else (i32.add (call $fib (i32.sub (local.get 0) (i32.const 1)))
                             (call $fib (i32.sub (local.get 0) (i32.const 2)))))))
          (func $many (param i32) (result i32)
            (call $ten (local.get 0) (i32.const 1) (i32.const 2) (i32.const 3) (i32.const 4) (i32.const 5)
                       (i32.const 6) (i32.const 7) (i32.const 8) (i32.const 9)))
          (func $ten (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)
            (memory.fill (i32.const 0) (local.get 1) (i32.const 5000))
            (drop (memory.grow (i32.const 1)))
            (call_indirect (type $unary) (i32.add (local.get 0) (local.get 9)) (i32.const 0)))
          (func (export "run") (result i32)
            (call_indirect (type $unary) (i32.const 1) (i32.const 1))))"#,
        |value| value + 1,
    );
    assert!(stepped > 2000, "{stepped}");
}

#[test]
fn every_instruction_of_tail_calls() {
    let stepped = step_through(
        r#"(module
          (table funcref (elem $few $more))
          (type $nullary (func (param i32) (result i32)))
          (type $many (func (param i32 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i32)))
          (func $few (param i32) (result i32)
            (if (result i32) (i32.eqz (local.get 0))
              (then (i32.const 7))
              (else (return_call $more (i32.sub (local.get 0) (i32.const 1))
                (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5)
                (i64.const 6) (i64.const 7) (i64.const 8) (i64.const 9) (i64.const 10)))))
          (func $more (param i32 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i32)
            (if (i64.ne (local.get 10) (i64.const 10)) (then unreachable))
            (if (i32.and (local.get 0) (i32.const 1))
              (then (return_call_indirect (type $nullary) (local.get 0) (i32.const 0))))
            (return_call $even_more (local.get 0) (local.get 1) (local.get 2) (local.get 3) (local.get 4) (local.get 5)
              (local.get 6) (local.get 7) (local.get 8) (local.get 9) (local.get 10)
              (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4) (i64.const 5) (i64.const 6)))
          (func $even_more (param i32 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64 i64) (result i32)
            (if (i64.ne (local.get 16) (i64.const 6)) (then unreachable))
            (return_call $few (local.get 0)))
          (func (export "run") (result i32)
            (i32.add (call $few (i32.const 21)) (call $few (i32.const 20)))))"#,
        |value| value,
    );
    assert!(stepped > 500, "{stepped}");
}

#[test]
fn every_instruction_of_exceptions() {
    let stepped = step_through(
        r#"(module
          (import "" "host" (func $host (param i32) (result i32)))
          (tag $low (param i32)) (tag $other)
          (func $thrower (param $depth i32)
            (if (i32.eqz (local.get $depth)) (then (throw $low (call $host (i32.const 20)))))
            (call $thrower (i32.sub (local.get $depth) (i32.const 1)))
            (drop (call $host (local.get $depth))))
          (func $passes_on (param $depth i32)
            (block $caught (result exnref)
              (try_table (catch_all_ref $caught)
                (block $unknown (try_table (catch $other $unknown) (call $thrower (local.get $depth)))))
              unreachable)
            (drop (call $host (local.get $depth)))
            throw_ref)
          (func $catches (param $depth i32) (result i32)
            (block $caught (result i32)
              (try_table (catch $low $caught) (call $passes_on (local.get $depth)))
              unreachable)
            (call $host))
          (func (export "run") (result i32)
            (i32.add (call $catches (i32.const 0)) (call $catches (i32.const 9)))))"#,
        |value| value + 1,
    );
    assert!(stepped > 300, "{stepped}");
}

#[test]
fn every_instruction_of_objects_large_memories_and_wide_arithmetic() {
    let stepped = step_through(
        r#"(module
          (import "" "host" (func $host (param i32) (result i32)))
          (memory $near 1) (memory $far i64 1)
          (type $numbers (array (mut i64)))
          (type $list (struct (field $numbers (ref $numbers)) (field $next (ref null $list))))
          (func $made (param $length i32) (result (ref $list))
            (struct.new $list (array.new $numbers (i64.const 5) (i32.const 3))
              (if (result (ref null $list)) (local.get $length)
                (then (call $made (i32.sub (local.get $length) (i32.const 1))))
                (else (ref.null $list)))))
          (func $sum (param $list anyref) (result i64)
            (local $own (ref $list))
            (if (ref.is_null (local.get $list)) (then (return (i64.extend_i32_u (call $host (i32.const 1))))))
            (local.set $own (ref.cast (ref $list) (local.get $list)))
            (array.set $numbers (struct.get $list $numbers (local.get $own)) (i32.const 1) (call $wide (i64.const -7)))
            (i64.add
              (array.get $numbers (struct.get $list $numbers (local.get $own)) (i32.const 1))
              (call $sum (struct.get $list $next (local.get $own)))))
          (func $wide (param i64) (result i64)
            (i64.mul_wide_s (local.get 0) (local.get 0))
            (i64.add128 (i64.const 1) (i64.const 2))
            (i64.store $far (i64.const 65520))
            (i64.store $far (i64.const 65528))
            (memory.copy $near $far (i32.const 16) (i64.const 65520) (i32.const 16))
            (drop (memory.grow $far (i64.const 1)))
            (i64x2.extract_lane 1 (i64x2.add (v128.load $near (i32.const 16)) (v128.load $far (i64.const 65520)))))
          (func (export "run") (result i32)
            (i32.wrap_i64 (call $sum (call $made (i32.const 8))))))"#,
        |value| value + 1,
    );
    assert!(stepped > 300, "{stepped}");
}
