"""Prints each sample of a Prometheus text on stdin in one line, as read by the
reference implementation: type|name|label=value,...|bits of the value."""

import struct
import sys

from prometheus_client.parser import text_string_to_metric_families

for family in text_string_to_metric_families(sys.stdin.read()):
    for sample in family.samples:
        labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
        bits = struct.pack(">d", sample.value).hex()
        print(f"{family.type}|{sample.name}|{labels}|{bits}")
