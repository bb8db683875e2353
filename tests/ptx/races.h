// SPDX-License-Identifier: Apache-2.0
// Happens-before. Two accesses of different threads to one address, of which one is a plain store or one is plain and
// the other atomic, must have a barrier between: of the block, or of the warp (`bar.warp.sync`) for two of its lanes.
// Nothing orders blocks of a launch. Votes and shuffles order no memory, and atomics order nothing else.
//
// A writer and two others are enough: an access that is ordered after a marked one takes its place, since what races
// with the earlier one races with it too. Of unordered readers (or atomics) the two farthest from each other stay.

static inline int is_unordered(const Thread *t, const Mark *mark, int space)
{
    const Block *block = t->block;
    if (mark->who == 0) return 0;
    uint32_t other = mark->who - block->first;  // its number in this block; another block's is too large
    if (other >= launch->threads) return space != SPACE_SHARED;  // in shared memory: of an earlier block
    if (other == t->thread || mark->when <= block->met) return 0;
    return other / LANES != t->thread / LANES || mark->when > block->warps_met[other / LANES];
}

static inline void check_mark(Thread *t, uint32_t instruction, const Mark *mark, uint64_t address, uint32_t size,
                              int space)
{
    if (!is_unordered(t, mark, space)) return;
    launch->fault.other_block = (mark->who - 1) / launch->threads;
    launch->fault.other_thread = (mark->who - 1) % launch->threads;
    launch->fault.other_instruction = mark->instruction;
    fail(t, instruction, FAULT_RACE, address, size);
}

// 2: in other blocks, 1: in other warps of a block, 0: in one warp.
static inline int distance(const Mark *a, const Mark *b)
{
    uint32_t threads = (uint32_t)launch->threads, of_a = (a->who - 1) / threads, of_b = (b->who - 1) / threads;
    return of_a != of_b ? 2 : (a->who - 1 - of_a * threads) / LANES != (b->who - 1 - of_b * threads) / LANES;
}

static void add_mark(Thread *t, Trace *trace, const Mark *mark, int space)
{
    Mark *others = trace->others;
    int first = is_unordered(t, &others[0], space), second = is_unordered(t, &others[1], space);
    if (!first) {
        others[0] = *mark;
        if (!second) others[1].who = 0;
    } else if (!second || distance(&others[0], mark) > distance(&others[0], &others[1]))
        others[1] = *mark;
}

static void watch(Thread *t, uint32_t instruction, const Region *region, uint64_t address, uint64_t offset,
                  uint32_t size, int kind)
{
    const Mark mark = {t->block->first + t->thread, t->block->time, instruction};
    Trace *trace = region->traces + (offset >> region->grain);
    Trace *last = region->traces + ((offset + size - 1) >> region->grain);
    int space = (int)region->space;
    for (; trace <= last; trace++) {
        check_mark(t, instruction, &trace->writer, address, size, space);
        if (kind == KIND_STORE || trace->kind != (uint32_t)kind) {
            check_mark(t, instruction, &trace->others[0], address, size, space);
            check_mark(t, instruction, &trace->others[1], address, size, space);
            trace->others[0].who = trace->others[1].who = 0, trace->kind = (uint32_t)kind;
        }
        if (kind == KIND_STORE)
            trace->writer = mark;
        else
            add_mark(t, trace, &mark, space);
    }
}

static void prepare_traces(void)
{
    for (uint64_t k = NUM_SYMBOLS + 1; k < launch->num_regions; k++) {
        Region *region = &launch->regions[k];
        if (region->grain >= 0) region->traces = calloc((region->size >> region->grain) + 1, sizeof(Trace));
    }
}

static void release_traces(void)
{
    for (uint64_t k = NUM_SYMBOLS + 1; k < launch->num_regions; k++) free(launch->regions[k].traces);
}
