//! A library that components in other languages call. It calls the host below its own functions, where the whole stack can be
//! compared: the caller's and its own.

#![no_std]

use core::hint::black_box;

#[link(wasm_import_module = "wasi:clocks/monotonic-clock@0.2.0")]
unsafe extern "C" {
    safe fn now() -> u64;
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}

#[inline(never)]
fn one_round(value: u32) -> u32 {
    (0..20_000).fold(value, |value, step| black_box(value.wrapping_mul(31).wrapping_add(step)))
}

#[inline(never)]
fn all_rounds(rounds: u32) -> u32 {
    let began = now();
    let value = (0..rounds).fold(1, |value, _| one_round(value));
    value ^ u32::from(now() < began)
}

#[unsafe(export_name = "wlprof:library/sums#sum")]
extern "C" fn sum(rounds: u32) -> u32 {
    all_rounds(rounds)
}
