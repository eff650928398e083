/* Returns what a profiler may change in the interpreter: its allocators, and the deallocator of code objects. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

static PyObject *allocators(PyObject *self, PyObject *unused)
{
    PyMemAllocatorEx raw, mem, object;
    PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &raw);
    PyMem_GetAllocator(PYMEM_DOMAIN_MEM, &mem);
    PyMem_GetAllocator(PYMEM_DOMAIN_OBJ, &object);
#define PARTS(a)                                                                                                       \
    PyLong_FromVoidPtr(a.ctx), PyLong_FromVoidPtr((void *)a.malloc), PyLong_FromVoidPtr((void *)a.calloc),             \
        PyLong_FromVoidPtr((void *)a.realloc), PyLong_FromVoidPtr((void *)a.free)
    return Py_BuildValue("((NNNNN)(NNNNN)(NNNNN))", PARTS(raw), PARTS(mem), PARTS(object));
}

static PyObject *code_dealloc(PyObject *self, PyObject *unused)
{
    return PyLong_FromVoidPtr((void *)PyCode_Type.tp_dealloc);
}

static PyMethodDef methods[] = {
    {"allocators", allocators, METH_NOARGS, NULL},
    {"code_dealloc", code_dealloc, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "interpreter_hooks", NULL, -1, methods};

PyMODINIT_FUNC PyInit_interpreter_hooks(void)
{
    return PyModule_Create(&definition);
}
