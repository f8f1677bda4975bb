// An engine of the emulated Level Zero loader: OpenCL C run by PoCL, whose kernels take plain addresses of the
// process. One in-order queue, whose caller waits.
#pragma once
#define CL_TARGET_OPENCL_VERSION 200
#include "engine.hpp"
#include <CL/cl.h>
#include <mutex>

namespace engine {

typedef cl_program Program;
typedef cl_mem Image;

#define OPENCL_FUNCTIONS(X)                                                                                            \
    X(clGetPlatformIDs)                                                                                                \
    X(clGetPlatformInfo) X(clGetDeviceIDs) X(clCreateContext) X(clCreateCommandQueueWithProperties)                    \
    X(clCreateProgramWithSource) X(clBuildProgram) X(clGetProgramBuildInfo) X(clReleaseProgram) X(clCreateKernel)      \
    X(clReleaseKernel) X(clGetKernelInfo) X(clGetKernelArgInfo) X(clGetKernelWorkGroupInfo) X(clSetKernelArg)          \
    X(clSetKernelArgSVMPointer) X(clEnqueueNDRangeKernel) X(clFinish) X(clCreateImage) X(clEnqueueWriteImage)          \
    X(clReleaseMemObject)

#define OPENCL_POINTER(name) inline decltype(&::name) name = nullptr;
OPENCL_FUNCTIONS(OPENCL_POINTER)

inline cl_context context;
inline cl_device_id device;
inline cl_command_queue queue;
inline std::mutex mutex; // around arguments and a launch

// Finds PoCL; what is missing, or null.
inline const char *start() {
    static const char *problem = []() -> const char * {
        void *library = dlopen("libOpenCL.so.1", RTLD_NOW);
        if (!library)
            return "libOpenCL.so.1";
#define OPENCL_LOAD(name)                                                                                              \
    name = (decltype(name))dlsym(library, #name);                                                                      \
    if (!name)                                                                                                         \
        return #name;
        OPENCL_FUNCTIONS(OPENCL_LOAD)
        cl_platform_id platforms[16];
        cl_uint count = 0;
        clGetPlatformIDs(16, platforms, &count);
        for (cl_uint k = 0; k < count && k < 16; ++k) {
            char name[128] = "";
            clGetPlatformInfo(platforms[k], CL_PLATFORM_NAME, sizeof name, name, nullptr);
            if (strcmp(name, "Portable Computing Language"))
                continue;
            int error = clGetDeviceIDs(platforms[k], CL_DEVICE_TYPE_CPU, 1, &device, nullptr);
            context = error ? nullptr : clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
            queue = error ? nullptr : clCreateCommandQueueWithProperties(context, device, nullptr, &error);
            return error ? "a device of PoCL" : nullptr;
        }
        return "PoCL";
    }();
    return problem;
}

// A program of OpenCL C, built; null with the compiler's messages if it does not compile.
inline Program build(const std::string &text, const std::string &options, std::string &log) {
    const char *source = text.c_str();
    size_t length = text.size();
    cl_program program = clCreateProgramWithSource(context, 1, &source, &length, nullptr);
    if (!program)
        return nullptr;
    int error = clBuildProgram(program, 1, &device, (options + " -cl-kernel-arg-info").c_str(), nullptr, nullptr);
    size_t size = 0;
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, 0, nullptr, &size);
    log.resize(size);
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, size, &log[0], nullptr);
    log.resize(strlen(log.c_str()));
    if (!error)
        return program;
    clReleaseProgram(program);
    return nullptr;
}

inline void release(Program program) { clReleaseProgram(program); }

struct Kernel {
    cl_kernel handle;
    std::vector<Parameter> parameters;
    size_t group[3]; // what it demands; 0: nothing
};

inline size_t size_of(const std::string &type) {
    static const std::pair<const char *, size_t> sizes[] = {
        {"i8", 1},  {"u8", 1},  {"i16", 2}, {"u16", 2},  {"i32", 4}, {"u32", 4},   {"i64", 8},  {"u64", 8},  {"f32", 4},
        {"f64", 8}, {"char", 1}, {"uchar", 1}, {"short", 2}, {"ushort", 2}, {"int", 4}, {"uint", 4}, {"long", 8},
        {"ulong", 8}, {"float", 4}, {"double", 8}};
    for (auto &[name, size] : sizes)
        if (type == name)
            return size;
    return 0;
}

// The kernel of a name, or one whose handle is null.
inline Kernel kernel(Program program, const char *name) {
    Kernel found{};
    found.handle = clCreateKernel(program, name, nullptr);
    if (!found.handle)
        return found;
    cl_uint count = 0;
    clGetKernelInfo(found.handle, CL_KERNEL_NUM_ARGS, sizeof count, &count, nullptr);
    for (cl_uint k = 0; k < count; ++k) {
        cl_kernel_arg_address_qualifier space = 0;
        char type[256] = "";
        clGetKernelArgInfo(found.handle, k, CL_KERNEL_ARG_ADDRESS_QUALIFIER, sizeof space, &space, nullptr);
        clGetKernelArgInfo(found.handle, k, CL_KERNEL_ARG_TYPE_NAME, sizeof type, type, nullptr);
        if (!strcmp(type, "image3d_t"))
            found.parameters.push_back({Parameter::IMAGE, sizeof(void *)});
        else if (space == CL_KERNEL_ARG_ADDRESS_LOCAL)
            found.parameters.push_back({Parameter::LOCAL, 0});
        else if (space != CL_KERNEL_ARG_ADDRESS_PRIVATE)
            found.parameters.push_back({Parameter::POINTER, sizeof(void *)});
        else
            found.parameters.push_back({Parameter::VALUE, size_of(type)});
    }
    clGetKernelWorkGroupInfo(found.handle, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof found.group, found.group,
                             nullptr);
    return found;
}

inline void release(const Kernel &kernel) { clReleaseKernel(kernel.handle); }

// Runs a kernel and waits for it; OpenCL's error.
inline int run(const Kernel &kernel, const std::vector<Argument> &arguments, const uint32_t groups[3],
               const uint32_t group[3]) {
    std::lock_guard<std::mutex> hold(mutex);
    for (cl_uint k = 0; k < arguments.size(); ++k) {
        const Argument &argument = arguments[k];
        int error = kernel.parameters[k].kind == Parameter::POINTER
                        ? clSetKernelArgSVMPointer(kernel.handle, k, (void *)argument.word)
                        : clSetKernelArg(kernel.handle, k, kernel.parameters[k].size, &argument.word);
        if (error)
            return error;
    }
    size_t global[3], local[3];
    for (int axis = 0; axis < 3; ++axis)
        local[axis] = group[axis], global[axis] = (size_t)groups[axis] * group[axis];
    int error = clEnqueueNDRangeKernel(queue, kernel.handle, 3, nullptr, global, local, 0, nullptr, nullptr);
    return error ? error : clFinish(queue);
}

inline Image image(size_t width, size_t height, size_t depth) {
    cl_image_format format = {CL_R, CL_FLOAT};
    cl_image_desc layout = {};
    layout.image_type = CL_MEM_OBJECT_IMAGE3D;
    layout.image_width = width, layout.image_height = height, layout.image_depth = depth;
    return clCreateImage(context, CL_MEM_READ_ONLY, &format, &layout, nullptr, nullptr);
}

inline void release(Image image) { clReleaseMemObject(image); }

inline int write_image(Image image, const size_t extents[3], const void *texels) {
    const size_t origin[3] = {0, 0, 0};
    return clEnqueueWriteImage(queue, image, CL_TRUE, origin, extents, 0, 0, texels, 0, nullptr, nullptr);
}

} // namespace engine
