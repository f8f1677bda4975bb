/* The lines that a function's code comes from, without an object for each of its instructions.
 *
 * The table is CPython's, from 3.11 on: entries of which only the first byte has its highest bit set. That byte
 * says what follows; of most entries, which stay on a line or go to one of the next two, columns only. */
#include "native.h"

enum { NEXT_LINES = 10, NO_COLUMNS = 13, LONG = 14, NONE = 15 };

/* A number in groups of six bits, the low ones first; what lies past the end counts as zeros. */
static int64_t
read_varint(const unsigned char **at, const unsigned char *end)
{
    int64_t number = 0;
    for (int shift = 0; *at < end && shift < 36; shift += 6) {
        unsigned char byte = *(*at)++;
        number |= (int64_t)(byte & 63) << shift;
        if (!(byte & 64))
            break;
    }
    return number;
}

static int64_t
read_svarint(const unsigned char **at, const unsigned char *end)
{
    int64_t number = read_varint(at, end);
    return number & 1 ? -(number >> 1) : number >> 1;
}

/* last_line(table, first): the last line of code with this table that begins at line `first`; 0 if it has none. */
PyObject *
last_line(PyObject *Py_UNUSED(module), PyObject *args)
{
    const char *table;
    Py_ssize_t size;
    long long first;
    if (!PyArg_ParseTuple(args, "y#L", &table, &size, &first))
        return NULL;
    const unsigned char *at = (const unsigned char *)table, *end = at + size;
    int64_t line = first, last = 0;
    while (at < end) {
        int kind = *at++ >> 3 & 15;
        int64_t more = 0;
        if (kind == NO_COLUMNS || kind == LONG)
            line += read_svarint(&at, end);
        else if (kind >= NEXT_LINES && kind != NONE)
            line += kind - NEXT_LINES;
        if (kind == LONG)
            more = read_varint(&at, end);
        if (kind != NONE && line + more > last)
            last = line + more;
        while (at < end && !(*at & 128))
            at++;
    }
    return PyLong_FromLongLong(last);
}
