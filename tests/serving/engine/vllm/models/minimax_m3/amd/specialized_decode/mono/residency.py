"""How many workgroups a compute unit holds, read from what FlyDSL made."""


def active_workgroups_per_cu(compiled, name, threads):
    return compiled._keepalive
