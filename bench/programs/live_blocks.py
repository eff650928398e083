"""A million blocks alive at once: what a report's memory is measured on."""

keep = [bytearray(600) for _ in range(1_000_000)]
