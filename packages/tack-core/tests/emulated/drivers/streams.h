#pragma once
#include "state.h"

// --- streams -------------------------------------------------------------------------------------

static void serve(Stream *stream) {
    for (;;) {
        Task task;
        {
            std::unique_lock<std::mutex> hold(stream->mutex);
            stream->changed.wait(hold, [&] { return stream->stopped || !stream->queue.empty(); });
            if (stream->queue.empty())
                return;
            task = std::move(stream->queue.front());
            stream->queue.pop_front();
            stream->busy = true;
        }
        pass_gate();
        if (delay)
            usleep((useconds_t)delay);
        if (task.is_event || !stream->context->failure)
            task.work();
        task.work = nullptr;
        std::lock_guard<std::mutex> hold(stream->mutex);
        stream->busy = false;
        stream->changed.notify_all();
    }
}

static std::map<Context *, Stream *> default_streams;

static Stream *stream_new(Context *context) {
    Stream *stream = new Stream;
    stream->context = context;
    stream->thread = std::thread(serve, stream);
    return stream;
}

static Stream *stream_of(void *handle, Context *context) {
    if ((uintptr_t)handle > 2)
        return streams.count(handle) ? (Stream *)handle : nullptr;
    Stream *&stream = default_streams[context];
    if (!stream)
        streams.insert(stream = stream_new(context));
    return stream;
}

static void drain(Stream *stream) {
    std::unique_lock<std::mutex> hold(stream->mutex);
    stream->changed.wait(hold, [&] { return stream->queue.empty() && !stream->busy; });
}

static void wait_for_room(Stream *stream) {
    const size_t most = 1024;
    std::unique_lock<std::mutex> hold(stream->mutex);
    stream->changed.wait(hold, [&] { return stream->queue.size() < most; });
}

static void enqueue(Stream *stream, Work work, bool is_event = false) {
    if (stream->capture) {
        auto node = std::make_shared<Node>();
        node->work = std::move(work);
        stream->capture->nodes.push_back(node);
        return;
    }
    {
        std::lock_guard<std::mutex> hold(stream->mutex);
        stream->queue.push_back(Task{std::move(work), is_event});
        stream->changed.notify_all();
    }
    if (synchronous)
        drain(stream);
}

#define STREAM(handle)                                                                                               \
    CONTEXT;                                                                                                         \
    Stream *stream = stream_of(handle, context);                                                                     \
    if (!stream || stream->context != context)                                                                       \
    return INVALID_HANDLE

// Waits without the lock, so that other threads go on.
template <class Wait> static void released(Wait wait) {
    state_mutex.unlock();
    wait();
    state_mutex.lock();
}

API CALL(StreamCreate)(void **out, unsigned flags) {
    CONTEXT;
    if (flags > 1)
        return INVALID_VALUE;
    *out = stream_new(context);
    streams.insert(*out);
    return SUCCESS;
}

static void stream_stop(Stream *stream) {
    {
        std::lock_guard<std::mutex> hold(stream->mutex);
        stream->stopped = true;
        stream->changed.notify_all();
    }
    stream->thread.detach(); // it ends once its work is done; the object stays
}

API CALL(StreamDestroy)(void *handle) {
    STREAM(handle);
    if ((uintptr_t)handle <= 2)
        return INVALID_HANDLE;
    streams.erase(handle);
    stream_stop(stream);
    return SUCCESS;
}

API CALL(StreamSynchronize)(void *handle) {
    STREAM(handle);
    if (stream->capture)
        return CAPTURE_UNSUPPORTED;
    released([&] { drain(stream); });
    return context->failure;
}

API CALL(StreamQuery)(void *handle) {
    STREAM(handle);
    if (stream->capture)
        return CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> hold(stream->mutex);
    return stream->queue.empty() && !stream->busy ? (int)context->failure : NOT_READY;
}

API CALL(StreamWaitEvent)(void *handle, void *event, unsigned) {
    CONTEXT;
    Stream *stream = stream_of(handle, context);
    if (!stream || !events.count(event))
        return INVALID_HANDLE;
    std::shared_ptr<Flag> flag = ((Event *)event)->flag;
    if (flag)
        enqueue(stream, [flag] { flag->wait(); });
    return SUCCESS;
}

API CALL(CtxSynchronize)(void) {
    CONTEXT;
    std::vector<Stream *> all;
    for (void *handle : streams)
        if (((Stream *)handle)->context == context)
            all.push_back((Stream *)handle);
    released([&] {
        for (Stream *stream : all)
            drain(stream);
    });
    return context->failure;
}

// --- events --------------------------------------------------------------------------------------

API CALL(EventCreate)(void **out, unsigned) {
    CONTEXT;
    *out = new Event{context, nullptr};
    events.insert(*out);
    return SUCCESS;
}

API CALL(EventDestroy)(void *event) {
    ENTER;
    VALID(events, event);
    events.erase(event);
    delete (Event *)event;
    return SUCCESS;
}

API CALL(EventRecord)(void *event, void *handle) {
    STREAM(handle);
    VALID(events, event);
    if (((Event *)event)->context != context)
        return INVALID_HANDLE;
    auto flag = std::make_shared<Flag>();
    ((Event *)event)->flag = flag;
    enqueue(stream, [flag] { flag->set(); }, true);
    return SUCCESS;
}

API CALL(EventQuery)(void *event) {
    ENTER;
    VALID(events, event);
    Context *context = ((Event *)event)->context;
    if (context->failure)
        return context->failure;
    auto flag = ((Event *)event)->flag;
    return !flag || flag->is_set() ? SUCCESS : NOT_READY;
}

API CALL(EventSynchronize)(void *event) {
    ENTER;
    VALID(events, event);
    Context *context = ((Event *)event)->context;
    auto flag = ((Event *)event)->flag;
    if (flag)
        released([&] {
            while (!context->failure && !flag->is_set())
                usleep(20);
        });
    return context->failure;
}

API CALL(EventElapsedTime)(float *out, void *first, void *last) {
    ENTER;
    VALID(events, first);
    VALID(events, last);
    *out = 0.5f;
    return SUCCESS;
}
