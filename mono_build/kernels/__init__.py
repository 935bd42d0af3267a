"""FlyDSL launches of this project, beside those of the engines. Nothing else here imports them: only a compile
session does, which has FlyDSL."""
