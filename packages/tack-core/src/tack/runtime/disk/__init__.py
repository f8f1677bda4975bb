"""The disk cache: lowered kernels and compiled variants, kept across processes.

`docs/design/disk-cache.md` describes it. `content` says what things are made of, `records` what
lowering read, `config` and `store` where entries are, `entry` their format, and `templates` and
`variants` the two levels.
"""
