"""A job before and after a change: `job.py` reads orders page by page, `job.py --cache` keeps all pages it has read."""

import json
import sys

CACHE = {}


def fetch(page):
    orders = [{"id": page * 100 + n, "customer": f"customer {n}", "total": n * 9.5} for n in range(400)]
    return json.dumps(orders)


def parse(text):
    return json.loads(text)


def read_page(page, keep):
    text = fetch(page)
    orders = parse(text)
    if keep:
        CACHE[page] = (text, bytearray(text, "utf-8"), orders)
    return orders


def best_customers(orders, totals):
    for order in orders:
        totals[order["customer"]] = totals.get(order["customer"], 0) + order["total"]


def render(totals):
    width = 1_000 if CACHE else 4_000
    return ["<tr>" + name.ljust(width) + "</tr>" for name in totals]


def main():
    totals = {}
    for page in range(60):
        best_customers(read_page(page, keep="--cache" in sys.argv), totals)
    return len("".join(render(totals)))


if __name__ == "__main__":
    main()
