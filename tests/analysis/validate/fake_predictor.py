"""Speaks the predictor's protocol without knowing anything: for the client's tests.

What it does is in ``hardware``: ``echo`` answers the sequence length as a figure; ``die`` ends the process with
words on stderr; ``hang`` never answers; ``words`` writes no JSON; ``late`` waits a moment first.
"""

import json
import sys
import time

for line in sys.stdin:
    request = json.loads(line)
    behaviour, length = request["hardware"], request["config"]["seq_len"]
    if behaviour == "die":
        sys.exit("MemoryError: no room for the trace")
    if behaviour == "hang":
        time.sleep(60)
    if behaviour == "late":
        time.sleep(0.2)
    if behaviour == "words":
        print("a warning that went to stdout", flush=True)
        continue
    print(json.dumps({"id": request["id"], "figures": {"peak_allocated_bytes": length}}), flush=True)
