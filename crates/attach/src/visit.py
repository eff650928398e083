# Runs in the attached process: loads Heaptide from its folder and carries out one request. Sent as text.
def act(arguments):
    import sys

    def load(folder):
        # By its folder alone: nothing next to it may become importable.
        from _frozen_importlib import module_from_spec
        from _frozen_importlib_external import spec_from_file_location

        spec = spec_from_file_location("heaptide", folder + "/__init__.py", submodule_search_locations=[folder])
        module = module_from_spec(spec)
        sys.modules["heaptide"] = module
        spec.loader.exec_module(module)

    def drop():
        for name in [name for name in sys.modules if name == "heaptide" or name.startswith("heaptide.")]:
            del sys.modules[name]

    keeper = sys.modules.get("_heaptide_attached")
    brought = "heaptide" not in sys.modules
    if arguments["what"] == "detach":
        attached = sys.modules.get("heaptide.attached")
        ended = None if attached is None else attached.detach()
        if ended is None:
            native = sys.modules.get("heaptide._native")
            active = None if native is None else native.active()
            if active is None:
                raise RuntimeError("the process is not attached: there is nothing to stop")
            raise RuntimeError(
                "the recording into " + active + " was not started by heaptide attach: stop it where it was started"
            )
        return ended
    write_no_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        if brought and keeper is not None:
            sys.modules.update(keeper.modules)
            # They may come from a copy that was removed: modules that are not loaded yet come from this visit's copy.
            for name, module in keeper.modules.items():
                if hasattr(module, "__path__"):
                    module.__path__ = ["/".join([arguments["package"], *name.split(".")[1:]])]
        elif brought:
            load(arguments["package"])
        native = sys.modules.get("heaptide._native")
        if native is not None and native.__version__ != arguments["version"]:
            raise RuntimeError(
                "the process has loaded heaptide " + native.__version__ + ": attach with the heaptide command of that version"
            )
        from heaptide import attached

        begin = attached.take_heap if arguments["what"] == "heap" else attached.attach
        return begin({**arguments, "brought": brought})
    except BaseException:
        if brought and keeper is not None:
            drop()
        elif brought:
            native = sys.modules.get("heaptide._native")
            kept = {name: module for name, module in sys.modules.items() if name.partition(".")[0] == "heaptide"}
            drop()
            if native is not None:
                # The extension cannot be unloaded and must not be loaded twice.
                keeper = sys.modules["_heaptide_attached"] = type(sys)("_heaptide_attached")
                keeper.modules = kept
        raise
    finally:
        sys.dont_write_bytecode = write_no_bytecode


def visit(arguments):
    import os
    import sys

    interval = sys.getswitchinterval()
    # Every file operation releases the GIL; with the usual switch interval this thread would wait long to get it back.
    sys.setswitchinterval(1e-5)
    try:
        arguments = {name: os.fsdecode(value) if isinstance(value, bytes) else value for name, value in arguments.items()}
        folder = arguments["folder"]
        try:
            os.unlink(folder + "/request")
        except OSError:
            return
        try:
            answer = ["yes", *act(arguments)]
        except BaseException as error:
            text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            answer = ["no", text or type(error).__name__]
        with open(folder + "/answer.new", "wb") as file:
            file.write("\0".join(answer).encode("utf-8", "surrogateescape"))
        os.rename(folder + "/answer.new", folder + "/answer")
    except Exception:
        pass
    finally:
        sys.setswitchinterval(interval)


visit(ARGUMENTS)
