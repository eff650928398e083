"""A job with a memory leak on purpose: every call keeps a block of 8,000,000 bytes, and line 7 is the culprit."""


class JobEntrypoint:
    def perform(self) -> int:
        """Do a call's work and forget to let go of its table: a million pointers of 8 bytes each."""
        kept.append([None] * 1_000_000)
        return len(kept)


kept: list[list[None]] = []

if __name__ == "__main__":
    job = JobEntrypoint()
    for _ in range(3):
        calls = job.perform()
    print(f"performed {calls} calls; {calls * 8_000_000:,} bytes are still held")
