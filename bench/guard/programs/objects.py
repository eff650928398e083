"""Creates 100,000 objects and frees them: many allocations and frees at a few sites."""


class Item:
    def __init__(self, number):
        self.number = number
        self.name = f"item {number}"
        self.tags = [number]


items = [Item(number) for number in range(100_000)]
del items
