// Proves that source maps lead to the right lines: `heavy` runs the same loop as `light`, three times as often, in calls that alternate.
// The truth is 75 % to 25 %.

let rounds: i32 = 120000;
let sum: u64 = 88172645463325252;

function step(state: u64, times: i32): u64 {
  for (let i = 0; i < times; i++) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
  }
  return state;
}

function light(state: u64): u64 {
  return step(state, 1000);
}

function heavy(state: u64): u64 {
  return step(state, 3000);
}

export function _start(): void {
  for (let round = 0; round < rounds; round++) {
    sum = heavy(sum);
    sum = light(sum);
  }
}
