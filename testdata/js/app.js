// Proves what is shown of SpiderMonkey: `run ROUNDS` keeps every part of the engine busy (its interpreter, its parser and compiler, built-in
// functions, the garbage collector) and calls the host from deep stacks: for the time, for random numbers, and to print.
// With `fail` in the place of ROUNDS the command fails.
import { getArguments } from "wasi:cli/environment@0.2.0";

function digest(value, text) {
  for (let at = 0; at < text.length; at++) value = (Math.imul(value, 31) + text.charCodeAt(at)) | 0;
  return value;
}

function interpret() {
  let sum = 0;
  for (let i = 0; i < 100000; i++) sum = (sum + i * i) % 1000003;
  return sum;
}

function compile(round) {
  const statements = "value = (value * 3 + 1) % 1009;".repeat(400);
  return new Function("value", `${statements} return value;`)(round);
}

function callBuiltIns() {
  const rows = Array.from({ length: 300 }, (_, id) => ({ id: (id * 7919) % 1009, name: `row ${id}` }));
  rows.sort((one, other) => one.id - other.id);
  const text = JSON.stringify(JSON.parse(JSON.stringify(rows)));
  return digest(1, text.replace(/row (\d+)/g, "$1 row"));
}

// What is kept for a while outlives collections of young objects.
function collect() {
  const kept = [];
  for (let i = 0; i < 30000; i++) kept[i % 1000] = { value: i, text: `${i}`, rest: [i, i + 1] };
  return kept.reduce((sum, { value }) => sum + value, 0);
}

function callHost(depth) {
  if (depth > 0) return callHost(depth - 1);
  const bytes = crypto.getRandomValues(new Uint8Array(8));
  return Date.now() > 0 && performance.now() > 0 ? bytes.length : 0;
}

export const run = {
  run() {
    const [, rounds = "1"] = getArguments();
    if (rounds === "fail") throw "as it was told";
    let checksum = 7;
    for (let round = 1; round <= Number(rounds); round++) {
      const parts = [interpret(), compile(round), callBuiltIns(), collect(), callHost(round % 20)];
      checksum = digest(checksum, parts.join());
      console.log(`round ${round}: ${parts}`);
    }
    console.log(`checksum ${checksum}`);
  },
};
