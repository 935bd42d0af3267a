/* Launches that were made, kept in a ring and written to a file when one is named. */
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct launch ring[RING];
static atomic_ullong launched; /* all of them */
static unsigned long long recorded;
static atomic_bool recording;
static char file[4096];

void record_reset(void) {
    const char *text = getenv("STANDIN_RECORD");
    atomic_store(&recording, !text || strcmp(text, "0"));
    text = getenv("STANDIN_RECORD_FILE");
    snprintf(file, sizeof file, "%s", text ? text : "");
    atomic_store(&launched, 0);
    recorded = 0;
}

/* Switches recording; without it a launch is checked and counted only. */
EXPORT void standin_record(int on) { atomic_store(&recording, on); }

EXPORT unsigned long long standin_launched(void) { return atomic_load(&launched); }

/* Launches in the ring; the oldest are gone when more than its capacity were recorded. */
EXPORT size_t standin_recorded(void) { return recorded < RING ? (size_t)recorded : RING; }

EXPORT size_t standin_launch_size(void) { return sizeof(struct launch); }

/* The index-th recorded launch that is still there, oldest first; 0 when there is none. */
EXPORT int standin_launch(size_t index, struct launch *out) {
    pthread_mutex_lock(&lock);
    size_t n = standin_recorded();
    int found = index < n;
    if (found) *out = ring[(recorded - n + index) % RING];
    pthread_mutex_unlock(&lock);
    return found;
}

EXPORT void standin_forget_launches(void) {
    pthread_mutex_lock(&lock);
    recorded = 0;
    atomic_store(&launched, 0);
    pthread_mutex_unlock(&lock);
}

static void append(const struct launch *l) {
    FILE *out = fopen(file, "a");
    if (!out) return;
    /* One buffered write a line: processes that share the file do not mix their lines. */
    char buffer[4 * MAX_KERNARGS];
    setvbuf(out, buffer, _IOFBF, sizeof buffer);
    fprintf(out,
            "{\"device\": %d, \"captured\": %d, \"grid\": [%u, %u, %u], \"block\": [%u, %u, %u], "
            "\"dynamic_lds\": %u, \"stream\": %llu, \"symbol\": \"%s\", \"kernarg_size\": %u, \"kernargs\": \"",
            l->device, l->captured, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
            l->block[2], l->dynamic_lds, (unsigned long long)l->stream, l->symbol, l->kernarg_size);
    for (unsigned i = 0; i < l->kernarg_size && i < MAX_KERNARGS; i++) fprintf(out, "%02x", l->kernargs[i]);
    fprintf(out, "\"}\n");
    fclose(out);
}

void record_launch(const struct launch *launch) {
    atomic_fetch_add_explicit(&launched, 1, memory_order_relaxed);
    if (!atomic_load_explicit(&recording, memory_order_relaxed)) return;
    pthread_mutex_lock(&lock);
    struct launch *slot = &ring[recorded++ % RING];
    size_t kept = launch->kernarg_size < MAX_KERNARGS ? launch->kernarg_size : MAX_KERNARGS;
    memcpy(slot, launch, offsetof(struct launch, kernargs) + kept);
    if (*file) append(launch);
    pthread_mutex_unlock(&lock);
}
