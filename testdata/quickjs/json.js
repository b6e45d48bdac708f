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
const spent = { build: 0, encode: 0, decode: 0, scan: 0 };

function timed(step, argument) {
    const start = performance.now();
    const result = step(argument);
    spent[step.name] += performance.now() - start;
    return result;
}

let checksum = 0;
for (let turn = 0; turn < turns; turn++) {
    const text = timed(encode, timed(build, 100));
    checksum += timed(scan, text) + timed(decode, text).length;
}
print(checksum);
const all = Object.values(spent).reduce((sum, part) => sum + part);
for (const step in spent) print(`@ ${step} ${(100 * spent[step]) / all}`);
std.exit(0);
