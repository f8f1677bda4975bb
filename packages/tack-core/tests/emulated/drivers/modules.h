#pragma once
#include "memory.h"

// --- modules and launches ------------------------------------------------------------------------

API CALL(ModuleLoadData)(void **out, const void *image) {
    CONTEXT;
    // The image has no length: the section headers of a shared object are its last part.
    const unsigned char *bytes = (const unsigned char *)image;
    if (memcmp(bytes, "\177ELF", 4) != 0)
        return INVALID_IMAGE;
    uint64_t headers;
    uint16_t size, count;
    memcpy(&headers, bytes + 40, 8);
    memcpy(&size, bytes + 58, 2);
    memcpy(&count, bytes + 60, 2);
    char path[] = "/tmp/emulated-cuda-XXXXXX";
    int file = mkstemp(path);
    if (file < 0)
        return INVALID_IMAGE;
    size_t length = headers + (uint64_t)size * count;
    bool written = write(file, image, length) == (ssize_t)length;
    close(file);
    void *handle = written ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
    unlink(path);
    if (!handle)
        return INVALID_IMAGE;
    Module *module = new Module;
    module->context = context;
    module->handle = handle;
    modules.insert(module);
    *out = module;
    return SUCCESS;
}

API CALL(ModuleGetFunction)(void **out, void *handle, const char *name) {
    CONTEXT;
    VALID(modules, handle);
    Module *module = (Module *)handle;
    if (module->context != context)
        return INVALID_HANDLE;
    std::string symbol = std::string("emulate_") + name;
    void *run = dlsym(module->handle, symbol.c_str());
    if (!run)
        return NOT_FOUND;
    std::unique_ptr<Function> &function = module->functions[name];
    if (!function) {
        const unsigned *params = (const unsigned *)dlsym(module->handle, (symbol + "_params").c_str());
        function.reset(new Function{context, nullptr, params ? (int)*params : -1, name});
        memcpy(&function->run, &run, sizeof run);
        functions.insert(function.get());
    }
    *out = function.get();
    return SUCCESS;
}

API CALL(ModuleUnload)(void *handle) {
    CONTEXT;
    VALID(modules, handle);
    Module *module = (Module *)handle;
    modules.erase(handle);
    for (auto &entry : module->functions)
        functions.erase(entry.second.get());
    dlclose(module->handle); // code that still runs would crash
    delete module;
    return SUCCESS;
}

static void run_kernel(Context *context, const Node &node) {
    if (int error = injected("run")) {
        context->failure = error;
        return;
    }
    std::vector<void *> pointers;
    for (const uint64_t &value : node.params)
        pointers.push_back((void *)&value);
    node.function->run(pointers.data(), node.grid, node.block);
}

// Whether a grid is within the limits that are an API's own.
static bool is_launchable(const unsigned grid[3], const unsigned block[3]);

static int launch(void *handle, const unsigned grid[3], const unsigned block[3], void *stream_handle, void **params) {
    STREAM(stream_handle);
    VALID(functions, handle);
    Function *function = (Function *)handle;
    if (function->context != context)
        return INVALID_HANDLE;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    if (!grid[0] || !grid[1] || !grid[2] || !threads || threads > 1024 || !is_launchable(grid, block))
        return INVALID_VALUE;
    auto node = std::make_shared<Node>();
    node->function = function;
    std::copy_n(grid, 3, node->grid);
    std::copy_n(block, 3, node->block);
    if (function->params < 0) { // without their number they cannot be copied
        released([&] { drain(stream); });
        function->run(params, grid, block);
        return SUCCESS;
    }
    for (int k = 0; k < function->params; k++) {
        uint64_t value = 0;
        memcpy(&value, params[k], 8);
        node->params.push_back(value);
    }
    if (stream->capture) {
        stream->capture->nodes.push_back(node);
        return SUCCESS;
    }
    released([&] { wait_for_room(stream); });
    enqueue(stream, [context, node] { run_kernel(context, *node); });
    return SUCCESS;
}

// --- graphs ---------------------------------------------------------------------------------------

API CALL(StreamBeginCapture)(void *handle, int) {
    STREAM(handle);
    if ((uintptr_t)handle <= 2 || stream->capture)
        return INVALID_VALUE;
    stream->capture = std::make_shared<Graph>();
    return SUCCESS;
}

API CALL(StreamEndCapture)(void *handle, void **out) {
    STREAM(handle);
    if (!stream->capture)
        return INVALID_VALUE;
    *out = new std::shared_ptr<Graph>(stream->capture);
    graphs.insert(*out);
    stream->capture = nullptr;
    return SUCCESS;
}

API CALL(GraphInstantiateWithFlags)(void **out, void *graph, unsigned long long) {
    CONTEXT;
    VALID(graphs, graph);
    *out = new std::shared_ptr<Graph>(*(std::shared_ptr<Graph> *)graph);
    execs.insert(*out);
    return SUCCESS;
}

API CALL(GraphLaunch)(void *exec, void *handle) {
    STREAM(handle);
    VALID(execs, exec);
    std::shared_ptr<Graph> graph = *(std::shared_ptr<Graph> *)exec;
    enqueue(stream, [context, graph] {
        for (auto &node : graph->nodes) {
            if (context->failure)
                return;
            if (node->function)
                run_kernel(context, *node);
            else
                node->work();
        }
    });
    return SUCCESS;
}

API CALL(GraphDestroy)(void *graph) {
    ENTER;
    if (!graphs.erase(graph))
        return INVALID_VALUE;
    delete (std::shared_ptr<Graph> *)graph;
    return SUCCESS;
}

API CALL(GraphExecDestroy)(void *exec) {
    ENTER;
    if (!execs.erase(exec))
        return INVALID_VALUE;
    delete (std::shared_ptr<Graph> *)exec;
    return SUCCESS;
}

// --- launches ---

API CALL(LaunchKernel)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                       unsigned, void *stream, void **params, void **) {
    if (int error = injected(__func__))
        return error;
    unsigned grid[3] = {gx, gy, gz}, block[3] = {bx, by, bz};
    return launch(function, grid, block, stream, params);
}
