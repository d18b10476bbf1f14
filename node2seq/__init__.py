"""Graph learning where the order and the weight of each neighbour is learned."""

__version__ = "0.1.0"
