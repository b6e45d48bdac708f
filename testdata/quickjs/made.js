// What `renamed.js` loads under several names.
(function madeOfFile() {
    let sum = 0;
    for (let i = 0; i < 4000; i++) sum += i;
    return sum;
})
