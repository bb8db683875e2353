// SPDX-License-Identifier: Apache-2.0
// Counts of a launch. The n-th executions of one instruction by the lanes of a warp are one request, which is exact
// while the lanes converge. Threads run one after the other while counting, so that at most one warp's accesses are
// stored between two barriers.

typedef struct { uint64_t address, count; } Tally;

static Tally *tallies;
static size_t num_tallies, tally_room;
static uint8_t **touched;  // per region, a bit per sector

static Tally *tally_of(uint64_t address)
{
    size_t slot = (address * 0x9E3779B97F4A7C15ULL >> 20) % tally_room;
    while (tallies[slot].count && tallies[slot].address != address) slot = (slot + 1) % tally_room;
    return &tallies[slot];
}

static void count_atomic(uint64_t address)
{
    if (2 * num_tallies >= tally_room) {
        Tally *old = tallies;
        size_t old_room = tally_room;
        tally_room = old_room ? 4 * old_room : 1 << 12, tallies = calloc(tally_room, sizeof(Tally));
        for (size_t k = 0; k < old_room; k++)
            if (old[k].count) *tally_of(old[k].address) = old[k];
        free(old);
    }
    Tally *tally = tally_of(address);
    if (tally->count == 0) num_tallies++, tally->address = address;
    tally->count++;
    launch->counts.atomics++;
    if (tally->count > launch->counts.most_atomics_at_one_address)
        launch->counts.most_atomics_at_one_address = tally->count;
}

static void count_access(Thread *t, uint32_t instruction, uint64_t address, int kind, int space)
{
    // Each block has shared memory of its own: its number tells the same addresses apart.
    if (kind == KIND_ATOMIC) count_atomic(space == SPACE_SHARED ? address ^ (t->block->number + 1) << 52 : address);
    if (space == SPACE_SHARED) launch->counts.shared++;
    if (space == SPACE_LOCAL) launch->counts.local++;
    if (space != SPACE_GLOBAL) return;
    if (kind == KIND_LOAD) launch->counts.loads++;
    if (kind == KIND_STORE || kind == KIND_STRONG_STORE) launch->counts.stores++;
    if (t->num_accesses == t->room) {
        t->room = t->room ? 2 * t->room : 1 << 10;
        t->accesses = realloc(t->accesses, t->room * sizeof(Access));
    }
    t->accesses[t->num_accesses++] = (Access){instruction, address / 32};
    uint64_t number = address >> REGION_SHIFT, sector = (address & (MIDDLE - 1)) / 32;
    uint8_t *bits = touched[number];
    if (!(bits[sector / 8] >> sector % 8 & 1)) bits[sector / 8] |= 1 << sector % 8, launch->counts.touched_sectors++;
}

// Sorts a thread's accesses by instruction, those of one instruction in order; ends[k] is where instruction k ends.
static uint64_t *sorted_sectors(const Thread *t, uint32_t *ends)
{
    uint64_t *sectors = malloc((t->num_accesses + 1) * sizeof(uint64_t));
    memset(ends, 0, (NUM_INSTRUCTIONS + 1) * sizeof(uint32_t));
    for (size_t k = 0; k < t->num_accesses; k++) ends[t->accesses[k].instruction + 1]++;
    for (size_t k = 0; k < NUM_INSTRUCTIONS; k++) ends[k + 1] += ends[k];
    for (size_t k = 0; k < t->num_accesses; k++)
        sectors[ends[t->accesses[k].instruction]++] = t->accesses[k].sector;  // ends[k] moves from start to end
    return sectors;
}

static void count_requests(Thread **lanes, int num_lanes)
{
    static uint32_t ends[LANES][NUM_INSTRUCTIONS + 1];
    uint64_t *sectors[LANES];
    for (int lane = 0; lane < num_lanes; lane++) sectors[lane] = sorted_sectors(lanes[lane], ends[lane]);
    for (size_t k = 0; k < NUM_INSTRUCTIONS; k++)
        for (uint32_t n = 0;; n++) {
            uint64_t seen[LANES];
            int different = 0;
            for (int lane = 0; lane < num_lanes; lane++) {
                uint32_t place = (k ? ends[lane][k - 1] : 0) + n;
                if (place >= ends[lane][k]) continue;
                int found = different - 1;
                while (found >= 0 && seen[found] != sectors[lane][place]) found--;
                if (found < 0) seen[different++] = sectors[lane][place];
            }
            if (different == 0) break;
            launch->counts.requests++, launch->counts.sectors += different;
        }
    for (int lane = 0; lane < num_lanes; lane++) free(sectors[lane]), lanes[lane]->num_accesses = 0;
}

static void count_instructions(Thread **lanes, int num_lanes)
{
    uint64_t of_lane[LANES] = {0};
    for (size_t k = 0; k < NUM_BLOCKS; k++) {
        uint32_t most = 0;
        for (int lane = 0; lane < num_lanes; lane++) {
            uint32_t visits = lanes[lane]->visits[k];
            of_lane[lane] += (uint64_t)visits * block_sizes[k];
            if (visits > most) most = visits;
        }
        launch->counts.warp_instructions += (uint64_t)most * block_sizes[k];
    }
    for (int lane = 0; lane < num_lanes; lane++) {
        launch->counts.instructions += of_lane[lane];
        if (of_lane[lane] > launch->counts.longest) launch->counts.longest = of_lane[lane];
    }
}

static void count_warp(Thread **lanes, int num_lanes)
{
    count_requests(lanes, num_lanes);
    count_instructions(lanes, num_lanes);
}

static void prepare_counts(void)
{
    free(tallies);
    tallies = NULL, num_tallies = tally_room = 0;
    if (!launch->counting) return;
    touched = calloc(launch->num_regions, sizeof(uint8_t *));
    for (uint64_t k = 1; k < launch->num_regions; k++)
        if (launch->regions[k].space == SPACE_GLOBAL)
            touched[k] = calloc(1, (launch->regions[k].first - MIDDLE + launch->regions[k].size) / 256 + 1);
}

static void release_counts(void)
{
    if (!launch->counting) return;
    for (uint64_t k = 1; k < launch->num_regions; k++) free(touched[k]);
    free(touched);
}
