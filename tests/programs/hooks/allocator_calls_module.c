/* The hooked functions as an extension module. Python.h comes second: it would turn `mmap` into `mmap64`. */
#include "allocator_calls.h"

#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *call(PyObject *self, PyObject *arguments)
{
    const char *name;
    int error_before;
    unsigned long long given[N_ARGUMENTS] = {0};
    if (!PyArg_ParseTuple(arguments, "si|KKKKK", &name, &error_before, &given[0], &given[1], &given[2], &given[3],
                          &given[4]))
        return NULL;
    uintptr_t argument[N_ARGUMENTS];
    for (int at = 0; at < N_ARGUMENTS; at++) argument[at] = given[at];
    struct answer answer;
    checked_call(name, argument, error_before, &answer);
    return Py_BuildValue("KKi", (unsigned long long)answer.result, (unsigned long long)answer.stored, answer.error);
}

static PyObject *errno_changes(PyObject *self, PyObject *arguments)
{
    unsigned long long n_rounds;
    int in_a_thread;
    if (!PyArg_ParseTuple(arguments, "Ki", &n_rounds, &in_a_thread)) return NULL;
    return PyLong_FromUnsignedLongLong(in_a_thread ? count_errno_changes_in_a_thread(n_rounds)
                                                   : (uintptr_t)count_errno_changes((void *)(uintptr_t)n_rounds));
}

static PyMethodDef methods[] = {
    {"call", call, METH_VARARGS, NULL},
    {"errno_changes", errno_changes, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "allocator_calls_module", NULL, -1, methods};

PyMODINIT_FUNC PyInit_allocator_calls_module(void)
{
    return PyModule_Create(&definition);
}
