/* Prints the offsets that a heap walk reads in objects of one CPython version, one line each, as in
 * crates/agent/src/cpython/tables/heap_v3_NN.txt.
 *
 * A test of the agent compares its constants (cpython/heap_layout.rs) with these files. The script `generate` in this
 * folder builds and runs this program. */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <stddef.h>
#include <stdio.h>

#include <internal/pycore_interp.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_dict.h>
#include <internal/pycore_frame.h>
#else
#include <frameobject.h>
#endif
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe_structs.h>
#endif

#define LINE(name, number) printf("%s %zu\n", name, (size_t)(number))
#define OFFSET(name, type, field) LINE(name, offsetof(type, field))

static void types(void) {
    OFFSET("type_object.NAME", PyTypeObject, tp_name);
    OFFSET("type_object.BASIC_SIZE", PyTypeObject, tp_basicsize);
    OFFSET("type_object.ITEM_SIZE", PyTypeObject, tp_itemsize);
    OFFSET("type_object.DEALLOC", PyTypeObject, tp_dealloc);
    OFFSET("type_object.FLAGS", PyTypeObject, tp_flags);
    OFFSET("type_object.TRAVERSE", PyTypeObject, tp_traverse);
    OFFSET("type_object.WEAK_LIST_OFFSET", PyTypeObject, tp_weaklistoffset);
    OFFSET("type_object.METHODS", PyTypeObject, tp_methods);
    OFFSET("type_object.MEMBERS", PyTypeObject, tp_members);
    OFFSET("type_object.BASE", PyTypeObject, tp_base);
    OFFSET("type_object.DICT", PyTypeObject, tp_dict);
    OFFSET("type_object.DICT_OFFSET", PyTypeObject, tp_dictoffset);
    OFFSET("type_object.IS_GC", PyTypeObject, tp_is_gc);
    OFFSET("type_object.BASES", PyTypeObject, tp_bases);
    OFFSET("type_object.MRO", PyTypeObject, tp_mro);
    OFFSET("type_object.CACHE", PyTypeObject, tp_cache);
    OFFSET("type_object.SUBCLASSES", PyTypeObject, tp_subclasses);
    OFFSET("type_object.FINALIZE", PyTypeObject, tp_finalize);
    LINE("type_flag.HEAP_TYPE", Py_TPFLAGS_HEAPTYPE);
    LINE("type_flag.READY", Py_TPFLAGS_READY);
    LINE("type_flag.HAVE_GC", Py_TPFLAGS_HAVE_GC);
    LINE("type_flag.LONG", Py_TPFLAGS_LONG_SUBCLASS);
    LINE("type_flag.LIST", Py_TPFLAGS_LIST_SUBCLASS);
    LINE("type_flag.TUPLE", Py_TPFLAGS_TUPLE_SUBCLASS);
    LINE("type_flag.UNICODE", Py_TPFLAGS_UNICODE_SUBCLASS);
    LINE("type_flag.DICT", Py_TPFLAGS_DICT_SUBCLASS);
    LINE("type_flag.EXCEPTION", Py_TPFLAGS_BASE_EXC_SUBCLASS);
    LINE("type_flag.TYPE", Py_TPFLAGS_TYPE_SUBCLASS);
#ifdef Py_TPFLAGS_MANAGED_DICT
    LINE("type_flag.MANAGED_DICT", Py_TPFLAGS_MANAGED_DICT);
#endif
#ifdef Py_TPFLAGS_MANAGED_WEAKREF
    LINE("type_flag.MANAGED_WEAK", Py_TPFLAGS_MANAGED_WEAKREF);
    LINE("type_flag.STATIC_BUILTIN", _Py_TPFLAGS_STATIC_BUILTIN);
#endif
#ifdef Py_TPFLAGS_INLINE_VALUES
    LINE("type_flag.INLINE_VALUES", Py_TPFLAGS_INLINE_VALUES);
#endif
    OFFSET("heap_type_name", PyHeapTypeObject, ht_name);
    LINE("heap_type_size", sizeof(PyHeapTypeObject));
    LINE("ht_slots - ht_name", offsetof(PyHeapTypeObject, ht_slots) - offsetof(PyHeapTypeObject, ht_name));
    LINE("ht_qualname - ht_name", offsetof(PyHeapTypeObject, ht_qualname) - offsetof(PyHeapTypeObject, ht_name));
    LINE("ht_cached_keys - ht_name", offsetof(PyHeapTypeObject, ht_cached_keys) - offsetof(PyHeapTypeObject, ht_name));
    LINE("ht_module - ht_name", offsetof(PyHeapTypeObject, ht_module) - offsetof(PyHeapTypeObject, ht_name));
}

static void objects(void) {
    OFFSET("object.TYPE", PyObject, ob_type);
    OFFSET("object.SIZE", PyVarObject, ob_size);
    OFFSET("object.DICT_KEYS", PyDictObject, ma_keys);
    OFFSET("object.DICT_VALUES", PyDictObject, ma_values);
    OFFSET("object.LIST_ITEMS", PyListObject, ob_item);
    OFFSET("object.LIST_ALLOCATED", PyListObject, allocated);
    OFFSET("object.SET_MASK", PySetObject, mask);
    OFFSET("object.SET_TABLE", PySetObject, table);
    OFFSET("object.SET_SMALL_TABLE", PySetObject, smalltable);
    OFFSET("object.BYTE_ARRAY_ALLOCATED", PyByteArrayObject, ob_alloc);
    OFFSET("object.WEAK_REFERENT", PyWeakReference, wr_object);
    OFFSET("object.CELL_CONTENT", PyCellObject, ob_ref);
    LINE("object.GC_HEADER", sizeof(PyGC_Head));
    OFFSET("function.__globals__", PyFunctionObject, func_globals);
    OFFSET("function.__name__", PyFunctionObject, func_name);
    OFFSET("function.__qualname__", PyFunctionObject, func_qualname);
    OFFSET("function.__code__", PyFunctionObject, func_code);
    OFFSET("function.__defaults__", PyFunctionObject, func_defaults);
    OFFSET("function.__kwdefaults__", PyFunctionObject, func_kwdefaults);
    OFFSET("function.__closure__", PyFunctionObject, func_closure);
    OFFSET("function.__doc__", PyFunctionObject, func_doc);
    OFFSET("exception.__dict__", PyBaseExceptionObject, dict);
    OFFSET("exception.args", PyBaseExceptionObject, args);
    OFFSET("exception.__traceback__", PyBaseExceptionObject, traceback);
    OFFSET("exception.__context__", PyBaseExceptionObject, context);
    OFFSET("exception.__cause__", PyBaseExceptionObject, cause);
#if PY_VERSION_HEX >= 0x030B0000
    OFFSET("exception.__notes__", PyBaseExceptionObject, notes);
    OFFSET("dict_keys.SIZE_LOG", struct _dictkeysobject, dk_log2_size);
    OFFSET("dict_keys.INDEX_LOG", struct _dictkeysobject, dk_log2_index_bytes);
    OFFSET("dict_keys.KIND", struct _dictkeysobject, dk_kind);
    OFFSET("dict_keys.N_USABLE", struct _dictkeysobject, dk_usable);
    OFFSET("dict_keys.N_ENTRIES", struct _dictkeysobject, dk_nentries);
    OFFSET("dict_keys.INDICES", struct _dictkeysobject, dk_indices);
#endif
}

static void frames(void) {
#if PY_VERSION_HEX < 0x030E0000
    LINE("generations", offsetof(PyInterpreterState, gc) + offsetof(struct _gc_runtime_state, generations));
#endif
#if PY_VERSION_HEX >= 0x030B0000
    OFFSET("frame_locals", _PyInterpreterFrame, localsplus);
    OFFSET("frame_namespace", _PyInterpreterFrame, f_locals);
    OFFSET("frame_object", _PyInterpreterFrame, frame_obj);
    OFFSET("code_n_locals", PyCodeObject, co_nlocalsplus);
    OFFSET("code_local_names", PyCodeObject, co_localsplusnames);
#if PY_VERSION_HEX >= 0x030C0000
    OFFSET("frame_function", _PyInterpreterFrame, f_funcobj);
#else
    OFFSET("frame_function", _PyInterpreterFrame, f_func);
#endif
#if PY_VERSION_HEX >= 0x030E0000
    OFFSET("frame_stack", _PyInterpreterFrame, stackpointer);
#else
    OFFSET("frame_stack", _PyInterpreterFrame, stacktop);
#endif
#else
    OFFSET("frame_locals", PyFrameObject, f_localsplus);
    OFFSET("frame_namespace", PyFrameObject, f_locals);
    OFFSET("code_n_locals", PyCodeObject, co_nlocals);
    OFFSET("code_local_names", PyCodeObject, co_varnames);
    OFFSET("code_local_names", PyCodeObject, co_cellvars);
    OFFSET("code_local_names", PyCodeObject, co_freevars);
#endif
}

int main(void) {
    types();
    objects();
    frames();
    return 0;
}
