// Proves shares of native code, and that it stands under the JavaScript that called it: measures itself how its time is
// shared.
import * as std from "qjs:std";

function build(count) {
    const rows = [];
    for (let i = 0; i < count; i++) {
        rows.push({ id: i, name: "row " + i, tags: ["a", "b", String(i)], value: i * 1.5 });
    }
    return rows;
}

function encode(rows) {
    return JSON.stringify(rows);
}

function decode(text) {
    return JSON.parse(text);
}

function scan(text) {
    return text.replace(/row (\d+)/g, "r$1").length;
}

const turns = Number(scriptArgs[1]);
const spent = { build: [], encode: [], decode: [], scan: [] };

function timed(step, argument) {
    const start = performance.now();
    const result = step(argument);
    spent[step.name].push(performance.now() - start);
    return result;
}

let checksum = 0;
for (let turn = 0; turn < turns; turn++) {
    const text = timed(encode, timed(build, 100));
    checksum += timed(scan, text) + timed(decode, text).length;
}
print(checksum);

// The clock runs on while another program has the processor, for much longer than a step takes, collections included.
function total(times) {
    const median = times.toSorted((a, b) => a - b)[times.length >> 1];
    return times.reduce((sum, time) => sum + (time > median + 0.7 ? median : time), 0);
}
const all = Object.values(spent).reduce((sum, times) => sum + total(times), 0);
for (const step in spent) print(`@ ${step} ${(100 * total(spent[step])) / all}`);
std.exit(0);
