// Proves that functions are told apart that lie in the same place one after the other: each is made, called by a function
// that is called after what tells it from the others, and freed.
import * as std from "qjs:std";

function callAlpha(made) {
    return made() + 0;
}

function callBetaa(made) {
    return made() + 0;
}

const body = `() {
        let sum = 0;
        for (let i = 0; i < 4000; i++) sum += i;
        return sum;
    })`;
const long = "WithANameThatBeginsAsThatOfAllOthersDoesAndIsAsLongAsTheirs".repeat(6);
// Lines that all have in common, and a loop that some have before a gap and others after it.
const lines = "sum += now();\n".repeat(12);
const [loop, gap] = ["for (let i = 0; i < 400; i++) sum += now();\n", "\n\n"];
globalThis.now = () => 1;

// By what they are told: a short name, a long one, their file, their lines.
const ways = [
    (kind, i) => std.evalScript(`(function made${kind}${i % 7}${body}`),
    (kind, i) => std.evalScript(`(function made${long}${kind}${i % 7}${body}`),
    // Another name of the same file, just as long.
    (kind) => std.loadScript(`./././././././././././${kind === "Alpha" ? "./" : "//"}./././././././././././made.js`),
    (kind) => {
        const rest = kind === "Alpha" ? loop + gap : gap + loop;
        return std.evalScript(`(function madeOfLines() {\nlet sum = 0;\n${lines}${rest}return sum; })`);
    },
];

let checksum = 0;
for (let i = 0; i < Number(scriptArgs[1]); i++) {
    // Pairs of each kind, as places may be taken in turn, and a while of each way.
    const kind = i & 2 ? "Alpha" : "Betaa";
    const made = ways[(i >> 5) % ways.length](kind, i);
    checksum += kind === "Alpha" ? callAlpha(made) : callBetaa(made);
}
print(checksum);
std.exit(0);
