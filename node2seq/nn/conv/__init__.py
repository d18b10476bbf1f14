"""Graph layers: the Node2Seq layer, and the GCN layer that aggregates deterministically."""
