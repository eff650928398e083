"""The worker's configuration: loopback Redis, and mongomock instead of MongoDB."""

import os

import mongomock

MONGODB_JOBS = mongomock.MongoClient().mrq
MONGODB_LOGS = MONGODB_JOBS
REDIS = os.environ.get("TEST_REDIS", "redis://127.0.0.1:6379")
RAW_QUEUES = {
    "jobs_raw": {
        "job_factory": lambda raw: {
            "path": raw.decode().partition(" ")[0],
            "params": {"n": int(raw.decode().partition(" ")[2] or 0)},
        }
    }
}
MAX_LATENCY = 0.01
TASKS = {"tasks.TimingOut": {"timeout": 1}}
ENSURE_INDEXES = False
