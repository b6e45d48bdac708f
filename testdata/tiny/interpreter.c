// An interpreter for a tiny language, for which docs/writing-a-plugin.md writes a plugin.
//
// A program is words between spaces. `: name … ;` defines a function; what stands outside of one runs at once. A number pushes
// itself; + - * < dup over swap drop work on the stack; `if … else … then` and `begin … until` decide by what they pop; `.`
// prints; `trace` prints the call stack, innermost function first; \ begins a comment.
//
//   tiny.wasm FILE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum operation { PUSH, CALL, RETURN, JUMP, JUMP_IF_ZERO, ADD, SUBTRACT, MULTIPLY, LESS, DUP, OVER, SWAP, DROP, PRINT, TRACE };

static const char *const BUILTINS[] = {
    [ADD] = "+", [SUBTRACT] = "-", [MULTIPLY] = "*", [LESS] = "<",   [DUP] = "dup",
    [OVER] = "over", [SWAP] = "swap", [DROP] = "drop", [PRINT] = ".", [TRACE] = "trace",
};

struct instruction {
    uint16_t operation;
    uint16_t line;
    int32_t operand;
};

struct function {
    const char *name;
    const char *file;
    uint32_t start;
};

struct frame {
    struct frame *caller;
    const struct function *function;
    // Behind the instruction that is running.
    const struct instruction *next;
};

// Volatile: what a profiler reads from outside must be what is going on.
struct machine {
    struct frame *volatile top;
    struct instruction code[10000];
    struct function functions[500];
    struct frame frames[1000];
};

struct machine machine;

static uint32_t code_length, function_count, line = 1;
static const char *file;

static _Noreturn void fail(const char *what, const char *detail) {
    fprintf(stderr, "%s:%u: %s %s\n", file, line, what, detail);
    exit(1);
}

static void emit(enum operation operation, int32_t operand) {
    if (code_length == sizeof machine.code / sizeof *machine.code) fail("the program is too long", "");
    machine.code[code_length++] = (struct instruction){operation, line, operand};
}

static void trace(void) {
    for (struct frame *frame = machine.top; frame; frame = frame->caller)
        printf("  at %s %s:%u\n", frame->function->name, frame->function->file, frame->next[-1].line);
    // Now, so that whoever looks at the call of the host sees the same stack.
    fflush(stdout);
}

static void call(const struct function *function) {
    struct frame *volatile *top = &machine.top;
    struct frame *frame = *top ? *top + 1 : machine.frames;
    if (frame == machine.frames + sizeof machine.frames / sizeof *machine.frames) fail("too deep in", function->name);
    volatile struct frame *fresh = frame;
    fresh->caller = *top;
    fresh->function = function;
    fresh->next = machine.code + function->start + 1;
    *top = frame;
}

// Runs a function to its end.
static void run(const struct function *function) {
    static int64_t stack[1000];
    int64_t *sp = stack;
    call(function);
    const struct instruction *next = machine.code + function->start;
    for (;;) {
        const struct instruction *now = next++;
        ((volatile struct frame *)machine.top)->next = next;
        switch ((enum operation)now->operation) {
        case PUSH: *sp++ = now->operand; break;
        case CALL:
            call(&machine.functions[now->operand]);
            next = machine.code + machine.functions[now->operand].start;
            break;
        case RETURN:
            machine.top = machine.top->caller;
            if (!machine.top) return;
            next = machine.top->next;
            break;
        case JUMP: next = machine.code + now->operand; break;
        case JUMP_IF_ZERO:
            if (!*--sp) next = machine.code + now->operand;
            break;
        case ADD: sp--, sp[-1] += sp[0]; break;
        case SUBTRACT: sp--, sp[-1] -= sp[0]; break;
        case MULTIPLY: sp--, sp[-1] *= sp[0]; break;
        case LESS: sp--, sp[-1] = sp[-1] < sp[0]; break;
        case DUP: sp[0] = sp[-1], sp++; break;
        case OVER: sp[0] = sp[-2], sp++; break;
        case SWAP: sp[0] = sp[-1], sp[-1] = sp[-2], sp[-2] = sp[0]; break;
        case DROP: sp--; break;
        case PRINT: printf("%lld\n", (long long)*--sp); break;
        case TRACE: trace(); break;
        }
        if (sp < stack || sp > stack + sizeof stack / sizeof *stack - 2) fail("the stack is empty or full in", function->name);
    }
}

// Compiles one word. Gives false for what it does not know.
static int compile(const char *word) {
    static uint32_t open[100], depth;
    char *end;
    long number = strtol(word, &end, 10);
    if (!*end) return emit(PUSH, number), 1;
    if (!strcmp(word, "if")) return open[depth++] = code_length, emit(JUMP_IF_ZERO, 0), 1;
    if (!strcmp(word, "begin")) return open[depth++] = code_length, 1;
    if (depth && !strcmp(word, "until")) return emit(JUMP_IF_ZERO, open[--depth]), 1;
    if (depth && !strcmp(word, "then")) return machine.code[open[--depth]].operand = code_length, 1;
    if (depth && !strcmp(word, "else")) {
        emit(JUMP, 0);
        machine.code[open[depth - 1]].operand = code_length;
        return open[depth - 1] = code_length - 1, 1;
    }
    for (uint32_t i = function_count; i-- > 0;)
        if (!strcmp(word, machine.functions[i].name)) return emit(CALL, i), 1;
    for (uint32_t i = 0; i < sizeof BUILTINS / sizeof *BUILTINS; i++)
        if (BUILTINS[i] && !strcmp(word, BUILTINS[i])) return emit(i, 0), 1;
    return 0;
}

static struct function *define(const char *name) {
    if (function_count == sizeof machine.functions / sizeof *machine.functions) fail("too many functions:", name);
    struct function *function = &machine.functions[function_count++];
    *function = (struct function){strdup(name), file, code_length};
    return function;
}

// The next word; false at the end.
static int read_word(FILE *source, char word[64]) {
    int length = 0, letter;
    while ((letter = getc(source)) != EOF) {
        if (letter == '\\' && !length)
            while ((letter = getc(source)) != EOF && letter != '\n') {}
        if (letter > ' ' && length < 63) {
            word[length++] = (char)letter;
        } else if (length) {
            ungetc(letter, source);
            break;
        } else if (letter == '\n') {
            line++;
        }
    }
    word[length] = 0;
    return length;
}

int main(int argc, char **argv) {
    file = argc > 1 ? argv[1] : "";
    FILE *source = fopen(file, "r");
    if (!source) fail("cannot be read", "");
    char word[64];
    struct function *program = define("program");
    uint32_t beginning = code_length;
    while (read_word(source, word)) {
        if (!strcmp(word, ":")) {
            // What stood outside of functions so far runs first.
            emit(RETURN, 0);
            program->start = beginning;
            run(program);
            if (!read_word(source, word)) fail("a function without a name", "");
            define(word);
            while (read_word(source, word) && strcmp(word, ";"))
                if (!compile(word)) fail("unknown word", word);
            emit(RETURN, 0);
            beginning = code_length;
        } else if (!compile(word)) {
            fail("unknown word", word);
        }
    }
    emit(RETURN, 0);
    program->start = beginning;
    run(program);
    return 0;
}
