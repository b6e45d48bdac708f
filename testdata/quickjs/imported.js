// A module that another imports.
export function imported(callback) {
    return callback();
}

export default class {
    run(callback) {
        return callback("default");
    }
}
