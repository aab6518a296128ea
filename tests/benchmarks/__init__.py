"""Measurements of the line and of the delivery, with real processes: `python -m tests.benchmarks [NAME …]`.

`line` is submits and claims, `delay` a token's way from the engine to a socket, `sockets` what an idle one costs,
`frames` what one web process can send, `tick` what a long line costs it each second. Run them on an idle machine.
"""
