// SPDX-License-Identifier: Apache-2.0
// Runs all threads of a launch. Without a seed (while counting) blocks and threads run in order; with one, blocks start
// in random order, a few of them at a time, and the next thread is any that does not wait.

static Thread **slots;  // threads of the resident blocks, kept for later launches
static size_t num_slots;
static Thread **ready;
static size_t num_ready;
static Block residents[MOST_RESIDENT];
static size_t local_bytes, shared_bytes, shared_traces;

static uint64_t next_random(void)  // SplitMix64
{
    uint64_t z = random_state += 0x9E3779B97F4A7C15ULL;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ z >> 27) * 0x94D049BB133111EBULL;
    return z ^ z >> 31;
}

static uint64_t random_below(uint64_t limit) { return (next_random() >> 32) * limit >> 32; }  // limit below 2^32

// Mostly a few accesses, so that short kernels are interrupted too; sometimes up to `longest_turn`.
static int64_t next_turn(void)
{
    if (launch->longest_turn == 0) return COUNTING_TURN;
    int bits = 64 - __builtin_clzll(launch->longest_turn);
    uint64_t length = 1 + random_below(1ULL << random_below(bits));
    return (int64_t)(length < launch->longest_turn ? length : launch->longest_turn);
}

static void run_slot(void)
{
    Thread *t = current;
    for (;;) {
        run_thread(t);
        t->state = ENDED;
        leave(t);
    }
}

static void make_slots(size_t wanted)
{
    if (wanted > num_slots) slots = realloc(slots, wanted * sizeof(Thread *)), ready = realloc(ready, wanted * sizeof(Thread *));
    for (; num_slots < wanted; num_slots++) {
        Thread *t = slots[num_slots] = calloc(1, sizeof(Thread));
        uint8_t *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        t->visits = calloc(NUM_BLOCKS + 1, sizeof(uint32_t));
        t->local = malloc(local_bytes + 1);
        t->slot = (uint32_t)num_slots;
        mprotect(stack, 4096, PROT_NONE);  // a stack that is too small ends in a signal, not in wrong memory
        t->fresh.uc_stack.ss_sp = stack;
    }
}

// Frees all threads: a stack and its first page are two mappings, and the kernel of the system limits their number.
void release_slots(void)
{
    for (; num_slots > 0; num_slots--) {
        Thread *t = slots[num_slots - 1];
        munmap(t->fresh.uc_stack.ss_sp, STACK_BYTES);
        free(t->visits), free(t->local), free(t->accesses), free(t);
    }
}

static size_t traces_of(const Region *region) { return region->grain >= 0 ? (region->size >> region->grain) + 1 : 0; }

static void resume(Thread *t)
{
    size_t local = 0, shared = 0, traces = 0;
    current = t, turn = next_turn();
    for (size_t k = 0; k < NUM_SYMBOLS; k++) {
        Region *region = &launch->regions[k + 1];
        size_t room = (region->size + 15) / 16 * 16;
        if (region->space == SPACE_LOCAL) region->host = t->local + local, local += room;
        if (region->space != SPACE_SHARED) continue;
        region->host = t->block->shared + shared, shared += room;
        region->traces = t->block->traces + traces, traces += traces_of(region);
    }
    if (_setjmp(scheduler)) return;
    if (t->started) _longjmp(t->context, 1);
    void *stack = t->fresh.uc_stack.ss_sp;
    getcontext(&t->fresh);
    t->fresh.uc_stack.ss_sp = stack, t->fresh.uc_link = NULL;
    t->fresh.uc_stack.ss_size = STACK_BYTES - t->slot % 61 * 576;  // equal offsets would share the lines of the cache
    makecontext(&t->fresh, run_slot, 0);
    t->started = 1;
    setcontext(&t->fresh);
}

static void start_block(size_t place, uint64_t number)
{
    Block *block = &residents[place];
    block->number = number, block->live = launch->threads, block->waiting = 0;
    block->first = 1 + (uint32_t)(number * launch->threads), block->time = 1, block->met = 0;
    memset(block->warps_met, 0, sizeof(block->warps_met));
    memset(block->shared, RUBBISH, shared_bytes);
    for (size_t k = launch->threads; k-- > 0;) {  // the last one is taken first
        Thread *t = slots[place * launch->threads + k];
        t->block = block, t->thread = (uint32_t)k, t->state = RUNNING;
        if (launch->counting) memset(t->visits, 0, NUM_BLOCKS * sizeof(uint32_t));
        memset(t->local, RUBBISH, local_bytes);
        ready[num_ready++] = t;
    }
}

static Thread **threads_of(const Block *block) { return &slots[(block - residents) * launch->threads]; }

static void release_barrier(Block *block)
{
    Thread **threads = threads_of(block), *first = NULL;
    uint64_t votes = 0;
    if (block->live == 0 || block->waiting < block->live) return;
    for (size_t k = 0; k < launch->threads; k++) {
        if (threads[k]->state != AT_BARRIER) continue;
        if (!first) first = threads[k];
        if (threads[k]->instruction != first->instruction) fail(threads[k], threads[k]->instruction, FAULT_BARRIER, 0, 0);
        votes += threads[k]->a;
    }
    for (size_t k = launch->threads; k-- > 0;) {
        Thread *t = threads[k];
        if (t->state != AT_BARRIER) continue;
        t->result_popc = votes, t->result_and = votes == block->live, t->result_or = votes > 0;
        t->state = RUNNING, ready[num_ready++] = t;
    }
    block->waiting = 0, block->met = block->time++;
}

static void exchange(Thread *t, Thread **lanes, uint32_t lane)
{
    uint32_t b = t->b & 31, clamp = t->c & 31, segment = t->c >> 8 & 31;
    uint32_t last = (lane & segment) | (clamp & ~segment), from = lane;
    switch (t->operation) {
        case SHFL_UP: from = lane - b, t->flag = (int32_t)from >= (int32_t)last; break;
        case SHFL_DOWN: from = lane + b, t->flag = from <= last; break;
        case SHFL_BFLY: from = lane ^ b, t->flag = from <= last; break;
        case SHFL_IDX: from = (lane & segment) | (b & ~segment), t->flag = from <= last; break;
    }
    if (!t->flag) from = lane;
    if (!(t->mask >> from & 1)) fail(t, t->instruction, FAULT_MASK, 0, 0);
    t->result = lanes[from]->a;
}

static void release_warp(Thread *arrived)
{
    Thread **lanes = threads_of(arrived->block) + arrived->thread / LANES * LANES;
    uint32_t mask = arrived->mask, ballot = 0;
    for (uint32_t lane = 0; lane < LANES; lane++) {
        if (!(mask >> lane & 1)) continue;
        if (arrived->thread / LANES * LANES + lane >= launch->threads || lanes[lane]->state == ENDED)
            fail(arrived, arrived->instruction, FAULT_MASK, 0, 0);
        if (lanes[lane]->state != AT_WARP) return;
        if (lanes[lane]->instruction != arrived->instruction || lanes[lane]->mask != mask)
            fail(arrived, arrived->instruction, FAULT_MASK, 0, 0);
        if (lanes[lane]->a) ballot |= 1u << lane;
    }
    if (arrived->operation == WARP_SYNC) arrived->block->warps_met[arrived->thread / LANES] = arrived->block->time++;
    for (uint32_t lane = LANES; lane-- > 0;) {
        if (!(mask >> lane & 1)) continue;
        Thread *t = lanes[lane];
        switch (t->operation) {
            case WARP_SYNC: break;
            case VOTE_ALL: t->result = ballot == mask; break;
            case VOTE_ANY: t->result = ballot != 0; break;
            case VOTE_BALLOT: t->result = ballot; break;
            case MATCH_ANY:
                t->result = 0;
                for (uint32_t k = 0; k < LANES; k++)
                    if (mask >> k & 1 && lanes[k]->a == t->a) t->result |= 1u << k;
                break;
            default: exchange(t, lanes, lane);
        }
    }
    for (uint32_t lane = LANES; lane-- > 0;)
        if (mask >> lane & 1) lanes[lane]->state = RUNNING, ready[num_ready++] = lanes[lane];
}

static void end_thread(Thread *t)
{
    t->block->live--;
    if (!launch->counting) return;
    uint32_t first = t->thread / LANES * LANES, lanes = 0;
    Thread **warp = threads_of(t->block) + first;
    while (lanes < LANES && first + lanes < launch->threads)
        if (warp[lanes++]->state != ENDED) return;
    count_warp(warp, (int)lanes);
}

static void run_blocks(const uint32_t *order)
{
    uint64_t next = 0, live = 0;
    for (; next < launch->resident && next < launch->blocks; next++, live++) start_block(next, order[next]);
    while (num_ready) {
        size_t k = launch->counting ? num_ready - 1 : random_below(num_ready);
        Thread *t = ready[k];
        resume(t);
        if (t->state == RUNNING) {
            if (launch->counting) ready[k] = ready[0], ready[0] = t;  // it may wait for the others in a loop
            continue;
        }
        ready[k] = ready[--num_ready];
        if (t->state == AT_BARRIER) t->block->waiting++;
        if (t->state == AT_WARP) release_warp(t);
        if (t->state == ENDED) end_thread(t);
        release_barrier(t->block);
        if (t->block->live == 0) {
            live--;
            if (next < launch->blocks) start_block(t->block - residents, order[next++]), live++;
        }
    }
    for (size_t k = 0; live && k < num_slots; k++)
        if (slots[k]->state == AT_BARRIER || slots[k]->state == AT_WARP)
            fail(slots[k], slots[k]->instruction, FAULT_DEADLOCK, 0, 0);
}

static void measure_symbols(void)
{
    local_bytes = shared_bytes = shared_traces = 0;
    for (size_t k = 0; k < NUM_SYMBOLS; k++) {
        Region *region = &launch->regions[k + 1];
        region->space = symbols[k].space, region->first = MIDDLE;
        region->size = symbols[k].space == SPACE_SHARED && symbols[k].size == 0 ? launch->dynamic_shared : symbols[k].size;
        if (region->space == SPACE_LOCAL) local_bytes += (region->size + 15) / 16 * 16;
        if (region->space == SPACE_SHARED) shared_bytes += (region->size + 15) / 16 * 16, shared_traces += traces_of(region);
    }
}

// Runs the launch; afterwards `fault.kind` is 0, or says what was wrong. One launch at a time.
void run_launch(Launch *wanted)
{
    launch = wanted;
    memset(&launch->counts, 0, sizeof(Counts)), memset(&launch->fault, 0, sizeof(Fault));
    random_state = launch->seed, patience = launch->patience, num_ready = 0;
    measure_symbols();
    uint32_t *order = malloc((launch->blocks + 1) * sizeof(uint32_t));
    for (uint32_t k = 0; k < launch->blocks; k++) order[k] = k;
    for (uint32_t k = launch->counting ? 0 : (uint32_t)launch->blocks; k > 1; k--) {
        uint32_t other = random_below(k), moved = order[k - 1];
        order[k - 1] = order[other], order[other] = moved;
    }
    for (size_t k = 0; k < launch->resident; k++) {
        residents[k].shared = calloc(1, shared_bytes + 1);
        residents[k].traces = calloc(shared_traces + 1, sizeof(Trace));
    }
    prepare_traces();
    prepare_counts();
    if (!_setjmp(failed)) {
        make_slots(launch->resident * launch->threads);
        run_blocks(order);
    } else
        for (size_t k = 0; k < num_slots; k++) slots[k]->started = 0, slots[k]->num_accesses = 0;
    for (size_t k = 0; k < launch->resident; k++) free(residents[k].shared), free(residents[k].traces);
    release_traces();
    release_counts();
    free(order);
}
