"""A job that leaks on purpose: every call keeps a block of 8,000,000 bytes, allocated in line 7."""


class JobEntrypoint:
    def perform(self) -> int:
        """Do the work of one call and keep its table: a million pointers of 8 bytes each."""
        kept.append([None] * 1_000_000)
        return len(kept)


kept: list[list[None]] = []

if __name__ == "__main__":
    job = JobEntrypoint()
    for _ in range(3):
        calls = job.perform()
    print(f"performed {calls} calls; {calls * 8_000_000:,} bytes are still held")
