"""Measurements that take longer than a test: run one as `python -m benchmarks.PART.NAME`.

`speed` measures time and memory, `accuracy` compares with other methods, and `claims` checks
statements of the documentation and the paper.
"""
