// Proves that functions are told apart that lie in the same place one after the other: each is made, called by a function
// that is called after it, and freed.
import * as std from "qjs:std";

function callAlpha(made) {
    return made() + 0;
}

function callBetaa(made) {
    return made() + 0;
}

let checksum = 0;
for (let i = 0; i < Number(scriptArgs[1]); i++) {
    const kind = i % 2 ? "Alpha" : "Betaa";
    const made = std.evalScript(`(function made${kind}${i % 7}() {
        let sum = 0;
        for (let i = 0; i < 4000; i++) sum += i;
        return sum;
    })`);
    checksum += kind === "Alpha" ? callAlpha(made) : callBetaa(made);
}
print(checksum);
std.exit(0);
