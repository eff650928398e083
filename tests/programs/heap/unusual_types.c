/* Types with legal but unusual objects. Some objects are half-built, untracked or have empty fields. Some types report a
   reference twice, a borrowed reference or the object itself in tp_traverse. No type has a tp_clear. The collector does
   not know two types: one hides its references, and the name of the other has no module. */
#include <Python.h>

typedef struct {
    PyObject_HEAD
    PyObject *first;
    PyObject *second;
    int built;
} Thing;

static int traverse_twice(PyObject *self, visitproc visit, void *arg) {
    Thing *thing = (Thing *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(thing->first);
    Py_VISIT(thing->first);
    Py_VISIT(thing->second);
    Py_VISIT(self);
    return 0;
}

/* A traversal that would crash if it were called before the object is built and tracked. */
static int traverse_built(PyObject *self, visitproc visit, void *arg) {
    Thing *thing = (Thing *)self;
    if (!thing->built) {
        *(volatile int *)0 = 1;
    }
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(thing->first);
    return 0;
}

static int traverse_borrowed(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    int stopped = visit(Py_None, arg);
    return stopped ? stopped : visit((PyObject *)&PyLong_Type, arg);
}

static void dealloc_gc(PyObject *self) {
    Thing *thing = (Thing *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_CLEAR(thing->first);
    Py_CLEAR(thing->second);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static void dealloc_plain(PyObject *self) {
    Thing *thing = (Thing *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(thing->first);
    Py_CLEAR(thing->second);
    PyObject_Free(self);
    Py_DECREF(type);
}

#define SPEC(NAME, TRAVERSE, FLAGS)                                                                                    \
    static PyType_Slot NAME##_slots[] = {{Py_tp_traverse, TRAVERSE}, {Py_tp_dealloc, dealloc_gc}, {0, NULL}};          \
    static PyType_Spec NAME##_spec = {"unusual_types." #NAME, sizeof(Thing), 0, FLAGS, NAME##_slots};

SPEC(Twice, traverse_twice, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)
SPEC(Built, traverse_built, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)
SPEC(Borrowed, traverse_borrowed, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC)

static PyType_Slot Hidden_slots[] = {{Py_tp_dealloc, dealloc_plain}, {0, NULL}};
static PyType_Spec Hidden_spec = {"unusual_types.Hidden", sizeof(Thing), 0, Py_TPFLAGS_DEFAULT, Hidden_slots};

static PyType_Slot NoModule_slots[] = {{Py_tp_dealloc, dealloc_plain}, {0, NULL}};
static PyType_Spec NoModule_spec = {"NoModule", sizeof(Thing), 0, Py_TPFLAGS_DEFAULT, NoModule_slots};

static Thing *new_collected(PyObject *type) {
    Thing *thing = PyObject_GC_New(Thing, (PyTypeObject *)type);
    if (thing != NULL) {
        thing->first = thing->second = NULL;
        thing->built = 1;
    }
    return thing;
}

static PyObject *make(PyObject *module, PyObject *args) {
    PyObject *kept = PyList_New(0);
    PyObject *twice = PyType_FromSpec(&Twice_spec), *built = PyType_FromSpec(&Built_spec);
    PyObject *borrowed = PyType_FromSpec(&Borrowed_spec), *hidden = PyType_FromSpec(&Hidden_spec);
    PyObject *no_module = PyType_FromSpec(&NoModule_spec);
    if (!kept || !twice || !built || !borrowed || !hidden || !no_module) {
        return NULL;
    }
    Thing *thing = new_collected(twice);
    thing->first = PyList_New(3); /* a list whose items are NULL */
    PyObject_GC_Track(thing);
    PyList_Append(kept, (PyObject *)thing);

    thing = new_collected(built); /* half-built: not tracked, and must not be traversed */
    thing->built = 0;
    PyList_Append(kept, (PyObject *)thing);

    thing = new_collected(borrowed);
    PyObject_GC_Track(thing);
    PyList_Append(kept, (PyObject *)thing);

    thing = PyObject_New(Thing, (PyTypeObject *)hidden);
    thing->first = PyDict_New();
    thing->second = PyTuple_New(2); /* a tuple whose items are NULL */
    PyList_Append(kept, (PyObject *)thing);

    thing = PyObject_New(Thing, (PyTypeObject *)no_module);
    thing->first = thing->second = NULL;
    PyList_Append(kept, (PyObject *)thing);
    return kept;
}

static PyMethodDef functions[] = {{"make", make, METH_NOARGS, NULL}, {NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "unusual_types", NULL, -1, functions};

PyMODINIT_FUNC PyInit_unusual_types(void) { return PyModule_Create(&definition); }
