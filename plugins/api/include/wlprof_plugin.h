/* Generated from plugins/api/src/abi/mod.rs by cargo xtask header.
 *
 * The C ABI between wlprof and plugins that are dynamic libraries.
 *
 * # Versions
 * A library exports one symbol, wlprof_plugin, a constant wlprof_plugin_t. It begins with a magic number and the version of
 * the ABI, which wlprof reads from the file before it loads the library. Another WLPROF_ABI_MAJOR is refused. Within a major
 * version structures that say their size grow at their end, and no others: whoever is given one looks at no field beyond
 * its size, and takes what is not there as missing. Functions that may be missing are null then; it is said where.
 *
 * # Ownership
 * Whoever makes something frees it. Texts and structures given to a function are borrowed for that call, unless it says
 * otherwise; the other side copies what it keeps.
 *
 * # Threads
 * Calls into one wlprof_program_t never overlap, nor do those into one wlprof_walker_t. Calls into different ones may, and into a program
 * and its walkers. wlprof_walker_t.walk runs in a signal handler on the guest's thread, which stands still in the middle of an
 * instruction: no input or output, no lock that anything outside the plugin takes, bounded time, at most 200 KiB of stack. It
 * may allocate memory if wlprof_stack_t.may_allocate says so. It waits for no lock that it shares with other walkers or with the
 * program, but ends with WLPROF_WALK_END_BUSY: whoever holds the lock may have been interrupted. wlprof_walker_t.threads, and
 * wlprof_program_t.symbolize and wlprof_program_t.labels when the user asks for the stacks of a running guest, may run there as well:
 * they may take longer and allocate, but touch no files. All else runs as ordinary code.
 *
 * # Errors
 * Functions return what went wrong. Nothing may unwind or jump through a function of the other side.
 */

#ifndef WLPROF_PLUGIN_H
#define WLPROF_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// First field of what it exports: wlprofpl in ASCII, as a little-endian number.
#define WLPROF_PLUGIN_MAGIC 7813857982335183991

// Raised when something changes that an older side would misread.
#define WLPROF_ABI_MAJOR 1

// Raised when something is added.
#define WLPROF_ABI_MINOR 0

// Another language.
#define WLPROF_DETECTION_NO 0

// This one, and the module can be attached.
#define WLPROF_DETECTION_YES 1

// This one, in a form that the plugin cannot walk.
#define WLPROF_DETECTION_UNSUPPORTED 2

// The plugin failed in a way that it did not expect.
#define WLPROF_DETECTION_FAILED 3

// walk keeps to wlprof_stack_t.may_allocate.
#define WLPROF_WALKER_WALKS_WITHOUT_ALLOCATING 1

// The plugin's own, known by a key. Equal keys are equal frames.
#define WLPROF_FRAME_KIND_OWN 0

// A wasm frame.
#define WLPROF_FRAME_KIND_WASM 1

// Frames that the plugin left out, one or many: shown as [elided], and not asked about.
#define WLPROF_FRAME_KIND_ELIDED 2

// At the root.
#define WLPROF_WALK_END_COMPLETE 0

// There is no room for more frames.
#define WLPROF_WALK_END_TOO_DEEP 1

// A pointer led outside the guest's memory.
#define WLPROF_WALK_END_BAD_POINTER 2

// The stack led back into itself.
#define WLPROF_WALK_END_CYCLE 3

// What was read is not what the runtime's layout promises.
#define WLPROF_WALK_END_INCONSISTENT 4

// The runtime has no stack at this moment.
#define WLPROF_WALK_END_NO_STACK 5

// It would have had to allocate memory and must not.
#define WLPROF_WALK_END_WOULD_ALLOCATE 6

// The plugin failed in a way that it did not expect.
#define WLPROF_WALK_END_FAILED 7

// It would have had to wait for another thread and must not. What it wrote is dropped.
#define WLPROF_WALK_END_BUSY 8

// The user's own, and what nothing better is known of.
#define WLPROF_CATEGORY_USER 0

// The standard library and packages.
#define WLPROF_CATEGORY_LIBRARY 1

// The language's runtime.
#define WLPROF_CATEGORY_RUNTIME 2

// The garbage collector.
#define WLPROF_CATEGORY_GARBAGE_COLLECTOR 3

// An interpreter's own code.
#define WLPROF_CATEGORY_INTERPRETER 4

// Not known by this plugin.
#define WLPROF_CATEGORY_UNKNOWN 4294967295

// As malloc(size).
#define WLPROF_ALLOCATOR_CALL_MALLOC 0

// As calloc(count, size).
#define WLPROF_ALLOCATOR_CALL_CALLOC 1

// As realloc(block, size).
#define WLPROF_ALLOCATOR_CALL_REALLOC 2

// As aligned_alloc(alignment, size).
#define WLPROF_ALLOCATOR_CALL_ALIGNED_ALLOC 3

// As posix_memalign(result, alignment, size).
#define WLPROF_ALLOCATOR_CALL_POSIX_MEMALIGN 4

// As free(block).
#define WLPROF_ALLOCATOR_CALL_FREE 5

// A function of a module that is called for memory. All its parameters, and its result if it has one, are 32 bits wide.
typedef struct wlprof_allocator_t {
  // Size of this structure in bytes.
  size_t size;
  // Its index in the module.
  uint32_t function;
  // How it is called: one of WLPROF_ALLOCATOR_CALL_*. One of a kind that is not among them is left out.
  uint32_t call;
  // Parameters that come before those of the call, and mean nothing to anybody else: an arena, say.
  uint32_t leading_parameters;
  // Parameters that come after them: what a garbage collector should know of the block, say.
  uint32_t trailing_parameters;
} wlprof_allocator_t;

// Receives allocators. It is wlprof's.
typedef struct wlprof_allocators_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more allocator.
  void (*add)(const struct wlprof_allocators_t *allocators, const struct wlprof_allocator_t *allocator);
} wlprof_allocators_t;

// Bytes, UTF-8 where they are text. Not terminated by anything.
typedef struct wlprof_bytes_t {
  // The first one; may be null if there are none.
  const uint8_t *data;
  // How many there are.
  size_t length;
} wlprof_bytes_t;

// A frame of the wasm stack.
typedef struct wlprof_wasm_frame_t {
  // The module: 0 is the one that was attached, and any other its sibling with that number less 1.
  uint32_t module;
  // The function's index in the module, imports first.
  uint32_t function;
  // Where the frame stands, as an offset from the start of the code section's payload, the address space of wasm DWARF:
  // the interrupted instruction (leaf) or the call instruction, not the one it returns to.
  uint32_t code_offset;
} wlprof_wasm_frame_t;

// What identifies a frame until it is named.
typedef struct wlprof_frame_key_t {
  // One of WLPROF_FRAME_KIND_*.
  uint32_t kind;
  // The wasm frame, if it is one; else zeroes.
  struct wlprof_wasm_frame_t wasm;
  // The plugin's own key, if it is that; else zero.
  uint64_t value;
} wlprof_frame_key_t;

// A stopped guest. It is wlprof's, and valid for the call that it was given to.
typedef struct wlprof_guest_t {
  // Size of this structure in bytes.
  size_t size;
  // Size of its memory in bytes.
  uint64_t memory_size;
  // Copies length bytes at address to buffer. false if any of them is outside the memory; buffer is unspecified
  // then.
  bool (*read)(const struct wlprof_guest_t *guest, uint64_t address, void *buffer, size_t length);
  // The value of a wanted global, an i32 zero-extended. false if there is none.
  bool (*global)(const struct wlprof_guest_t *guest, uint32_t index, uint64_t *value);
  // The memory itself, memory_size bytes to be read in place during this call: what read does, without the call. Null where
  // only read can. Never to be written.
  const uint8_t *memory;
} wlprof_guest_t;

// What a stack has allocated by the account of the language's runtime, as far as its allocations were sampled: nothing is
// scaled.
typedef struct wlprof_heap_bucket_t {
  // Size of this structure in bytes.
  size_t size;
  // The stack, leaf first: the code that allocated, without the runtime's allocator.
  const struct wlprof_frame_key_t *frames;
  // How many frames there are.
  size_t frame_count;
  // Blocks that were allocated and sampled.
  uint64_t allocated_blocks;
  // Their bytes.
  uint64_t allocated_bytes;
  // Of the blocks, how many have been freed.
  uint64_t freed_blocks;
  // Their bytes.
  uint64_t freed_bytes;
} wlprof_heap_bucket_t;

// Receives buckets. It is wlprof's.
typedef struct wlprof_heap_buckets_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more bucket.
  void (*add)(const struct wlprof_heap_buckets_t *buckets, const struct wlprof_heap_bucket_t *bucket);
} wlprof_heap_buckets_t;

// Something that a thread belongs to.
typedef struct wlprof_label_t {
  // What it says.
  struct wlprof_bytes_t name;
  // Which one.
  struct wlprof_bytes_t value;
} wlprof_label_t;

// Receives labels. It is wlprof's.
typedef struct wlprof_labels_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more label.
  void (*add)(const struct wlprof_labels_t *labels, struct wlprof_bytes_t name, struct wlprof_bytes_t value);
} wlprof_labels_t;

// Where a member lies in its structure.
typedef struct wlprof_member_t {
  // Its offset in bytes; for a bit-field, that of the unit that it is stored in.
  uint64_t offset;
  // Its size in bytes, or that of the unit. 0 for a flexible array.
  uint64_t size;
  // Of a bit-field: its lowest bit in the unit.
  uint32_t first_bit;
  // Of a bit-field: how many bits it has. 0 if it is none.
  uint32_t bit_count;
} wlprof_member_t;

// A module of the guest. It is wlprof's; what its functions give is valid for the call that it was given to.
typedef struct wlprof_module_t {
  // Size of this structure in bytes.
  size_t size;
  // How it is called in profiles.
  struct wlprof_bytes_t (*name)(const struct wlprof_module_t *module);
  // All of it, in binary form.
  struct wlprof_bytes_t (*bytes)(const struct wlprof_module_t *module);
  // The payload of the first custom section of that name, debug sections in a file of their own included. false if
  // there is none.
  bool (*custom_section)(const struct wlprof_module_t *module,
                         struct wlprof_bytes_t name,
                         struct wlprof_bytes_t *section);
  // How many functions it imports. They have the first indices.
  uint32_t (*function_import_count)(const struct wlprof_module_t *module);
  // Module and name of an import. false past the end.
  bool (*function_import)(const struct wlprof_module_t *module,
                          uint32_t index,
                          struct wlprof_bytes_t *from,
                          struct wlprof_bytes_t *name);
  // Where a function's body begins and ends, in offsets from the start of the code section's payload. false for
  // imports and past the end.
  bool (*function_body)(const struct wlprof_module_t *module, uint32_t index, uint32_t *start, uint32_t *end);
  // A function's name from the name section or an export, undemangled. false if it has none.
  bool (*function_name)(const struct wlprof_module_t *module, uint32_t index, struct wlprof_bytes_t *name);
  // Index of the global that is exported by that name, or else called so in the name section, or else imported by that
  // name, whatever it is imported from: __memory_base. false if there is none.
  bool (*global_named)(const struct wlprof_module_t *module, struct wlprof_bytes_t name, uint32_t *index);
  // By the module's DWARF, the address in the guest's memory of a global or static variable. false without DWARF and if
  // it has none of that name.
  bool (*variable_address)(const struct wlprof_module_t *module, struct wlprof_bytes_t name, uint64_t *address);
  // By the module's DWARF, where a member lies in a structure: structure is its tag or a typedef, name the member's
  // name. Members of members have dots in their names.
  bool (*member)(const struct wlprof_module_t *module,
                 struct wlprof_bytes_t structure,
                 struct wlprof_bytes_t name,
                 struct wlprof_member_t *member);
  // By the module's DWARF, the size in bytes of a type: a tag, or a typedef.
  bool (*type_size)(const struct wlprof_module_t *module, struct wlprof_bytes_t name, uint64_t *size);
  // By the module's DWARF, the value of an enumerator.
  bool (*enumerator)(const struct wlprof_module_t *module, struct wlprof_bytes_t name, int64_t *value);
  // Index of the function that is called so by function_name, or else exported so; the first of several. false if there
  // is none.
  bool (*function_named)(const struct wlprof_module_t *module, struct wlprof_bytes_t name, uint32_t *index);
  // The function that an element of a table is before the module runs, by its active element segments: what a function
  // pointer is, in table 0 for C. false if nothing is there, or where it is is not a constant.
  bool (*table_function)(const struct wlprof_module_t *module, uint32_t table, uint64_t element, uint32_t *function);
  // Copies length bytes that the first memory has at address before the guest runs to buffer: those of the active data
  // segments of all modules that work on it, and zeroes where there are none; segments whose place is not a constant, and
  // passive ones, are not seen. false if any of them is outside of what that memory begins with.
  bool (*initial_data)(const struct wlprof_module_t *module, uint64_t address, void *buffer, size_t length);
  // SHA-256 of the code section's payload, 32 bytes: which build this is, even if it is stripped.
  struct wlprof_bytes_t (*code_hash)(const struct wlprof_module_t *module);
  // How many other modules work on the same memory.
  uint32_t (*sibling_count)(const struct wlprof_module_t *module);
  // One of them, from 0 on: frames in it have its index plus 1 as wlprof_wasm_frame_t.module. Null past the end. A sibling has none
  // itself.
  const struct wlprof_module_t *(*sibling)(const struct wlprof_module_t *module, uint32_t index);
} wlprof_module_t;

// Receives texts. It is wlprof's.
typedef struct wlprof_texts_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more text.
  void (*add)(const struct wlprof_texts_t *texts, struct wlprof_bytes_t text);
} wlprof_texts_t;

// A frame in a wlprof_stack_t.
typedef struct wlprof_stack_frame_t {
  // One of WLPROF_FRAME_KIND_*.
  uint32_t kind;
  // Zero.
  uint32_t reserved;
  // The plugin's own key, or the index in the wasm stack; zero for what is elided.
  uint64_t value;
} wlprof_stack_frame_t;

// Room for one stack.
typedef struct wlprof_stack_t {
  // Size of this structure in bytes.
  size_t size;
  // Where frames go, leaf first.
  struct wlprof_stack_frame_t *frames;
  // How many there is room for: 2048. What does not fit is left out at the root, and the walk ends with
  // WLPROF_WALK_END_TOO_DEEP; or in the middle, with a frame of WLPROF_FRAME_KIND_ELIDED there.
  size_t capacity;
  // How many there are. The plugin counts them.
  size_t length;
  // A key for what else the stack belongs to, which wlprof_program_t.labels spells out later.
  uint64_t labels;
  // Whether there is one: not 0 if so.
  uint8_t has_labels;
  // Whether memory may be allocated and freed during this walk.
  bool may_allocate;
  // Where more such keys go: the stack has the labels of all of them.
  uint64_t *label_keys;
  // How many of them there is room for.
  size_t label_capacity;
  // How many of them there are. The plugin counts them.
  size_t label_count;
} wlprof_stack_t;

// A thread of the language's own.
typedef struct wlprof_thread_t {
  // Size of this structure in bytes.
  size_t size;
  // What the language calls it.
  struct wlprof_bytes_t name;
  // What it does or waits for.
  struct wlprof_bytes_t state;
  // Its frames, leaf first.
  const struct wlprof_frame_key_t *frames;
  // How many there are.
  size_t frame_count;
  // One of WLPROF_WALK_END_*.
  uint32_t end;
  // Whether it is what the guest runs right now: not 0 if so.
  uint8_t is_running;
  // Whether the next two are known: not 0 if so.
  uint8_t has_creator;
  // The name of the thread that started it.
  struct wlprof_bytes_t creator;
  // The statement that started it.
  struct wlprof_frame_key_t creator_frame;
  // What else it belongs to.
  const struct wlprof_label_t *labels;
  // How many there are.
  size_t label_count;
} wlprof_thread_t;

// Receives threads. It is wlprof's.
typedef struct wlprof_threads_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more thread.
  void (*add)(const struct wlprof_threads_t *threads, const struct wlprof_thread_t *thread);
} wlprof_threads_t;

// Reads the stacks of the instances that work on one memory. Made by wlprof_program_t.walker; a plugin puts what it needs behind it.
typedef struct wlprof_walker_t {
  // Size of this structure in bytes.
  size_t size;
  // Of WLPROF_WALKER_*.
  uint32_t flags;
  // Ends the walker and frees it. May be missing.
  void (*destroy)(struct wlprof_walker_t *walker);
  // Reads the stack of a stopped guest into stack, leaf first, and gives one of WLPROF_WALK_END_*. wasm is the wasm stack,
  // leaf first, of wasm_count frames: it may be empty, and is cut at 2048. If no frame is written, the wasm stack stands
  // in.
  uint32_t (*walk)(struct wlprof_walker_t *walker,
                   const struct wlprof_guest_t *guest,
                   const struct wlprof_wasm_frame_t *wasm,
                   size_t wasm_count,
                   struct wlprof_stack_t *stack);
  // Tells threads of every thread of a stopped guest. May be missing: what walk gives is shown then, with its labels, of
  // which one called state says what the guest does.
  void (*threads)(struct wlprof_walker_t *walker,
                  const struct wlprof_guest_t *guest,
                  const struct wlprof_wasm_frame_t *wasm,
                  size_t wasm_count,
                  const struct wlprof_threads_t *threads);
  // Tells buckets what the runtime's own heap profiler has counted so far, and writes how many bytes are allocated between
  // two of its samples, on average: what the program has set, if it has; 0 if it takes none. Gives one of WLPROF_WALK_END_*: what
  // buckets was told is dropped if that is not WLPROF_WALK_END_COMPLETE. Called in a host call of the guest's or after its
  // last instruction: it may take milliseconds and allocate. May be missing.
  uint32_t (*heap_profile)(struct wlprof_walker_t *walker,
                           const struct wlprof_guest_t *guest,
                           const struct wlprof_heap_buckets_t *buckets,
                           uint64_t *rate);
} wlprof_walker_t;

// A frame in the terms of the source language. Empty texts and zeroes are unknown.
typedef struct wlprof_source_frame_t {
  // Size of this structure in bytes.
  size_t size;
  // The function's name, demangled.
  struct wlprof_bytes_t function;
  // The name the linker knows, where it differs.
  struct wlprof_bytes_t linkage_name;
  // Its source file.
  struct wlprof_bytes_t file;
  // The line at which it is declared, from 1.
  uint32_t function_line;
  // The line of the frame, from 1.
  uint32_t line;
  // The column, from 1.
  uint32_t column;
  // One of WLPROF_CATEGORY_*.
  uint32_t category;
} wlprof_source_frame_t;

// Receives source frames. It is wlprof's.
typedef struct wlprof_source_frames_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more frame.
  void (*add)(const struct wlprof_source_frames_t *frames, const struct wlprof_source_frame_t *frame);
} wlprof_source_frames_t;

// Bytes to be written into a guest's memory before it runs.
typedef struct wlprof_memory_patch_t {
  // Size of this structure in bytes.
  size_t size;
  // Where, in the first memory.
  uint64_t address;
  // What has to be there, one of these, each as long as bytes: else nothing of all patches is written.
  const struct wlprof_bytes_t *expected;
  // How many there are.
  size_t expected_count;
  // What is to be there.
  struct wlprof_bytes_t bytes;
} wlprof_memory_patch_t;

// Receives patches. It is wlprof's.
typedef struct wlprof_memory_patches_t {
  // Size of this structure in bytes.
  size_t size;
  // Takes one more patch.
  void (*add)(const struct wlprof_memory_patches_t *patches, const struct wlprof_memory_patch_t *patch);
} wlprof_memory_patches_t;

// What a language knows of one module: it makes the walkers of its instances and names what they find. Made by
// wlprof_language_t.attach; a plugin puts what it needs behind it. It is destroyed after all its walkers.
typedef struct wlprof_program_t {
  // Size of this structure in bytes.
  size_t size;
  // Indices of the globals that wlprof_walker_t.walk reads, of the attached module, those that it imports included; they stay while
  // the program does.
  const uint32_t *wanted_globals;
  // How many there are.
  size_t wanted_global_count;
  // Ends the program and frees it. May be missing, as may all that follow.
  void (*destroy)(struct wlprof_program_t *program);
  // Makes a walker for instances of the module, on a memory of their own. It takes microseconds: what was read of the module is
  // shared. A key means the same to the program and all its walkers, also when these are destroyed. Null, or missing, if stacks
  // are the wasm stack, and only named by the plugin.
  struct wlprof_walker_t *(*walker)(struct wlprof_program_t *program);
  // Tells frames what a frame is: innermost inlined function first, the function itself last, nothing if it is unknown.
  // Asked once of each of its own frames that was sampled; and of wasm frames, before DWARF is.
  void (*symbolize)(struct wlprof_program_t *program,
                    struct wlprof_frame_key_t frame,
                    const struct wlprof_source_frames_t *frames);
  // A category of WLPROF_CATEGORY_* for a wasm frame that DWARF or the name section has named, or WLPROF_CATEGORY_UNKNOWN; frames
  // that symbolize names say theirs themselves.
  uint32_t (*categorize)(struct wlprof_program_t *program, const struct wlprof_source_frame_t *frame);
  // Tells labels what the labels of a key are. Asked once of each key.
  void (*labels)(struct wlprof_program_t *program, uint64_t key, const struct wlprof_labels_t *labels);
  // Tells warnings what could not be read so far, in sentences for the user.
  void (*warnings)(struct wlprof_program_t *program, const struct wlprof_texts_t *warnings);
  // Tells allocators by which functions the program allocates, if those that C's library has by their usual names are not
  // there, or are not all: of an interpreter without names, or with an allocator of its own above C's. They take the place of
  // C's. Tells missed what of the program's allocations will not be seen even so, in sentences for the user. Asked where they
  // are wanted, with the module that was attached. Of functions that call each other through tables, only those called as
  // realloc may be among them together with what they call.
  void (*allocators)(struct wlprof_program_t *program,
                     const struct wlprof_module_t *module,
                     const struct wlprof_allocators_t *allocators,
                     const struct wlprof_texts_t *missed);
  // Tells patches what to write into the guest's memory before it runs for its runtime's own heap profiler to sample an
  // allocation each rate bytes, 1 for every one. Nothing if it has none that can be switched on, or the guest does so
  // itself.
  void (*switch_heap_profiler_on)(struct wlprof_program_t *program,
                                  uint64_t rate,
                                  const struct wlprof_memory_patches_t *patches);
} wlprof_program_t;

// A language that a plugin knows.
typedef struct wlprof_language_t {
  // Size of this structure in bytes.
  size_t size;
  // The name that --lang takes, lower case.
  struct wlprof_bytes_t name;
  // Whether a module is in this language: one of WLPROF_DETECTION_*. answer gets what was found, and after that, if that
  // is not supported, what is.
  uint32_t (*detect)(const struct wlprof_language_t *language,
                     const struct wlprof_module_t *module,
                     const struct wlprof_texts_t *answer);
  // Reads what never changes of a module. Null if that fails; error gets the reason, in a sentence for the user.
  struct wlprof_program_t *(*attach)(const struct wlprof_language_t *language,
                                     const struct wlprof_module_t *module,
                                     const struct wlprof_texts_t *error);
  // Tells library where its programs look for their library, if there is such a place, and after that by which files it
  // is known, as paths in it: one of them has to be there. May be missing.
  void (*library_folder)(const struct wlprof_language_t *language, const struct wlprof_texts_t *library);
} wlprof_language_t;

// What a library exports.
typedef struct wlprof_plugin_t {
  // WLPROF_PLUGIN_MAGIC.
  uint64_t magic;
  // WLPROF_ABI_MAJOR of the header that the library was built with.
  uint32_t abi_major;
  // WLPROF_ABI_MINOR of that header.
  uint32_t abi_minor;
  // Size of this structure in bytes.
  size_t size;
  // What it is called.
  struct wlprof_bytes_t name;
  // Its own version.
  struct wlprof_bytes_t version;
  // Its languages.
  const struct wlprof_language_t *const *languages;
  // How many there are.
  size_t language_count;
} wlprof_plugin_t;

// The bytes of a string literal, to initialize a wlprof_bytes_t with.
#define WLPROF_BYTES(literal) {(const uint8_t *)(literal), sizeof(literal) - 1}

// The symbol that a library exports.
#ifdef __cplusplus
extern "C"
#else
extern
#endif
#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
const wlprof_plugin_t wlprof_plugin;

#endif  /* WLPROF_PLUGIN_H */
