"""Measurements that take longer than a test: run one as `python -m benchmarks.ROOM.NAME`.

`speed` measures time and memory, `accuracy` compares with other methods, and `claims` proves what
the documentation and the paper state.
"""
