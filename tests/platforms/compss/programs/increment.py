"""The example of COMPSs' page on memory profiling, with the same line numbers."""

from pycompss.functions.profile import profile
from compss_task import task


@task(returns=1)
@profile()
def increment(value):
    a = [1] * (10**6)
    b = [2] * (value * 10**6)
    c = [3] * (value * 10**7)
    del b
    return value + 1


if __name__ == "__main__":
    print("result", increment(1))
