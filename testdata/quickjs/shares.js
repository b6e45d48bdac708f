// Proves shares: the same work, in functions that have 60, 30 and 10 percent of it, and in recursion of which three calls
// of four are of one kind. They take turns so quickly that what else the machine does meanwhile hits all alike.
import * as std from "qjs:std";

function heavy(rounds) {
    let sum = 0;
    for (let i = 0; i < rounds; i++) sum = (sum * 31 + i) | 0;
    return sum;
}

function medium(rounds) {
    let sum = 0;
    for (let i = 0; i < rounds; i++) sum = (sum * 31 + i) | 0;
    return sum;
}

function light(rounds) {
    let sum = 0;
    for (let i = 0; i < rounds; i++) sum = (sum * 31 + i) | 0;
    return sum;
}

function fibMost(n) {
    return n < 2 ? n : fibMost(n - 1) + fibMost(n - 2);
}

function fibSome(n) {
    return n < 2 ? n : fibSome(n - 1) + fibSome(n - 2);
}

let checksum = 0;
const turns = Number(scriptArgs[2]);
for (let turn = 0; turn < 20 * turns; turn++) {
    if (scriptArgs[1] === "loops") {
        checksum += heavy(3000) + medium(1500) + light(500);
    } else {
        for (let i = 0; i < 4; i++) checksum += i === 3 ? fibSome(12) : fibMost(12);
    }
}
print(checksum);
std.exit(0);
