"""FlyDSL itself launches the probe kernels over a HIP library; a script, never imported.

``python flydsl_calls.py CALLS`` with JSON: a list of (launcher, arguments, stream or null).
"""

from __future__ import annotations

import json
import sys

from probe_kernels import launches


def main(text: str) -> None:
    for name, arguments, stream in json.loads(text):
        launcher = getattr(launches, name)(launches.Build(256))
        launcher(*arguments, **({} if stream is None else {"stream": stream}))


if __name__ == "__main__":
    main(sys.argv[1])
