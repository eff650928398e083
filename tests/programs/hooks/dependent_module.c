/* An extension module with a dependency. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

extern void *dependency_allocate(size_t size);

static PyObject *allocate(PyObject *self, PyObject *size)
{
    return PyLong_FromVoidPtr(malloc(PyLong_AsSize_t(size)));
}

static PyObject *allocate_in_dependency(PyObject *self, PyObject *size)
{
    return PyLong_FromVoidPtr(dependency_allocate(PyLong_AsSize_t(size)));
}

static PyMethodDef methods[] = {
    {"allocate", allocate, METH_O, NULL},
    {"allocate_in_dependency", allocate_in_dependency, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "dependent_module", NULL, -1, methods};

PyMODINIT_FUNC PyInit_dependent_module(void)
{
    return PyModule_Create(&definition);
}
