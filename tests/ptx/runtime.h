// SPDX-License-Identifier: Apache-2.0
// What a translated kernel calls: checked memory, arithmetic, barriers and warps, and the launch itself.
//
// Every thread of a few resident blocks has a stack of its own, and one of them runs at a time. A thread pauses after a
// seeded number of accesses, at barriers and at warp operations; then the scheduler picks another one.
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { SPACE_GENERIC, SPACE_GLOBAL, SPACE_SHARED, SPACE_LOCAL, SPACE_CONST };
enum { KIND_LOAD, KIND_STORE, KIND_ATOMIC, KIND_STRONG_LOAD, KIND_STRONG_STORE };  // strong: volatile, relaxed
enum { FAULT_NONE, FAULT_BOUNDS, FAULT_ALIGNMENT, FAULT_SPACE, FAULT_DIVISION, FAULT_BARRIER, FAULT_MASK,
       FAULT_DEADLOCK, FAULT_ENDLESS, FAULT_TRAP, FAULT_RACE, FAULT_UNFOLLOWED };
enum { RUNNING, AT_BARRIER, AT_WARP, ENDED };
enum { WARP_SYNC, SHFL_UP, SHFL_DOWN, SHFL_IDX, SHFL_BFLY, VOTE_ALL, VOTE_ANY, VOTE_BALLOT, MATCH_ANY };
enum { REGION_SHIFT = 40, STACK_BYTES = 1 << 18, MOST_RESIDENT = 8, LANES = 32, MOST_WARPS = 32, RUBBISH = 0xA5,
       COUNTING_TURN = 1 << 20 };

typedef struct { int space; uint32_t size, align; } Symbol;

#define MIDDLE (1ULL << (REGION_SHIFT - 1))
// Memory that kernels may access: addresses from (its number << REGION_SHIFT) + first; `first` is MIDDLE or a bit more.
// `grain`: the binary logarithm of an item's bytes where accesses are watched for races, else UNWATCHED or EXEMPT.
typedef struct { uint64_t first, size; uint8_t *host; int64_t space, grain; struct Trace *traces; } Region;
enum { UNWATCHED = -1, EXEMPT = -2 };  // it is only read; its races are declared

typedef struct { uint64_t kind, instruction, block, thread, address, size, region, other_block, other_thread,
                 other_instruction; } Fault;

typedef struct { uint32_t who, when, instruction; } Mark;  // an access: 1 + the thread's number in the launch, or 0
typedef struct Trace { Mark writer, others[2]; uint32_t kind; } Trace;  // of an item; the others read it, or are atomic

typedef struct {
    uint64_t instructions;       // of all threads
    uint64_t warp_instructions;  // per warp, the most that a lane runs of each basic block
    uint64_t longest;            // instructions of the longest thread
    uint64_t loads, stores;      // of global memory, per thread
    uint64_t requests, sectors;  // of global memory, per warp: one request reads or writes 1 to 32 sectors of 32 bytes
    uint64_t touched_sectors;    // different sectors of global memory in the launch
    uint64_t shared, local;      // accesses
    uint64_t atomics, most_atomics_at_one_address;
    uint64_t barriers;           // waits of all threads, warp operations included
} Counts;

typedef struct {
    uint64_t *parameters;
    Region *regions;
    uint64_t num_regions, blocks, threads, dynamic_shared, resident, seed, longest_turn, patience, counting;
    uint64_t weakened;  // 1 + the number of an instruction, or 0
    uint64_t form;      // of a weakened bound: 0 off by one, 1 always true, 2 never
    Counts counts;
    Fault fault;
} Launch;

typedef struct {
    uint64_t number, live, waiting;
    uint8_t *shared;
    Trace *traces;                   // of shared memory
    uint32_t first;                  // 1 + the first thread's number in the launch
    uint32_t time, met, warps_met[MOST_WARPS];  // barriers so far, and the time of the last one of the block or a warp
} Block;

typedef struct {
    uint32_t instruction;
    uint64_t sector;  // address / 32
} Access;

typedef struct Thread {
    jmp_buf context;
    ucontext_t fresh;
    int started, state;
    uint32_t thread, slot;
    Block *block;
    uint8_t *local;
    uint32_t instruction, mask, operation, flag;  // of the barrier or warp operation it waits at
    uint64_t a, b, c, result, result_popc, result_and, result_or;
    uint32_t *visits;  // per basic block
    Access *accesses;
    size_t num_accesses, room;
} Thread;

extern const Symbol symbols[];
extern const uint32_t block_sizes[];
void run_thread(Thread *t);

static Launch *launch;
static jmp_buf scheduler, failed;
static Thread *current;
static int64_t turn;       // accesses until the thread pauses
static uint64_t patience;  // basic blocks until the kernel counts as endless
static uint64_t random_state;

static void fail(Thread *t, uint64_t instruction, int kind, uint64_t address, uint64_t size)
{
    Fault *fault = &launch->fault;
    fault->kind = kind, fault->instruction = instruction, fault->block = t->block->number, fault->thread = t->thread;
    fault->address = address, fault->size = size, fault->region = address >> REGION_SHIFT;
    _longjmp(failed, 1);
}

static void leave(Thread *t)
{
    if (!_setjmp(t->context)) _longjmp(scheduler, 1);
}

static inline void pause_thread(Thread *t)
{
    if (--turn <= 0) leave(t);
}

static inline void visit(Thread *t, uint32_t block)
{
    t->visits[block]++;
    if (--patience == 0) fail(t, 0, FAULT_ENDLESS, 0, 0);
}
#define VISIT(block) visit(t, block)

#include "races.h"
#include "counts.h"
#include "arithmetic.h"

static inline void *reach(Thread *t, uint32_t instruction, uint64_t address, uint32_t size, int kind, int space)
{
    pause_thread(t);
    uint64_t number = address >> REGION_SHIFT;
    if (number == 0 || number >= launch->num_regions) fail(t, instruction, FAULT_BOUNDS, address, size);
    const Region *region = &launch->regions[number];
    uint64_t offset = (address & ((1ULL << REGION_SHIFT) - 1)) - region->first;
    if (offset > region->size || size > region->size - offset) fail(t, instruction, FAULT_BOUNDS, address, size);
    if (address % size) fail(t, instruction, FAULT_ALIGNMENT, address, size);
    if (space != SPACE_GENERIC && space != region->space) fail(t, instruction, FAULT_SPACE, address, size);
    int loads = kind == KIND_LOAD || kind == KIND_STRONG_LOAD, watched = kind > KIND_ATOMIC ? KIND_ATOMIC : kind;
    if (!loads && region->space == SPACE_CONST) fail(t, instruction, FAULT_SPACE, address, size);
    if (region->grain >= 0) watch(t, instruction, region, address, offset, size, watched);
    else if (region->grain == UNWATCHED && !loads && region->space != SPACE_LOCAL)
        fail(t, instruction, FAULT_UNFOLLOWED, address, size);
    if (launch->counting) count_access(t, instruction, address, loads ? KIND_LOAD : kind, region->space);
    return region->host + offset;
}

// Barriers and warps

static void meet_block(Thread *t, uint32_t instruction, uint32_t predicate)
{
    t->state = AT_BARRIER, t->instruction = instruction, t->a = predicate != 0;
    launch->counts.barriers++;
    leave(t);
}

static void meet_warp(Thread *t, uint32_t instruction, uint32_t mask, uint32_t operation, uint64_t a, uint64_t b,
                      uint64_t c)
{
    if (!(mask >> (t->thread % LANES) & 1)) fail(t, instruction, FAULT_MASK, 0, 0);
    t->state = AT_WARP, t->instruction = instruction, t->mask = mask, t->operation = operation;
    t->a = a, t->b = b, t->c = c;
    launch->counts.barriers++;
    leave(t);
}

#include "scheduler.h"
