/* Functions that call each other in a known order, whose names native stacks must show. */
#include <Python.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define KEPT __attribute__((noinline, noclone))
/* After a call, so that the compiler does not turn it into a jump and drop the frame of the caller. */
#define STAY() __asm__ volatile("" ::: "memory")

/* Keeps the address, so that the compiler cannot remove the allocation. */
static void *volatile kept;

static inline __attribute__((always_inline)) void tiny_inlined(size_t size) {
    kept = malloc(size);
    STAY();
}

KEPT static void leaf_function(size_t size) {
    tiny_inlined(size);
    STAY();
}

KEPT static void middle_function(size_t size) {
    /* A stack allocation of unknown size: the frame is found through the base pointer. */
    volatile char *room = __builtin_alloca(size % 512 + 16);
    room[0] = 1;
    leaf_function(size);
    STAY();
}

/* Exported, so that it has a name even in a stripped library. */
KEPT void native_stacks_outer(size_t size) {
    /* More alignment than the ABI guarantees: the frame is found through memory. */
    volatile char room[64] __attribute__((aligned(64)));
    room[0] = 1;
    middle_function(size);
    room[1] = room[0];
    STAY();
}

KEPT static void descend(int depth, size_t size) {
    if (depth > 1)
        descend(depth - 1, size);
    else
        native_stacks_outer(size);
    STAY();
}

static PyObject *allocate(PyObject *self, PyObject *args) {
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "n", &size))
        return NULL;
    native_stacks_outer(size);
    Py_RETURN_NONE;
}

static PyObject *recurse(PyObject *self, PyObject *args) {
    int depth;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "in", &depth, &size))
        return NULL;
    descend(depth, size);
    Py_RETURN_NONE;
}

KEPT static PyObject *call_it(PyObject *function) {
    PyObject *result = PyObject_CallObject(function, NULL);
    STAY();
    return result;
}

static PyObject *call_back(PyObject *self, PyObject *function) {
    return call_it(function);
}

KEPT static void *thread_main(void *size) {
    native_stacks_outer((size_t)size);
    return NULL;
}

/* A thread that Python does not know. */
static PyObject *in_a_thread(PyObject *self, PyObject *args) {
    Py_ssize_t size;
    pthread_t thread;
    if (!PyArg_ParseTuple(args, "n", &size))
        return NULL;
    if (pthread_create(&thread, NULL, thread_main, (void *)size) == 0)
        pthread_join(thread, NULL);
    Py_RETURN_NONE;
}

KEPT static void *calls_python(void *function) {
    PyGILState_STATE state = PyGILState_Ensure();
    Py_XDECREF(PyObject_CallObject(function, NULL));
    PyGILState_Release(state);
    return NULL;
}

/* A native thread that calls Python. */
static PyObject *call_back_in_a_thread(PyObject *self, PyObject *function) {
    pthread_t thread;
    Py_BEGIN_ALLOW_THREADS;
    if (pthread_create(&thread, NULL, calls_python, function) == 0)
        pthread_join(thread, NULL);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"allocate", allocate, METH_VARARGS, NULL},
    {"recurse", recurse, METH_VARARGS, NULL},
    {"call_back", call_back, METH_O, NULL},
    {"in_a_thread", in_a_thread, METH_VARARGS, NULL},
    {"call_back_in_a_thread", call_back_in_a_thread, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "native_stacks", NULL, -1, methods};

PyMODINIT_FUNC PyInit_native_stacks(void) {
    return PyModule_Create(&module);
}
