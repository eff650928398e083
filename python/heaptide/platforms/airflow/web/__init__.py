"""The pages of Heaptide in Airflow's UI: memory of a task instance, of a DAG, and of the components.

Airflow shows them in frames and mounts the application without access control, so every route checks Airflow's
authentication and permissions. Another process renders the reports.
"""
