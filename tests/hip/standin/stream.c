/* Streams, events, captures and graphs of the stand-in HIP library.
 *
 * Work is done when it is enqueued, unless it is held (standin_hold): then streams are busy, events
 * that are recorded are not finished, and waiting waits until another thread releases the work. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct event {
    unsigned magic;
    int device;
    bool timed, recorded, done, captured;
    double milliseconds;
    struct stream *on;
    struct event *next;
};
struct executable { struct graph graph; };

static struct stream *streams;
static struct event *events;
static struct stream default_streams[MAX_DEVICES];
static pthread_cond_t released = PTHREAD_COND_INITIALIZER;
static bool held;
static _Thread_local int thread_mode; /* hipStreamCaptureMode; a thread begins with the global one */
static double fixed_clock = -1;

/* Milliseconds that events are stamped with from now on; negative is the real clock. */
EXPORT void standin_clock(double milliseconds) { fixed_clock = milliseconds; }

/* What was on a stream has finished, and so have the events after it. */
static void finish(struct stream *stream) {
    stream->busy = stream->held = false;
    for (struct event *e = events; e; e = e->next)
        if (e->on == stream) e->done = e->recorded;
    pthread_cond_broadcast(&released);
}

/* While work is held nothing finishes. */
EXPORT void standin_hold(int on) {
    pthread_mutex_lock(&lock);
    held = on;
    for (struct stream *s = streams; s && !on; s = s->next) finish(s);
    for (int i = 0; i < MAX_DEVICES && !on; i++) finish(&default_streams[i]);
    pthread_mutex_unlock(&lock);
}

/* The same for one stream, 0 being the current device's default one, which is busy from now on. */
EXPORT void standin_hold_stream(uint64_t handle, int on) {
    struct stream *stream;
    if (stream_find(handle, &stream) != hipSuccess) return;
    pthread_mutex_lock(&lock);
    if (!stream) stream = &default_streams[current_device];
    if (on) stream->held = stream->busy = true;
    else finish(stream);
    pthread_mutex_unlock(&lock);
}

static void graph_clear(struct graph *graph) {
    free(graph->launches);
    memset(graph, 0, sizeof *graph);
}

void stream_reset(void) {
    standin_hold(0);
    fixed_clock = -1;
    pthread_mutex_lock(&lock);
    for (struct stream *s = streams; s; s = s->next) {
        s->magic = 0;
        s->capture = NONE;
    }
    for (struct event *e = events; e; e = e->next) e->magic = 0;
    pthread_mutex_unlock(&lock);
}

hipError_t stream_find(uint64_t handle, struct stream **out) {
    *out = NULL;
    if (handle <= 2 || settings.any_stream) return hipSuccess; /* null, legacy, of the thread */
    pthread_mutex_lock(&lock);
    for (struct stream *s = streams; s && !*out; s = s->next)
        if ((uint64_t)(uintptr_t)s == handle && s->magic == STREAM) *out = s;
    pthread_mutex_unlock(&lock);
    return *out ? hipSuccess : hipErrorContextIsDestroyed;
}

void stream_touch(struct stream *stream) {
    if (!stream) stream = &default_streams[current_device];
    pthread_mutex_lock(&lock);
    stream->busy = held || stream->held;
    pthread_mutex_unlock(&lock);
}

bool capture_forbids(void) {
    bool forbids = false;
    pthread_mutex_lock(&lock);
    for (struct stream *s = streams; s; s = s->next)
        if (s->capture != NONE && s->capture_mode != 2 && thread_mode != 2 &&
            (pthread_equal(s->capturer, pthread_self()) || (s->capture_mode == 0 && thread_mode == 0))) {
            s->capture = INVALIDATED;
            forbids = true;
        }
    pthread_mutex_unlock(&lock);
    return forbids;
}

static hipError_t create(uint64_t *out, unsigned flags) {
    if (!out || flags > 1) return hipErrorInvalidValue;
    if (settings.device_count == 0) return hipErrorNoDevice;
    struct stream *stream = calloc(1, sizeof *stream);
    stream->magic = STREAM;
    stream->device = current_device;
    stream->flags = flags;
    pthread_mutex_lock(&lock);
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    standin_alive(STREAMS, 1);
    *out = (uint64_t)(uintptr_t)stream;
    return hipSuccess;
}

EXPORT hipError_t hipStreamCreate(uint64_t *out) {
    ENTER(hipStreamCreate);
    RETURN(create(out, 0));
}

EXPORT hipError_t hipStreamCreateWithFlags(uint64_t *out, unsigned flags) {
    ENTER(hipStreamCreateWithFlags);
    RETURN(create(out, flags));
}

/* Flags of a stream that standin_hip.py made sure exists, or -1. */
EXPORT int standin_stream_flags(uint64_t handle) {
    struct stream *stream;
    return stream_find(handle, &stream) == hipSuccess && stream ? (int)stream->flags : -1;
}

EXPORT hipError_t hipStreamDestroy(uint64_t handle) {
    ENTER(hipStreamDestroy);
    struct stream *stream;
    if (stream_find(handle, &stream) != hipSuccess || !stream) RETURN(hipErrorInvalidHandle);
    stream->magic = 0;
    standin_alive(STREAMS, -1);
    LOG(stream);
    RETURN(hipSuccess);
}

static void wait_for(bool *busy, bool until) {
    pthread_mutex_lock(&lock);
    while (*busy != until) pthread_cond_wait(&released, &lock);
    pthread_mutex_unlock(&lock);
}

EXPORT hipError_t hipStreamSynchronize(uint64_t handle) {
    ENTER(hipStreamSynchronize);
    struct stream *stream;
    hipError_t status = stream_find(handle, &stream);
    if (status == hipSuccess && capture_forbids()) status = hipErrorStreamCaptureUnsupported;
    if (status == hipSuccess) wait_for(&(stream ? stream : &default_streams[current_device])->busy, false);
    RETURN(status);
}

void default_stream_wait(void) { wait_for(&default_streams[current_device].busy, false); }

EXPORT hipError_t hipThreadExchangeStreamCaptureMode(int *mode) {
    ENTER(hipThreadExchangeStreamCaptureMode);
    if (!mode || *mode < 0 || *mode > 2) RETURN(hipErrorInvalidValue);
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipStreamQuery(uint64_t handle) {
    ENTER(hipStreamQuery);
    struct stream *stream;
    hipError_t status = stream_find(handle, &stream);
    if (status == hipSuccess && capture_forbids()) status = hipErrorStreamCaptureUnsupported;
    if (status == hipSuccess && (stream ? stream : &default_streams[current_device])->busy) return hipErrorNotReady;
    RETURN(status);
}

EXPORT hipError_t hipDeviceSynchronize(void) {
    ENTER(hipDeviceSynchronize);
    if (settings.device_count == 0) RETURN(hipErrorNoDevice);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    int device = current_device;
    wait_for(&default_streams[device].busy, false);
    for (struct stream *s = streams; s; s = s->next)
        if (s->device == device) wait_for(&s->busy, false);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipStreamIsCapturing(uint64_t handle, int *out) {
    ENTER(hipStreamIsCapturing);
    struct stream *stream;
    hipError_t status = stream_find(handle, &stream);
    if (!out) RETURN(hipErrorInvalidValue);
    if (status != hipSuccess) RETURN(status);
    *out = stream ? stream->capture : NONE;
    for (struct stream *s = streams; s && handle <= 1; s = s->next)
        if (s->capture != NONE && !(s->flags & 1)) RETURN(hipErrorStreamCaptureImplicit);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipStreamBeginCapture(uint64_t handle, int mode) {
    ENTER(hipStreamBeginCapture);
    struct stream *stream;
    hipError_t status = stream_find(handle, &stream);
    if (status != hipSuccess) RETURN(status);
    if (!stream) RETURN(hipErrorStreamCaptureUnsupported);
    if (mode < 0 || mode > 2) RETURN(hipErrorInvalidValue);
    if (stream->capture != NONE) RETURN(hipErrorIllegalState);
    stream->graph = calloc(1, sizeof *stream->graph);
    stream->capture_mode = mode;
    stream->capturer = pthread_self();
    stream->capture = ACTIVE;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipStreamEndCapture(uint64_t handle, struct graph **out) {
    ENTER(hipStreamEndCapture);
    struct stream *stream;
    hipError_t status = stream_find(handle, &stream);
    if (!out) RETURN(hipErrorInvalidValue);
    *out = NULL;
    if (status != hipSuccess || !stream || stream->capture == NONE)
        RETURN(status != hipSuccess ? status : hipErrorIllegalState);
    bool spoilt = stream->capture == INVALIDATED;
    stream->capture = NONE;
    if (spoilt) {
        graph_clear(stream->graph);
        RETURN(hipErrorStreamCaptureInvalidated);
    }
    *out = stream->graph;
    stream->graph = NULL;
    standin_alive(GRAPHS, 1);
    RETURN(hipSuccess);
}

void graph_add(struct stream *stream, const struct launch *launch) {
    struct graph *graph = stream->graph;
    graph->launches = realloc(graph->launches, (graph->count + 1) * sizeof *launch);
    graph->launches[graph->count++] = *launch;
}

EXPORT hipError_t hipGraphInstantiate(struct executable **out, struct graph *graph, void *node, char *log,
                                      size_t size) {
    ENTER(hipGraphInstantiate);
    (void)node, (void)log, (void)size;
    if (!out || !graph) RETURN(hipErrorInvalidValue);
    *out = calloc(1, sizeof **out);
    (*out)->graph.launches = calloc(graph->count + 1, sizeof *graph->launches);
    (*out)->graph.count = graph->count;
    if (graph->count)
        memcpy((*out)->graph.launches, graph->launches, graph->count * sizeof *graph->launches);
    standin_alive(GRAPHS, 1);
    RETURN(hipSuccess);
}

/* Replays: the launches are recorded anew with what they were captured with. */
EXPORT hipError_t hipGraphLaunch(struct executable *executable, uint64_t handle) {
    ENTER(hipGraphLaunch);
    struct stream *stream;
    hipError_t status = executable ? stream_find(handle, &stream) : hipErrorInvalidValue;
    if (status != hipSuccess) RETURN(status);
    for (size_t i = 0; i < executable->graph.count; i++) {
        struct launch launch = executable->graph.launches[i];
        launch.captured = 0;
        launch.stream = handle;
        record_launch(&launch);
    }
    stream_touch(stream);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipGraphDestroy(struct graph *graph) {
    ENTER(hipGraphDestroy);
    if (!graph) RETURN(hipErrorInvalidValue);
    graph_clear(graph);
    free(graph);
    standin_alive(GRAPHS, -1);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipGraphExecDestroy(struct executable *executable) {
    ENTER(hipGraphExecDestroy);
    if (!executable) RETURN(hipErrorInvalidValue);
    graph_clear(&executable->graph);
    free(executable);
    standin_alive(GRAPHS, -1);
    RETURN(hipSuccess);
}

/* ---- events ---- */

static struct event *event_of(uint64_t handle) {
    struct event *found = NULL;
    pthread_mutex_lock(&lock);
    for (struct event *e = events; e && !found; e = e->next)
        if ((uint64_t)(uintptr_t)e == handle && e->magic == EVENT) found = e;
    pthread_mutex_unlock(&lock);
    return found;
}

static hipError_t create_event(uint64_t *out, unsigned flags) {
    if (!out) return hipErrorInvalidValue;
    if (settings.device_count == 0) return hipErrorNoDevice;
    struct event *event = calloc(1, sizeof *event);
    event->magic = EVENT;
    event->device = current_device;
    event->timed = !(flags & 2);
    pthread_mutex_lock(&lock);
    event->next = events;
    events = event;
    pthread_mutex_unlock(&lock);
    standin_alive(EVENTS, 1);
    *out = (uint64_t)(uintptr_t)event;
    return hipSuccess;
}

EXPORT hipError_t hipEventCreate(uint64_t *out) {
    ENTER(hipEventCreate);
    RETURN(create_event(out, 0));
}

EXPORT hipError_t hipEventCreateWithFlags(uint64_t *out, unsigned flags) {
    ENTER(hipEventCreateWithFlags);
    RETURN(create_event(out, flags));
}

EXPORT hipError_t hipEventDestroy(uint64_t handle) {
    ENTER(hipEventDestroy);
    struct event *event = event_of(handle);
    if (!event) RETURN(hipErrorInvalidHandle);
    event->magic = 0;
    standin_alive(EVENTS, -1);
    LOG(event);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipEventRecord(uint64_t handle, uint64_t stream_handle) {
    ENTER(hipEventRecord);
    struct event *event = event_of(handle);
    struct stream *stream;
    hipError_t status = event ? stream_find(stream_handle, &stream) : hipErrorInvalidHandle;
    if (status != hipSuccess) RETURN(status);
    if (event->device != (stream ? stream->device : current_device)) RETURN(hipErrorInvalidHandle);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->milliseconds = fixed_clock >= 0 ? fixed_clock : now.tv_sec * 1e3 + now.tv_nsec / 1e6;
    event->captured = stream && stream->capture != NONE;
    event->recorded = !event->captured;
    event->on = stream ? stream : &default_streams[current_device];
    event->done = !held && !event->on->held;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipEventQuery(uint64_t handle) {
    ENTER(hipEventQuery);
    struct event *event = event_of(handle);
    if (!event) RETURN(hipErrorInvalidHandle);
    if (event->recorded && !event->done) return hipErrorNotReady;
    RETURN(hipSuccess);
}

EXPORT hipError_t hipEventSynchronize(uint64_t handle) {
    ENTER(hipEventSynchronize);
    struct event *event = event_of(handle);
    if (!event) RETURN(hipErrorInvalidHandle);
    if (capture_forbids()) RETURN(hipErrorStreamCaptureUnsupported);
    if (event->recorded) wait_for(&event->done, true);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipEventElapsedTime(float *out, uint64_t start_handle, uint64_t end_handle) {
    ENTER(hipEventElapsedTime);
    struct event *start = event_of(start_handle), *end = event_of(end_handle);
    if (!out) RETURN(hipErrorInvalidValue);
    if (!start || !end || !start->recorded || !end->recorded || !start->timed || !end->timed)
        RETURN(hipErrorInvalidHandle);
    if (!start->done || !end->done) RETURN(hipErrorNotReady);
    *out = (float)(end->milliseconds - start->milliseconds);
    RETURN(hipSuccess);
}

EXPORT hipError_t hipStreamWaitEvent(uint64_t handle, uint64_t event, unsigned flags) {
    ENTER(hipStreamWaitEvent);
    struct stream *stream;
    if (flags || !event_of(event)) RETURN(flags ? hipErrorInvalidValue : hipErrorInvalidHandle);
    RETURN(stream_find(handle, &stream));
}
