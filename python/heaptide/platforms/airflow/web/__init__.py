"""The pages of Heaptide in Airflow's UI: memory of a task instance, of a DAG, and of the components.

Airflow shows them in frames and mounts the application without any access control, so every route asks Airflow's own
authentication and permissions. Reports are rendered by another process.
"""
