/* Machine code from the disk cache, mapped into memory, and the processor that it may run on.
 *
 * Both are for x86-64 Linux, where `tack.codegen.llvm.image` makes images. Elsewhere LLVM loads code. */
#define _GNU_SOURCE
#include "native.h"

#if defined(__linux__) && defined(__x86_64__)

#include <cpuid.h>
#include <dlfcn.h>
#include <sys/mman.h>

/* An image in memory: position-independent code with its constants, behind a slot for the address of
 * each function that it calls. */
typedef struct {
    PyObject_HEAD
    void *base;
    size_t size;
} CodeObject;

/* Writes the addresses of the named functions, of the C library or its libm, into the image's slots. */
static bool
fill_slots(char *base, size_t size, PyObject *imports)
{
    static void *libm; /* which brings the C library's functions, too */
    Py_ssize_t count = PyTuple_Size(imports);
    if ((size_t)count > size / sizeof(void *)) {
        PyErr_SetString(PyExc_ValueError, "the image has no room for its imports");
        return false;
    }
    for (Py_ssize_t k = 0; k < count; k++) {
        const char *name = PyUnicode_AsUTF8AndSize(PyTuple_GetItem(imports, k), NULL);
        if (!name)
            return false;
        if (!libm)
            libm = dlopen("libm.so.6", RTLD_NOW);
        void *address = dlsym(libm ? libm : RTLD_DEFAULT, name);
        if (!address) {
            PyErr_Format(PyExc_LookupError, "there is no function '%s'", name);
            return false;
        }
        memcpy(base + (size_t)k * sizeof address, &address, sizeof address);
    }
    return true;
}

/* Code(image, imports): LookupError where a function is missing, OSError where there is no memory. */
static PyObject *
code_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs))
{
    Py_buffer image;
    PyObject *imports;
    if (!PyArg_ParseTuple(args, "y*O!", &image, &PyTuple_Type, &imports))
        return NULL;
    CodeObject *self = (CodeObject *)PyType_GenericAlloc(type, 0);
    if (self && image.len) {
        size_t size = (size_t)image.len;
        void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) {
            PyErr_SetFromErrno(PyExc_OSError);
        } else {
            self->base = base;
            self->size = size;
            memcpy(base, image.buf, size);
            if (fill_slots(base, size, imports) && mprotect(base, size, PROT_READ | PROT_EXEC) != 0)
                PyErr_SetFromErrno(PyExc_OSError);
        }
    } else if (self) {
        PyErr_SetString(PyExc_ValueError, "the image is empty");
    }
    PyBuffer_Release(&image);
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void
code_dealloc(PyObject *object)
{
    CodeObject *self = (CodeObject *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->base)
        munmap(self->base, self->size);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyObject *
code_get_address(PyObject *self, void *Py_UNUSED(closure))
{
    return PyLong_FromVoidPtr(((CodeObject *)self)->base);
}

static PyGetSetDef code_getset[] = {
    {"address", code_get_address, NULL, "Where the image begins.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot code_slots[] = {
    {Py_tp_doc, "Machine code in memory."},
    {Py_tp_new, code_new},
    {Py_tp_dealloc, code_dealloc},
    {Py_tp_getset, code_getset},
    {0, NULL},
};

static PyType_Spec code_spec = {
    .name = "tack._native.Code",
    .basicsize = sizeof(CodeObject),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = code_slots,
};

/* What of each leaf of `cpuid` tells processors and their features apart. The rest counts cores and
 * caches, or differs from core to core. */
static const struct {
    uint32_t leaf, subleaf, masks[4]; /* of eax, ebx, ecx, edx */
} LEAVES[] = {
    {0x00, 0, {0, ~0u, ~0u, ~0u}},      {0x01, 0, {~0u, 0, ~0u, ~0u}},      {0x07, 0, {0, ~0u, ~0u, ~0u}},
    {0x07, 1, {~0u, ~0u, ~0u, ~0u}},    {0x0d, 1, {~0u, 0, 0, 0}},          {0x14, 0, {0, ~0u, 0, 0}},
    {0x19, 0, {0, ~0u, 0, 0}},          {0x1e, 1, {~0u, ~0u, ~0u, ~0u}},    {0x24, 0, {~0u, ~0u, ~0u, ~0u}},
    {0x24, 1, {~0u, ~0u, ~0u, ~0u}},    {0x29, 0, {0, ~0u, 0, 0}},          {0x80000001, 0, {~0u, 0, ~0u, ~0u}},
    {0x80000008, 0, {0, ~0u, 0, 0}},    {0x80000021, 0, {~0u, 0, 0, 0}},
};

/* processor(): numbers that are the same exactly for processors that the same code is generated for. */
static PyObject *
processor(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    enum { COUNT = sizeof LEAVES / sizeof *LEAVES };
    uint32_t words[4 * COUNT + 1] = {0}, features = 0;
    /* Virtual machines take several µs for each `cpuid`, so no more are asked for than there are leaves. */
    uint32_t last = __get_cpuid_max(0, NULL), last_extended = __get_cpuid_max(0x80000000, NULL);
    for (int k = 0; k < COUNT; k++) {
        uint32_t leaf = LEAVES[k].leaf, found[4] = {0};
        if (leaf <= (leaf < 0x80000000 ? last : last_extended))
            __cpuid_count(leaf, LEAVES[k].subleaf, found[0], found[1], found[2], found[3]);
        if (leaf == 1)
            features = found[2];
        for (int n = 0; n < 4; n++)
            words[4 * k + n] = found[n] & LEAVES[k].masks[n];
    }
    if (features & bit_OSXSAVE) { /* which registers the system saves */
        uint32_t high;
        __asm__ volatile("xgetbv" : "=a"(words[4 * COUNT]), "=d"(high) : "c"(0));
    }
    return PyBytes_FromStringAndSize((const char *)words, sizeof words);
}

static PyMethodDef processor_method = {
    "processor", processor, METH_NOARGS, "What tells this processor from others, as bytes.",
};

bool
add_code(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &code_spec, NULL);
    PyObject *function = PyCFunction_NewEx(&processor_method, NULL, NULL);
    bool added = type && function && PyModule_AddType(module, (PyTypeObject *)type) == 0 &&
                 PyModule_AddObjectRef(module, "processor", function) == 0;
    Py_XDECREF(type);
    Py_XDECREF(function);
    return added;
}

#else

bool
add_code(PyObject *Py_UNUSED(module))
{
    return true;
}

#endif
