// Proves stacks: `spin` prints the stack that it is called on, as JavaScript itself says it, and then keeps the processor
// busy for a while. Whatever is sampled meanwhile has to be the same, name by name, line by line, column by column.
import * as std from "qjs:std";
import * as os from "qjs:os";
import { imported } from "./imported.js";
import Imported from "./imported.js";

Error.stackTraceLimit = 64;

globalThis.spin = function spin() {
    print("@\n" + new Error().stack);
    // In native code that asks the host for the time, and in the interpreter.
    for (let round = 0; round < 400; round++) {
        Date.now();
        for (let i = 0; i < 2000; i++);
    }
    return 1;
};

function plain() {
    return spin() + 1;
}

function outer(depth) {
    if (depth > 0) return outer(depth - 1) + 0;
    return (() => {
        const inner = function () {
            return spin();
        };
        return inner() + 1;
    })();
}

class Animal {
    static kinds = (() => spin())();
    #secret = 1;
    field = spin();
    constructor() {
        this.x = spin();
    }
    get sound() {
        return spin() + 1;
    }
    set sound(value) {
        this.x = value + spin();
    }
    speak() {
        return this.sound + 1;
    }
    static make() {
        return new this();
    }
    #hidden() {
        return spin() + this.#secret;
    }
    reveal() {
        return this.#hidden();
    }
    ["computed" + 1]() {
        return spin();
    }
    static {
        spin();
    }
    [Symbol.toPrimitive]() {
        return spin();
    }
    *[Symbol.iterator]() {
        yield spin();
    }
}

class Dog extends Animal {
    constructor() {
        super();
        spin();
    }
    speak() {
        return super.speak() + 1;
    }
}

function* counter(limit) {
    for (let i = 0; i < limit; i++) {
        spin();
        yield i;
    }
}

function* delegating() {
    yield* counter(1);
}

async function later() {
    spin();
    await null;
    spin();
    await 0;
    return plain();
}

async function* stream() {
    spin();
    await null;
    yield spin();
}

const arrow = () => spin();
const object = {
    method() {
        return spin();
    },
    toJSON() {
        return spin();
    },
    valueOf() {
        return spin();
    },
};
const функция = () => spin();
const 名前 = { "お 茶 (x)"() { return spin(); } };

function renamed() {
    return spin();
}
Object.defineProperty(renamed, "name", { value: "other name" });
function nameless() {
    return spin();
}
delete nameless.name;

function native() {
    [1].map(() => spin());
    [2, 1].sort((a, b) => {
        spin();
        return a - b;
    });
    [1].forEach((x) => [x].reduce((sum, y) => sum + spin(), 0));
    "abc".replace(/b/, (match) => {
        spin();
        return match;
    });
    Array.from({ length: 1 }, arrow);
    new Map([[1, 2]]).forEach(() => spin());
    JSON.stringify(object);
    JSON.parse("[1]", (key, value) => (key === "0" ? spin() : value));
    Reflect.apply(plain, null, []);
    Reflect.construct(Dog, []);
    plain.call(null);
    plain.apply(null, []);
    plain.bind(null)();
    new Proxy(plain, {})();
    new Proxy({}, { get: () => spin() }).x;
    new Proxy(plain, { apply: (target) => target() + spin() })();
    `${object + 1}`;
    ((tag) => spin())`x`;
}

function evaluated() {
    eval("spin()");
    (0, eval)("\n  spin()");
    new Function("return spin();")();
    eval("(function made() {\n return spin(); })()");
    std.evalScript("function scripted() { spin(); }\nscripted();");
}

function remaining() {
    const [first] = new Animal();
    [...new Animal()];
    try {
        throw new Error("x");
    } catch {
        spin();
    } finally {
        spin();
    }
    ((x = spin()) => x)();
    new Animal()[Symbol.toPrimitive]();
    `${new Animal()}`;
    imported(() => spin());
    new Imported().run(() => spin());
    функция();
    名前["お 茶 (x)"]();
    renamed();
    nameless();
    spin.call();
    [1].map(renamed.bind(null));
}

async function main() {
    plain();
    outer(0);
    outer(40);
    new Animal().speak();
    new Animal().sound = 1;
    new Animal().reveal();
    new Animal().computed1();
    Dog.make().speak();
    for (const _ of counter(2));
    const generator = delegating();
    generator.next();
    [...counter(1)];
    arrow();
    object.method();
    native();
    evaluated();
    remaining();
    await later();
    await Promise.all([later(), later().then(() => spin())]);
    for await (const _ of stream());
    await new Promise((resolve) => os.setTimeout(() => resolve(spin()), 1));
    queueMicrotask(() => spin());
    await null;
    print("@\ndone");
    // Without freeing the runtime, at which this QuickJS aborts on wasm.
    std.exit(0);
}
main();
