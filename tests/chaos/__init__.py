"""Conversations over real sockets while everything is killed: `python -m tests.chaos --minutes 30 --seed 7`.

It passes when every job is in a final state, every reply is the expected text as received and as stored, no stream was
written by two epochs in turn, and nothing leaked. The expected text is computed outside of the product: from the
prompt for the model `mock`, which repeats its words, and by transformers in another process for the built-in model.
"""
