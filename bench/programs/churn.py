"""Twenty million events for a reader to decode: ten million blocks of changing sizes, the newest thousand alive."""

ring = [None] * 1021


def grab(n):
    return bytearray(n)


for i in range(10_000_000):
    ring[i % 1021] = grab(520 + i * 7919 % 4001)
