"""A DAG of another team."""

from airflow.sdk import DAG, task

with DAG("other_team", schedule=None, catchup=False):

    @task
    def small():
        data = bytes(6_000_000)

    small()
