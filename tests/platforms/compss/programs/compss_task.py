"""A decorator of the same shape as PyCOMPSs' `@task`: a class whose instance wraps the user's function."""

import functools


class task:
    def __init__(self, *args, **kwargs):
        self.kwargs = kwargs
        self.user_function = None

    def __call__(self, user_function):
        self.user_function = user_function

        @functools.wraps(user_function)
        def task_decorator(*args, **kwargs):
            return self.__decorator_body__(user_function, args, kwargs)

        return task_decorator

    def __decorator_body__(self, user_function, args, kwargs):
        return user_function(*args, **kwargs)
