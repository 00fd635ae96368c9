#!/bin/bash
# The preStop hook of an executor (spark.kubernetes.decommission.script): tell it to hand its blocks over and wait for
# it. SIGPWR is Spark's signal for that. There is no `ps` in the image, so /proc is read directly.
set -uo pipefail

for directory in /proc/[0-9]*; do
    [[ "$(readlink "${directory}/exe")" == */java ]] || continue
    executor="${directory#/proc/}"
    kill -s SIGPWR "${executor}"
    timeout 60 tail --pid="${executor}" -f /dev/null
done
