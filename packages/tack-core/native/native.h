/* tack._native: what a warm call of a kernel does, without running any Python.
 *
 * docs/design/dispatch.md explains the design. Everything here runs under the GIL, except compiled
 * code that is estimated to take long. */
#ifndef TACK_NATIVE_H
#define TACK_NATIVE_H

#define Py_LIMITED_API 0x030B0000 /* the stable ABI of Python 3.11 and newer */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(sizeof(void *) == 8 && sizeof(Py_ssize_t) == 8, "only 64-bit platforms");

enum { MAX_ARGS = 64, MAX_VALUES = 96, MAX_WORDS = 384, MAX_RANGES = 8, MAX_STACK = 16 };
enum { MAX_SLOTS = MAX_VALUES + 3 * MAX_RANGES };

/* What an attempt to dispatch came to. */
typedef enum {
    DONE,   /* launched */
    MISS,   /* a signature that is not known; the Python path may teach it */
    PYTHON, /* the Python path has to decide this call, and there is nothing to learn */
    FAILED, /* launched, and an exception is set */
} Status;

/* Scalar types, in the order of tack.dtypes.ALL_DTYPES. */
enum { I8, U8, I16, U16, I32, U32, I64, U64, F32, F64, N_DTYPES, NO_DTYPE = -1, ARRAY_SLOT = 16 };

/* --- arrays.c: arguments that are arrays ------------------------------------------------------- */

enum { INLINE_DIMS = 4 };

/* The base of tack.Array: what dispatch reads of an array, as C has it. It never changes once set. */
typedef struct {
    PyObject_HEAD
    uint64_t serial;    /* its own, from 1 on; 0 until described */
    const char *shared; /* a byte: not 0 once others may use the memory */
    uint64_t address;
    uint64_t nbytes;
    int64_t size;
    PyObject *foreign; /* the bytearray that the byte is in, or NULL */
    int64_t *dims; /* `inline_dims`, or memory of its own */
    int64_t inline_dims[INLINE_DIMS];
    int32_t dtype; /* NO_DTYPE until described */
    int32_t ndim;
    int32_t domain;     /* the number of its memory domain */
    uint16_t component; /* its elements' shape: 0, or rank, rows and columns */
    bool writable;
} ArrayObject;

/* --- values.c: arguments as numbers and addresses ---------------------------------------------- */

typedef enum { V_INT, V_UINT, V_FLOAT, V_ARRAY } ValueKind;

/* One parameter of a kernel's IR in one call. V_UINT is an integer past INT64_MAX. */
typedef struct {
    ValueKind kind;
    bool writable;
    int32_t ndim;
    union {
        int64_t i;
        uint64_t u;
        double f;
        uint64_t address;
    };
    uint64_t nbytes;
    int64_t size;
    const int64_t *dims;
} Value;

/* One call. Its signature is the sequence of words that decides which variant runs. */
typedef struct {
    int nvalues, nwords, nowned;
    int32_t domain;         /* of the backend that the launch runs on */
    bool wraps_host_memory; /* whether that takes NumPy arrays */
    PyTypeObject *unknown;  /* the device class that a MISS did not know */
    int stopped_at;         /* the argument that is not read */
    const void *unchanged;  /* the layout whose classes were looked at last: several instances may share it */
    Value values[MAX_VALUES];
    uint64_t words[MAX_WORDS];
    PyObject *owned[MAX_VALUES]; /* attributes of instances, which another thread might replace */
} Call;

static inline bool
add_word(Call *call, uint64_t word)
{
    if (call->nwords == MAX_WORDS)
        return false;
    call->words[call->nwords++] = word;
    return true;
}

/* What describe() makes of an attribute. */
typedef enum { IS_OTHER, IS_NUMBER, IS_ARRAY, IS_FUNC, IS_INSTANCE } Class;

Class classify(PyObject *value);
bool is_number(PyObject *value);
bool is_device_class(PyTypeObject *type);
Status read_number(PyObject *arg, Value *value, Call *call);
Status read_array(ArrayObject *array, Value *value, Call *call, int tag);
Status read_numpy(PyObject *arg, Value *value, Call *call);
uint64_t hash_words(const uint64_t *words, int count);

/* --- layouts.c: instances of device classes ---------------------------------------------------- */

typedef struct Layout Layout;

Layout *layout_new(PyObject *spec, int id);
Layout *layout_refused(PyTypeObject *cls, int id);
void layout_free(Layout *layout);
int layout_visit(const Layout *layout, visitproc visit, void *arg);
PyTypeObject *layout_class(const Layout *layout);
bool layout_is_refused(const Layout *layout);
Status layout_read(const Layout *layout, PyObject *instance, Call *call);

/* --- table.c: what calls of one kernel on one backend resolved to ------------------------------ */

typedef struct {
    int64_t slot, op, axis;
} Need;

enum { NEED_SIZE, NEED_REST, NEED_AXIS };

typedef struct {
    int64_t slot;
    int64_t min;
    uint64_t max;
} Pinned;

typedef struct {
    int64_t slot, alignment;
} Aligned;

/* A launch range: programs for start and stop (see launch.c), and a constant step. */
typedef struct {
    int64_t *start, *stop;
    int nstart, nstop;
    int64_t step;
} Range;

typedef struct Gpu Gpu; /* how to launch through a driver: see gpu.c */

/* How to run one variant. */
typedef struct Plan {
    struct Plan *next; /* in the list of those that have been replaced */
    PyObject *variant; /* keeps the code loaded */
    void (*launch)(void *slots, int64_t low, int64_t high);
    void (*result)(void *slots, void *out);
    int result_dtype;
    int nslots, nwritten, naligned;
    int64_t *slots; /* the dtype of each value, or ARRAY_SLOT */
    int64_t *written;
    Aligned *aligned;
    bool full_workgroups;
    int64_t group; /* what the parts of a launch are multiples of */
    int64_t large; /* iterations from which on the Python path chooses other code */
    bool bounded; /* whether the estimated cost can be trusted */
    double cost;
    Gpu *gpu; /* instead of `launch`, or NULL */
} Plan;

/* The variants for one choice of the extents that are compiled in, by whether arrays overlap. */
typedef struct {
    uint64_t hash;
    int nwords;
    uint64_t *words;
    Plan *plans[2];
} Entry;

/* Calls whose arguments are alike but for extents: they share an IR template. */
typedef struct {
    uint64_t hash;
    int nwords;
    uint64_t *words;
    bool refused; /* the Python path runs them */
    int nvalues, nneeds, nwritten, npinned, nranges, nentries;
    Need *needs;
    int64_t *written;
    Pinned *pinned;
    Range ranges[MAX_RANGES];
    Entry **entries;
} Form;

/* The argument slots of compiled code, as docs/design/ir.md lays them out. */
typedef struct {
    int64_t total;
    int count, nranges;
    uint64_t slots[MAX_SLOTS];
} Packed;

enum { MEMOS = 2, MAX_REMEMBERED = 16 };

/* A call whose arguments were all arrays, and what it came to: see memo.c. */
typedef struct {
    Plan *plan; /* NULL: there is none */
    int count;
    uint64_t serials[MAX_REMEMBERED];
    Packed packed;
} Memo;

/* All that a table knows. A call holds on to it, since the table may forget it meanwhile. */
typedef struct {
    int references;
    int nlayouts, nforms, nsignatures, last_form, next_id;
    unsigned long long hits;
    Layout **layouts;
    Form **forms;
    Plan *replaced; /* a launch without the GIL may still use them */
    int oldest_memo;
    Memo memos[MEMOS];
} Store;

struct KernelObject;

typedef struct {
    PyObject_HEAD
    struct KernelObject *kernel; /* not owned; NULL once the kernel is gone */
    int64_t backend;
    int32_t domain;
    bool wraps_host_memory;
    PyObject *pool; /* of native threads, or NULL */
    unsigned long long learned;
    Store *store;
} TableObject;

void plan_free(Plan *plan);
void form_free(Form *form);
void store_release(Store *store);
bool table_clear_store(TableObject *table);
void *grow(void *pointers, int count);
uint64_t *copy_words(const uint64_t *words, int count);
void start_call(const TableObject *table, Call *call);
void release_owned(Call *call, int down_to);
Status read_arguments(Store *store, PyObject *const *args, int count, Call *call);
Form *find_form(Store *store, const Call *call);
bool add_extents(const Form *form, Call *call);
Entry *find_entry(const Form *form, const uint64_t *words, int count);

/* --- memo.c: the last calls ---------------------------------------------------------------------- */

Plan *recall(const Store *store, PyObject *const *args, int count, Packed *packed);
void remember(Store *store, PyObject *const *args, int count, Plan *plan, const Packed *packed);
void forget(Store *store);

/* --- teach.c: what C learns from lessons ------------------------------------------------------- */

int teach(TableObject *table, PyObject *const *args, int count, PyObject *lesson);

/* --- launch.c ---------------------------------------------------------------------------------- */

bool disjoint(const Form *form, const Call *call);
Status check_and_pack(const Form *form, const Plan *plan, const Call *call, Packed *packed);
PyObject *run_rows(PyObject *module, PyObject *args);
PyObject *run_plan(const Plan *plan, const Call *call, Packed *packed, PyObject *pool, PyObject *const *args, int count);

/* --- gpu.c ------------------------------------------------------------------------------------- */

Gpu *gpu_new(PyObject *spec);
bool gpu_refuses(const Gpu *gpu, const Packed *packed);
int gpu_launch(const Gpu *gpu, Packed *packed);

/* --- pool.c ------------------------------------------------------------------------------------ */

int pool_threads(PyObject *pool);
void pool_run(PyObject *pool, void (*launch)(void *, int64_t, int64_t), void *slots, int64_t chunk, int64_t low,
              int64_t high);

/* --- kernel.c ---------------------------------------------------------------------------------- */

/* The base of tack.Kernel. */
typedef struct KernelObject {
    PyObject_HEAD
    PyObject *(*vectorcall)(PyObject *, PyObject *const *, size_t, PyObject *);
    PyObject *params;   /* names, in order */
    PyObject *defaults; /* one per parameter, or NULL: not known yet */
    int positional;     /* how many arguments need no binding; -1: any call does */
    int positional_only, positional_most;
    bool missed; /* once: what is called once is not worth learning */
    int ntables;
    TableObject **tables; /* not owned: backends own them */
} KernelObject;

int kernel_add_table(KernelObject *kernel, TableObject *table);
PyObject *resolve(PyObject *module, PyObject *arguments);
void kernel_remove_table(KernelObject *kernel, TableObject *table);

/* --- module.c ---------------------------------------------------------------------------------- */

enum { MAX_TYPES = 32 };

typedef struct {
    PyTypeObject *type;
    char kind; /* 'i' integer, 'f' float, 'b' bool */
} ScalarType;

/* What the Python side tells at start-up, and what of its state decides calls. */
typedef struct {
    bool armed;   /* calls may be learned from, which enables the rest */
    bool enabled; /* calls are dispatched */
    PyTypeObject *array_base, *kernel_base, *table_type, *pool_type;
    PyTypeObject *array, *texture, *ndarray, *func, *number, *bool_;
    ScalarType scalars[MAX_TYPES];
    int nscalars;
    int dtypes[MAX_TYPES]; /* one more than the dtype, by NumPy's type number */
    PyTypeObject *plain[MAX_TYPES]; /* common types whose attributes stay on the host */
    int nplain;
    PyObject *missing;                               /* stands for "no default" */
    PyObject *learn, *default_backend, *fan_out, *launch_failed; /* functions of tack.runtime.learn */
    PyObject *environ, *debug_variable, *debug_off;  /* os.environ's dict, a key, an approved value */
    PyObject *debug_enabled;
    int debug; /* 0 off, 1 on, -1 what the environment says */
    bool entered; /* whether any `with device:` was ever entered */
    int64_t default_serial; /* of the process's default backend; -1: ask Python */
    PyObject *mark, *storage, *call_name;
} State;

extern State state;

/* --- code.c: machine code from the disk cache --------------------------------------------------- */

/* Gives the module its `Code` and `processor`, where images are loaded. */
bool add_code(PyObject *module);

extern PyType_Spec array_spec, kernel_spec, pool_spec, table_spec;

int64_t *read_ints(PyObject *sequence, int *count);
PyObject *read_back(PyObject *module, PyObject *arg);
PyObject *last_line(PyObject *module, PyObject *args);

#endif
