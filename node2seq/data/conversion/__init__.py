"""Files larger than memory → the arrays of a store; :mod:`node2seq.data.convert` takes the steps."""
