"""One comparison, declared before it was made: spaces → search → chosen recipes → reserved rows → page.

Needs torch, torch_geometric and numpy alone, as ``python -m node2seq protocol`` does.
"""
